"""Tells every peer of a lost NIC, over all rails that are left, again and again until each has answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

import structlog

from foliot_schemas.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot.clock import Clock
    from foliot_agent.armed import Losses
    from foliot_agent.exchange import Exchange
    from foliot_schemas import Node
    from foliot_schemas.notice import NoticeSeen

log = structlog.get_logger()

REPEAT_S = (0.002, 0.003, 0.005, 0.01, 0.03, 0.05, 0.1, 0.2, 0.4, 0.4, 0.4, 0.4)
"""Waits after each sending: 2, 5, 10, 20, 50, 100 ms after the first, and so on for two seconds, which is as long as a
confirmation is waited for. Who has not heard by then is not there, and hears from the remediator."""


class Notifier:
    """Sends notices and collects their answers."""

    def __init__(self, exchange: Exchange, node: Node, peers: Mapping[str, Node], losses: Losses, clock: Clock) -> None:
        self._exchange = exchange
        self._node = node
        self._peers = peers
        self._losses = losses
        self._clock = clock
        # Local time rises within a boot, so a restarted agent counts on above its predecessor.
        self._sequence = clock.local_ns()
        self._waiting: dict[int, _Told] = {}

    def notice(self, rail: str, state: Literal["lost", "back"], fault: str, span: str) -> Notice:
        """The next notice."""
        self._sequence += 1
        return Notice(
            node=self._node.name, rail=rail, state=state, fault=fault, sequence=self._sequence,
            at_ns=self._clock.now_ns(), span=span,
        )  # fmt: skip

    async def tell(self, notice: Notice) -> dict[str, bool]:
        """Tells all peers; who answered, and whether they moved. The first round is sent before anything is awaited."""
        told = _Told(set(self._peers))
        self._waiting[notice.sequence] = told
        datagram = self._exchange.seal(notice)
        for wait_s in REPEAT_S:
            self._send(datagram, told.missing)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await told.done.wait()
                    break
        del self._waiting[notice.sequence]
        if told.missing:
            log.warning("notice_given_up", rail=notice.rail, state=notice.state, peers=sorted(told.missing))
        return told.moved

    def take(self, seen: NoticeSeen) -> None:
        """Takes a peer's answer."""
        told = self._waiting.get(seen.sequence)
        if told is not None and seen.node in told.missing:
            told.missing.discard(seen.node)
            told.moved[seen.node] = seen.moved
            if not told.missing:
                told.done.set()

    def _send(self, datagram: bytes, peers: Iterable[str]) -> None:
        left = [nic for nic in self._node.nics if nic.rail not in self._losses.own]
        for name in peers:
            peer = self._peers.get(name)
            addresses = {} if peer is None else {nic.rail: nic.address for nic in peer.nics}
            for nic in left:
                if peer is not None and nic.rail in addresses:
                    self._exchange.send(datagram, nic.address, addresses[nic.rail], peer.agent_port)


class _Told:
    """A notice that is being told."""

    def __init__(self, missing: set[str]) -> None:
        self.missing = missing
        self.moved: dict[str, bool] = {}
        self.done = asyncio.Event()
        if not missing:
            self.done.set()
