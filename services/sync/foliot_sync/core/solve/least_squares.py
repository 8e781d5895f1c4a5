"""The network effect: offsets of clocks that make every loop of the mesh close, with the smallest change to the pairs.

Least squares of node offsets over the graph is the same as Huygens' correction over its independent loops, without
enumerating any. It solves ``(B' W B) x = B' W d`` with the reference grounded, where B is the incidence matrix and W =
1/variance. It can only remove errors that do not look like clocks' offsets. An asymmetry that one node has towards all
others is invisible to any method that looks at stamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from foliot import native
from foliot_sync.core.arrays import take

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot_sync.core.arrays import Floats, Ints, Mask

OUTLIER_SIGMAS = 5.0
"""A pair whose misfit is larger is left out. At 100,000 pairs, 0.06 sound ones are expected beyond it."""

_HUBER = 1.5
"""Where the weight of a misfit begins to fall; the usual 1.345 gives 95 % efficiency, more still bounds influence."""

_ROUNDS = 12
"""Reweightings; the misfits of a mesh with one bad pair in seven settle in five to eight."""

_SETTLED = 0.05
"""Values are near enough when a reweighting moves none of them by more than this share of its deviation."""

_FEW = 100
"""Nodes up to which the equations are solved and inverted whole; at 1,000 that takes as long as all else together."""

_PRECISE = 0.05
"""Precision of the values: none is further off than this share of its deviation."""

_LOOK_BACK = 10
"""Steps whose gains together show how far off the values were before them."""

_GRIP = 1e-13
"""The weight, relative to a node's edges together, by which every node holds on to 0. It is far below what any real
mesh shows. It keeps floats from setting a part of the mesh adrift, where that part's edges to the rest weigh nothing
beside its own."""

_MOST_STEPS = 1_000

_MOST_PARTS = 500
"""Parts that are moved as wholes, at most: beyond that, their own equations take as long as all else."""

_APART = 0.1
"""An edge with less of the weight of both its ends' heaviest ones joins two parts, and holds none together."""

_PASSES = 6
"""Passes of messages between neighbours, which count all edges up to six away.

Farther ones add less than a per cent where a node has any choice.
"""

_NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""


class Edges(NamedTuple):
    """Differences between nodes: what `start` has more than `end`."""

    start: Ints
    end: Ints
    difference: Floats
    variance: Floats


class Solution(NamedTuple):
    """Values of the nodes relative to the grounded one."""

    value: Floats
    """nan where the mesh does not connect a node to the ground."""
    variance: Floats
    accepted: Mask
    """Whether each edge counts."""
    neighbours: Ints
    """Number of each node's neighbours over accepted edges; parallel ones count once."""
    surplus: float
    """Root mean square misfit of the accepted edges, by their weights and per independent loop: an estimate of the
    error of a pair that counts."""
    misfit: Floats
    """What each edge has more than the values say that fit all of them as they are; nan where it counts for none."""


def solve(edges: Edges, nodes: int, ground: int, lasting: Floats | float = 0.0) -> Solution:
    """The values of all nodes that accepted edges connect to the ground, whose value is 0.

    Parameters:
        edges: any; two nodes may have several.
        nodes: how many there are.
        ground: the node whose value is 0.
        lasting: what each edge's difference is usually off by. The values are corrected by that. Which edges count,
            and how well they fit, is judged without it.
    """
    labels = _components(edges.start, edges.end, nodes)
    reached = labels == labels[ground]
    usable = reached[edges.start]
    some = take(edges, usable)
    weights = 1 / some.variance
    system = _System(some, reached & (np.arange(nodes) != ground))
    value, accepted = _robust(system, some, weights)
    misfit = np.where(accepted, some.difference - (value[some.start] - value[some.end]), 0.0)
    loops = int(accepted.sum()) - (int(reached.sum()) - 1)
    believed = np.where(accepted, weights, 0.0)
    mean_square = float((believed * misfit**2).sum() / believed.sum()) if loops > 0 else 0.0
    surplus = (mean_square * int(accepted.sum()) / max(loops, 1)) ** 0.5
    excess = max(1.0, float((weights * misfit**2).sum()) / loops) if loops > 0 else 1.0
    variance = _variances(system, some, np.where(accepted, weights, 0.0), ground) * excess
    everywhere = np.zeros(len(edges.start), dtype=bool)
    everywhere[usable] = accepted
    off = np.full(len(edges.start), np.nan)
    off[usable] = np.where(accepted, misfit, np.nan)
    usual = np.where(accepted, np.broadcast_to(lasting, edges.start.shape)[usable], 0.0)
    if usual.any():
        value = value - _System(some._replace(difference=usual), system.unknown).solve(believed, np.zeros(nodes))
    return Solution(
        value=np.where(reached, value, np.nan),
        variance=np.where(reached, variance, np.nan),
        accepted=everywhere,
        neighbours=_neighbours(some, accepted, nodes),
        surplus=surplus,
        misfit=off,
    )


