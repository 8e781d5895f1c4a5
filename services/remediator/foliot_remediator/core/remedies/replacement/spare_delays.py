"""One-way delays between the nodes of spares and those of a job's ranks, before a spare joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.report_rows import ReportRows
from foliot_schemas import Witness
from foliot_schemas.delay_buckets import BUCKETS, MIDDLE_NS, bucket_of
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from foliot_schemas import DelayBatch

_SPELL_NS = 10_000_000_000
"""Delays count for one to two of these: a path of the slow sweep has twenty to a hundred probes in it."""
_MOST_PAIRS = 1 << 14
"""Pairs of nodes that are measured, 4 kB each."""
_UNWATCHED = -1

Pair = tuple[str, str]
"""Who sends, and who receives."""


class SpareDelays:
    """How the delays between pairs of nodes are spread, over all paths of a pair alike."""

    def __init__(self) -> None:
        self._places: dict[Pair, int] = {}
        self._rows = ReportRows()
        self._counts: NDArray[np.int64] = np.zeros((0, 2, BUCKETS), np.int64)
        """By pair: probes in this spell and in the one before, by bucket."""
        self._spell = 0

    def watch(self, pairs: Collection[Pair]) -> None:
        """Says which pairs are to be measured from now on."""
        wanted = sorted(pairs)[:_MOST_PAIRS]
        if len(wanted) == len(self._places) and self._places.keys() == {*wanted}:
            return
        counts = np.zeros((len(wanted), 2, BUCKETS), np.int64)
        for place, pair in enumerate(wanted):
            if (known := self._places.get(pair)) is not None:
                counts[place] = self._counts[known]
        self._places = {pair: place for place, pair in enumerate(wanted)}
        self._counts = counts
        self._rows.forget()

    def take(self, batch: DelayBatch, now_ns: int) -> None:
        """Takes what a node heard, if its clock is synchronised.

        Raises:
            ValueError: the batch does not fit together.
        """
        if not self._places or batch.bound_ns < 0:
            return
        self._begin_spell(now_ns)
        places = self._rows.of(batch.node, batch.paths, self._place)
        if not (places != _UNWATCHED).any():
            return
        counts = batch.delay_counts()
        if counts is None:
            rows = batch.rows()
            timed = rows[(rows["witness"] == Witness.DESTINATION) & (rows["received"] > 0) & (rows["p99_ns"] != 0)]
            pairs, buckets, probes = places[timed["path"]], bucket_of(timed["p99_ns"]), np.ones(len(timed), np.int64)
        else:
            pairs, buckets, probes = places[counts["path"]], counts["bucket"], counts["probes"].astype(np.int64)
        watched = pairs != _UNWATCHED
        np.add.at(self._counts[:, 0], (pairs[watched], buckets[watched]), probes[watched])

    def p99_ns(self, pair: Pair, now_ns: int) -> int:
        """The delay that 99 % of a pair's probes did not exceed lately, to 3 %; 0: none was measured."""
        self._begin_spell(now_ns)
        place = self._places.get(pair)
        if place is None:
            return 0
        reached = self._counts[place].sum(axis=0).cumsum()
        if not reached[-1]:
            return 0
        return max(int(MIDDLE_NS[np.searchsorted(100 * reached, 99 * reached[-1])]), 1)

    def _begin_spell(self, now_ns: int) -> None:
        if self._spell != (spell := now_ns // _SPELL_NS):
            self._counts[:, 1] = self._counts[:, 0] if spell == self._spell + 1 else 0
            self._counts[:, 0], self._spell = 0, spell

    def _place(self, path: str) -> int:
        source, _, rest = path.partition(">")
        return self._places.get((node_of(source), node_of(rest.partition("#")[0])), _UNWATCHED) if rest else _UNWATCHED
