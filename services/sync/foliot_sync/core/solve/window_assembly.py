"""Assembles the shards' fits of a window for the leader."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from foliot_sync.core.fit.fit_messages import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_schemas import FitBatch
    from foliot_sync.core.fit.shard_fit import Fits


_STUBBORN = 3
"""Windows in a row with an older term, after which that term counts."""


class _Window(NamedTuple):
    """The parts of one window of a shard that have come."""

    number: tuple[int, int]
    """Term and window."""
    parts: dict[int, tuple[FitBatch, int]]
    """By number, with the time of its arrival."""
    of: int

    @property
    def complete(self) -> bool:
        """Whether all parts are there."""
        return len(self.parts) == self.of


class WindowAssembly:
    """The newest window of each shard that was not solved yet.

    Parameters:
        shards: roles of all shards.
    """

    def __init__(self, shards: Iterable[str]) -> None:
        self._shards = frozenset(shards)
        self._awaited = self._shards
        """The shards that spoke for the last window; at first, all."""
        self._waiting: dict[str, _Window] = {}
        self._taken: dict[str, tuple[int, int]] = {}
        self._refused: Counter[str] = Counter()
        """Windows of a shard in a row whose sender seemed to hold the lease no more."""
        self.rejected: Counter[str] = Counter()
        """Batches that were left out, by shard: of unknown shards, of former holders, and of windows that are past."""

    def add(self, batch: FitBatch, arrived_ns: int) -> None:
        """Takes in a batch.

        Of two windows of a shard the later one counts, and of two holders the one whose lease is newer.
        """
        number = batch.term, batch.window
        known = self._waiting.get(batch.shard)
        latest = self._taken.get(batch.shard, (0, -1)) if known is None else known.number
        if number[0] < latest[0] and self._refused[batch.shard] >= _STUBBORN:
            # No other holder has spoken for it meanwhile: the bus has lost its memory, and counts leases anew since.
            known, latest = None, (0, -1)
        is_late = number < latest or (known is None and number == latest)
        if batch.shard not in self._shards or is_late:
            self.rejected[batch.shard] += 1
            self._refused[batch.shard] += batch.shard in self._shards and batch.part == 0 and number[0] < latest[0]
            return
        self._refused[batch.shard] = 0
        if known is None or number > known.number or batch.parts != known.of:
            known = self._waiting[batch.shard] = _Window(number, {}, batch.parts)
        known.parts[batch.part] = batch, arrived_ns

    @property
    def begun(self) -> bool:
        """Whether a shard has told of its window."""
        return any(window.complete for window in self._waiting.values())

    @property
    def complete(self) -> bool:
        """Whether all expected shards have told of their windows."""
        return all(shard in self._waiting and self._waiting[shard].complete for shard in self._awaited)

    def take(self, now_ns: int) -> list[Fits]:
        """Takes what came since the last call.

        A shard that has not spoken is not waited for any more, until it speaks again.
        """
        ready = {shard: window for shard, window in self._waiting.items() if window.complete}
        self._awaited = frozenset(ready)
        for shard, window in ready.items():
            del self._waiting[shard]
            self._taken[shard] = window.number
        return [
            read(batch, now_ns - arrived_ns) for window in ready.values() for batch, arrived_ns in window.parts.values()
        ]
