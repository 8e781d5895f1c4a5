"""Reassembles batches that come late, twice, in parts, broken, or from hosts that have started again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from foliot_schemas.observation import StampBatch

_RESTART_NS = 10 * NANOSECONDS
"""A batch this far before its node's latest is no straggler: the clock was set back, or the host has booted."""


class Arrival(NamedTuple):
    """A batch, and when it came."""

    batch: StampBatch
    arrived_ns: int


class Reassembly:
    """The batches that wait for the next window.

    Parameters:
        window_ns: length of a window. A batch that ends more than one and a half windows before its node's latest is
            too late, because
            later ones say more.
    """

    def __init__(self, window_ns: int) -> None:
        self._late_ns = window_ns * 3 // 2
        self._latest_ns: dict[str, int] = {}
        self._waiting: list[Arrival] = []
        self._seen: dict[str, dict[int, int]] = {}

    def add(self, batch: StampBatch, arrived_ns: int) -> bool:
        """Takes a batch in; says whether it will count.

        Raises:
            ValueError: its columns do not fit together, or it covers no time.
        """
        batch.check_rows()
        if batch.until_ns <= batch.since_ns:
            raise ValueError(f"a batch of {batch.node} ends at {batch.until_ns}, not after it began")
        latest_ns = self._latest_ns.get(batch.node, batch.until_ns)
        behind_ns = latest_ns - batch.until_ns
        content = hash((batch.until_ns, batch.streams, *sorted(batch.columns.items())))
        seen = self._seen.get(batch.node, {})
        if self._late_ns < behind_ns < _RESTART_NS or content in seen:
            return False
        latest_ns = batch.until_ns if behind_ns >= _RESTART_NS else max(latest_ns, batch.until_ns)
        self._latest_ns[batch.node] = latest_ns
        # A batch that would be too late anyway need not be remembered.
        recent = {content: until_ns for content, until_ns in seen.items() if 0 <= latest_ns - until_ns <= self._late_ns}
        self._seen[batch.node] = recent | {content: batch.until_ns}
        self._waiting.append(Arrival(batch, arrived_ns))
        return True

    def take(self) -> list[Arrival]:
        """Takes what arrived since the last call."""
        waiting, self._waiting = self._waiting, []
        return waiting
