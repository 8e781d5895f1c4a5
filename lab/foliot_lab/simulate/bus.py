"""A simulated bus: it delivers each message after a delay, in order per connection."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from foliot_lab.simulate.loop import Loop
    from foliot_lab.simulate.processors import Process, Span

_HOP_NS = 100_000
"""From a process to the server or back: the time of TCP over the lab's frontend."""
_FORWARD_NS = 30_000
"""The server's time for a message."""


class Delay(NamedTuple):
    """A delay of all messages from and to a node, for a while."""

    span: Span
    nodes: frozenset[str]
    least_ns: int
    most_ns: int
    """The longest delay. TCP keeps its order, so that a message behind a late one is late as well."""


class Bus:
    """One server, and a connection for each process.

    Parameters:
        server: the process that forwards.
        chance: the random source of delays.
    """

    def __init__(self, loop: Loop, server: Process, chance: random.Random) -> None:
        self._loop = loop
        self._server = server
        self._chance = chance
        self._readers: dict[str, list[tuple[str, Callable[[str, Any], None]]]] = {}
        self._delays: list[Delay] = []
        self._said_ns: collections.defaultdict[str, int] = collections.defaultdict(int)
        self._heard_ns: collections.defaultdict[str, int] = collections.defaultdict(int)
        self._free_ns = 0

    def subscribe(self, channel: str, who: str, take: Callable[[str, Any], None]) -> None:
        """Delivers the messages of a channel from now on, with the channel's name."""
        self._readers.setdefault(channel, []).append((who, take))

    def delay(self, delay: Delay) -> None:
        """Makes the network of some nodes slow for a while."""
        self._delays.append(delay)

    def publish(self, who: str, channel: str, message: Any, at_ns: int) -> None:
        """Publishes a message that a process writes into its connection at a time.

        Calls of one process come in the order of these times.
        """
        come_ns = max(at_ns + self._hop_ns(who, at_ns), self._said_ns[who])
        self._said_ns[who] = come_ns
        self._loop.at(come_ns, self._forward, channel, message)

    def _forward(self, channel: str, message: Any) -> None:
        idle = self._loop.now_ns > self._free_ns
        start_ns = self._server.wake(self._loop.now_ns) if idle else self._free_ns
        self._free_ns = self._server.work(start_ns, _FORWARD_NS)
        for who, take in self._readers.get(channel, ()):
            come_ns = max(self._free_ns + self._hop_ns(who, self._free_ns), self._heard_ns[who])
            self._heard_ns[who] = come_ns
            self._loop.at(come_ns, take, channel, message)

    def _hop_ns(self, who: str, at_ns: int) -> int:
        hop_ns = _HOP_NS
        for span, nodes, least_ns, most_ns in self._delays:
            if span.since_ns <= at_ns < span.until_ns and who.partition("/")[0] in nodes:
                hop_ns += round(self._chance.uniform(least_ns, most_ns))
        return hop_ns
