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

from foliot import native

if TYPE_CHECKING:
    from collections.abc import Callable

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
    ends = allowed.start, allowed.end
    # An interval lets `start` rise by `above` over `end`, and `end` rise by `below` over `start`.
    return np.maximum(*(_room(ends, room, nodes, ground) for room in ((above, below), (below, above))))


def _room(ends: tuple[Ints, Ints], room: tuple[Floats, Floats], nodes: int, ground: int) -> Floats:
    """Shortest distances from the ground; a mesh that needs more rounds is done node by node."""
    distance, settled = _distances(ends, room, nodes, ground, _MOST_ROUNDS)
    return distance if settled else _one_by_one(ends, room, nodes, ground)


def distances_by_numpy(
    ends: tuple[Ints, Ints], room: tuple[Floats, Floats], nodes: int, ground: int, rounds: int
) -> tuple[Floats, bool]:
    """The twin of `foliot_native.mesh.distances`: shortest distances from the ground, and whether the rounds were enough.

    All nodes ask their neighbours at once, again and again (Bellman, Quarterly of Applied Mathematics 16, 1958). In a
    random mesh no node is more than some edges away, and that many rounds are cheaper than going from node to node.

    Parameters:
        ends: start and end of each edge.
        room: its length from end to start, and from start to end.
    """
    (start, end), length = ends, np.concatenate(room)
    source, target = np.concatenate((end, start)), np.concatenate((start, end))
    order = np.argsort(target, kind="stable")
    source, length = source[order], length[order]
    reached, starts = np.unique(target[order], return_index=True)
    distance = np.full(nodes, np.inf)
    distance[ground] = 0.0
    for _ in range(rounds):
        if not len(reached):
            return distance, True
        nearer = np.minimum(np.minimum.reduceat(distance[source] + length, starts), distance[reached])
        if np.array_equal(nearer, distance[reached]):
            return distance, True
        distance[reached] = nearer
    return distance, False


_compiled = native.compiled("mesh")
_distances: Callable[[tuple[Ints, Ints], tuple[Floats, Floats], int, int, int], tuple[Floats, bool]] = (
    _compiled.distances if _compiled else distances_by_numpy
)


def _one_by_one(ends: tuple[Ints, Ints], room: tuple[Floats, Floats], nodes: int, ground: int) -> Floats:
    """The same by Dijkstra's method, for long meshes."""
    (start, end), length = ends, np.concatenate(room)
    source, target = np.concatenate((end, start)), np.concatenate((start, end))
    order = np.lexsort((length, target, source))
    key = source[order] * nodes + target[order]
    first = np.concatenate(([True], key[1:] != key[:-1])) if len(key) else np.zeros(0, dtype=bool)
    kept = order[first]
    graph = csr_array((length[kept], (source[kept], target[kept])), shape=(nodes, nodes))
    distances: Floats = dijkstra(graph, indices=ground)
    return distances
