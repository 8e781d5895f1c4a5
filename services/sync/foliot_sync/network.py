"""The network effect: offsets of clocks that make every loop of the mesh close, with the smallest change to the pairs.

Least squares of node offsets over the graph is the same as Huygens' correction over its independent loops, without
enumerating any: ``(B' W B) x = B' W d`` with the reference grounded, B the incidence matrix, W = 1/variance.
It can only remove errors that do not look like clocks' offsets: an asymmetry that one node has towards all others
is invisible to any method that looks at stamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csc_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUTLIER_SIGMAS = 5.0
"""A pair whose misfit is larger is left out. At 100,000 pairs, 0.06 sound ones are expected beyond it."""

_HUBER = 1.5
"""Where the weight of a misfit begins to fall; the usual 1.345 gives 95 % efficiency, more still bounds influence."""

_ROUNDS = 12
"""Reweightings; the misfits of a mesh with one bad pair in seven settle in five to eight."""

_NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""


class Edges(NamedTuple):
    """Differences between nodes: what `start` has more than `end`."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    difference: NDArray[np.float64]
    variance: NDArray[np.float64]


class Solution(NamedTuple):
    """Values of the nodes relative to the grounded one."""

    value: NDArray[np.float64]
    """nan where the mesh does not connect a node to the ground."""
    variance: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    """Per edge."""
    neighbours: NDArray[np.int64]
    """Per node, over accepted edges; parallel ones count once."""
    surplus: float
    """Root mean square misfit of the accepted edges, by their weights and per independent loop: an estimate of the
    error of a pair that counts."""


def solve(edges: Edges, nodes: int, ground: int) -> Solution:
    """The values of all nodes that accepted edges connect to the ground, whose value is 0."""
    labels = _components(edges.start, edges.end, nodes)
    reached = labels == labels[ground]
    usable = reached[edges.start]
    some = Edges(edges.start[usable], edges.end[usable], edges.difference[usable], edges.variance[usable])
    weights = 1 / some.variance
    value, accepted = _robust(some, weights, reached, ground)
    misfit = np.where(accepted, some.difference - (value[some.start] - value[some.end]), 0.0)
    loops = int(accepted.sum()) - (int(reached.sum()) - 1)
    believed = np.where(accepted, weights, 0.0)
    mean_square = float((believed * misfit**2).sum() / believed.sum()) if loops > 0 else 0.0
    surplus = (mean_square * int(accepted.sum()) / max(loops, 1)) ** 0.5
    excess = max(1.0, float((weights * misfit**2).sum()) / loops) if loops > 0 else 1.0
    variance = _variances(some, np.where(accepted, weights, 0.0), reached, ground) * excess
    everywhere = np.zeros(len(edges.start), dtype=bool)
    everywhere[usable] = accepted
    return Solution(
        value=np.where(reached, value, np.nan),
        variance=np.where(reached, variance, np.nan),
        accepted=everywhere,
        neighbours=_neighbours(some, accepted, nodes),
        surplus=surplus,
    )


def _robust(
    edges: Edges, weights: NDArray[np.float64], reached: NDArray[np.bool_], ground: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The values, and which edges they rest on."""
    everyone = np.ones(len(edges.start), dtype=bool)
    value = _least_squares(edges, weights, reached, ground)
    if len(edges.start) < int(reached.sum()):
        return value, everyone  # A tree: whatever its edges say closes.
    for _ in range(_ROUNDS):
        misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
        scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
        value = _least_squares(
            edges, weights * np.minimum(1, _HUBER * scale / np.maximum(misfit, 1e-9)), reached, ground
        )
    misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
    scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
    accepted = _outvoted(edges, misfit / scale, len(reached))
    return _least_squares(edges, np.where(accepted, weights, 0.0), reached, ground), accepted


def _outvoted(edges: Edges, misfit: NDArray[np.float64], nodes: int) -> NDArray[np.bool_]:
    """Which edges stay: the worst go, as long as both their ends keep two others that outvote them.

    Where all the edges between two parts of the mesh contradict each other, nobody outvotes anybody, and they stay.
    """
    accepted = np.ones(len(edges.start), dtype=bool)
    degree = np.bincount(edges.start, minlength=nodes) + np.bincount(edges.end, minlength=nodes)
    suspects = np.flatnonzero(misfit > OUTLIER_SIGMAS)
    for edge in suspects[np.argsort(-misfit[suspects])]:
        ends = [edges.start[edge], edges.end[edge]]
        if (degree[ends] >= 3).all():
            accepted[edge] = False
            degree[ends] -= 1
    labels = _components(edges.start[accepted], edges.end[accepted], nodes)
    accepted |= labels[edges.start] != labels[edges.end]
    return accepted


def _laplacian(edges: Edges, weights: NDArray[np.float64], unknown: NDArray[np.int64], nodes: int) -> csc_array:
    """``B' W B`` of the nodes whose values are wanted; those without any weight hold themselves at 0."""
    rows = np.concatenate((edges.start, edges.end, edges.start, edges.end))
    columns = np.concatenate((edges.start, edges.end, edges.end, edges.start))
    values = np.concatenate((weights, weights, -weights, -weights))
    whole = coo_array((values, (rows, columns)), shape=(nodes, nodes)).tocsr()
    return csc_array(whole[unknown][:, unknown])


def _least_squares(
    edges: Edges, weights: NDArray[np.float64], reached: NDArray[np.bool_], ground: int
) -> NDArray[np.float64]:
    """The values that fit the edges best."""
    value = np.zeros(len(reached))
    unknown = _unknown(reached, ground)
    if len(unknown):
        pull = np.bincount(edges.start, weights=weights * edges.difference, minlength=len(reached))
        pull -= np.bincount(edges.end, weights=weights * edges.difference, minlength=len(reached))
        value[unknown] = splu(_laplacian(edges, weights, unknown, len(reached))).solve(pull[unknown])
    return value


def _variances(
    edges: Edges, weights: NDArray[np.float64], reached: NDArray[np.bool_], ground: int
) -> NDArray[np.float64]:
    """The variance of each value: the diagonal of the inverse Laplacian."""
    variance = np.zeros(len(reached))
    unknown = _unknown(reached, ground)
    if len(unknown):
        factor = splu(_laplacian(edges, weights, unknown, len(reached)))
        variance[unknown] = np.diagonal(factor.solve(np.eye(len(unknown))))
    return variance


def _unknown(reached: NDArray[np.bool_], ground: int) -> NDArray[np.int64]:
    """The nodes whose values are wanted."""
    wanted = reached.copy()
    wanted[ground] = False
    return np.flatnonzero(wanted)


def _components(start: NDArray[np.int64], end: NDArray[np.int64], nodes: int) -> NDArray[np.int32]:
    """Per node, which of the parts that the edges join it belongs to."""
    graph = coo_array((np.ones(len(start)), (start, end)), shape=(nodes, nodes)).tocsr()
    labels: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return labels


def _neighbours(edges: Edges, accepted: NDArray[np.bool_], nodes: int) -> NDArray[np.int64]:
    """How many others each node has an accepted edge with."""
    low, high = np.minimum(edges.start, edges.end)[accepted], np.maximum(edges.start, edges.end)[accepted]
    distinct = np.unique(low * nodes + high)
    counts: NDArray[np.int64] = np.bincount(distinct // nodes, minlength=nodes)
    counts += np.bincount(distinct % nodes, minlength=nodes)
    return counts
