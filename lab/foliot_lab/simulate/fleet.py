"""A whole simulated fleet: nodes, fabric, bus, detector and remediator."""

from __future__ import annotations

import pickle
import random

from foliot_detector.settings import DetectorSettings
from foliot_lab.simulate.agent import Agent
from foliot_lab.simulate.bus import Bus
from foliot_lab.simulate.central import Detector, Service
from foliot_lab.simulate.inventory import Inventory
from foliot_lab.simulate.loop import MS, SECOND, Loop
from foliot_lab.simulate.node_clocks import Clock
from foliot_lab.simulate.probe import Costs, Probe, Surroundings
from foliot_lab.simulate.processors import Host, Process
from foliot_lab.simulate.transit import Fabric
from foliot_probe.settings import ProbeSettings
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas.names import node_of

CENTRAL = ("nats", "detector", "remediator")
_SETTLE_NS = 4 * SECOND
"""The time until every path was heard, backups are armed and probed fast, and the first windows are over."""
_OFFSET_NS = 50 * MS
"""The offset of clocks that are not synchronised yet, as in the lab."""
_BOUND_NS = 50_000


class Fleet:
    """A simulated fleet as a whole. `run` continues it.

    Parameters:
        seed: the seed of all chance.
        synchronised: whether the nodes know the time.
    """

    def __init__(self, seed: int, *, synchronised: bool = True) -> None:
        self.chance = random.Random(seed)
        self.loop = Loop()
        self.inventory = inventory = Inventory()
        self.fabric = Fabric(self.chance)
        self.hosts = {name: Host(self.chance) for name in (*inventory.names, "central")}
        self.processes = {name: Process(self.hosts["central"]) for name in CENTRAL}
        self.bus = Bus(self.loop, self.processes["nats"], self.chance)
        nodes = inventory.nodes
        self.detector = Detector(self.loop, self.processes["detector"], self.bus, DetectorSettings(), nodes)
        self.remediator = Service(self.loop, self.processes["remediator"], self.bus, RemediatorSettings(), nodes)
        self.clocks: list[Clock] = []
        self.probes: list[Probe] = []
        self.agents: list[Agent] = []
        around = Surroundings(
            self.loop, inventory, self.fabric, self.bus, self.probes, self.chance, ProbeSettings(), Costs()
        )
        for number, name in enumerate(inventory.names):
            error_ns = _BOUND_NS // 4 if synchronised else _OFFSET_NS
            self.clocks.append(Clock(self.chance.randint(-error_ns, error_ns), _BOUND_NS if synchronised else -1))
            probe = self.processes[f"{name}/probe"] = Process(self.hosts[name])
            agent = self.processes[f"{name}/agent"] = Process(self.hosts[name])
            self.agents.append(Agent(name, self.loop, agent, self.clocks[number], self.bus))
            self.probes.append(Probe(number, probe, self.clocks[number], around))
        self.run(_SETTLE_NS)

    def run(self, for_ns: int) -> None:
        """Lets time pass."""
        self.loop.run(self.loop.now_ns + for_ns)

    def lose_carrier(self, nic: str, at_ns: int) -> None:
        """Removes a NIC's carrier at a future time; its kernel tells the probe at once."""
        self.fabric.dark[nic] = at_ns
        probe = self.probes[self.inventory.names.index(node_of(nic))]
        self.loop.at(at_ns, probe.lose_carrier, nic)

    def carried(self) -> set[str]:
        """The paths that traffic takes now."""
        inventory = self.inventory
        return {
            str(inventory.path(number, inventory.names.index(way.peer), way.via, way.entropy))
            for number, agent in enumerate(self.agents)
            for _, way in agent.ways()
        }

    def frozen(self) -> bytes:
        """The state of the whole fleet, for `thawed`."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def thawed(frozen: bytes, seed: int) -> Fleet:
        """A fleet in a frozen state, which draws all further chances anew."""
        fleet: Fleet = pickle.loads(frozen)  # noqa: S301 - made by `frozen`, in this process
        fleet.chance.seed(seed)
        return fleet
