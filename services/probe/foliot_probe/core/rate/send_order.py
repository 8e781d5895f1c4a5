"""The order in which the probes of a tick leave a node.

The first packet after a pause finds cold caches. On a slow virtual machine it takes 85 to 95 ns longer at best than the next one. If the same stream were
always first at one end and never at the other, half of that would be an error of the offset which no stamp shows. So chance says which socket begins, and
which probe begins on it: each single probe and each first one of a pair is equally often the first of a tick. The least delay of a window is then
a later packet's in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

PROBES_A_ROUND = 3
"""Of a stream at most: a coded pair and one of full size."""
_PADDED = PROBES_A_ROUND - 1


class Probes(NamedTuple):
    """The probes of a tick; columns of one length."""

    row: Rows
    """Of the stream."""
    turn: NDArray[np.integer]
    """Place in the sequence of its row's probes of this tick."""
    padded: NDArray[np.bool_]
    """To full size."""


def of_tick(due: Rows, coded: Rows, full: Rows, rows: int) -> Probes:
    """All probes of a tick, first one of each row that is due.

    A single probe is padded itself; none of a coded pair is, so that a third one follows these.

    Parameters:
        due: rows that send, each once, as the next two.
        coded: rows that send a second probe right after.
        full: rows that send one of full size.
        rows: of the table.
    """
    single = np.zeros(rows, np.bool_)
    single[full] = True
    single[coded] = False
    extra = full[~single[full]]
    row = np.concatenate([due, coded, extra])
    turn = np.zeros(len(row), np.intp)
    turn[len(due) :] = 1
    turn[len(due) + len(coded) :] = _PADDED
    padded = turn == _PADDED
    padded[: len(due)] = single[due]
    return Probes(row, turn, padded)


def send_order(probes: Probes, place: Rows, due: int, random: np.random.Generator) -> tuple[Rows, int]:
    """The order of a tick's probes, sorted by their sockets, and the socket that begins: `round_from` it, one socket follows another.

    On each socket first all single probes and firsts of pairs: what lies between is the pairs' gap. Padded ones come last, as others would wait for
    them, one of a pair longer than the other.

    Parameters:
        probes: of a tick, one of each due row first.
        place: the socket of each.
        due: how many rows are due, at least one.
        random: draws once for each probe, and once more.
    """
    rank = PROBES_A_ROUND * place + np.where(probes.padded, _PADDED, probes.turn)
    return np.argsort(rank + random.random(len(place))), place.item(int(random.random() * due))


def round_from(begins: int, places: int) -> tuple[int, ...]:
    """All sockets, from one on to the last and then from the first."""
    return (*range(begins, places), *range(begins))
