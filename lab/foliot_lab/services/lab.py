"""A lab that runs: a fabric with all services in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
from typing import TYPE_CHECKING

import msgspec

from foliot.bus.client import Bus
from foliot.node.addressing import describe
from foliot.runtime import loop_steps
from foliot.runtime.supervisor import LAST, Supervisor, service
from foliot_lab.fabric.fabric import Fabric
from foliot_lab.fabric.namespaces import Entering, enter_control, inside
from foliot_lab.fabric.partition import Partitions
from foliot_lab.fabric.rtnetlink import Rtnetlink, link_state
from foliot_lab.faults.drains import Drains
from foliot_lab.faults.host_faults import HostFaults
from foliot_lab.faults.kernel_logs import KernelLogs
from foliot_lab.faults.world import World
from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_lab.measure.told_delays import ToldDelays
from foliot_lab.measure.told_routers import ToldRouters
from foliot_lab.scenario.topology import CENTRAL, GATEWAY_PORT, plan
from foliot_lab.services import bus_servers, deployment, foreign_processes
from foliot_lab.services.forked_services import ForkedServices
from foliot_lab.services.forker import Forker
from foliot_lab.services.job_placement import place
from foliot_lab.services.readiness import Readiness
from foliot_schemas.names import Path

if TYPE_CHECKING:
    import pathlib

    from foliot.runtime.loop_steps import Counted
    from foliot.runtime.supervisor import Child, ProcessSpec
    from foliot.settings import BusSettings, NodeSettings
    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.scenario.spec import Scenario
    from foliot_lab.services.job_placement import Placement
    from foliot_schemas import Node

READY_S = 180.0
"""Two dozen processes start, and clocks need three windows of 2 s: 15 s on two cores that others use too. A busy machine
takes several times as long, and what never gets ready is told no sooner."""


class Lab:
    """The lasting parts of a run: fabric, clocks and services, ready for a workload and faults.

    Call `build`, then `start`, then `ready`; call `close` whatever happens. Building takes this process into network
    namespaces of its own, for good.

    Parameters:
        folder: for settings, logs and NATS' store; the files of an earlier lab are removed.
        listener: a listening socket of the host's network for the gateway, made before.
        imported: what the processes of a training job import.
    """

    def __init__(
        self, scenario: Scenario, folder: pathlib.Path, listener: socket.socket | None = None, *,
        imported: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.plan = plan(scenario.fabric, scenario.clock.seed)
        self.time = LabTime.starting_now()
        self._settings = tuple(deployment.node_settings(self.plan, host) for host in self.plan.hosts)
        self.nodes: tuple[Node, ...] = tuple(describe(settings) for settings in self._settings)
        self.readiness = Readiness(self.nodes)
        self.told_routers = ToldRouters(self.time)
        self.told_delays = ToldDelays(self.time)
        """Empty, if the scenario has no jobs."""
        self.supervisor = Supervisor(self._start_first)
        self._services: ForkedServices
        self.fabric: Fabric
        self.truth: Truth
        self.placement: Placement
        self.bus: Bus
        self.world: World
        self.addresses = deployment.Addresses(
            bus=bus_servers.address(self.plan), gateway=f"{self.plan.front('gateway')}:{GATEWAY_PORT}"
        )
        self.folder = folder
        self._desk = deployment.desk(folder)
        self._listener = listener
        self._imported = imported
        self.rank_forker: Forker | None = None
        """Starts the processes of a training job; None: nobody said what they import."""

    def build(self) -> None:
        """Makes the fabric, the clocks' errors and the settings of all processes.

        Raises:
            PlacementError: the flows of jobs cannot be placed as they are to be.
        """
        folder = self._desk.folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        control = enter_control()
        self._services = ForkedServices(os.environ | self._desk.bytecode)  # imports while the fabric is made
        if self._imported:
            # PyTorch takes seconds, for which services that are ready would otherwise wait, and work.
            self.rank_forker = Forker(self._imported, os.environ)
        self.fabric = Fabric.build(self.plan, control)
        self.truth = Truth(deployment.write_skews(self.scenario.clock, self.plan.hosts, self._desk, self.plan.rails))
        self.placement = place(self.scenario, self.fabric, self.nodes)
        homes = deployment.homes(self.placement.homes())
        services = deployment.replacing(self.scenario) | self.scenario.services | homes
        deployment.write_configs(self._settings, services, self._desk, self.addresses)
        frontend = Rtnetlink(self.fabric.control)
        ports = {host: _index(self.fabric.control, host) for host in self.plan.hosts}

        def pull(host: str, away: bool) -> None:
            frontend.request(link_state(ports[host], up=not away))

        def cut(away: bool) -> None:
            for host in ports:
                pull(host, away)

        self._partitions = Partitions(self.fabric)
        self._hosts = HostFaults(
            self.fabric,
            pull,
            KernelLogs(self.plan.hosts, self._desk.kernel_log),
            Drains(self.scheduler),
        )
        self.world = World(self.supervisor, self._desk.step, cut, self._partitions, self._hosts)
        descriptors = {
            name: self.fabric.namespace(name).fd for name in ("control", *self.plan.hosts, *self.plan.central)
        }
        (folder / "namespaces.json").write_text(json.dumps({"pid": os.getpid(), "descriptors": descriptors}))

    async def start(self) -> None:
        """Starts NATS and the services, and listens to them."""
        for spec in bus_servers.specs(self.fabric, self._desk):
            await self.supervisor.start(spec)
        for name in CENTRAL:
            await self._start_service(name)
        self.bus = await Bus.connect(self.listener, "lab", makes=False)
        await self.told_routers.follow(self.bus)
        if self.scenario.jobs:
            await self.told_delays.follow(self.bus)
        for host in self.plan.hosts:
            for name in deployment.ON_A_NODE:
                await self._start_service(name, host)
        await self.readiness.watch(self.bus)

    async def ready(self) -> None:
        """Waits until clocks are in step, every path is heard and every backup armed.

        Raises:
            NotReadyError: that took too long.
        """
        await self.readiness.wait(READY_S)

    @property
    def listener(self) -> BusSettings:
        """Settings for a process that watches the bus and may not publish on it."""
        return deployment.listener(self.addresses, self._desk)

    @property
    def scheduler(self) -> BusSettings:
        """Settings for who registers jobs."""
        return deployment.scheduler(self.addresses, self._desk)

    def settings(self, host: str) -> NodeSettings:
        """The ``[node]`` section of a host.

        Raises:
            ValueError: there is no such host.
        """
        return self._settings[self.plan.hosts.index(host)]

    def rank_socket(self, host: str) -> pathlib.Path:
        """The socket on which a host's agent hears ranks of training jobs."""
        return self._desk.rank_socket(host)

    def pids(self) -> dict[str, int]:
        """The processes of services and bus by name, and the lab's own; 0: it does not run now."""
        return {"lab": os.getpid()} | {name: self.supervisor.pid(name) for name in self.supervisor.names()}

    def loop_steps(self) -> dict[str, Counted]:
        """The steps of each service's loop so far."""
        services = (*CENTRAL, *(f"{host}/{name}" for host in self.plan.hosts for name in deployment.ON_A_NODE))
        return {name: loop_steps.read(self._desk.loop_steps(name)) for name in services}

    def links_of_paths(self) -> dict[str, tuple[str, ...]]:
        """The links of each path that has a way now, as the kernels send it.

        Where leaves spray packets, no path between two of them has a way of its own.
        """
        found: dict[str, tuple[str, ...]] = {}
        nics = [(node.name, nic) for node in self.nodes for nic in node.nics]
        for (source, nic), (destination, far) in itertools.permutations(nics, 2):
            if nic.rail == far.rail and source != destination:
                for entropy, port in enumerate(nic.entropies):
                    with contextlib.suppress(OSError):  # the leaf has no route: the link of one of the NICs is down
                        spine = self.fabric.spine(source, destination, nic.rail, port)
                        path = str(Path(nic.name, far.name, entropy))
                        if spine is None or not self.plan.spray:
                            found[path] = self.plan.links_between(source, destination, nic.rail, spine)
        return found

    async def close(self) -> None:
        """Ends the services and the processes of `foliot lab exec`, and closes the fabric. May be called twice.

        The kernel removes the rest.
        """
        if hasattr(self, "fabric"):
            await foreign_processes.see_out(self.fabric.namespaces())
        if hasattr(self, "_hosts"):
            await self._hosts.close()
        if hasattr(self, "bus"):
            await self.bus.close()
        await self.supervisor.stop((*LAST, *self.plan.bus_servers))
        if hasattr(self, "_services"):
            self._services.close()
        if self.rank_forker is not None:
            self.rank_forker.close()
        if hasattr(self, "_partitions"):
            self._partitions.close()
        if hasattr(self, "fabric"):
            self.fabric.close()

    async def _start_first(self, spec: ProcessSpec) -> Child:
        return await self._services.start(spec)

    async def _start_service(self, name: str, host: str = "") -> None:
        setup = Entering(self.fabric.namespace(host or name))
        await self.supervisor.start(described(self._desk, name, host, self._listener, setup=setup))


def described(
    desk: deployment.Desk, name: str, node: str, listener: socket.socket | None, **more: object
) -> ProcessSpec:
    """The process of a service. A gateway inherits the listening socket."""
    spec = service(name, node=node)
    environment = desk.environment(spec.name)
    if name == "gateway" and listener is not None:
        more["listener"] = listener.fileno()
    return msgspec.structs.replace(spec, log_file=str(desk.log(spec.name)), environment=environment, **more)


def _index(namespace: Namespace, device: str) -> int:
    with inside(namespace):
        return socket.if_nametoindex(device)
