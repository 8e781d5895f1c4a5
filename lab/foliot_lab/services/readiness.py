"""Waits until a lab is ready: clocks in step, every path heard, every backup armed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from foliot_schemas import ClockState, DelayBatch, Node, NodePaths, Witness
from foliot_schemas.subjects import CLOCK, DELAY, PATHS

if TYPE_CHECKING:
    from foliot.bus.client import Bus, Unsubscribe

_POLL_S = 0.1


class NotReadyError(RuntimeError):
    """The services did not get ready in time; the message says what was missing."""


class Readiness:
    """Watches the bus until nothing is missing.

    Parameters:
        nodes: all that there will be, each with a NIC on every rail.
    """

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        hosts, rails, entropies = len(nodes), len(nodes[0].nics), len(nodes[0].nics[0].entropies)
        self._hosts = tuple(node.name for node in nodes)
        self._paths_expected = hosts * (hosts - 1) * rails * entropies
        self._backups_expected = (hosts - 1) * rails if rails > 1 else 0
        self._clocks: set[str] = set()
        self._heard: set[str] = set()
        self._until_ready: list[Unsubscribe] = []
        self.placed: dict[str, NodePaths] = {}
        """The remediator's paths of each node, kept up to date after readiness too."""

    async def watch(self, bus: Bus) -> None:
        """Begins to listen."""
        self._until_ready += [await bus.subscribe(CLOCK, self._on_clock), await bus.subscribe(DELAY, self._on_delays)]
        await bus.watch(PATHS, self._on_paths)

    async def wait(self, timeout_s: float) -> None:
        """Returns when everything is ready; delays and clocks are not heard from then on.

        Raises:
            NotReadyError: it was not, in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                # Three sources, asked ten times a second, read simpler than an event.
                while self.missing():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NotReadyError(f"after {timeout_s:.0f} s: {'; '.join(self.missing())}") from None
        # What probes tell of delays is most of what the bus carries, and costs each reader a few per cent of a core.
        for end in self._until_ready:
            await end()

    def missing(self) -> list[str]:
        """The conditions that do not hold yet, in words."""
        asleep = [host for host in self._hosts if host not in self._clocks]
        unarmed = [
            host for host in self._hosts
            if host not in self.placed or len(self.placed[host].backups) < self._backups_expected
        ]  # fmt: skip
        words = []
        if asleep:
            words.append(f"not synchronised: {', '.join(asleep)}")
        if len(self._heard) < self._paths_expected:
            words.append(f"paths heard: {len(self._heard)} of {self._paths_expected}")
        if unarmed:
            words.append(f"without all backups: {', '.join(unarmed)}")
        return words

    async def _on_clock(self, state: ClockState, _subject: str) -> None:
        if state.status == "synchronised":
            self._clocks.add(state.clock)
        else:
            self._clocks.discard(state.clock)

    async def _on_delays(self, batch: DelayBatch, _subject: str) -> None:
        rows = batch.rows()
        heard = rows[(rows["witness"] == Witness.DESTINATION) & (rows["received"] > 0)]
        self._heard.update(batch.paths[index] for index in heard["path"])

    async def _on_paths(self, _key: str, paths: NodePaths | None) -> None:
        if paths is not None:
            self.placed[paths.node] = paths
