"""The order in which the probes of a tick leave a node.

The first packet after a pause finds cold caches. On a slow virtual machine it takes 85 to 95 ns longer at best than the
next one. If the same stream were always first at one end and never at the other, half of that would be an error of the
offset. No stamp would show it. So the socket that begins is random, and the probe that begins on it too. Each
stream that is due is equally often the first. The least delay of a window is then a later packet's, in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

PROBES_A_ROUND = 3
"""Probes that a stream sends in a round at most: a coded pair and one of full size."""
_PADDED = PROBES_A_ROUND - 1


class Probes(NamedTuple):
    """The probes of a tick; columns of one length."""

    row: Rows
    """The row of each probe's stream."""
    turn: NDArray[np.integer]
    """The place of each probe in the sequence of its row's probes of this tick."""
    padded: NDArray[np.bool_]
    """Whether each probe has full size."""


def of_tick(due: Rows, coded: Rows, full: Rows, rows: int) -> Probes:
    """Returns all probes of a tick, first one of each row that is due.

    A single probe is padded itself. Neither probe of a coded pair is, so a third probe follows the pair.

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
    """Returns the order of a tick's probes, sorted by their sockets, and the socket that begins.

    On each socket, all single probes and firsts of pairs go before the second ones: the probes in between are the
    pairs' gap. Padded probes go last: others would wait for them, one of a pair longer than the other.

    Parameters:
        probes: of a tick, one of each due row first.
        place: the socket of each.
        due: how many rows are due, at least one.
        random: draws once for each probe, and once more.
    """
    rank = PROBES_A_ROUND * place + np.where(probes.padded, _PADDED, probes.turn)
    return np.argsort(rank + random.random(len(place))), place.item(int(random.random() * due))
