"""Foliot itself: the real probe on every host, the real sync, over a real NATS server.

Only the agent is missing, which would build an overlay. The wires have one path, so the probes' addresses are the NICs'
own. The bench writes the agent's record into the inventory.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bench.studies.clock_peers.network import BUS, DEVICE
from foliot.bus.client import Bus
from foliot.node.addressing import describe
from foliot.runtime.supervisor import nats_server
from foliot.settings import BusSettings, NicSettings, NodeSettings
from foliot.text.toml_text import toml
from foliot_lab.faults.skewed_clock import Skew, SkewSpec
from foliot_schemas.subjects import CLOCK, INVENTORY

if TYPE_CHECKING:
    from pathlib import Path

    from bench.studies.clock_peers.children import Children
    from bench.studies.clock_peers.network import Network
    from foliot_schemas import ClockState

PORTS = (7946,)
_STRIDES = (1, 2, 3, 5, 7)
"""Distances of a host's neighbours, in places both ways: ten neighbours, as in a fleet."""
_SEED = 5


class Told(NamedTuple):
    """A state and its arrival, from which on it is used."""

    raw_ns: int
    state: ClockState


class Rate(NamedTuple):
    """The rate at which a host probes each neighbour."""

    tick_ms: int
    rate_hz: float


def neighbours(hosts: tuple[str, ...], host: str) -> tuple[str, ...]:
    """The hosts that a host is measured against; both ends agree."""
    number, count = hosts.index(host), len(hosts)
    places = {(number + sign * stride) % count for stride in _STRIDES for sign in (1, -1)}
    return tuple(hosts[place] for place in sorted(places - {number}))


def pairs(hosts: tuple[str, ...]) -> int:
    """The number of pairs of hosts that probe each other."""
    return sum(len(neighbours(hosts, host)) for host in hosts) // 2


def skews(hosts: tuple[str, ...], drift_ppb: float, wander_ppb: float, start_raw_ns: int) -> dict[str, SkewSpec]:
    """The clock errors of a run. The first host has none, and the last drifts by this much.

    The hosts between drift by less, to and fro.
    """
    if not drift_ppb:
        return {host: SkewSpec(start_raw_ns=start_raw_ns) for host in hosts}
    return {
        host: SkewSpec(
            start_raw_ns=start_raw_ns, drift_ppb=drift_ppb * number / (len(hosts) - 1) * (-1) ** number,
            wander_ppb=wander_ppb if number else 0.0, seed=_SEED + number,
        )
        for number, host in enumerate(hosts)
    }  # fmt: skip


class Foliot:
    """All of Foliot's processes, running; `told` is all that sync has published so far."""

    def __init__(self, network: Network, children: Children, folder: Path) -> None:
        self.told: list[Told] = []
        self.skews: dict[str, Skew] = {}
        self._network = network
        self._children = children
        self._folder = folder
        self._bus: Bus

    async def start(self, rate: Rate, drift_ppb: float, wander_ppb: float) -> None:
        """Starts the processes, and listens."""
        hosts = self._network.plan.hosts
        address, _, port = BUS.partition(":")
        await self._children.start(
            "nats", nats_server(str(self._folder / "store"), host=address, port=int(port)).arguments
        )
        self._bus = await Bus.connect(BusSettings(url=f"nats://{BUS}"), "bench")
        await self._bus.subscribe(CLOCK, self._on_clock)
        specs = skews(hosts, drift_ppb, wander_ppb, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
        self.skews = {host: Skew(spec) for host, spec in specs.items()}
        settings = {host: self._settings(host) for host in hosts}
        for host in hosts:
            await self._bus.put(INVENTORY, host, describe(settings[host]))
        await self._service("sync", "", {"sync": {"reference": hosts[0]}})
        for host in hosts:
            own = {
                "node": msgspec.to_builtins(settings[host]),
                "probe": {"tick_ms": rate.tick_ms, "in_use_hz": rate.rate_hz},
                "clock": {"page": str(self._folder / f"{host}.clock")},
            }
            skewed = self._folder / f"{host}.skew.json"
            skewed.write_bytes(msgspec.json.encode(specs[host]))
            await self._service("probe", host, own, {"FOLIOT_CLOCK_SKEW": str(skewed)} if drift_ppb else {})

    async def close(self) -> None:
        """Stops listening."""
        if hasattr(self, "_bus"):
            await self._bus.close()

    def in_step(self) -> bool:
        """Whether every clock is synchronised, by its newest state."""
        newest = {told.state.clock: told.state.status for told in self.told}
        return len(newest) == len(self._network.plan.hosts) and set(newest.values()) == {"synchronised"}

    def _settings(self, host: str) -> NodeSettings:
        plan = self._network.plan
        nic = NicSettings(rail="rail0", number=0, device=DEVICE, address=plan.address(host))
        peers = neighbours(plan.hosts, host)
        return NodeSettings(name=host, index=plan.hosts.index(host), nics=(nic,), entropies=(49200,), peers=peers)

    async def _service(
        self, name: str, host: str, sections: dict[str, dict[str, object]], environment: dict[str, str] | None = None
    ) -> None:
        process = f"{host}/{name}" if host else name
        config = self._folder / f"{process.replace('/', '-')}.toml"
        config.write_text(toml({"bus": {"url": f"nats://{BUS}"}, "telemetry": {"endpoint": ""}, **sections}))
        namespace = self._network.namespaces[host] if host else None
        arguments = (sys.executable, "-m", f"foliot_{name}")
        await self._children.start(process, arguments, namespace, {"FOLIOT_CONFIG": str(config), **(environment or {})})

    async def _on_clock(self, state: ClockState, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        self.told.append(Told(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), state))
