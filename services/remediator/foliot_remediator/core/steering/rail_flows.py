"""The traffic of one rail as a problem for the plan: what each destination wants, and what each link carries.

Nobody tells what a link can carry. What is learnt of it:

- A NIC carries the most that the service address of any NIC of the rail has sent (`line_bps`): NICs of a rail are
  alike.
- A link on which flows are short carries what they get together now.
- Any other link between routers carries at least what a NIC does, and at least what is asked of it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.link_map import UNNAMED, is_between_routers, link_in, link_out
from foliot_remediator.core.state.inventory import path_name
from foliot_remediator.core.steering.assignment import Flows
from foliot_remediator.core.steering.fair_shares import fair_shares
from foliot_remediator.core.steering.improvement import LEAST_GAIN, gains, improvement, shares
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from foliot_remediator.core.state.inventory import Destination
    from foliot_remediator.core.steering.event_links import EventLinks
    from foliot_schemas import Placement

_MORE = 1.25
"""A flow that had so many times of what it has now is known to want that much."""
_LEAST_BPS = 1.0
_LOSES = 0.01
"""Share of what a flow could use from which on it counts as a loss."""
_STEPS = 300
"""Steps of the search. One link's flows find their ways in some tens. The remediator does nothing else meanwhile, and
where no move helps, all steps are taken: some 100 ms for a rail of a thousand NICs."""


class Carried(NamedTuple):
    """The traffic to a destination now. Rates are in bits/s."""

    destination: Destination
    way: Placement
    rate_bps: float
    best_bps: float
    """The best that it had lately."""
    is_limited: bool
    """Whether the network is what limits it."""
    ways: tuple[Placement, ...] = ()
    """Other ways of its rail that it may take; none: it stays."""
    priority: int = 0
    """The higher, the more it matters."""


class Change(NamedTuple):
    """What a destination's traffic gets, and is to get after moves. Rates are in bits/s."""

    destination: Destination
    priority: int
    rate_bps: float
    predicted_bps: float


class Move(NamedTuple):
    """A destination's traffic on another way, and what is to come of it. Rates are in bits/s."""

    destination: Destination
    before: Placement
    way: Placement
    rate_bps: float
    predicted_bps: float
    beside: dict[Destination, float]
    """Traffic that shares a link between routers with the new way, and what it is to have then. What matters less than
    the one that the move is for is not among it: it may lose."""
    left: frozenset[str]
    """The links between routers that it leaves."""
    taken: frozenset[str]
    """Those that it takes."""
    gaining: tuple[Change, ...] = ()
    """The traffic of a higher priority that the move makes room for; none: it is for its own gain."""
    sharing: frozenset[Destination] = frozenset()
    """All other traffic that shares a link with the new way then, NICs' own links included."""


class Plan(NamedTuple):
    """Moves that are worth it."""

    moves: Sequence[Move] = ()
    wanted: int = 0
    """How many there were without a limit."""
    gaining: Change | None = None
    """The traffic of the highest priority that gains, where others lose for it; of several, the one that gains most."""
    losing: Sequence[Change] = ()
    """The traffic of lower priorities that loses for it; who loses most comes first."""


