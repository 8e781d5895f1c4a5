"""The present state of the fleet, folded from what the bus shows: nodes, NICs, which way traffic goes, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from foliot_gateway.paths import PathTable, PathView
from foliot_schemas import ClockState, NodePaths, Outcome, Placement, PortState
from foliot_schemas.names import nic_name, node_of, rail_of

if TYPE_CHECKING:
    from foliot_schemas import DelayBatch, Event, Nic, Node

NicState = Literal["up", "down", "admin-down", "unknown"]


class NicView(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC, as it was last heard of."""

    nic: str
    rail: str
    state: NicState
    """``unknown``: its node's probe has said nothing yet."""
    carrier: bool
    admin_up: bool
    moved: bool
    """Its node's traffic goes another way: as the agent last reported, else as the remediator wants it."""
    at_ns: int
    """When the kernel last said so."""
    carrier_down_count: int
    carrier_up_count: int
    counters: dict[str, int]
    device: str = ""
    address: str = ""
    service_address: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node and its NICs."""

    node: str
    nics: tuple[NicView, ...]


class Fleet:
    """The present state. `fold_…` takes a message, the rest answers."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._ports: dict[str, PortState] = {}
        self._wanted: dict[str, NodePaths] = {}
        self._away: dict[tuple[str, str], tuple[int, bool]] = {}
        """Per node and rail: when an agent last reported of it, and whether its traffic is away."""
        self._placed: dict[tuple[str, str, str], tuple[int, Placement]] = {}
        """Per node, peer and rail of the service address: when an agent last reported of it, and the way in force."""
        self._clocks: dict[str, ClockState] = {}
        self._paths = PathTable()

    # -- in -----------------------------------------------------------------------------------------------------------

    def fold_node(self, name: str, node: Node | None) -> None:
        """Takes a node's inventory record; None: it has left."""
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node

    def fold_port(self, port: PortState) -> None:
        """Takes the state of a NIC's port. One sent at once on a change has no counters: the last ones stand."""
        known = self._ports.get(port.nic)
        if known is not None and not port.counters:
            port = msgspec.structs.replace(port, counters=known.counters)
        self._ports[port.nic] = port

    def fold_delays(self, batch: DelayBatch) -> None:
        """Takes the delays that one node saw.

        Raises:
            ValueError: the batch does not fit together.
        """
        self._paths.fold(batch)

    def fold_clock(self, state: ClockState) -> None:
        """Takes what sync says of a clock."""
        self._clocks[state.clock] = state

    def fold_wanted(self, node: str, wanted: NodePaths | None) -> None:
        """Takes what the remediator wants in force on a node."""
        if wanted is None:
            self._wanted.pop(node, None)
        else:
            self._wanted[node] = wanted

    def fold_event(self, event: Event) -> None:
        """Takes the detector's verdict on a path.

        Raises:
            ValueError: it names something that is no path.
        """
        if event.kind == "path":
            self._paths.judge(event.who, event.state, event.at_ns)

    def fold_outcome(self, outcome: Outcome) -> None:
        """Takes what an agent reports of its routes; an older report never overrides a newer one."""
        if outcome.status not in {"done", "already"}:
            return
        at_ns = reported_ns(outcome)
        for rails, is_away in ((outcome.away, True), (outcome.back, False)):
            for rail in rails:
                if at_ns >= self._away.get((outcome.node, rail), (0, False))[0]:
                    self._away[outcome.node, rail] = at_ns, is_away
        for placement in outcome.placements:
            key = outcome.node, placement.peer, placement.rail
            known = self._placed.get(key)
            if known is None or at_ns >= known[0]:
                self._placed[key] = at_ns, placement

    # -- out ----------------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeView, ...]:
        """Every node by name, from the inventory or from its ports."""
        names = sorted(self._nodes.keys() | {node_of(nic) for nic in self._ports})
        return tuple(self._node(name) for name in names)

    def paths(self, *, node: str = "", nic: str = "") -> tuple[PathView, ...]:
        """Every path by name, or those that begin or end at a node or NIC."""
        return self._paths.views(self.in_force(), node=node, nic=nic)

    def clocks(self) -> tuple[ClockState, ...]:
        """What sync last said of each clock."""
        return tuple(state for _, state in sorted(self._clocks.items()))

    def is_away(self, node: str, rail: str) -> bool:
        """Whether the traffic of a node's NIC goes another way."""
        if (node, rail) in self._away:
            return self._away[node, rail][1]
        wanted = self._wanted.get(node)
        return wanted is not None and rail in wanted.away

    def in_force(self) -> frozenset[str]:
        """The paths that traffic of jobs takes."""
        nodes = self._wanted.keys() | {node for node, _, _ in self._placed}
        return frozenset(path for node in nodes for path in self._in_force_of(node))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _in_force_of(self, node: str) -> set[str]:
        wanted = self._wanted.get(node, NodePaths(node=node, lease_revision=0))
        ways = {(way.peer, way.rail): way for way in wanted.placements}
        ways |= {(peer, rail): way for (of, peer, rail), (_, way) in self._placed.items() if of == node}
        # While a rail's own NIC is lost, the rule for the armed backups comes before the routes of `ways`.
        backups = {(way.peer, way.rail): way for way in wanted.backups if self.is_away(node, way.rail)}
        return {
            f"{nic_name(node, way.via)}>{nic_name(way.peer, way.via)}#{way.entropy}"
            for way in (ways | backups).values()
        }

    def _node(self, name: str) -> NodeView:
        node = self._nodes.get(name)
        described = {nic.name: nic for nic in node.nics} if node is not None else {}
        nics = sorted(described.keys() | {nic for nic in self._ports if node_of(nic) == name})
        return NodeView(node=name, nics=tuple(self._nic(name, nic, described.get(nic)) for nic in nics))

    def _nic(self, node: str, nic: str, described: Nic | None) -> NicView:
        port = self._ports.get(nic)
        rail = rail_of(nic)
        return NicView(
            nic=nic,
            rail=rail,
            state=_state(port),
            carrier=port is not None and port.carrier,
            admin_up=port is not None and port.admin_up,
            moved=self.is_away(node, rail),
            at_ns=0 if port is None else port.at_ns,
            carrier_down_count=0 if port is None else port.carrier_down_count,
            carrier_up_count=0 if port is None else port.carrier_up_count,
            counters={} if port is None else port.counters,
            device="" if described is None else described.device,
            address="" if described is None else described.address,
            service_address="" if described is None else described.service_address,
        )


def reported_ns(outcome: Outcome) -> int:
    """The latest time inside an outcome."""
    return max(outcome.started_ns, outcome.moved_ns, outcome.confirmed_ns)


def _state(port: PortState | None) -> NicState:
    if port is None:
        return "unknown"
    if not port.admin_up:
        return "admin-down"
    return "up" if port.carrier else "down"
