"""Hard bounds of the published offsets, whatever the paths' asymmetry: shortest paths through the mesh.

Every pair allows an interval for the difference of its two clocks, and the truth satisfies all of them. Take a graph
with an edge for each interval, as long as the room that it leaves above (below) the published difference. No clock can
be above (below) its published value by more than the shortest path from the reference in that graph. This is the
tightest bound that the intervals imply: the dual of a system of difference constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

if TYPE_CHECKING:
    from foliot_sync.core.arrays import Floats, Ints
_LEAST_NS = 1e-3
"""Length of an edge without room, or with less than none because the value strays out of the interval. A longer edge
is never wrong, and sparse graphs drop edges of length 0."""
_MOST_ROUNDS = 40
"""Rounds in which all nodes ask their neighbours.

A mesh of 100,000 clocks with ten random neighbours each needs ten at most.
"""


class HardBounds(NamedTuple):
    """Intervals that pairs of nodes allow for the truth of `start` minus that of `end`, less the published values of both."""

    start: Ints
    end: Ints
    lower: Floats
    upper: Floats


def hard_bounds(allowed: HardBounds, nodes: int, ground: int) -> Floats:
    """The largest distance of each node's truth from its published value; inf where no interval connects it.

    The ground is the node whose published value is the truth.
    """
    above, below = np.maximum(allowed.upper, _LEAST_NS), np.maximum(-allowed.lower, _LEAST_NS)
    # An interval lets `start` rise by `above` over `end`, and `end` rise by `below` over `start`.
    source = np.concatenate((allowed.end, allowed.start))
    target = np.concatenate((allowed.start, allowed.end))
    room = np.concatenate((above, below))
    rise = _distances((source, target), room, nodes, ground)
    fall = _distances((target, source), room, nodes, ground)
    return np.maximum(rise, fall)


def _distances(ends: tuple[Ints, Ints], length: Floats, nodes: int, ground: int) -> Floats:
    """Shortest distances from the ground.

    All nodes ask their neighbours at once, again and again (Bellman, Quarterly of Applied Mathematics 16, 1958). In a
    random mesh no node is more than some edges away, and that many rounds are cheaper than going from node to node. A
    mesh that needs more rounds is done node by node.
    """
    source, target = ends
    order = np.argsort(target, kind="stable")
    source, length = source[order], length[order]
    reached, starts = np.unique(target[order], return_index=True)
    distance = np.full(nodes, np.inf)
    distance[ground] = 0.0
    for _ in range(_MOST_ROUNDS):
        nearer = np.minimum(np.minimum.reduceat(distance[source] + length, starts), distance[reached])
        if np.array_equal(nearer, distance[reached]):
            return distance
        distance[reached] = nearer
    return _one_by_one((source, target[order]), length, nodes, ground)


def _one_by_one(ends: tuple[Ints, Ints], length: Floats, nodes: int, ground: int) -> Floats:
    """The same by Dijkstra's method, for long meshes."""
    source, target = ends
    order = np.lexsort((length, target, source))
    key = source[order] * nodes + target[order]
    first = np.concatenate(([True], key[1:] != key[:-1])) if len(key) else np.zeros(0, dtype=bool)
    kept = order[first]
    graph = csr_array((length[kept], (source[kept], target[kept])), shape=(nodes, nodes))
    distances: Floats = dijkstra(graph, indices=ground)
    return distances
