"""Assigns flows to ways so that no link has more to carry than it can: a tabu search that repairs conflicts.

Each step looks at the flows on overloaded links only, and takes each to the way that leaves the least overload. A flow
may not go back to a way that it has just left, so that the search leaves dead ends. The steps of flows that share no
link are taken together. A flow that is not in conflict stays where it is.

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


@dataclass(frozen=True, slots=True)
class Flows:
    """Flows and the ways that each may take.

    Attributes:
        ways: links of each way of each flow, shape (flows, ways, hops); -1 for no link.
        possible: whether a flow may take a way, shape (flows, ways).
        demand_bps: what each flow would use if nothing else were there, shape (flows,).
    """

    ways: NDArray[np.intp]
    possible: NDArray[np.bool_]
    demand_bps: NDArray[np.float64]


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
        self._rng = rng
        self._numbers = np.arange(len(present))
        self._present = present
        self.chosen = present.copy()
        """The way of each flow, shape (flows,)."""
        self._load = self._loads()
        self._tabu = np.zeros(flows.possible.shape, np.int64)
        """Number of the step before which a flow may not take a way again."""
        self._step = 0

    def overload_bps(self) -> float:
        """The load of all links together beyond their capacity."""
        return float(np.maximum(self._load[:-1] - self._capacity[:-1], 0.0).sum())

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
        crowded = self._load > self._capacity * (1 + 1e-9)
        own = self._places[self._numbers, self.chosen]
        conflicted = np.flatnonzero(crowded[own].any(axis=1))
        if not len(conflicted):
            return False
        tenure = int(_TENURE_SHARE * len(conflicted))
        if len(conflicted) > _AT_ONCE:
            conflicted = self._rng.choice(conflicted, _AT_ONCE, replace=False)
        costs = self._costs(conflicted)
        scale = self._flows.demand_bps[conflicted, None]
        costs += self._rng.random(costs.shape) * scale * 0.4
        costs[~self._flows.possible[conflicted] | (self._tabu[conflicted] > self._step)] = _NEVER
        costs[np.arange(len(conflicted)), self.chosen[conflicted]] = _NEVER
        ways = costs.argmin(axis=1)
        least = costs[np.arange(len(conflicted)), ways]
        order = np.argsort(least)
        if least[order[0]] == _NEVER:
            return True  # all wait until they may return
        touched = np.zeros(len(self._capacity), bool)
        for place in order.tolist():
            if touched.any() and least[place] >= 0.4 * scale[place, 0]:
                break  # the best step is taken though it makes things worse, the others only if they do not
            flow, way = conflicted[place], ways[place]
            links = np.append(own[flow], self._places[flow, way])
            if touched[links].any():
                continue
            touched[links] = True
            touched[-1] = False
            self._tabu[flow, self.chosen[flow]] = self._step + self._rng.integers(_LEAST_TENURE, _MOST_TENURE) + tenure
            self._move(flow, way)
        return True

    def _move(self, flow: int, way: int) -> None:
        demand = self._flows.demand_bps[flow]
        np.subtract.at(self._load, self._places[flow, self.chosen[flow]], demand)
        np.add.at(self._load, self._places[flow, way], demand)
        self.chosen[flow] = way

    def _costs(self, flows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Overload that is added if a flow takes a way, bits/s, shape (flows, ways)."""
        links = self._places[flows]
        own = links[np.arange(len(flows)), self.chosen[flows]][:, None, :]
        demand = self._flows.demand_bps[flows][:, None, None]
        free = self._capacity[links] - self._load[links] + demand * (links == own)
        added = np.clip(demand - free, 0.0, demand).sum(axis=2)
        present = added[np.arange(len(flows)), self.chosen[flows]]
        costs: NDArray[np.float64] = added - present[:, None]
        return costs
