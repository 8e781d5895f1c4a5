"""Plans which flows change their way, so that they get more.

They are the fewest that do it, and only with a gain that is predicted.

Flows of the highest priority count first, then those of the next. One that matters less may lose where one that matters
more gains, and never the other way.

The plan looks at all flows of a rail at once. Hosts that move flows on their own take each other's place. A flow sees
the load of a way, and not who else is about to take it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foliot_remediator.core.steering.assignment import Assignment
from foliot_remediator.core.steering.fair_shares import fair_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_remediator.core.steering.assignment import Flows

STEPS = 2_000
"""Steps of the search at most. Where an assignment without conflict exists, it is found in some hundred."""
LEAST_GAIN = 0.05
"""Gain of the mean share, or of the slowest flow's, that is worth a move."""
_TOLERATED = 0.05
"""Share of its capacity by which a link may be overloaded: who loses less than that is no reason to move others."""
_NEAR = 1e-9
"""Difference of two shares below which the next priority decides: far above what sums round."""
_FEW = 64
"""Moves up to which each is tried without: beyond, to predict that often takes too long."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """Flows that change their way.

    Attributes:
        chosen: the way of each flow afterwards, shape (flows,).
        moved: the flows that change it, in the order in which it pays most, shape (moves,).
        before: share of its demand that each flow gets now, shape (flows,).
        after: the same afterwards.
    """

    chosen: NDArray[np.intp]
    moved: NDArray[np.intp]
    before: NDArray[np.float64]
    after: NDArray[np.float64]


def improvement(
    flows: Flows,
    capacity_bps: NDArray[np.float64],
    present: NDArray[np.intp],
    rng: np.random.Generator,
    steps: int = STEPS,
) -> Improvement:
    """The moves that are worth it; none, if nothing better was found.

    Parameters:
        flows: the flows, and the ways that each may take.
        capacity_bps: of each link, shape (links,), less what flows that may not be moved use.
        present: the way of each flow, shape (flows,).
        rng: draws between ways that are alike.
        steps: how long to search at most, see `STEPS`.
    """
    if flows.priority is not None and (flows.priority == flows.priority[:1]).all():
        flows = replace(flows, priority=None)
    before = shares(flows, capacity_bps, present)
    for each in (flows, replace(flows, priority=None)):  # the second time by load alone, if flows matter differently
        search = Assignment(each, capacity_bps * (1 + _TOLERATED), present, rng)
        search.improve(steps)
        search.take_back_idle_moves()
        chosen, after = search.chosen, shares(flows, capacity_bps, search.chosen)
        if gains(before, after, flows.priority):
            if each.priority is not None:
                chosen, after = _first_as_good(each, capacity_bps, search.bests, chosen, after)
            chosen, after = _without_idle(flows, capacity_bps, present, chosen, after)
            return Improvement(chosen, _in_order(flows, present, chosen, before), before, after)
        if flows.priority is None:
            break
    return Improvement(present.copy(), np.zeros(0, np.intp), before, before)


def shares(flows: Flows, capacity_bps: NDArray[np.float64], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """The share of its demand that each flow gets, shape (flows,), from 0 to 1."""
    links = flows.ways[np.arange(len(chosen)), chosen]
    rates = fair_shares(links, capacity_bps, flows.demand_bps)
    found: NDArray[np.float64] = rates / flows.demand_bps
    return found


def gains(before: NDArray[np.float64], after: NDArray[np.float64], priority: NDArray[np.intp] | None = None) -> bool:
    """Whether so much more for the slowest flow, or for all of them, is worth moves, and neither gets less.

    With priorities, the highest for which that is so decides, and no higher one may get less. What those below get does
    not count then.
    """
    near = 0.0 if priority is None else _NEAR
    for those in _by_priority(priority, len(before)):
        was, then = before[those], after[those]
        slowest, mean = float(then.min() - was.min()), float(then.mean() - was.mean())
        if min(slowest, mean) < -near:
            return False
        if max(slowest, mean) >= LEAST_GAIN:
            return True
    return False


def _by_priority(priority: NDArray[np.intp] | None, count: int) -> list[NDArray[np.intp]]:
    """The flows of each priority, the highest first."""
    if priority is None:
        return [np.arange(count)] if count else []
    return [np.flatnonzero(priority == each) for each in np.unique(priority)[::-1]]


def _is_as_good(after: NDArray[np.float64], found: NDArray[np.float64], priority: NDArray[np.intp] | None) -> bool:
    """Whether the shares found are no worse than others: the highest priority for which they differ decides."""
    near = 0.0 if priority is None else _NEAR
    for those in _by_priority(priority, len(after)):
        slowest, total = found[those].min() - after[those].min(), found[those].sum() - after[those].sum()
        if min(slowest, total) < -near:
            return False
        if max(slowest, total) > near:
            return True
    return True


def _first_as_good(
    flows: Flows,
    capacity_bps: NDArray[np.float64],
    bests: list[NDArray[np.intp]],
    chosen: NDArray[np.intp],
    after: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The first steps of the search that brought as much as all of them.

    Where some have to share a link, later steps look for another one for them, and take those that matter more along.
    """
    for tried in bests[:_FEW]:
        found = shares(flows, capacity_bps, tried)
        if _is_as_good(after, found, flows.priority):
            return tried, found
    return chosen, after


def _in_order(
    flows: Flows, present: NDArray[np.intp], chosen: NDArray[np.intp], before: NDArray[np.float64]
) -> NDArray[np.intp]:
    """The flows that change their way: first those on links of a flow that matters more, and of them the slowest."""
    moved = np.flatnonzero(chosen != present)
    if flows.priority is None:
        return moved[np.argsort(before[moved], kind="stable")]
    links = flows.ways[np.arange(len(present)), present]
    highest = [flows.priority[np.isin(links, own[own >= 0]).any(axis=1)].max() for own in links[moved]]
    return moved[np.lexsort((before[moved], -np.array(highest, np.intp)))]


def _without_idle(
    flows: Flows,
    capacity_bps: NDArray[np.float64],
    present: NDArray[np.intp],
    chosen: NDArray[np.intp],
    after: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Leaves flows where they are, whose move gains nothing for anybody."""
    moved = np.flatnonzero(chosen != present)
    if len(moved) > _FEW:
        return chosen, after
    for flow in moved:
        tried = chosen.copy()
        tried[flow] = present[flow]
        found = shares(flows, capacity_bps, tried)
        if _is_as_good(after, found, flows.priority):
            chosen, after = tried, found
    return chosen, after
