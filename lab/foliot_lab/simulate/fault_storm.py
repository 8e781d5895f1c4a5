"""A storm of faults over a synthetic fleet, at a given rate and at random moments. The seed repeats it.

The storm's front moves over the fleet. Only nodes of the front report, from a little before their faults until their
end. A probe of a real fleet reports ten times a second. No single machine could carry the resulting million messages a
second, and no fault depends on them.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from foliot_lab.simulate.synthetic_fleet import RAILS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.simulate.synthetic_fleet import SyntheticFleet

Kind: TypeAlias = Literal["report", "port", "lose", "mute", "unmute", "return", "cut", "fell", "mend"]

_SPARE_S = 0.3
"""The lead of reports before the first fault, beyond an interval. By then every node has reported, and all of its
paths were heard."""
_SAID_S, _EARLIEST_S = 0.09, 0.065
"""The delays of two reports after a cut: the sender's says that it sent on the path, the receiver's that it hears
others. The second number is how early after the cut a report can say so. A probe reports every 100 ms; beside a
fault these two reports are needed."""
_FELL_S = 0.13
"""The delay of the receiver's report that a path in use fell silent: a little over three intervals of 40 ms."""
_HEARD_S = 0.05
"""The time from a carrier's return until its paths in use are heard."""
_APART = 3
"""One node in so many neighbouring ones loses a NIC, so that most peers of a lost NIC are well."""


class Step(NamedTuple):
    """A report or a fault at a time. Ordered by time."""

    at_s: float
    kind: Kind
    node: int
    peer: int = -1
    """The other end of a path."""
    rail: str = ""


class StormSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a storm."""

    events_per_s: float
    seconds: float
    seed: int = 1
    nic_share: float = 0.1
    """Share of the faults that are lost carriers; the others are silent paths. Each fault gives two events: one at
    its beginning, one at its end."""
    epoch_s: float = 3.0
    """The time for which the front stays."""
    outage_s: float = 2.0
    """The length of a NIC's outage."""
    silence_s: float = 1.2
    """The length of a path's silence."""
    home_s: float = 3.5
    """The time for which reports go on after the front's last fault: probation, and the way home."""
    report_s: float = 2.0
    """Interval of a node's regular reports."""
    parts: int = 1
    """The number of parts of the fleet, of equal size. A storm of its share goes over each part at the same time."""


class FaultStorm:
    """Carriers are lost in the first half of each part of the fleet, paths fall silent in the second."""

    def __init__(self, spec: StormSpec, fleet: SyntheticFleet) -> None:
        self._spec = spec
        self._fleet = fleet
        self._draw = np.random.default_rng(spec.seed)
        self._margin = fleet.degree // 2
        self._regions = dict[tuple[str, int], tuple[int, int]]()
        """By kind of fault and part: the first of its nodes, and their number."""
        for part in range(spec.parts):
            begin, end = (fleet.nodes * number // spec.parts for number in (part, part + 1))
            half = (begin + end) // 2
            self._regions |= {("nic", part): (begin, half - begin), ("path", part): (half, end - half)}
        self._at = dict.fromkeys(self._regions, 0)
        self._before_s = spec.report_s + _SPARE_S

    def steps(self) -> Iterator[Step]:
        """All steps, in order of time, from 0."""
        spec, waiting = self._spec, list[Step]()
        for epoch in range(int(np.ceil(spec.seconds / spec.epoch_s))):
            begin_s = self._before_s + epoch * spec.epoch_s
            for part in range(spec.parts):
                for front in (self._nic_front, self._path_front):
                    for step in front(part, begin_s, RAILS[epoch % 2]):
                        heapq.heappush(waiting, step)
            while waiting and waiting[0].at_s < begin_s + spec.epoch_s - self._before_s:
                yield heapq.heappop(waiting)
        while waiting:
            yield heapq.heappop(waiting)

    def _faults(self, begin_s: float, share: float) -> list[float]:
        """Moments of a Poisson process in one part."""
        rate = self._spec.events_per_s / self._spec.parts / 2 * share
        count = self._draw.poisson(rate * self._spec.epoch_s)
        return sorted((begin_s + self._draw.random(count) * self._spec.epoch_s).tolist())

    def _nic_front(self, part: int, begin_s: float, rail: str) -> Iterator[Step]:
        at_s = self._faults(begin_s, self._spec.nic_share)
        block = self._block(("nic", part), _APART * len(at_s))
        yield from self._reports(block, begin_s, self._spec.outage_s)
        for node in block:
            for each in RAILS:
                yield Step(begin_s - self._before_s * self._draw.uniform(0.5, 1.0), "port", node, rail=each)
        for moment_s, node in zip(at_s, block[self._margin :: _APART], strict=False):
            back_s = moment_s + self._spec.outage_s
            yield Step(moment_s, "lose", node, rail=rail)
            yield Step(moment_s + _FELL_S, "mute", node, rail=rail)
            yield Step(back_s, "return", node, rail=rail)
            yield Step(back_s + _HEARD_S, "unmute", node, rail=rail)

    def _path_front(self, part: int, begin_s: float, rail: str) -> Iterator[Step]:
        at_s = self._faults(begin_s, 1.0 - self._spec.nic_share)
        block = self._block(("path", part), -(-len(at_s) // self._fleet.degree))
        yield from self._reports(block, begin_s, self._spec.silence_s)
        said_s: dict[int, float] = {}
        for number, moment_s in enumerate(at_s):
            node = block[self._margin + number // self._fleet.degree]
            peer = self._fleet.neighbours(node)[number % self._fleet.degree]
            yield Step(moment_s, "cut", node, peer, rail)
            for end in (node, peer):
                if said_s.get(end, 0.0) < moment_s + _EARLIEST_S:
                    said_s[end] = moment_s + _SAID_S
                    yield Step(said_s[end], "report", end)
            yield Step(moment_s + _FELL_S, "fell", node, peer, rail)
            yield Step(moment_s + self._spec.silence_s, "mend", node, peer, rail)

    def _block(self, region: tuple[str, int], count: int) -> list[int]:
        """The next nodes of a region, and a margin of their peers on both sides."""
        begin, length = self._regions[region]
        size = count + 2 * self._margin
        if size > length:
            raise ValueError(f"a front of {size} nodes does not fit into {length}: give more nodes or fewer events")
        if self._at[region] + size > length:
            self._at[region] = 0
        first = begin + self._at[region]
        self._at[region] += size
        return list(range(first, first + size))

    def _reports(self, block: list[int], begin_s: float, outage_s: float) -> Iterator[Step]:
        spec = self._spec
        until_s = begin_s + spec.epoch_s + outage_s + spec.home_s
        for node in block:
            at_s = begin_s - self._before_s + self._draw.random() * spec.report_s
            while at_s < until_s:
                yield Step(at_s, "report", node)
                at_s += spec.report_s
