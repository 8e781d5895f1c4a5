"""Short slots of the last seconds, of which those are marked in which something was so at a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SLOT_NS = 25_000_000
"""A quarter of a report's interval, so that rounding adds little to it."""
_SLOTS = 64
"""Slots that are remembered, bits of an integer: 1.6 s."""


class MarkedSlots:
    """Columns by place. Times are those of the observations on the detector's timeline."""

    def __init__(self) -> None:
        self._newest = np.zeros(0, np.int64)
        """The newest slot with a mark; 0: there is none."""
        self._marks = np.zeros(0, np.uint64)
        """Which slots have one: the lowest bit is the newest slot, the next the one before."""
        self._latest = 0
        """The newest slot with a mark at any place; 0: there is none."""

    def make_room(self, places: int) -> None:
        """Has columns for so many places at least."""
        if len(self._newest) < places:
            self._newest, self._marks = grown(self._newest, 2 * places), grown(self._marks, 2 * places)

    def mark(self, places: NDArray[np.integer], since_ns: int, until_ns: int) -> None:
        """Marks the slots from one time to another, at places of which each is given once."""
        until = until_ns // _SLOT_NS
        count = min(until - since_ns // _SLOT_NS + 1, _SLOTS)
        if count <= 0:
            return
        self._latest = max(self._latest, until)
        before = self._newest[places]
        newest = np.maximum(before, until)
        new = np.full(len(places), (1 << count) - 1, np.uint64)
        self._marks[places] = _shifted(self._marks[places], newest - before) | _shifted(new, newest - until)
        self._newest[places] = newest

    def were_marked(self, places: NDArray[np.integer], since_ns: NDArray[np.int64], until_ns: int) -> NDArray[np.bool_]:
        """Whether any slot of a place is marked since a time of its own, and until another; all have one shape."""
        if self._latest < since_ns.min(initial=until_ns) // _SLOT_NS:
            return np.zeros(places.shape, np.bool_)
        # The slots asked for, as ages of the newest.
        youngest = np.clip(self._newest[places] - until_ns // _SLOT_NS, 0, _SLOTS)
        oldest = np.clip(self._newest[places] - since_ns // _SLOT_NS, -1, _SLOTS - 1)
        count = np.maximum(oldest - youngest + 1, 0)
        asked = _shifted(~_shifted(np.full(places.shape, ~np.uint64(0)), count), youngest)
        found: NDArray[np.bool_] = (self._marks[places] & asked) != 0
        return found

    def are_marked(self, places: NDArray[np.integer], since_ns: int) -> NDArray[np.bool_]:
        """Whether a place has had a mark since then, as far as is known now."""
        since = max(since_ns, _SLOT_NS) // _SLOT_NS
        if self._latest < since:
            return np.zeros(places.shape, np.bool_)
        found: NDArray[np.bool_] = self._newest[places] >= since
        return found


def _shifted(bits: NDArray[np.uint64], by: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Shifts each to the left. By 64 and more nothing is left, which C leaves open."""
    few = np.minimum(by, _SLOTS - 1).astype(np.uint64)
    return np.where(by < _SLOTS, bits << few, np.uint64(0))
