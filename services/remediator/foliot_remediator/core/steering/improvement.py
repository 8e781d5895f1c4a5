"""Plans which flows change their way, so that they get more.

They are the fewest that do it, and only with a gain that is predicted.

The plan looks at all flows of a rail at once. Hosts that move flows on their own take each other's place. A flow sees
the load of a way, and not who else is about to take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foliot_remediator.core.steering.assignment import Assignment
from foliot_remediator.core.steering.fair_shares import fair_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_remediator.core.steering.assignment import Flows

STEPS = 2_000
"""Steps of the search at most. Where an assignment without conflict exists, it is found in some hundred."""
_LEAST_GAIN = 0.05
"""Gain of the mean share, or of the slowest flow's, that is worth a move."""
_TOLERATED = 0.05
"""Share of its capacity by which a link may be overloaded: who loses less than that is no reason to move others."""
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
    before = shares(flows, capacity_bps, present)
    search = Assignment(flows, capacity_bps * (1 + _TOLERATED), present, rng)
    search.improve(steps)
    search.take_back_idle_moves()
    chosen = search.chosen
    after = shares(flows, capacity_bps, chosen)
    if not gains(before, after):
        return Improvement(present.copy(), np.zeros(0, np.intp), before, before)
    chosen, after = _without_idle(flows, capacity_bps, present, chosen, after)
    moved = np.flatnonzero(chosen != present)
    return Improvement(chosen, moved[np.argsort(before[moved], kind="stable")], before, after)


def shares(flows: Flows, capacity_bps: NDArray[np.float64], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """The share of its demand that each flow gets, shape (flows,), from 0 to 1."""
    links = flows.ways[np.arange(len(chosen)), chosen]
    rates = fair_shares(links, capacity_bps, flows.demand_bps)
    found: NDArray[np.float64] = rates / flows.demand_bps
    return found


def gains(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    """Whether so much more for the slowest flow, or for all of them, is worth moves, and neither gets less."""
    if not len(before):
        return False
    slowest, mean = float(after.min() - before.min()), float(after.mean() - before.mean())
    return max(slowest, mean) >= _LEAST_GAIN and min(slowest, mean) >= 0.0


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
        if found.min() >= after.min() and found.sum() >= after.sum():
            chosen, after = tried, found
    return chosen, after
