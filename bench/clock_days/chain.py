"""Sync at work: a shard and the leader, with the messages between them as bytes, and the successors of both."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from bench.clock_days.upsets import WINDOW_S
from foliot_schemas import ClockState, FitBatch, StampBatch, WireError, decode, encode
from foliot_sync.core.fit.fit_messages import batches
from foliot_sync.core.fit.shard_fit import NO_MATHEMATICS, ShardFit
from foliot_sync.core.solve.window_assembly import WindowAssembly
from foliot_sync.core.synchroniser import Synchroniser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.clock_days.upsets import Upset
    from foliot_sync.settings import SyncSettings

_SHARD = "sync-0"
_LATE_NS = 10_000_000
"""The time from a batch's publication to its arrival."""
_MOST_GIVEN_UP = 3
"""Windows in a row without a solution, after which a leader begins anew, as `foliot_sync.shell.leader` does."""


class Chain:
    """One process of sync after another. Each has a shard and leads.

    Parameters:
        settings: of sync.
    """

    def __init__(self, settings: SyncSettings) -> None:
        self._settings = settings
        self.kept: dict[str, ClockState] = {}
        """The latest state of each clock, as the bucket `clocks` has it."""
        self.given_up: list[str] = []
        """The errors of windows that had no solution."""
        self.rejected = 0
        """Batches that contradict themselves."""
        self._unsolved = 0
        self._term = 0
        self._window = 0
        self._waits = 0
        """Windows until the next process leads."""
        self._begin()

    def succeed(self, change: Upset) -> None:
        """Ends the process. Another leads after some windows, by the states that are kept, or by nothing."""
        if change.kind == "leader knows nothing":
            self.kept = {}
        self._waits = round(change.size)
        self._begin()

    def window(self, stamps: Iterable[tuple[StampBatch, int]], now_ns: int) -> list[ClockState]:
        """The states that are published after a window; none while nobody leads."""
        arrived = [(encode(batch), at_ns + _LATE_NS) for batch, at_ns in stamps]
        if self._waits:
            self._waits -= 1
            return []
        for data, at_ns in arrived:
            # A batch in whose window a clock was set far back ends before it begins, and no service takes it.
            try:
                self._shard.add(decode(data, StampBatch), at_ns)
            except WireError:
                self.rejected += 1
        self._window += 1
        try:
            for batch in batches(self._shard.close(now_ns), _SHARD, self._term, self._window):
                self._assembly.add(decode(encode(batch), FitBatch), now_ns)
            found = self._leader.weigh(self._assembly.take(now_ns), now_ns)
        except NO_MATHEMATICS:
            self.given_up.append(traceback.format_exc(limit=-2))
            self._unsolved += 1
            if self._unsolved == _MOST_GIVEN_UP:
                self._begin()
            return []
        self._unsolved = 0
        states = [decode(encode(state), ClockState) for state in found]
        self.kept |= {state.clock: state for state in states}
        return states

    def _begin(self) -> None:
        self._term, self._window, self._unsolved = self._term + 1, 0, 0
        self._shard, self._leader = ShardFit(self._settings), Synchroniser(self._settings)
        self._assembly = WindowAssembly([_SHARD])
        self._leader.resume(self.kept.values())


def changes(upsets: Iterable[Upset], number: int) -> list[Upset]:
    """The changes of the leader during a window: it is the first that the former leader does not close."""
    return [each for each in upsets if each.is_of_leader and number * WINDOW_S <= each.at_s < (number + 1) * WINDOW_S]
