"""The equations of a mesh, and shortest ways through it. The twins are in `foliot_sync.core.solve`.

Those are `least_squares` and `hard_bounds`. Floats are added in the order in which numpy adds them.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef enum:
    # numpy adds so many floats with eight sums, and halves what is longer.
    BLOCK = 128


cdef double dot(const double *one, const double *other, Py_ssize_t count) noexcept nogil:
    # The sum of products as numpy's `(one * other).sum()` rounds it, by pairs.
    cdef double part[8]
    cdef double total
    cdef Py_ssize_t at, half
    if count < 8:
        total = 0
        for at in range(count):
            total += one[at] * other[at]
        return total
    if count > BLOCK:
        half = count // 2
        half -= half % 8
        return dot(one, other, half) + dot(one + half, other + half, count - half)
    for at in range(8):
        part[at] = one[at] * other[at]
    at = 8
    while at + 8 <= count:
        for half in range(8):
            part[half] += one[at + half] * other[at + half]
        at += 8
    total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
    while at < count:
        total += one[at] * other[at]
        at += 1
    return total


cdef struct Matrix:
    # Rows of a sparse matrix.
    Py_ssize_t nodes
    const int64_t *starts
    const int64_t *columns
    const double *values


cdef void times(const Matrix *matrix, const double *vector, double *product) noexcept nogil:
    cdef Py_ssize_t row
    cdef int64_t at
    cdef double total
    for row in range(matrix.nodes):
        total = 0
        for at in range(matrix.starts[row], matrix.starts[row + 1]):
            total += matrix.values[at] * vector[matrix.columns[at]]
        product[row] = total


cdef struct Parts:
    # Parts of the mesh that are moved as wholes.
    Py_ssize_t count
    const int64_t *number
    const double *rigid
    const double *inverse
    double *pull
    double *move


cdef void ease(const Parts *parts, const double *residual, double *eased, Py_ssize_t nodes) noexcept nogil:
    # The residual, and the moves of whole parts that meet it.
    cdef Py_ssize_t node, part
    for part in range(parts.count):
        parts.pull[part] = 0
    for node in range(nodes):
        eased[node] = residual[node]
        if parts.count and parts.number[node] >= 0:
            parts.pull[parts.number[node]] += parts.rigid[node] * residual[node]
    for part in range(parts.count):
        parts.move[part] = dot(parts.inverse + part * parts.count, parts.pull, parts.count)
    if parts.count:
        for node in range(nodes):
            if parts.number[node] >= 0:
                eased[node] += parts.rigid[node] * parts.move[parts.number[node]]


def conjugate(matrix, pull, near, parts, limits):
    """The solution of symmetric equations by conjugate gradients, sought from near values.

    Parameters:
        matrix: starts, columns and values of its rows.
        pull: the right-hand side.
        near: where to begin.
        parts: those of the mesh that are moved as wholes: the part of each row, -1: none; a move of it that leaves the
            part rigid; and the inverse of the equations of the parts, of no parts where none is moved.
        limits: the most steps, how many of them together show the error, and how large its square may be.

    Raises:
        ValueError: columns of one table have different lengths, or rows are not in order.
        IndexError: there is no such row or part.
    """
    cdef const int64_t[::1] starts = np.ascontiguousarray(matrix[0], np.int64)
    cdef const int64_t[::1] columns = np.ascontiguousarray(matrix[1], np.int64)
    cdef const double[::1] values = np.ascontiguousarray(matrix[2], np.float64)
    cdef const double[::1] wanted = np.ascontiguousarray(pull, np.float64)
    cdef const int64_t[::1] number = np.ascontiguousarray(parts[0], np.int64)
    cdef const double[::1] rigid = np.ascontiguousarray(parts[1], np.float64)
    cdef const double[:, ::1] inverse = np.ascontiguousarray(parts[2], np.float64)
    cdef Py_ssize_t most = limits[0], look_back = limits[1], nodes = wanted.shape[0], count = inverse.shape[0], node
    cdef double precise = limits[2]
    found = np.array(near, np.float64)
    cdef double[::1] value = found
    if not (
        nodes == value.shape[0] == number.shape[0] == rigid.shape[0] == starts.shape[0] - 1
        and columns.shape[0] == values.shape[0] and count == inverse.shape[1]
    ):
        raise ValueError("columns of one table have different lengths")
    if look_back < 1 or starts[0] != 0 or starts[nodes] != columns.shape[0]:
        raise ValueError("rows are not in order")
    for node in range(nodes):
        if starts[node] > starts[node + 1]:
            raise ValueError("rows are not in order")
        if not -1 <= number[node] < max(count, 1):
            raise IndexError(f"part {number[node]} of {count}")
    for node in range(columns.shape[0]):
        if not 0 <= columns[node] < nodes:
            raise IndexError(f"row {columns[node]} of {nodes}")
    if nodes == 0:
        return found
    cdef Matrix rows
    cdef Parts whole
    cdef double *memory = <double *> malloc((4 * nodes + 2 * count + look_back) * sizeof(double))
    if memory == NULL:
        raise MemoryError
    rows.nodes, rows.starts = nodes, &starts[0]
    rows.columns = &columns[0] if columns.shape[0] else NULL
    rows.values = &values[0] if columns.shape[0] else NULL
    whole.count, whole.number, whole.rigid = count, &number[0], &rigid[0]
    whole.inverse = &inverse[0, 0] if count else NULL
    whole.pull, whole.move = memory + 4 * nodes, memory + 4 * nodes + count
    with nogil:
        descend(
            &rows, &whole, &wanted[0], &value[0], memory, memory + 4 * nodes + 2 * count, most, look_back, precise
        )
    free(memory)
    return found


cdef void descend(
    const Matrix *matrix, const Parts *parts, const double *pull, double *value, double *memory, double *gains,
    Py_ssize_t most, Py_ssize_t look_back, double precise,
) noexcept nogil:
    cdef Py_ssize_t nodes = matrix.nodes, node, step, back
    cdef double *residual = memory
    cdef double *eased = memory + nodes
    cdef double *direction = memory + 2 * nodes
    cdef double *turned = memory + 3 * nodes
    cdef double square, steep, length, before, together
    times(matrix, value, turned)
    for node in range(nodes):
        residual[node] = pull[node] - turned[node]
    ease(parts, residual, eased, nodes)
    for node in range(nodes):
        direction[node] = eased[node]
    square = dot(residual, eased, nodes)
    for step in range(most):
        if not square > 0:
            return
        times(matrix, direction, turned)
        steep = dot(direction, turned, nodes)
        if not steep > 0:
            return
        length = square / steep
        for node in range(nodes):
            value[node] += length * direction[node]
            residual[node] -= length * turned[node]
        gains[step % look_back] = length * square
        if step + 1 >= look_back:
            together = 0
            for back in range(look_back):
                together += gains[(step + 1 + back) % look_back]
            if together < precise:
                return
        ease(parts, residual, eased, nodes)
        before, square = square, dot(residual, eased, nodes)
        for node in range(nodes):
            direction[node] = eased[node] + square / before * direction[node]


def distances(ends, room, Py_ssize_t nodes, Py_ssize_t ground, Py_ssize_t rounds):
    """The shortest distance of each node from the ground, inf where there is no way; and whether the rounds were enough.

    Each round goes once over all edges, in both directions. Sums of floats rise with what is added. So the distances do
    not depend on the order in which edges are looked at, once none gets shorter.

    Parameters:
        ends: start and end of each edge.
        room: of each edge, its length from its end to its start, and that from its start to its end; none is below 0.
        nodes: how many there are.
        ground: the node at distance 0.
        rounds: after so many, it gives up.

    Raises:
        ValueError: columns of one table have different lengths.
        IndexError: there is no such node.
    """
    cdef const int64_t[::1] start = np.ascontiguousarray(ends[0], np.int64)
    cdef const int64_t[::1] end = np.ascontiguousarray(ends[1], np.int64)
    cdef const double[::1] back = np.ascontiguousarray(room[0], np.float64)
    cdef const double[::1] forth = np.ascontiguousarray(room[1], np.float64)
    cdef Py_ssize_t count = start.shape[0], edge, around
    if not count == end.shape[0] == back.shape[0] == forth.shape[0]:
        raise ValueError("columns of one table have different lengths")
    if not 0 <= ground < nodes:
        raise IndexError(f"node {ground} of {nodes}")
    for edge in range(count):
        if not (0 <= start[edge] < nodes and 0 <= end[edge] < nodes):
            raise IndexError(f"an edge from node {start[edge]} to node {end[edge]} of {nodes}")
    found = np.full(nodes, INFINITY)
    cdef double[::1] distance = found
    cdef bint shorter = True
    distance[ground] = 0
    with nogil:
        for around in range(rounds):
            if not shorter:
                break
            shorter = False
            for edge in range(count):
                if distance[end[edge]] + back[edge] < distance[start[edge]]:
                    distance[start[edge]] = distance[end[edge]] + back[edge]
                    shorter = True
                if distance[start[edge]] + forth[edge] < distance[end[edge]]:
                    distance[end[edge]] = distance[start[edge]] + forth[edge]
                    shorter = True
    return found, not shorter
