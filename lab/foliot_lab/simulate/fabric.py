"""The fabric: when a probe arrives, if it does.

A packet waits before the NIC that it leaves by and before the one that it arrives at. Waits are drawn by how full these links are; where a queue
runs over, packets are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.simulate.loop import MS

if TYPE_CHECKING:
    import random

    from foliot_lab.simulate.machine import Span
    from foliot_schemas.names import Path

_FLIGHT_NS = 60_000
"""Over three wires and two switches of the lab, with an empty queue."""
_WAITS, _WAIT_NS = 0.5, 0.3 * MS
"""On a link that is 60 % full: how often a packet waits at all, and how long on average."""
_FULL_NS = 12 * MS
"""The fullest queue before a link of the lab: 200 packets of 1,500 bytes at 200 Mb/s."""


class Load(NamedTuple):
    """Of links, for a while: their queues swing between half full and full, as those of TCP flows do."""

    span: Span
    nics: frozenset[str]
    lost: float
    """Of the packets that come to such a queue, how many find it full."""


class Fabric:
    """Links by NIC and paths by name.

    Parameters:
        chance: what waits and losses are drawn from.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.dark: dict[str, int] = {}
        """NICs without a carrier, and since when."""
        self.dead: dict[str, int] = {}
        """Paths that drop everything silently, and since when."""
        self._loads: list[Load] = []

    def load(self, load: Load) -> None:
        """Somebody fills links for a while."""
        self._loads.append(load)

    def delay_ns(self, path: Path, name: str, at_ns: int) -> int | None:
        """How long a probe takes that leaves then; None: it does not arrive."""
        if self.dead and self.dead.get(name, at_ns + 1) <= at_ns:
            return None
        source, destination = path.source, path.destination
        if self.dark and (self._is_dark(source, at_ns) or self._is_dark(destination, at_ns)):
            return None
        chance, delay_ns = self._chance, float(_FLIGHT_NS)
        for nic in (source, destination):
            lost = self._lost(nic, at_ns) if self._loads else None
            if lost is not None:
                if chance.random() < lost:
                    return None
                delay_ns += chance.uniform(0.5, 1.0) * _FULL_NS
            elif chance.random() < _WAITS:
                delay_ns += min(chance.expovariate(1.0 / _WAIT_NS), _FULL_NS)
        return round(delay_ns)

    def _is_dark(self, nic: str, at_ns: int) -> bool:
        return self.dark.get(nic, at_ns + 1) <= at_ns

    def _lost(self, nic: str, at_ns: int) -> float | None:
        for span, nics, lost in self._loads:
            if nic in nics and span.since_ns <= at_ns < span.until_ns:
                return lost
        return None
