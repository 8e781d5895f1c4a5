"""Where benches of a lab run: a network of their own, on a kernel that has what that takes."""

from __future__ import annotations

import sys

import structlog

from foliot_lab import kernel

CANNOT = 77
"""Exit status where this machine cannot do it."""


def enter(*missing: str) -> bool:
    """Takes this process there, its log on stderr; False, and on stderr why, where that cannot be.

    Parameters:
        missing: what else the bench does not find here, in words.
    """
    if not kernel.is_privileged():
        kernel.shed_threads()
    if lacking := [*kernel.missing(), *missing]:
        sys.stderr.write("\n".join([*lacking, ""]))
        return False
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    kernel.enter()
    return True
