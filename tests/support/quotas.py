"""Labs on half of the machine, where it is quick enough and lets a test set a quota of processor time."""

from __future__ import annotations

import functools

from foliot_lab.measure.machine import fixed_work_s
from foliot_lab.measure.quota import QuotaError, limited

_QUICK_S = 0.33
"""Of `fixed_work_s`, half as much again as on the machine of `foliot_lab.measure.budget`: half of a slower one is less
than labs are promised to run on."""


@functools.cache
def may_have_a_quota() -> bool:
    """Whether this user may make a cgroup with a CPU quota here."""
    try:
        with limited(0.9):
            return True
    except QuotaError:
        return False


@functools.cache
def why_not_half() -> str:
    """Why a lab cannot have half of this machine; empty: it can."""
    if (work_s := fixed_work_s()) >= _QUICK_S:
        return (
            f"half of this machine is less than labs are promised to run on: a fixed piece of work takes {work_s:.2f} s"
        )
    return "" if may_have_a_quota() else "this user may make no cgroup with a CPU quota here"


def at_half_speed() -> tuple[str, ...]:
    """What ``foliot lab run`` takes to run on half of the machine; nothing where that cannot be had."""
    return () if why_not_half() else ("--speed", "0.5")
