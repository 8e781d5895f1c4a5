"""A lab without namespaces, for kernels that permit none: the real services on loopback addresses.

It has no links to cut. It runs four nodes with skewed clocks, real probes, kernel timestamps and the emulated actuator.
The clocks come into step. A probe is killed, and the detector distinguishes it from a dead path. Nothing is moved,
because there is nothing to move.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from typing import TYPE_CHECKING, TextIO

from foliot.bus.client import Bus
from foliot.node.addressing import describe
from foliot.runtime.supervisor import LAST, Supervisor, nats_server
from foliot.settings import NicSettings, NodeSettings
from foliot_lab.measure.bus_recorder import Collector, Heard
from foliot_lab.measure.clock_truth import SAMPLE_S, LabTime, Truth
from foliot_lab.report.narration import Narrator
from foliot_lab.scenario.spec import ClockSpec
from foliot_lab.scenario.topology import CENTRAL
from foliot_lab.services import deployment, emulated_actuator, ports
from foliot_lab.services.forked_services import ForkedServices
from foliot_lab.services.lab import READY_S, described
from foliot_lab.services.readiness import Readiness
from foliot_schemas import Command, Event, Outcome

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from foliot.runtime.supervisor import Child, ProcessSpec

_NODES, _RAILS = 4, 2
_WATCH_CLOCKS_S = 3.0
_TOLD_S = 60.0
"""The time for the detector to say what became of the victim. It takes 2 s on a quick machine, and four times as long
where processes stand still."""
_LOOK_S, _CALM_S = 0.1, 1.0
"""How often it looks whether that was said, and the time after it in which paths would be blamed, if they were."""
_VICTIM = "node2/probe"
_SERVICES = {
    "extensions.modules": [emulated_actuator.__name__],
    "agent.actuator": emulated_actuator.NAME,
    "agent.armed": "off",
}


class Loopback:
    """The services of four nodes on loopback addresses."""

    def __init__(self, folder: Path, listener: socket.socket, out: TextIO) -> None:
        self._out = out
        self._listener = listener
        self._settings = tuple(_node(index) for index in range(_NODES))
        self._desk = deployment.desk(folder)
        # Until the services listen, and while the bus is down, nobody else is given their ports.
        self._ports = [ports.keep() for _ in range(2)]
        bus, gateway = (f"127.0.0.1:{port.getsockname()[1]}" for port in self._ports)
        self._addresses = deployment.Addresses(bus=bus, gateway=gateway)
        self._services: ForkedServices
        self._supervisor = Supervisor(self._start_first)
        self._time = LabTime.starting_now()
        self._state = ""
        """The state of the victim, as the detector told it last."""

    async def show(self) -> None:
        """The whole sequence.

        Raises:
            NotReadyError: the services did not find one another in time.
        """
        self._prepare()
        nodes = tuple(describe(settings) for settings in self._settings)
        await self._start()
        bus = await Bus.connect(deployment.listener(self._addresses, self._desk), "lab", makes=False)
        readiness = Readiness(nodes)
        await readiness.watch(bus)
        await readiness.wait(READY_S)
        narrator = Narrator(self._time, self._truth, self._out)
        collector = Collector(self._time, self._truth, lambda heard: self._hear(narrator, heard))
        await collector.follow(bus)
        narrator.start(())
        narrator.say(f"{_NODES} nodes on loopback addresses: clocks in step, all paths heard")
        await self._watch_clocks(narrator)
        narrator.say(f"killing {_VICTIM}: its paths fall silent, and must not be blamed")
        self._supervisor.kill(_VICTIM)
        await self._until("dead")
        self._supervisor.release(_VICTIM)
        await self._until("alive")
        await bus.close()
        narrator.finish()

    async def close(self) -> None:
        """Ends the services."""
        await self._supervisor.stop(LAST)
        if hasattr(self, "_services"):
            self._services.close()
        for port in self._ports:
            port.close()

    def _prepare(self) -> None:
        shutil.rmtree(self._desk.folder, ignore_errors=True)
        self._desk.folder.mkdir(parents=True)
        self._services = ForkedServices(os.environ | self._desk.bytecode)  # imports while the rest is made
        hosts = tuple(settings.name for settings in self._settings)
        self._truth = Truth(deployment.write_skews(ClockSpec(), hosts, self._desk))
        # This machine's own gateway may have the port of gRPC.
        services = {**_SERVICES, "gateway.grpc_port": 0}
        deployment.write_configs(self._settings, services, self._desk, self._addresses)

    async def _start(self) -> None:
        host, _, port = self._addresses.bus.partition(":")
        store, log = str(self._desk.folder / "nats"), str(self._desk.log("nats"))
        await self._supervisor.start(
            nats_server(
                store, host=host, port=int(port), keys=str(self._desk.keys / "server" / "server.conf"), log_file=log
            )
        )
        processes = [("", name) for name in CENTRAL]
        processes += [(settings.name, name) for settings in self._settings for name in deployment.ON_A_NODE]
        for node, name in processes:
            await self._supervisor.start(described(self._desk, name, node, self._listener))

    async def _start_first(self, spec: ProcessSpec) -> Child:
        return await self._services.start(spec)

    def _hear(self, narrator: Narrator, heard: Heard[Event | Command | Outcome]) -> None:
        if isinstance(heard.message, Event):
            narrator.hear(heard.message)
            if heard.message.who == _VICTIM:
                self._state = heard.message.state

    async def _until(self, state: str) -> None:
        """Returns a moment after the detector has said this of the victim, or after long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                while self._state != state:  # noqa: ASYNC110 - asked ten times a second, it reads simpler than an event
                    await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_CALM_S)

    async def _watch_clocks(self, narrator: Narrator) -> None:
        for _ in range(round(_WATCH_CLOCKS_S / SAMPLE_S)):
            self._truth.sample(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
            await asyncio.sleep(SAMPLE_S)
        errors = self._truth.summary().true_error_ns
        if errors.p50 is not None:
            narrator.say(
                f"true error of the clocks, each skewed by up to 50 ms and 30 ppm: median {errors.p50:.0f} ns, p99 "
                f"{errors.p99:.0f} ns"
            )


def _node(index: int) -> NodeSettings:
    nics = tuple(
        NicSettings(rail=f"rail{number}", number=number, device="lo", address=f"127.1.{number}.{index + 1}")
        for number in range(_RAILS)
    )
    return NodeSettings(
        name=f"node{index}", index=index, nics=nics, service_prefix="127.200.0.0/13", path_prefix="127.64.0.0/10"
    )
