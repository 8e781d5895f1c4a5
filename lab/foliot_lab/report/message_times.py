"""Times inside messages, as lab time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_lab.measure.clock_truth import LabTime, Truth

_HONEST_NS = 1_000_000_000
"""The greatest distance of a time inside a message from its arrival. Beyond it, the time dates from before the
clocks were in step, and the arrival stands in."""


def lab_ns(truth: Truth, lab: LabTime, reference_ns: int, arrival_ns: int) -> int:
    """A time inside a message, which it was sent at, as lab time."""
    raw_ns = truth.raw_ns(reference_ns)
    if raw_ns is None:
        return arrival_ns
    found_ns = lab.of_raw(raw_ns)
    return found_ns if abs(arrival_ns - found_ns) <= _HONEST_NS else arrival_ns