class RailFlows:
    """The destinations of a rail and their ways, as arrays.

    Parameters:
        carried: all that takes the rail; one at least.
        links: of all ways; those that it names are the ones on which flows are said to be short.
        line_bps: the most that a NIC of the rail has sent, bits/s.
    """

    def __init__(self, carried: Sequence[Carried], links: EventLinks, line_bps: float) -> None:
        self._carried = carried
        self._links = links
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        ways, possible = self._arrays()
        self._ways = ways
        self._present = np.zeros(len(carried), np.intp)
        wanted_bps, self._capacity_bps = self._learn(links.named, line_bps)
        self._priority = np.array([each.priority for each in carried], np.intp)
        self._flows = Flows(ways, possible, wanted_bps, self._priority)

    def links_of(self, each: Carried, way: Placement) -> tuple[str, ...]:
        """The links of a way of a destination. Where its routers are not known, those of its NICs."""
        node = each.destination.node
        known = self._links.of(path_name(node, way))
        return known or (link_out(nic_name(node, way.via)), link_in(nic_name(way.peer, way.via)))

    def plan(self, rng: np.random.Generator, most: int) -> Plan:
        """The moves that are worth it, of which there may be so many.

        Where there may be fewer, the first ones alone must be worth it.
        """
        found = improvement(self._flows, self._capacity_bps, self._present, rng, _STEPS)
        wanted = len(found.moved)
        if not wanted or not most:
            return Plan(wanted=wanted)
        chosen = self._present.copy()
        moved = found.moved[:most]
        chosen[moved] = found.chosen[moved]
        after = shares(self._flows, self._capacity_bps, chosen)
        if not gains(found.before, after, self._priority):
            return Plan(wanted=wanted)
        return Plan(self._moves(moved, chosen, found.before, after), wanted, *self._yielding(found.before, after))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _arrays(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The links of all ways, the present one first; and which there are."""
        links = [
            [[self._number(link) for link in self.links_of(each, way)] for way in (each.way, *each.ways)]
            for each in self._carried
        ]
        count, hops = max(map(len, links)), max(len(way) for own in links for way in own)
        ways, possible = np.full((len(links), count, hops), -1, np.intp), np.zeros((len(links), count), np.bool_)
        for place, own in enumerate(links):
            possible[place, : len(own)] = True
            for number, way in enumerate(own):
                ways[place, number, : len(way)] = way
        return ways, possible

    def _number(self, link: str) -> int:
        if link == UNNAMED:
            return -1
        number = self._numbers.setdefault(link, len(self._names))
        if number == len(self._names):
            self._names.append(link)
        return number

    def _learn(self, crowded: Collection[str], line_bps: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each destination would get if its NICs alone limited it; and what each link carries. In bits/s.

        What is on no crowded link has what it needs: in its pauses, the best that it had.
        """
        rates, best = (np.array([getattr(each, name) for each in self._carried]) for name in ("rate_bps", "best_bps"))
        limited = np.array([each.is_limited for each in self._carried])
        present = self._ways[:, 0]
        is_crowded = np.zeros(len(self._names) + 1, np.bool_)  # the last is for no link
        is_crowded[[self._numbers[link] for link in crowded if link in self._numbers]] = True
        had_more = best >= _MORE * rates
        hungry = self._hungry = is_crowded[present].any(axis=1) & (limited | had_more) & (rates > 0)
        carried = self._sums(present, rates)
        short = self._sums(present, hungry)
        contended = is_crowded[:-1] & (short >= 2)  # one flow alone does not share a link
        # Where one of them leaves, the others get at least an equal part of what all of them get.
        line = max([line_bps, *(carried[contended] / (short[contended] - 1)), _LEAST_BPS])
        wishes = np.where(hungry, np.where(had_more, best, line), np.maximum(rates, best))
        capacity = np.maximum(line, carried)
        ends = np.array([self._ends(each) for each in self._carried])
        wanted = np.maximum(fair_shares(ends, capacity, np.maximum(wishes, _LEAST_BPS)), _LEAST_BPS)
        inner = np.array([is_between_routers(link) for link in self._names])
        capacity = np.where(inner, np.maximum(capacity, self._sums(present, wanted)), capacity)
        return wanted, np.where(contended, np.maximum(carried, _LEAST_BPS), capacity)

    def _sums(self, links: NDArray[np.intp], values: NDArray[np.generic]) -> NDArray[np.float64]:
        """By link, the sum of the values of the destinations whose way has it."""
        places = np.where(links < 0, len(self._names), links)
        weights = np.repeat(values.astype(np.float64), links.shape[1])
        return np.bincount(places.ravel(), weights, len(self._names) + 1)[:-1].astype(np.float64, copy=False)

    def _ends(self, each: Carried) -> list[int]:
        names = self.links_of(each, each.way)
        return [self._numbers[names[0]], self._numbers[names[-1]]]

    def _moves(
        self, moved: NDArray[np.intp], chosen: NDArray[np.intp], before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> list[Move]:
        predicted_bps = after * self._flows.demand_bps
        inner = np.append([is_between_routers(link) for link in self._names], [False])
        links = self._ways[np.arange(len(chosen)), chosen]
        on = np.zeros(len(self._names) + 1, np.bool_)
        made = []
        for flow in moved.tolist():
            each, way = self._carried[flow], self._carried[flow].ways[chosen[flow] - 1]
            on[:] = False
            on[self._ways[flow, 0]] = True
            gaining = self._gaining((on & inner)[links].any(axis=1), self._priority[flow], before, after)
            least = max((change.priority for change in gaining), default=each.priority)
            on[:] = False
            on[links[flow]] = True
            on[-1] = False
            there = np.flatnonzero(on[links].any(axis=1)).tolist()
            sharing = frozenset(self._carried[other].destination for other in there if other != flow)
            on &= inner
            matters = on[links].any(axis=1) & (self._priority >= least)
            beside = [other for other in np.flatnonzero(matters).tolist() if other != flow]
            kept = {self._carried[other].destination: self._kept_bps(other, predicted_bps) for other in beside}
            left, taken = (self._between(each, one) for one in (each.way, way))
            predicted = float(predicted_bps[flow]) if self._hungry[flow] else self._kept_bps(flow, predicted_bps)
            made.append(
                Move(each.destination, each.way, way, each.rate_bps, predicted, kept, left, taken, gaining, sharing)
            )
        return made

    def _gaining(
        self, there: NDArray[np.bool_], above: int, before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> tuple[Change, ...]:
        """The flows of higher priorities that gain, of those that take links of one that leaves."""
        gaining = there & self._hungry & (self._priority > above) & (after - before >= LEAST_GAIN)
        return tuple(
            self._change(flow, self._carried[flow].rate_bps, after) for flow in np.flatnonzero(gaining).tolist()
        )

    def _yielding(
        self, before: NDArray[np.float64], after: NDArray[np.float64]
    ) -> tuple[Change | None, tuple[Change, ...]]:
        """Who gains most of those that matter most, and the flows that matter less and lose."""
        gained = after - before
        gaining = np.flatnonzero(gained >= LEAST_GAIN)
        highest = self._priority[gaining].max(initial=self._priority.min())
        losing = np.flatnonzero((gained <= -_LOSES) & (self._priority < highest))
        if not len(losing):
            return None, ()
        now_bps = before * self._flows.demand_bps
        first = max(gaining[self._priority[gaining] == highest].tolist(), key=gained.tolist().__getitem__)
        lost_bps = (gained * self._flows.demand_bps)[losing]
        return self._change(first, float(now_bps[first]), after), tuple(
            self._change(flow, float(now_bps[flow]), after) for flow in losing[np.argsort(lost_bps)].tolist()
        )

    def _change(self, flow: int, rate_bps: float, after: NDArray[np.float64]) -> Change:
        each = self._carried[flow]
        return Change(each.destination, each.priority, rate_bps, float(after[flow] * self._flows.demand_bps[flow]))

    def _kept_bps(self, flow: int, predicted_bps: NDArray[np.float64]) -> float:
        """What a flow beside a move is to have: what is predicted, but no more than it has."""
        return min(self._carried[flow].rate_bps, float(predicted_bps[flow]))

    def _between(self, each: Carried, way: Placement) -> frozenset[str]:
        return frozenset(filter(is_between_routers, self.links_of(each, way)))
