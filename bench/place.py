"""The place of benches that need a lab: a network of their own, on a kernel with the lab's features."""

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
"""Exit status if this machine cannot run the bench."""


_left_at_end = contextlib.ExitStack()
atexit.register(_left_at_end.close)


def add_speed(parser: argparse.ArgumentParser) -> None:
    """Adds ``--speed``, for `enter`."""
    parser.add_argument(
        "--speed", type=share, default=1.0, help="share of all processors that the lab may use (default: 1, all of it)"
    )


def enter(*missing: str, carries: Scenario | ProcessLoad | None = None, speed: float = 1.0) -> bool:
    """Moves this process there, with its log on stderr. If that is impossible, returns False; the reason is on stderr.

    Parameters:
        missing: other requirements that the bench does not find here, in words; an empty one is none.
        carries: the scenario of the bench's lab, or the load that it makes instead. The machine must have the
            processors for it. If there are several, the largest.
        speed: the share of all processors that this process, and all that it starts, may use until it ends; 1: all.
    """
    if not capabilities.is_privileged():
        capabilities.shed_threads()
    if not permits(*missing):
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


def permits(*missing: str) -> bool:
    """Whether this machine lets a lab be made, and has the other requirements of the bench. It prints lacks on stderr.

    Parameters:
        missing: other requirements that the bench does not find here, in words; an empty one is none.
    """
    lacking = [*capabilities.missing(), *filter(None, missing)]
    sys.stderr.writelines(f"{each}\n" for each in lacking)
    return not lacking


def can_carry(what: Scenario | ProcessLoad, speed: float = 1.0) -> bool:
    """Whether this machine, or such a share of it, has the processors for it, now or within a minute.

    If not, it prints the lack on stderr.
    """
    try:
        affordable([(what, CARRIED)], speed)
    except CannotCarryError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True
