"""Where benches of a lab run: a network of their own, on a kernel that has what that takes."""

from __future__ import annotations

import atexit
import contextlib
import sys
from typing import TYPE_CHECKING

import structlog

from foliot_lab.fabric import capabilities
from foliot_lab.measure.budget import CARRIED, CannotCarryError, ProcessLoad, affordable
from foliot_lab.measure.quota import QuotaError, limited, share

if TYPE_CHECKING:
    import argparse

    from foliot_lab.scenario.spec import Scenario

CANNOT = 77
"""Exit status where this machine cannot do it."""


_left_at_end = contextlib.ExitStack()
atexit.register(_left_at_end.close)


def add_speed(parser: argparse.ArgumentParser) -> None:
    """Adds ``--speed``, for `enter`."""
    parser.add_argument(
        "--speed", type=share, default=1.0, help="share of all processors that the lab may use (default: 1, all of it)"
    )


def enter(*missing: str, carries: Scenario | ProcessLoad | None = None, speed: float = 1.0) -> bool:
    """Takes this process there, its log on stderr; False, and on stderr why, where that cannot be.

    Parameters:
        missing: what else the bench does not find here, in words.
        carries: the scenario of the bench's lab, or what it does instead, which the machine must have the processors for; the largest, where there are several.
        speed: the share of all processors that this process, and what it starts, may use until it ends; 1: all of it.
    """
    if not capabilities.is_privileged():
        capabilities.shed_threads()
    if lacking := [*capabilities.missing(), *missing]:
        sys.stderr.write("\n".join([*lacking, ""]))
        return False
    try:
        _left_at_end.enter_context(limited(speed))
    except QuotaError as error:
        sys.stderr.write(f"{error}\n")
        return False
    if carries is not None and not can_carry(carries, speed):
        return False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    capabilities.enter()
    return True


def can_carry(what: Scenario | ProcessLoad, speed: float = 1.0) -> bool:
    """Whether this machine, or such a share of it, has the processors for it now, or within a minute; if not, says on stderr what it lacks."""
    try:
        affordable([(what, CARRIED)], speed)
    except CannotCarryError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True
