"""Notifies every peer of a lost NIC, over all rails that are left, until each has answered."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import structlog

from foliot_schemas.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot.clock import Clock
    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.peers.sockets import PeerSockets
    from foliot_schemas import Node
    from foliot_schemas.notice import NoticeSeen

log = structlog.get_logger()

REPEAT_S = (0.002, 0.003, 0.005, 0.01, 0.03, 0.05, 0.1, 0.2, 0.4, 0.4, 0.4, 0.4)
"""Waits after each sending: 2, 5, 10, 20, 50, 100 ms after the first, and so on for two seconds. A confirmation is
waited for as long. A peer that has not heard by then is not there, and hears from the remediator."""


class FailureNotifier:
    """Sends notices and collects their answers.

    It keeps the last word about each NIC, with the peers that have not answered it: there may have been no way to them.
    """

    def __init__(
        self, exchange: PeerSockets, node: Node, peers: Mapping[str, Node], losses: FailedLinks, clock: Clock
    ) -> None:
        self._exchange = exchange
        self._node = node
        self._peers = peers
        self._losses = losses
        self._clock = clock
        # Local time rises within a boot, so a restarted agent counts on above its predecessor.
        self._sequence = clock.local_ns()
        self._words: dict[str, _Word] = {}
        self._waiting: dict[int, _Word] = {}

    async def tell(self, rail: str, state: Literal["lost", "back"], fault: str, span: str) -> dict[str, bool]:
        """Tells all peers, the first time before anything is awaited; returns who answered, and whether they moved."""
        self._words[rail] = word = _Word(rail, state, fault, span, set(self._peers))
        await self._repeat(word, word.missing)
        if word.missing and self._words[rail] is word:
            log.warning("notice_given_up", rail=rail, state=state, peers=sorted(word.missing))
        return word.moved

    async def tell_again(self, peer: str = "") -> None:
        """Tells a peer, or every peer, what it has not answered: there may be a way to it now."""
        words = [word for word in self._words.values() if (peer in word.missing if peer else word.missing)]
        await asyncio.gather(*(self._repeat(word, {peer} if peer else word.missing) for word in words))

    def forget(self, peer: str) -> None:
        """Forgets a peer that has left the fleet: it is told nothing any more."""
        for word in self._words.values():
            word.missing.discard(peer)

    def take(self, seen: NoticeSeen) -> None:
        """Takes a peer's answer."""
        word = self._waiting.get(seen.sequence)
        if word is not None and seen.node in word.missing:
            word.missing.discard(seen.node)
            word.moved[seen.node] = seen.moved
            word.answered.set()

    async def _repeat(self, word: _Word, peers: set[str]) -> None:
        word.asked |= peers
        word.round = 0
        if word.datagram:  # it is being repeated, and goes on with these
            self._send(word.datagram, peers & word.missing)
            return
        # Made anew each time that the word is told: a notice that is old counts for nothing.
        self._sequence += 1
        notice = Notice(
            node=self._node.name, rail=word.rail, state=word.state, fault=word.fault, sequence=self._sequence,
            at_ns=self._clock.now_ns(), span=word.span,
        )  # fmt: skip
        self._waiting[notice.sequence] = word
        word.datagram = self._exchange.seal(notice)
        try:
            while word.open and word.round < len(REPEAT_S) and self._words[word.rail] is word:
                self._send(word.datagram, word.open)
                wait_s = REPEAT_S[word.round]
                word.round += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        while word.open:
                            word.answered.clear()
                            await word.answered.wait()
        finally:
            word.datagram = b""
            word.asked.clear()
            del self._waiting[notice.sequence]

    def _send(self, datagram: bytes, peers: Iterable[str]) -> None:
        left = [nic for nic in self._node.nics if nic.rail not in self._losses.own]
        for name in peers:
            peer = self._peers.get(name)
            if peer is not None:
                addresses = {nic.rail: nic.address for nic in peer.nics}
                for nic in left:
                    if nic.rail in addresses:
                        self._exchange.send(datagram, nic.address, addresses[nic.rail], peer.agent_port)


@dataclass(eq=False)
class _Word:
    """The word that is told of a NIC."""

    rail: str
    state: Literal["lost", "back"]
    fault: str
    span: str
    missing: set[str]
    moved: dict[str, bool] = field(default_factory=dict)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    # While it is being repeated:
    datagram: bytes = b""
    asked: set[str] = field(default_factory=set)
    round: int = 0

    @property
    def open(self) -> set[str]:
        """The peers that were notified and have not answered."""
        return self.asked & self.missing
