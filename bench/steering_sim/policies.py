"""Who moves which flow, and what he knows: Foliot's plan, and the policies of others as their papers have them.

All begin with what the hash has made. Policies of hosts act in rounds, and each host for itself. A flow below 95 % of
what it would get alone moves with a probability of 0.3, so that not all move at once.

Sources: M. Qureshi and others, "PLB: congestion signals are simple and effective for network load balancing", SIGCOMM
2022 (rehash). "Hopper", arXiv 2506.08132 (best of two). J. Dong and others, "C4", HPCA 2025 (planned at the start).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from foliot_remediator.core.steering.improvement import improvement, shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_remediator.core.steering.assignment import Flows

ROUNDS = 60
_CONTENT = 0.95
_PROBABILITY = 0.3


class Policy(Protocol):
    """Gives flows their ways."""

    def __call__(
        self,
        flows: Flows,
        capacity_bps: NDArray[np.float64],
        present: NDArray[np.intp],
        rng: np.random.Generator,
        /,
    ) -> tuple[NDArray[np.intp], int]:
        """Returns the way of each flow, shape (flows,), and how many moves were made.

        Parameters:
            flows: the flows, and the ways that each may take.
            capacity_bps: of each link, shape (links,).
            present: the way of each flow, shape (flows,).
            rng: draws what is left to chance.
        """


def left_to_the_hash(
    _flows: Flows, _capacity_bps: NDArray[np.float64], present: NDArray[np.intp], _rng: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """No flow moves."""
    return present, 0


def rehash(
    flows: Flows, capacity_bps: NDArray[np.float64], present: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """A slow flow takes another way by chance."""
    chosen, moves = present.copy(), 0
    for _ in range(ROUNDS):
        slow = _slow(flows, capacity_bps, chosen, rng)
        chosen[slow] = rng.integers(flows.possible.shape[1], size=len(slow))
        moves += len(slow)
    return chosen, moves


def best_of_two(
    flows: Flows, capacity_bps: NDArray[np.float64], present: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """A slow flow looks at two other ways by chance, and takes the better one, if that is better than its own."""
    chosen, moves = present.copy(), 0
    count = flows.possible.shape[1]
    for _ in range(ROUNDS):
        slow = _slow(flows, capacity_bps, chosen, rng)
        load = _load(flows, len(capacity_bps), chosen)
        demand = flows.demand_bps[slow]
        tried = rng.integers(count, size=(len(slow), 2))
        others = flows.ways[slow[:, None], tried]
        own = flows.ways[slow, chosen[slow]]
        now = ((load / capacity_bps)[own]).max(axis=1)
        then = ((load[others] + demand[:, None, None]) / capacity_bps[others]).max(axis=2)
        best = then.argmin(axis=1)
        better = then[np.arange(len(slow)), best] < now
        chosen[slow[better]] = tried[np.arange(len(slow)), best][better]
        moves += int(better.sum())
    return chosen, moves


def planned(
    flows: Flows, capacity_bps: NDArray[np.float64], present: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """Each flow gets the way that is least used when it begins, one after another, and keeps it."""
    load = np.zeros(len(capacity_bps))
    chosen = present.copy()
    for flow in rng.permutation(len(present)).tolist():
        way = int((load[flows.ways[flow]] / capacity_bps[flows.ways[flow]]).max(axis=1).argmin())
        chosen[flow] = way
        load[flows.ways[flow, way]] += flows.demand_bps[flow]
    return chosen, 0


def foliot(
    flows: Flows, capacity_bps: NDArray[np.float64], present: NDArray[np.intp], rng: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """The remediator's plan."""
    found = improvement(flows, capacity_bps, present, rng)
    return found.chosen, len(found.moved)


POLICIES: dict[str, Policy] = {
    "hash": left_to_the_hash,
    "rehash": rehash,
    "best-of-two": best_of_two,
    "planned": planned,
    "foliot": foliot,
}


def _slow(
    flows: Flows, capacity_bps: NDArray[np.float64], chosen: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    slow = shares(flows, capacity_bps, chosen) < _CONTENT
    return np.flatnonzero(slow & (rng.random(len(chosen)) < _PROBABILITY))


def _load(flows: Flows, count: int, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    links = flows.ways[np.arange(len(chosen)), chosen]
    load = np.bincount(links.ravel(), np.repeat(flows.demand_bps, links.shape[1]), minlength=count)
    return load.astype(np.float64, copy=False)
