"""Which way each flow of a job takes, asked of the kernels that send it, and how often that changed."""

from __future__ import annotations

import re
import socket
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.fabric.fabric import VXLAN_PORT
from foliot_lab.fabric.rtnetlink import ask_own_route
from foliot_lab.measure.link_load import Lane
from foliot_lab.services.job_placement import FLOWS_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_schemas import Node

_OVERLAY = re.compile(r"fo(?P<rail>\d+)e(?P<entropy>\d+)")


class Way(NamedTuple):
    """One way of a flow."""

    rail: str
    """The rail that carries it."""
    entropy: int
    """Index of the entropy; -1: past Foliot."""
    spine: str | None
    """None: its ends are on one leaf; or the leaf sprays packets, so that a flow has no way of its own."""
    acks_spine: str | None = None
    """The same of its acknowledgements, past Foliot. Those of other flows take the way of the traffic back."""


class FlowWays:
    """The ways of all flows, by when each took them.

    Parameters:
        nodes: all of them, with their entropies.
    """

    def __init__(self, fabric: Fabric, nodes: Sequence[Node], flows: Sequence[FlowPlan]) -> None:
        self._fabric = fabric
        self._entropies = {(node.name, nic.rail): nic.entropies for node in nodes for nic in node.nics}
        self._flows = flows
        self._devices: dict[tuple[str, int], str] = {}
        self._spines: dict[tuple[str, str, str, int, int], str | None] = {}
        self.taken: list[list[tuple[int, Way]]] = [[] for _ in flows]
        """Of each flow, when it took which way, in their order."""

    def look(self, at_ns: int) -> None:
        """Asks the kernels. A flow without a route keeps the way that it had."""
        for flow, taken in zip(self._flows, self.taken, strict=True):
            way = self._way(flow)
            if way is not None and (not taken or taken[-1][1] != way):
                taken.append((at_ns, way))

    def _way(self, flow: FlowPlan) -> Way | None:
        if flow.over == "nic":
            ports = flow.source_port, FLOWS_PORT + flow.job
            there = self._spine(flow.source, flow.destination, flow.rail, ports, socket.IPPROTO_TCP)
            back = self._spine(flow.destination, flow.source, flow.rail, ports[::-1], socket.IPPROTO_TCP)
            return Way(flow.rail, -1, there, back)
        home = self._fabric.plan.links[f"{flow.source}.{flow.rail}"].near
        try:
            index = self._fabric.netlink(home).output_device(ask_own_route(flow.destination_address))
            if (flow.source, index) not in self._devices:
                self._devices[flow.source, index] = self._fabric.netlink(home).device_name(index)
        except OSError:  # between two routes, or without a device
            return None
        found = _OVERLAY.fullmatch(self._devices[flow.source, index])
        if found is None:
            return None
        rail, entropy = self._fabric.plan.rails[int(found["rail"])], int(found["entropy"])
        port = self._entropies[flow.source, rail][entropy]
        ports = port, VXLAN_PORT
        return Way(rail, entropy, self._spine(flow.source, flow.destination, rail, ports, socket.IPPROTO_UDP))

    def _spine(self, source: str, destination: str, rail: str, ports: tuple[int, int], protocol: int) -> str | None:
        if self._fabric.plan.spray:
            return None
        question = (source, destination, rail, *ports)
        if question not in self._spines:
            self._spines[question] = self._fabric.spine(*question, protocol=protocol)
        return self._spines[question]


def moves(taken: Sequence[tuple[int, Way]], since_ns: int, until_ns: int) -> int:
    """How often a flow's way changed within an interval."""
    return sum(since_ns < at_ns <= until_ns for at_ns, _ in taken[1:])


def spells(taken: Sequence[tuple[int, Way]], since_ns: int, until_ns: int) -> Iterator[tuple[int, int, Way]]:
    """The ways of a flow within an interval, each with its beginning and end."""
    first = max(bisect_right(taken, since_ns, key=lambda each: each[0]) - 1, 0)
    for number in range(first, len(taken)):
        began_ns, way = taken[number]
        ended_ns = taken[number + 1][0] if number + 1 < len(taken) else until_ns
        if began_ns < until_ns and ended_ns > since_ns:
            yield max(began_ns, since_ns), min(ended_ns, until_ns), way


def lanes(way: Way, flow: FlowPlan, fabric: FabricPlan) -> tuple[Lane, ...]:
    """The fabric links that a way crosses."""
    if way.spine is None:
        return ()
    _, up, down, _ = fabric.links_between(flow.source, flow.destination, way.rail, way.spine)
    return (Lane(up, "up"), Lane(down, "down"))
