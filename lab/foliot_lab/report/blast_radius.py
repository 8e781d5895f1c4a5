"""The blast radius of a fault: the events and commands that it explains, the pairs and flows that it may touch.

====================== =====================================================================================
where                  its own things
====================== =====================================================================================
``node3.rail0``        that NIC, and all paths that begin or end at it
``rail0.leaf1-spine2`` all paths of that rail between a host of that leaf and a host of another
``node3``              everything of that node: its NICs and their paths, its clock, its processes
``node3/probe``        the same: a dead probe is seen as silence, a dead agent as refusals
``node3/rank``         the rank of a training job there; one of several, ``node3/rank0``, likewise
``sync``               itself, and what a missing service makes of the others: clocks, refusals
``bus``                clocks, processes and refusals of anybody: nobody hears anybody
====================== =====================================================================================

A fault of a NIC, link or host may hold up the ranks that send by it.

A drained host, or one whose GPU has an error, explains that its ranks go elsewhere, and what is said of the host.

A clock step is done to a host. It explains events about the host's clock and refusals for it, but no event about its
paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.outages import End, Pair
from foliot_lab.report.replace_orders import REPLACE, order_of
from foliot_schemas import event_kinds
from foliot_schemas.names import nic_name, node_of, parse_path, rail_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_lab.scenario.topology import FabricPlan
    from foliot_lab.workload.flow_loop import FlowPlan
    from foliot_schemas import Command, Event
    from foliot_schemas.event_kinds import Concerned


_OF_WISHES = frozenset({"drain", "xid"})
"""Kinds after which ranks are to leave a host, whose network is well."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The things that one fault may touch."""

    nics: frozenset[str] = frozenset()
    """The NICs whose own state the fault changes or hides."""
    near: frozenset[str] = frozenset()
    """The NICs on one side of the trouble. It touches a path that joins one of these with one of `far`, on the same
    rail."""
    far: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """Clocks and processes."""
    ranks: frozenset[str] = frozenset()
    """The nodes whose ranks of training jobs it changes itself."""
    anywhere: frozenset[Concerned] = frozenset()
    """The fault explains every event about any of these: about clocks, about processes, about anything that is
    refused."""

    def has_path(self, source: str, destination: str) -> bool:
        """Whether the fault may touch the way between two NICs, in either direction."""
        if rail_of(source) != rail_of(destination):
            return False
        ends = ((source, destination), (destination, source))
        return any(one in self.near and other in self.far for one, other in ends)

    def has_event(self, event: Event) -> bool:
        """Whether an event is about the fault's own things."""
        known, who = event_kinds.find(event.kind), event.who
        concerns: Concerned = "anything" if known is None else known.concerns
        if concerns in self.anywhere or who in self.names:
            return True
        if event.evidence.get("verb") == REPLACE:  # a refusal, of which nobody can say where the rank is by now
            return bool(self._nodes())
        if ">" in who:
            return self._has_path_named(who)
        if concerns == "rank":
            return not self._nodes().isdisjoint(event.related.get("nodes", ()))
        if concerns == "nic":
            return who in (self.nics if known is not None and known.is_local else self.near)
        return concerns == "anything" and (who in self.near or any(node_of(nic) == who for nic in self.near))

    def _has_path_named(self, name: str) -> bool:
        try:
            path = parse_path(name)
        except ValueError:
            return False
        return self.has_path(path.source, path.destination)

    def _nodes(self) -> frozenset[str]:
        """The nodes whose ranks the fault may hold up."""
        return self.ranks | {node_of(nic) for nic in self.near}

    def has_end_of(self, flows: Iterable[str]) -> bool:
        """Whether one of these flows, by their names on the bus, begins or ends at a node of the fault's NICs."""
        nodes = {node_of(nic) for nic in self.near}
        return any(node_of(end) in nodes for flow in flows for end in flow.split(">"))

    def parts_of(self, command: Command) -> tuple[bool, ...]:
        """For every part of a command, in a fixed order: whether it is about the fault's own things."""
        order = order_of(command)
        if order is not None and not order.changes:  # the whole group forms anew
            return (bool(self._nodes()),)
        if order is not None:
            return tuple(change.node in self._nodes() for change in order.changes)
        turned = [nic_name(command.node, rail) in self.nics for rail in (*command.away, *command.back)]
        placed = [
            self.has_path(nic_name(command.node, placement.rail), nic_name(placement.peer, placement.rail))
            for placement in command.placements
        ]
        return (*turned, *placed)

    def has_flow(self, flow: FlowPlan) -> bool:
        """Whether a flow may cross the trouble while nothing has been moved."""
        return self.has_path(nic_name(flow.source, flow.rail), nic_name(flow.destination, flow.rail))

    def pairs(self) -> tuple[Pair, ...]:
        """Both directions between all service addresses that the fault may touch."""
        joined = {
            (one, other)
            for one in self.near
            for other in self.far
            if rail_of(one) == rail_of(other) and node_of(one) != node_of(other)
        }
        both = joined | {(other, one) for one, other in joined}
        return tuple(Pair(_end(source), _end(destination)) for source, destination in sorted(both))


def scope(kind: str, where: str, fabric: FabricPlan) -> Scope:
    """The blast radius of a fault of this kind at this place."""
    everyone = frozenset(nic_name(host, rail) for host in fabric.hosts for rail in fabric.rails)
    if where in everyone:
        return Scope(nics=frozenset({where}), near=frozenset({where}), far=everyone - {where})
    if where in fabric.links:
        return _fabric_link(where, fabric)
    node = where.partition("/")[0]
    if node not in fabric.hosts:
        whole_bus = where == "bus" or where.startswith("nats") or "|" in where
        anywhere: set[Concerned] = {"clock", "process", "rank", "anything"} if whole_bus else {"clock", "anything"}
        return Scope(names=frozenset({where}), anywhere=frozenset(anywhere))
    if (narrow := _within_host(kind, where, node)) is not None:
        return narrow
    own = frozenset(nic for nic in everyone if node_of(nic) == node)
    names = frozenset({node, f"{node}/probe", f"{node}/agent"})
    return Scope(nics=own, near=own, far=everyone - own, names=names)


def _within_host(kind: str, where: str, node: str) -> Scope | None:
    """The blast radius of a fault of a host that leaves its network well; None: it does not."""
    if kind == "clock-step":  # done to the host
        return Scope(names=frozenset({node}), anywhere=frozenset({"anything"}))
    if "/rank" in where:
        return Scope(ranks=frozenset({node}))
    if kind in _OF_WISHES:
        return Scope(names=frozenset({node}), ranks=frozenset({node}))
    return None


def _fabric_link(where: str, fabric: FabricPlan) -> Scope:
    leaf = fabric.links[where].near.owner
    rail = leaf.partition(".")[0]
    behind = frozenset(nic_name(host, rail) for host in fabric.hosts if fabric.leaf(host, rail) == leaf)
    return Scope(near=behind, far=frozenset(nic_name(host, rail) for host in fabric.hosts) - behind)


def _end(nic: str) -> End:
    return End(node_of(nic), rail_of(nic))
