"""The network effect: offsets of clocks that make every loop of the mesh close, with the smallest change to the pairs.

Least squares of node offsets over the graph is the same as Huygens' correction over its independent loops, without
enumerating any: ``(B' W B) x = B' W d`` with the reference grounded, B the incidence matrix, W = 1/variance.
It can only remove errors that do not look like clocks' offsets: an asymmetry that one node has towards all others
is invisible to any method that looks at stamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg, splu

if TYPE_CHECKING:
    from numpy.typing import NDArray

OUTLIER_SIGMAS = 5.0
"""A pair whose misfit is larger is left out. At 100,000 pairs, 0.06 sound ones are expected beyond it."""

_HUBER = 1.5
"""Where the weight of a misfit begins to fall; the usual 1.345 gives 95 % efficiency, more still bounds influence."""

_ROUNDS = 12
"""Reweightings; the misfits of a mesh with one bad pair in seven settle in five to eight."""

_SETTLED = 0.02
"""Weights that change by less move no value by a hundredth of its deviation."""

_FEW = 100
"""Nodes up to which the equations are solved and inverted whole; at 1,000 that takes as long as all else together."""

_PRECISE = 1e-3
"""In deviations of the values, all together: rounding to whole nanoseconds costs more."""

_MOST_STEPS = 500

_PASSES = 6
"""Of messages between neighbours: what holds a node within six edges; what is farther adds less than a per cent where it has any choice."""

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
    value = _least_squares(edges, weights, reached, ground, np.zeros(len(reached)))
    if len(edges.start) < int(reached.sum()):
        return value, everyone  # A tree: whatever its edges say closes.
    before = np.ones(len(weights))
    for _ in range(_ROUNDS):
        misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
        scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
        share = np.minimum(1, _HUBER * scale / np.maximum(misfit, 1e-9))
        if np.abs(share - before).max() < _SETTLED:
            break
        value, before = _least_squares(edges, weights * share, reached, ground, value), share
    misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
    scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
    accepted = _outvoted(edges, misfit / scale, len(reached))
    return _least_squares(edges, np.where(accepted, weights, 0.0), reached, ground, value), accepted


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


def _laplacian(edges: Edges, weights: NDArray[np.float64], unknown: NDArray[np.int64], nodes: int) -> csr_array:
    """``B' W B`` of the nodes whose values are wanted."""
    rows = np.concatenate((edges.start, edges.end, edges.start, edges.end))
    columns = np.concatenate((edges.start, edges.end, edges.end, edges.start))
    values = np.concatenate((weights, weights, -weights, -weights))
    whole = coo_array((values, (rows, columns)), shape=(nodes, nodes)).tocsr()
    return csr_array(whole[unknown][:, unknown])


def _least_squares(
    edges: Edges, weights: NDArray[np.float64], reached: NDArray[np.bool_], ground: int, near: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The values that fit the edges best, sought from near ones."""
    value = np.zeros(len(reached))
    unknown = _unknown(reached, ground)
    if not len(unknown):
        return value
    pull = np.bincount(edges.start, weights=weights * edges.difference, minlength=len(reached))
    pull -= np.bincount(edges.end, weights=weights * edges.difference, minlength=len(reached))
    laplacian = _laplacian(edges, weights, unknown, len(reached))
    if len(unknown) <= _FEW:
        value[unknown] = splu(laplacian.tocsc()).solve(pull[unknown])
    else:
        value[unknown] = _conjugate(laplacian, pull[unknown], near[unknown])
    return value


def _conjugate(laplacian: csr_array, pull: NDArray[Any], near: NDArray[np.float64]) -> NDArray[np.float64]:
    """The solution by conjugate gradients, each value scaled by its own weight.

    A mesh of random edges has no ordering that keeps its factors sparse, and needs some tens of steps however large it is (Saad, Iterative Methods for Sparse
    Linear Systems, 2003, 9.2).
    """
    scale = 1 / np.sqrt(laplacian.diagonal())
    scaled = csr_array(laplacian.multiply(scale[:, None]).multiply(scale[None, :]))
    # Where it has not arrived after so many, it is as near as floats get.
    value, _ = cg(scaled, pull * scale, x0=near / scale, rtol=0.0, atol=_PRECISE, maxiter=_MOST_STEPS)
    found: NDArray[np.float64] = value * scale
    return found


def _variances(
    edges: Edges, weights: NDArray[np.float64], reached: NDArray[np.bool_], ground: int
) -> NDArray[np.float64]:
    """The variance of each value: the diagonal of the inverse Laplacian, or of a large one nearly that."""
    variance = np.zeros(len(reached))
    unknown = _unknown(reached, ground)
    if not len(unknown):
        return variance
    if len(unknown) <= _FEW:
        factor = splu(_laplacian(edges, weights, unknown, len(reached)).tocsc())
        variance[unknown] = np.diagonal(factor.solve(np.eye(len(unknown))))
    else:
        spread = _spread(edges, weights, len(reached))
        variance[unknown] = spread[unknown] + spread[ground]
    return variance


def _spread(edges: Edges, weights: NDArray[np.float64], nodes: int) -> NDArray[np.float64]:
    """About the variance of each value against the mean of a large mesh.

    Each node is held by its edges, each of which is as good as itself and what holds its other end without it: belief propagation, which is exact on
    trees, and short by a few per cent where every node has several neighbours (Weiss and Freeman, Neural Computation 13, 2001).
    """
    start, end = np.concatenate((edges.start, edges.end)), np.concatenate((edges.end, edges.start))
    both = np.concatenate((weights, weights))
    own = np.where(both > 0, 1 / np.where(both > 0, both, 1.0), np.inf)
    count = len(weights)
    back = np.concatenate((np.arange(count, 2 * count), np.arange(count)))
    message = both.copy()
    for _ in range(_PASSES):
        held = np.bincount(end, weights=message, minlength=nodes)
        rest = np.maximum(held[start] - message[back], 0.0)
        message = 1 / (own + np.where(rest > 0, 1 / np.where(rest > 0, rest, 1.0), np.inf))
    held = np.bincount(end, weights=message, minlength=nodes)
    spread: NDArray[np.float64] = np.where(held > 0, 1 / np.where(held > 0, held, 1.0), np.inf)
    return spread


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
