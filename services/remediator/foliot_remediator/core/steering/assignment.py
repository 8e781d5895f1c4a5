"""Assigns flows to ways so that no link has more to carry than it can: a tabu search that repairs conflicts.

Each step looks at the flows on overloaded links only, and takes each to the way that leaves the least overload. A flow
may not go back to a way that it has just left, so that the search leaves dead ends. The steps of flows that share no
link are taken together. A flow that is not in conflict stays where it is.

Overload beside a flow of a higher priority counts many times that beside others. So that flow goes to a way with room,
or the others leave it.

Where all pairs have ways over all spines of a leaf-spine fabric, an assignment without conflict exists for any
permutation (Koenig's theorem on edge colouring). With fewer ways it usually does.

Sources: S. Minton and others, "Minimizing conflicts", Artificial Intelligence 58, 1992. A. Hertz, D. de Werra, "Using
tabu search techniques for graph coloring", Computing 39, 1987.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_TENURE = 1
_MOST_TENURE = 10
"""Steps for which a flow may not return, by chance between these two, and longer the more flows are in conflict.

Source: Galinier and Hao, for graph colouring (Journal of Combinatorial Optimization 3, 1999).
"""
_TENURE_SHARE = 0.6
_AT_ONCE = 1_024
"""Flows that one step looks at: the more there are, the fewer of them share no link."""
_NEVER = np.inf
_NOISE = 0.4
"""Chance decides between moves whose costs differ by less than this share of what a flow would use."""
_WEIGHT = 100.0
"""One bit of overload beside a flow of a higher priority counts as much as so many beside the next lower one: more than
the flows that a link has room for."""
_MOST_WEIGHTS = 5
"""Priorities that the search tells apart, the highest ones; all below count as one. Sums of more weights would round
the lowest away."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows and the ways that each may take.

    Attributes:
        ways: links of each way of each flow, shape (flows, ways, hops); -1 for no link.
        possible: whether a flow may take a way, shape (flows, ways).
        demand_bps: what each flow would use if nothing else were there, shape (flows,).
        priority: the higher, the more a flow matters, shape (flows,); None: all matter alike.
    """

    ways: NDArray[np.intp]
    possible: NDArray[np.bool_]
    demand_bps: NDArray[np.float64]
    priority: NDArray[np.intp] | None = None


class _Weights:
    """How much overload counts on each link: by the flow of the highest priority there.

    Parameters:
        levels: of each flow, its priority's rank from 0 on, shape (flows,).
        links: how many there are.
    """

    def __init__(self, levels: NDArray[np.intp], links: int) -> None:
        self.levels = levels
        self._of_level = _WEIGHT ** np.arange(levels.max(initial=0) + 1)
        self._counts = np.zeros((len(self._of_level), links), np.intp)
        """Flows by level and link."""

    def place(self, links: NDArray[np.intp]) -> None:
        """Begins anew with the links of all flows, shape (flows, hops)."""
        self._counts[:] = 0
        np.add.at(self._counts, (self.levels[:, None], links), 1)

    def move(self, flow: int, before: NDArray[np.intp], after: NDArray[np.intp]) -> None:
        """Takes a flow from its links to others."""
        counts = self._counts[self.levels[flow]]
        np.subtract.at(counts, before, 1)
        np.add.at(counts, after, 1)

    def of_links(self) -> NDArray[np.float64]:
        """The weight of each link's overload; 0: no flow is there."""
        return self._highest(self._counts)

    def pairs(
        self, flows: NDArray[np.intp], links: NDArray[np.intp], is_own: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weights of links, shape (flows, ways, hops), without each of these flows, and with it.

        Parameters:
            is_own: whether the flow is on that link now.
        """
        levels = self.levels[flows]
        beside = self._counts[:, links]
        beside[levels, np.arange(len(flows))] -= is_own
        others = self._highest(beside)
        return others, np.maximum(others, self._of_level[levels][:, None, None])

    def preference(self, flows: NDArray[np.intp], crowded: NDArray[np.intp]) -> NDArray[np.float64]:
        """Added to the costs of each flow's moves, shape (flows, 1): it decides between moves that are alike.

        Of two flows the one that matters less leaves. Of more the one that matters most does: it is alone then.

        Parameters:
            crowded: its links that are overloaded, shape (flows, hops); -1: another one.
        """
        beside = np.where(crowded < 0, 0, self._counts.sum(axis=0)[crowded] - 1).max(axis=1)
        signs: NDArray[np.float64] = np.where(beside > 1, -_NOISE, _NOISE)
        return (signs * self.levels[flows])[:, None]

    def _highest(self, counts: NDArray[np.intp]) -> NDArray[np.float64]:
        weights = self._of_level.reshape(-1, *[1] * (counts.ndim - 1))
        found: NDArray[np.float64] = (weights * (counts > 0)).max(axis=0)
        return found


class Assignment:
    """Flows on ways, and the load of each link that follows.

    Parameters:
        flows: what there is to assign.
        capacity_bps: of each link, shape (links,); less what flows that are not to be moved use.
        present: the way of each flow, shape (flows,). It is not changed.
        rng: draws between ways that are alike.
    """

    def __init__(
        self,
        flows: Flows,
        capacity_bps: NDArray[np.float64],
        present: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> None:
        self._flows = flows
        self._places = np.where(flows.ways < 0, len(capacity_bps), flows.ways)
        self._capacity = np.append(capacity_bps, np.inf)
        self._most = self._capacity * (1 + 1e-9)
        """The load beyond which a link is overloaded."""
        self._rng = rng
        self._numbers = np.arange(len(present))
        self._present = present
        self.chosen = present.copy()
        """The way of each flow, shape (flows,)."""
        levels = _levels(flows.priority)
        self._weights = None if levels is None else _Weights(levels, len(self._capacity))
        """None: all flows matter alike."""
        self.bests: list[NDArray[np.intp]] = []
        """The way of each flow whenever a step had left less overload than all before."""
        self._load = self._loads()
        self._tabu = np.zeros(flows.possible.shape, np.int64)
        """Number of the step before which a flow may not take a way again."""
        self._step = 0

    def overload_bps(self) -> float:
        """The load of all links together beyond their capacity; beside flows that matter more, times its weight."""
        overload = np.maximum(self._load[:-1] - self._capacity[:-1], 0.0)
        return float((overload if self._weights is None else overload * self._weights.of_links()[:-1]).sum())

    def improve(self, steps: int) -> float:
        """Looks for an assignment with less overload for so many steps, and keeps the best.

        Returns its overload, bits/s.
        """
        best, best_overload = self.chosen.copy(), self.overload_bps()
        for _ in range(steps):
            if not best_overload or not self._take_step():
                break
            if (overload := self.overload_bps()) < best_overload:
                best, best_overload = self.chosen.copy(), overload
                self.bests.append(best)
        self.chosen = best
        self._load = self._loads()
        return best_overload

    def take_back_idle_moves(self) -> None:
        """Takes every flow back to the way that it had, where that adds no overload."""
        while self._take_back():
            pass

    # -- inside -------------------------------------------------------------------------------------------------------

    def _loads(self) -> NDArray[np.float64]:
        links = self._places[self._numbers, self.chosen]
        if self._weights is not None:
            self._weights.place(links)
        demand = np.repeat(self._flows.demand_bps, links.shape[1])
        return np.bincount(links.ravel(), weights=demand, minlength=len(self._capacity)).astype(np.float64, copy=False)

    def _take_back(self) -> int:
        """Looks once at each flow that was moved. Returns how many were taken back: they may let others return."""
        moved = np.flatnonzero(self.chosen != self._present)
        costs = self._costs(moved)[np.arange(len(moved)), self._present[moved]]
        taken = 0
        for flow in moved[costs <= 0].tolist():
            if self._costs(np.array([flow]))[0, self._present[flow]] <= 0:
                self._move(flow, self._present[flow])
                taken += 1
        return taken

    def _take_step(self) -> bool:
        """Moves flows in conflict. False: none is, or none may be moved."""
        self._step += 1
        crowded = self._load > self._most
        own = self._places[self._numbers, self.chosen]
        conflicted = np.flatnonzero(crowded[own].any(axis=1))
        if not len(conflicted):
            return False
        tenure = int(_TENURE_SHARE * len(conflicted))
        if len(conflicted) > _AT_ONCE:
            conflicted = self._rng.choice(conflicted, _AT_ONCE, replace=False)
        costs, numbers = self._costs(conflicted), self._numbers[: len(conflicted)]
        scale = self._flows.demand_bps[conflicted, None]
        costs += self._rng.random(costs.shape) * scale * _NOISE
        if self._weights is not None:
            costs += (
                self._weights.preference(conflicted, np.where(crowded[own[conflicted]], own[conflicted], -1)) * scale
            )
        costs[~self._flows.possible[conflicted] | (self._tabu[conflicted] > self._step)] = _NEVER
        costs[numbers, self.chosen[conflicted]] = _NEVER
        ways = costs.argmin(axis=1)
        least = costs[numbers, ways]
        order = least.argsort().tolist()
        if least[order[0]] == _NEVER:
            return True  # all wait until they may return
        touched, worth = np.zeros(len(self._capacity), bool), least < _NOISE * scale[:, 0]
        for place in order:
            if place != order[0] and not worth[place]:
                break  # the best step is taken though it makes things worse, the others only if they do not
            flow, way = conflicted[place], ways[place]
            links = np.concatenate((own[flow], self._places[flow, way]))
            if touched[links].any():
                continue
            touched[links] = True
            touched[-1] = False
            self._tabu[flow, self.chosen[flow]] = self._step + self._rng.integers(_LEAST_TENURE, _MOST_TENURE) + tenure
            self._move(flow, way)
        return True

    def _move(self, flow: int, way: int) -> None:
        demand, before, after = (
            self._flows.demand_bps[flow],
            self._places[flow, self.chosen[flow]],
            self._places[flow, way],
        )
        np.subtract.at(self._load, before, demand)
        np.add.at(self._load, after, demand)
        if self._weights is not None:
            self._weights.move(flow, before, after)
        self.chosen[flow] = way

    def _costs(self, flows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Overload that is added if a flow takes a way, bits/s, shape (flows, ways)."""
        links = self._places[flows]
        numbers, chosen = self._numbers[: len(flows)], self.chosen[flows]
        own = links[numbers, chosen][:, None, :]
        demand, is_own = self._flows.demand_bps[flows][:, None, None], links == own
        free = self._capacity[links] - self._load[links] + demand * is_own
        added = np.minimum(np.maximum(demand - free, 0.0), demand)  # takes a third of what clipping does
        if self._weights is not None:
            others, both = self._weights.pairs(flows, links, is_own)
            added = both * added + (both - others) * np.maximum(-free, 0.0)
        added = added.sum(axis=2)
        present = added[numbers, chosen]
        costs: NDArray[np.float64] = added - present[:, None]
        return costs


def _levels(priority: NDArray[np.intp] | None) -> NDArray[np.intp] | None:
    """The rank of each flow's priority, from 0 on; None: all are alike."""
    found, ranks = np.unique(np.zeros(0, np.intp) if priority is None else priority, return_inverse=True)
    return np.maximum(ranks - max(len(found) - _MOST_WEIGHTS, 0), 0) if len(found) > 1 else None
