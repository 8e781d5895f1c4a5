"""Shortest distances through a mesh. The twin is `foliot_sync.core.solve.hard_bounds`."""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t


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
