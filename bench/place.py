"""Where benches of a lab run: a network of their own, on a kernel that has what that takes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import structlog

from foliot_lab import kernel
from foliot_lab.budget import CARRIED, CannotCarryError, Errand, affordable

if TYPE_CHECKING:
    from foliot_lab.scenario import Scenario

CANNOT = 77
"""Exit status where this machine cannot do it."""


def enter(*missing: str, carries: Scenario | Errand | None = None) -> bool:
    """Takes this process there, its log on stderr; False, and on stderr why, where that cannot be.

    Parameters:
        missing: what else the bench does not find here, in words.
        carries: the scenario of the bench's lab, or what it does instead, which the machine must have the processors for; the largest, where there are several.
    """
    if not kernel.is_privileged():
        kernel.shed_threads()
    if lacking := [*kernel.missing(), *missing]:
        sys.stderr.write("\n".join([*lacking, ""]))
        return False
    if carries is not None and not can_carry(carries):
        return False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    kernel.enter()
    return True


def can_carry(what: Scenario | Errand) -> bool:
    """Whether this machine has the processors for it now, or within a minute; if not, says on stderr what it lacks."""
    try:
        affordable([(what, CARRIED)])
    except CannotCarryError as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True