def _robust(system: _System, edges: Edges, weights: Floats) -> tuple[Floats, Mask]:
    """The values, and the edges that they rest on."""
    nodes = len(system.unknown)
    value = system.solve(weights, np.zeros(nodes))
    if len(edges.start) < int(system.unknown.sum()) + 1:
        return value, np.ones(len(edges.start), dtype=bool)  # A tree: whatever its edges say closes.
    for _ in range(_ROUNDS):
        misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
        scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
        share = np.minimum(1, _HUBER * scale / np.maximum(misfit, 1e-9))
        before, value = value, system.solve(weights * share, value)
        if (np.abs(value - before) * system.firmness(weights)).max() < _SETTLED * scale:
            break
    misfit = np.abs(edges.difference - (value[edges.start] - value[edges.end])) * np.sqrt(weights)
    scale = max(1.0, float(np.median(misfit)) / _NORMAL_MEDIAN)
    accepted = _outvoted(edges, misfit / scale, nodes)
    return system.solve(np.where(accepted, weights, 0.0), value), accepted


def _outvoted(edges: Edges, misfit: Floats, nodes: int) -> Mask:
    """Selects the edges that stay. The worst go, as long as both their ends keep two others that outvote them.

    Where all the edges between two parts of the mesh contradict each other, none outvotes another, and they stay.
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


class _System:
    """``B' W B`` of the nodes whose values are wanted, for one weighting of the edges after another.

    The others are in it, too, but hold on to nothing: their values are 0.
    """

    def __init__(self, edges: Edges, unknown: Mask) -> None:
        nodes = len(unknown)
        self.unknown = unknown
        self._edges = edges
        self._inner = unknown[edges.start] & unknown[edges.end]
        rows = np.concatenate((edges.start, edges.end, np.arange(nodes)))
        self._order = np.argsort(rows, kind="stable")
        self._columns = np.concatenate((edges.end, edges.start, np.arange(nodes)))[self._order]
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=nodes))))
        self._part: Ints | None = None

    def firmness(self, weights: Floats) -> Floats:
        """One over the deviation that each node would have if its neighbours were known."""
        return np.sqrt(self._held(weights))

    def matrix(self, weights: Floats, scale: Floats) -> csr_array:
        """The matrix, its rows and columns scaled."""
        return self._matrix(self._values(weights, scale))

    def _values(self, weights: Floats, scale: Floats) -> Floats:
        """What stands in the matrix, row by row."""
        edges = self._edges
        between = np.where(self._inner, -weights * scale[edges.start] * scale[edges.end], 0.0)
        held = np.where(self.unknown, self._held(weights) * scale**2 * (1 + _GRIP), 1.0)
        values: Floats = np.concatenate((between, between, held))[self._order]
        return values

    def _matrix(self, values: Floats) -> csr_array:
        nodes = len(self.unknown)
        return csr_array((values, self._columns, self._starts), shape=(nodes, nodes))

    def solve(self, weights: Floats, near: Floats) -> Floats:
        """The values that fit the edges best, sought from near ones."""
        edges, nodes = self._edges, len(self.unknown)
        wanted = weights * edges.difference
        away = np.bincount(edges.start, wanted, minlength=nodes) - np.bincount(edges.end, wanted, minlength=nodes)
        pull = np.where(self.unknown, away, 0.0).astype(np.float64)
        if not self.unknown.any():
            return pull
        if int(self.unknown.sum()) <= _FEW:
            some = np.flatnonzero(self.unknown)
            value = np.zeros(nodes)
            value[some] = splu(self.matrix(weights, np.ones(nodes))[some][:, some].tocsc()).solve(pull[some])
            return value
        return self._by_gradients(weights, pull, near)

    def _by_gradients(self, weights: Floats, pull: Floats, near: Floats) -> Floats:
        """The solution by conjugate gradients, each value scaled by its own weight.

        A mesh of random edges has no ordering that keeps its factors sparse. It needs some tens of steps however large
        it is (Saad, Iterative Methods for Sparse Linear Systems, 2003, 9.2).

        Each step tells by how much it lessens the error. Its norm bounds every value's error in that value's own
        deviations (Strakos and Tichy, Electronic Transactions on Numerical Analysis 13, 2002). The residual would not
        do. Where light edges join two parts of the mesh, a part that is far off leaves hardly any.
        """
        scale = np.where(self.unknown, 1 / np.sqrt(np.where(self.unknown, self._held(weights), 1.0)), 1.0)
        values = self._values(weights, scale)
        if self._part is None:  # by the first weights: what eases the way need not be exact
            self._part = _parts(self._edges, weights, len(pull))
        parts = _whole_parts(self._matrix(values), self._part, np.where(self.unknown, 1 / scale, 0.0))
        matrix = self._starts, self._columns, values
        limits = _MOST_STEPS, _LOOK_BACK, _PRECISE**2
        found: Floats = _conjugate(matrix, pull * scale, near / scale, parts, limits) * scale
        return found

    def _held(self, weights: Floats) -> Floats:
        """The sum of the weights of each node's edges."""
        nodes = len(self.unknown)
        held = np.bincount(self._edges.start, weights=weights, minlength=nodes)
        return np.asarray(held + np.bincount(self._edges.end, weights=weights, minlength=nodes), np.float64)


