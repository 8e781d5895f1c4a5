"""The tables `[expect]` of a scenario and of a fault, which replace the promises on an outcome."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Milliseconds = Annotated[float, msgspec.Meta(gt=0)]


_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FaultExpectation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[fault.expect]` for one fault's outcome, which counts in full: nothing is subtracted.

    `inf`: not judged.
    """

    found_ms: _Milliseconds | None = None
    """From the injection until an event about it was decided."""
    moved_ms: _Milliseconds | None = None
    """From the injection until both directions of every affected pair flow."""
    gap_ms: _Milliseconds | None = None
    """The longest time in which a flow that it may touch received nothing."""
    back_s: _Seconds | None = None
    """From the healing until the last pair is on its way of before."""


class Expectation(FaultExpectation, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run's table `[expect]`, for every fault without an expectation of its own, and for the run as a whole."""

    unexplained: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The most events and commands, together, that no fault explains."""
