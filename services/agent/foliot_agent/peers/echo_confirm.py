"""Confirms on the wire that both directions flow, by a datagram from service address to service address and back.

It takes the very routes that jobs take, so it comes back only when both ends have moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from typing import TYPE_CHECKING

from foliot_schemas import Confirmation
from foliot_schemas.notice import Echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from foliot.clock import Clock
    from foliot_agent.core.routing_table import Destination
    from foliot_agent.peers.sockets import PeerSockets
    from foliot_schemas import Node

GIVE_UP_S = 2.0
"""Sum of the waits before an answer is given up. The time by which an own timer is late does not count: where this
process stood still, answers may lie unread."""
REPEAT_S = (0.01, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Waits before each echo, the last one again and again. The first leaves the processors to the moves of the peers, a
millisecond or two each. No traffic waits for an echo."""


class _Round:
    """One confirmation of several destinations, as long as their traffic takes the way that is to be confirmed."""

    def __init__(self, destinations: set[Destination], stands: Callable[[Destination], bool]) -> None:
        self.open = destinations
        self.confirmed: list[Confirmation] = []
        self._stands = stands
        self._done = asyncio.Event()
        self.let_go()

    def let_go(self) -> None:
        """Waits no longer for destinations that were moved on since: their answers would speak for the other move."""
        self.open = {each for each in self.open if self._stands(each)}
        if not self.open:
            self._done.set()

    def close(self, confirmation: Confirmation) -> None:
        """Takes the first answer of a destination."""
        self.let_go()
        destination = confirmation.peer, confirmation.rail
        if destination in self.open:
            self.open.discard(destination)
            self.confirmed.append(confirmation)
        if not self.open:
            self._done.set()

    async def is_over(self, wait_s: float) -> bool:
        """Waits that long, or less if every destination has answered; says whether they have."""
        if wait_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._done.wait()
        return self._done.is_set()


class EchoConfirmer:
    """Sends echoes and collects the answers."""

    def __init__(self, exchange: PeerSockets, node: Node, peers: Mapping[str, Node], clock: Clock) -> None:
        self._exchange = exchange
        self._node = node
        self._peers = peers
        self._clock = clock
        # A restarted agent must not take an answer to its predecessor for its own.
        self._tokens = itertools.count(secrets.randbits(62))
        self._waiting: dict[int, Callable[[], None]] = {}

    def take(self, echo: Echo, reply: Callable[[Echo], None]) -> None:
        """Takes an echo: a peer's goes back to where it came from, the answer to an own one confirms."""
        if not echo.answer:
            reply(Echo(node=self._node.name, token=echo.token, answer=True))
        elif heard := self._waiting.pop(echo.token, None):
            heard()

    async def confirm(
        self, destinations: Iterable[Destination], stands: Callable[[Destination], bool]
    ) -> list[Confirmation]:
        """The destinations (peer and rail) that answered while their route `stands`, in the order of their answers."""
        now = _Round({destination for destination in destinations if destination[0] in self._peers}, stands)
        asked: list[int] = []
        if not await now.is_over(REPEAT_S[0]):
            for wait_s in _waits():
                now.let_go()
                asked += [self._ask(now, peer, rail) for peer, rail in sorted(now.open)]
                if await now.is_over(wait_s):
                    break
        for token in asked:
            self._waiting.pop(token, None)
        return now.confirmed

    def _ask(self, now: _Round, peer: str, rail: str) -> int:
        """Sends one echo. Each has a token of its own, so that a round trip is never that of a repetition."""
        token = next(self._tokens)
        sent_ns = self._clock.local_ns()

        def heard() -> None:
            round_trip_ns = self._clock.local_ns() - sent_ns
            now.close(Confirmation(peer=peer, rail=rail, at_ns=self._clock.now_ns(), round_trip_ns=round_trip_ns))

        self._waiting[token] = heard
        record = self._peers.get(peer)
        if record is not None:
            own, other = self._node.nic(rail).service_address, record.nic(rail).service_address
            datagram = self._exchange.seal(Echo(node=self._node.name, token=token, answer=False))
            self._exchange.send(datagram, own, other, record.agent_port)
        return token


def _waits() -> Iterator[float]:
    """The waits after each echo, which add up to `GIVE_UP_S` at least."""
    left_s = GIVE_UP_S
    for wait_s in itertools.chain(REPEAT_S[1:], itertools.repeat(REPEAT_S[-1])):
        yield wait_s
        left_s -= wait_s
        if left_s <= 0:
            return
