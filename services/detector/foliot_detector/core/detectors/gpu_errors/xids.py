"""What follows from an error that NVIDIA's driver logs, by the number of its kind (XID).

The kinds are those of NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors). What is to be done about each is taken
from there, and from the tables of NVIDIA/NVSentinel and leptonai/gpud of October 2025. How soon is Foliot's own choice:

- ``failed``: the GPU does no work any more, or its results cannot be trusted.
- ``degraded``: it goes on, and is to be reset or looked at before long.
- ``ignore``: a program's own error, or one that the driver has dealt with. Where such an error ends a rank, that is seen
  by the rank.

Where these tables disagree (160), or send to another error or to support (45, 78, 142, 154, 159), nothing follows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["failed", "degraded", "ignore"]
Cure: TypeAlias = Literal["reset", "restart"]


class Consequence(NamedTuple):
    """What follows from one kind of error."""

    severity: Severity
    cure: Cure
    """``reset``: a reset of the GPU is said to be enough. ``restart``: the node is to start anew at least."""

    @property
    def weight(self) -> tuple[bool, bool]:
        """Of two, the greater says more."""
        return self.severity == "failed", self.cure == "restart"


_RESET, _RESTART = Consequence("failed", "reset"), Consequence("failed", "restart")
_RESET_SOON, _RESTART_SOON = Consequence("degraded", "reset"), Consequence("degraded", "restart")
XIDS: dict[int, Consequence] = {
    46: _RESET,  # the GPU stopped processing
    48: _RESET,  # a double-bit error of its memory
    54: _RESTART_SOON,  # its auxiliary power is not connected: somebody must look at it
    62: _RESET,  # its power micro-controller halted
    64: _RESET_SOON,  # it could not record a row of its memory that is to be remapped
    74: _RESET_SOON,  # NVLink; by its registers it may be harmless
    79: _RESTART,  # it has fallen off the bus
    95: _RESET,  # a memory error that was not contained
    109: _RESET,  # a context switch did not end
    110: _RESET,  # a security fault
    119: _RESET,  # its system processor (GSP) does not answer
    120: _RESET,  # an error of that processor
    136: _RESET,  # a link could not be trained
    140: _RESET,  # a memory error that could not be corrected
    143: _RESET,  # it could not be initialised
    144: _RESET_SOON,  # NVLink of the fifth generation, as the next six; by its sub-code it may be harmless
    145: _RESET_SOON,
    146: _RESET_SOON,
    147: _RESET_SOON,
    148: _RESET_SOON,
    149: _RESET_SOON,
    150: _RESET_SOON,
    151: _RESTART,  # a key could not be exchanged
    155: _RESET,  # an error of NVLink's software
    156: _RESET_SOON,  # a part of it was retired, which a reset completes
    158: _RESET,  # it did not answer in time
    162: _RESET_SOON,  # how its power is smoothed; gpud names nothing to be done
}
"""By number; what is not here is ignored."""
IGNORED = Consequence("ignore", "reset")
