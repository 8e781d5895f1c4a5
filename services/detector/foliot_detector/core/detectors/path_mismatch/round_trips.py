"""The round trips of one flow, or its delays one way, held against those of the path that it is said to take."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import NamedTuple

_QUICK = 0.5
"""Share of its path's delays that a round trip cannot be under. The smoothed round trip forgets those before a queue
by an eighth with each acknowledgement, so that after six of them it shows a half of it at least."""
_LATE = 0.8
"""Share of its path's delays from which on a flow is as late as its path."""
_LEAST_READINGS = 4
_GAP_NS, _GAP_INTERVALS = 2_000_000_000, 4
"""How far two readings of a series may lie apart: four intervals of the default, or of the sender's own. After a queue
was empty, a second has to pass until one may contradict again."""


class Reading(NamedTuple):
    """What a flow's sender told of how long its packets take."""

    here_ns: int
    """When, on the timeline."""
    rtt_ns: int
    """The smoothed round-trip time then; 0: it says too little."""
    interval_ns: int
    """How long the sender counts for a word of it."""
    in_band_ns: int = 0
    """The median delay one way in that time; 0: nobody knows."""
    is_one_way: bool = False
    """Whether the delay one way counts, in place of the round trip."""

    @property
    def took_ns(self) -> int:
        """What counts."""
        return self.in_band_ns if self.is_one_way else self.rtt_ns


class Ends(NamedTuple):
    """The paths of a flow, by their places in the table; below 0: nobody knows."""

    forward: int
    back: int
    """Of its acknowledgements."""


NO_READING = Reading(0, 0, 0)
NOWHERE = Ends(-1, -1)


@dataclass(slots=True)
class RoundTrips:
    """What is known of one flow."""

    ways: Ends = NOWHERE
    turns: int = -1
    """How often any way had changed when these were looked up."""
    settled_ns: int = 0
    """Its traffic may still be on another way until then."""
    told_ns: int = 0
    waiting: collections.deque[Reading] = field(default_factory=collections.deque)
    """Readings of which the delays are not all told yet."""
    since_ns: int = 0
    """The first of an unbroken series of readings that contradict the path; 0: there is none."""
    latest: Reading = NO_READING
    """The last of them."""
    readings: int = 0
    """How many they are."""
    agrees_since_ns: int = 0
    """The first of an unbroken series of readings that are as late as the path; 0: there is none."""
    agrees_ns: int = 0
    """For how long they have been so."""

    def judge(self, reading: Reading, path_ns: int, least_ns: int) -> None:
        """Takes a reading. While its path is not late, it says nothing.

        Parameters:
            path_ns: the least that its path's probes took meanwhile: one way, or there and back.
            least_ns: by how much the reading must be under it at least.
        """
        if path_ns < least_ns:
            self.agrees_since_ns = self.agrees_ns = 0
        elif reading.took_ns > _QUICK * path_ns:
            self.break_off()
            self._agree(reading, path_ns)
        elif path_ns - reading.took_ns >= least_ns:
            self._contradict(reading)

    def break_off(self) -> None:
        """Ends the series of readings that contradict the path."""
        self.since_ns = self.readings = 0

    def _agree(self, reading: Reading, path_ns: int) -> None:
        if reading.took_ns < _LATE * path_ns:
            self.agrees_since_ns = self.agrees_ns = 0
            return
        self.agrees_since_ns = self.agrees_since_ns or reading.here_ns
        self.agrees_ns = reading.here_ns - self.agrees_since_ns

    def _contradict(self, reading: Reading) -> None:
        self.agrees_since_ns = self.agrees_ns = 0
        gap_ns = max(_GAP_NS, _GAP_INTERVALS * reading.interval_ns)
        if not self.since_ns or reading.here_ns - self.latest.here_ns > gap_ns:
            self.since_ns, self.readings = reading.here_ns, 0
        self.latest = reading
        self.readings += 1

    def contradicts(self, for_ns: int) -> bool:
        """Whether its readings have contradicted the path for so long."""
        return self.readings >= _LEAST_READINGS and self.latest.here_ns - self.since_ns >= for_ns