def _variances(system: _System, edges: Edges, weights: Floats, ground: int) -> Floats:
    """The variance of each value: the diagonal of the inverse Laplacian, or of a large one nearly that.

    Where parts of the mesh hang together by light edges, as leaves do by loaded spines, the nodes of a part are off
    together. What they know of one another says nothing of that, so the parts' own variances are added: those of a mesh
    with a node for each part.
    """
    nodes = len(system.unknown)
    variance, some = np.zeros(nodes), np.flatnonzero(system.unknown)
    if not len(some):
        return variance
    if len(some) <= _FEW:
        factor = splu(system.matrix(weights, np.ones(nodes))[some][:, some].tocsc())
        variance[some] = np.diagonal(factor.solve(np.eye(len(some))))
        return variance
    spread = _spread(edges, weights, nodes)
    variance[some] = spread[some] + spread[ground]
    part = _parts(edges, weights, nodes)
    count = int(part.max()) + 1
    if 1 < count < nodes:
        across = part[edges.start] != part[edges.end]
        joining = take(edges, across)._replace(start=part[edges.start[across]], end=part[edges.end[across]])
        wanted = np.zeros(count, dtype=bool)
        wanted[part[some]] = True
        wanted[part[ground]] = False
        variance[some] += _variances(_System(joining, wanted), joining, weights[across], int(part[ground]))[part[some]]
    return variance


def _whole_parts(matrix: csr_array, part: Ints, rigid: Floats) -> tuple[Ints, Floats, Floats]:
    """The parts that are moved as wholes, for `conjugate_by_numpy`.

    The steps of gradients alone would find these moves last, and seem to have arrived before.

    Parameters:
        part: the part of each node.
        rigid: a move of all nodes by the same value, in the matrix's scale; 0 where a node does not move.
    """
    moving, numbers = np.flatnonzero(rigid), np.full(len(rigid), -1)
    number = np.unique(part[moving], return_inverse=True)[1]
    count = int(number.max()) + 1
    if not 1 < count <= _MOST_PARTS:
        return numbers, rigid, np.zeros((0, 0))
    numbers[moving] = number
    move = csr_array((rigid[moving], (moving, number)), shape=(len(rigid), count))
    return numbers, rigid, np.linalg.inv((move.T.tocsr() @ matrix @ move).toarray())


