"""Offsets of the hosts' CLOCK_REALTIME from the common time, and UTC by the hosts that have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_sync.core.timescale.time_map import measured_ns
from foliot_sync.core.timescale.utc_phase import agree
from foliot_sync.core.timescale.utc_seconds import KernelWord
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_schemas import HeardNode
    from foliot_sync.core.arrays import Floats, Mask
    from foliot_sync.core.timescale.time_map import Seen, TimeMap

_LEAST_ERROR_NS = 1_000.0
"""Least error of a host's UTC. No daemon knows better how far a system clock is off, and some say 0."""


class RealtimeOffset(NamedTuple):
    """A node's latest report, and what it shows of its CLOCK_REALTIME."""

    node: HeardNode
    rate_ppb: float | None
    """By how much CLOCK_REALTIME has run faster than the clock since the node's last report, if it had UTC then, too.

    A step of whole seconds is no rate.
    """
    word: KernelWord
    """Its kernel's word on UTC."""


class OffUtc(NamedTuple):
    """UTC minus the common time, as most hosts have it."""

    fraction_ns: float
    """That and some whole seconds: hosts that have counted a leap second and hosts that have not agree in this."""
    error_ns: float
    """Of the fraction."""
    whole_ns: float | None
    """All of it; None: most agree in the fraction alone."""

    @property
    def behind_s(self) -> int | None:
        """How far UTC is behind the common time, in whole seconds."""
        return None if self.whole_ns is None else -round(self.whole_ns / NANOSECONDS)


class RealtimeOffsets:
    """The latest report of every node."""

    def __init__(self) -> None:
        self._realtime: dict[str, RealtimeOffset] = {}
        self._heard: set[str] = set()
        """Nodes whose reports are of this window."""

    def hear(self, node: HeardNode) -> None:
        """Takes a node's report."""
        before, rate_ppb = self._realtime.get(node.node), None
        if before is not None:
            passed_ns = node.until_ns - before.node.until_ns
            if not passed_ns:
                rate_ppb = before.rate_ppb  # A further part of the same window.
            # A clock that has just got UTC may have been set to it.
            elif passed_ns > 0 and min(before.node.utc_error_ns, node.utc_error_ns) >= 0:
                gained_ns = node.epoch_ns - before.node.epoch_ns
                gained_ns -= round(gained_ns / NANOSECONDS) * NANOSECONDS
                rate_ppb = gained_ns / passed_ns * NANOSECONDS
        word = KernelWord(node.tai_offset_s, node.leap_s, node.leap_utc_ns)
        self._realtime[node.node] = RealtimeOffset(node, rate_ppb, word)
        self._heard.add(node.node)

    def forget_whom(self) -> None:
        """Forgets which nodes have reported: the window is over."""
        self._heard.clear()

    def epoch_ns(self, name: str) -> int:
        """CLOCK_REALTIME of a clock's host minus its local time; 0: not known."""
        wall = self._realtime.get(name)
        return 0 if wall is None else wall.node.epoch_ns

    def monotonic(self, name: str, local_ns: int) -> tuple[int, float]:
        """CLOCK_MONOTONIC of a clock's host minus this local time of it, and by how much it runs faster, in ppb.

        (0, 0.0): its node does not say.
        """
        wall = self._realtime.get(name)
        if wall is None or not wall.node.monotonic_ns:
            return 0, 0.0
        rate_ppb = wall.node.monotonic_ppb
        gained_ns = round(rate_ppb * 1e-9 * (local_ns - wall.node.until_ns))
        return wall.node.monotonic_ns + gained_ns or 1, rate_ppb

    def word(self, name: str) -> KernelWord:
        """What the kernel of a clock's host has said of UTC last."""
        wall = self._realtime.get(name)
        return KernelWord() if wall is None else wall.word

    def words(self, names: Collection[str]) -> dict[str, KernelWord]:
        """What kernels have said of UTC in this window, of the hosts of these clocks; of all, where none is named."""
        return {name: self._realtime[name].word for name in self._heard if not names or name in names}

    def with_utc(self, seen: Seen, which: Mask) -> list[int]:
        """The clocks among these whose hosts said in this window that they have UTC."""
        return [
            number for number, wall in self._of(seen, np.flatnonzero(which).tolist()) if wall.node.utc_error_ns >= 0
        ]

    def away_ns(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> Floats:
        """CLOCK_REALTIME minus the common time, of those of these clocks whose hosts have spoken in this window."""
        away = [
            wall.node.until_ns + wall.node.epoch_ns - time_map.of(measured_ns(seen.tracks, number, wall.node.until_ns))
            for number, wall in self._of(seen, numbers)
        ]
        return np.array(away, np.float64)

    def off_utc(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> OffUtc | None:
        """UTC minus the common time, if most of these clocks' hosts, which have it, agree."""
        errors = np.array([wall.node.utc_error_ns for _, wall in self._of(seen, numbers)], np.float64)
        errors += _LEAST_ERROR_NS + seen.bound_ns[numbers]
        away_ns = self.away_ns(seen, numbers, time_map)
        if not len(away_ns):
            return None
        # Around one of them, so that none is on the other side of half a second from its neighbours.
        around_ns = float(np.sort(away_ns)[(len(away_ns) - 1) // 2])
        apart_ns = away_ns - around_ns
        apart_ns -= np.rint(apart_ns / NANOSECONDS) * NANOSECONDS
        fraction = agree(around_ns - round(around_ns / NANOSECONDS) * NANOSECONDS + apart_ns, errors)
        if fraction is None:
            return None
        whole = agree(away_ns, errors)
        return OffUtc(fraction.value, fraction.error, None if whole is None else whole.value)

    def rate_ppb(self, seen: Seen, numbers: list[int], time_map: TimeMap) -> float | None:
        """The gain of CLOCK_REALTIME on the common time, in ppb, by the median of these clocks' hosts.

        None: unknown.
        """
        rates = [
            wall.rate_ppb - time_map.drift_ppb(float(seen.tracks.drift_ppb[number]))
            for number, wall in self._of(seen, numbers)
            if wall.rate_ppb is not None
        ]
        return float(np.median(rates)) if rates else None

    def _of(self, seen: Seen, numbers: list[int]) -> list[tuple[int, RealtimeOffset]]:
        named = ((number, seen.names[number]) for number in numbers)
        return [(number, self._realtime[name]) for number, name in named if name in self._heard]