def conjugate_by_numpy(
    matrix: tuple[Ints, Ints, Floats],
    pull: Floats,
    near: Floats,
    parts: tuple[Ints, Floats, Floats],
    limits: tuple[int, int, float],
) -> Floats:
    """The twin of `foliot_native.mesh.conjugate`: the solution of symmetric equations by conjugate gradients.

    Parameters:
        matrix: starts, columns and values of its rows.
        pull: the right-hand side.
        near: where to begin.
        parts: the part of each row, -1: none; a move that leaves its part rigid; and the inverse of the equations of
            the parts, of no parts where none is moved as a whole.
        limits: the most steps, how many of them together show the error, and how large its square may be.
    """
    (starts, columns, values), (most, look_back, precise) = matrix, limits
    rows, (number, rigid, inverse) = csr_array((values, columns, starts), shape=(len(pull), len(pull))), parts
    moving = np.flatnonzero(number >= 0)
    part, rigid = number[moving], rigid[moving]

    def eased(residual: Floats) -> Floats:
        if not len(inverse):
            return residual
        pulls = np.bincount(part, rigid * residual[moving], minlength=len(inverse))
        found = residual.copy()
        found[moving] += rigid * (inverse * pulls).sum(axis=1)[part]
        return found

    value, residual = near, pull - rows @ near
    direction = eased(residual)
    square = float((residual * direction).sum())
    gains: list[float] = []
    # Where it has not arrived after so many steps, it is as near as floats get.
    while square > 0 and len(gains) < most:
        turned = rows @ direction
        steep = float((direction * turned).sum())
        if not steep > 0:  # rounding is all that is left
            break
        length = square / steep
        value = value + length * direction
        residual = residual - length * turned
        gains.append(length * square)
        if len(gains) >= look_back and sum(gains[-look_back:]) < precise:
            break
        eased_residual = eased(residual)
        before, square = square, float((residual * eased_residual).sum())
        direction = eased_residual + square / before * direction
    return value


_compiled = native.compiled("mesh")
_conjugate: Callable[
    [
        tuple[Ints, Ints, Floats],
        Floats,
        Floats,
        tuple[Ints, Floats, Floats],
        tuple[int, int, float],
    ],
    Floats,
] = _compiled.conjugate if _compiled else conjugate_by_numpy


def _parts(edges: Edges, weights: Floats, nodes: int) -> Ints:
    """The number of the part that each node belongs to: those that edges hold together which are not light."""
    heaviest = np.zeros(nodes)
    np.maximum.at(heaviest, edges.start, weights)
    np.maximum.at(heaviest, edges.end, weights)
    firm = (weights > 0) & (weights >= _APART * np.minimum(heaviest[edges.start], heaviest[edges.end]))
    return _components(edges.start[firm], edges.end[firm], nodes).astype(np.int64)


def _spread(edges: Edges, weights: Floats, nodes: int) -> Floats:
    """About the variance of each value against the mean of a large mesh.

    Each node is held by its edges. An edge is worth its own weight and what holds its other end without it. This is
    belief propagation (Weiss and Freeman, Neural Computation 13, 2001). It is exact on trees, and short by a few per
    cent where every node has several neighbours.
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
    spread: Floats = np.where(held > 0, 1 / np.where(held > 0, held, 1.0), np.inf)
    return spread


def _components(start: Ints, end: Ints, nodes: int) -> NDArray[np.int32]:
    """The number of the connected part that each node belongs to."""
    graph = coo_array((np.ones(len(start)), (start, end)), shape=(nodes, nodes)).tocsr()
    labels: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return labels


def _neighbours(edges: Edges, accepted: Mask, nodes: int) -> Ints:
    """How many others each node has an accepted edge with."""
    low, high = np.minimum(edges.start, edges.end)[accepted], np.maximum(edges.start, edges.end)[accepted]
    # As a matrix, where parallel ones are one entry.
    distinct = coo_array((np.ones(len(low), np.int8), (low, high)), shape=(nodes, nodes)).tocsr()
    counts: Ints = np.diff(distinct.indptr) + np.bincount(distinct.indices, minlength=nodes)
    return counts
