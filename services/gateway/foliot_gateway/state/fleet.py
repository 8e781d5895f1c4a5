"""The present state of the fleet, folded from what the bus shows: nodes, NICs, ways of traffic, clocks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import msgspec

from foliot.clock.message_dating import MinimumOffsets
from foliot.text.messages import happened_ns
from foliot_gateway.state.cardinality_limit import MOST_STRANGERS, CardinalityLimit
from foliot_gateway.state.date import Date
from foliot_gateway.state.inferred_links import InferredLinks
from foliot_gateway.state.nic_condition import Condition, Tile, judge
from foliot_gateway.state.path_map import MapReader
from foliot_gateway.state.path_table import PathTable, PathView
from foliot_gateway.state.routing_view import RoutingView
from foliot_gateway.state.verdicts import Verdicts
from foliot_schemas.event_kinds import CONTENTION, losing
from foliot_schemas.names import node_of, parse_path, rail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foliot_gateway.state.path_map import Entry, MapQuery
    from foliot_schemas import (
        ClockState,
        DelayBatch,
        Drain,
        Event,
        HopBatch,
        Node,
        NodePaths,
        Outcome,
        Placement,
        PortState,
    )

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
    """All its traffic goes another way, out of it or to it: as agents last reported, else as the remediator wants
    it."""
    condition: Condition
    """Link, paths and traffic in one word."""
    why: str
    """Why it is in this condition, in words; empty where there is nothing to say."""
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
    drained: bool = False
    """Somebody wants no rank of a training job on it."""


class Fleet:
    """The present state. `fold_…` takes a message, the rest answers.

    Parameters:
        now_ns: a time that no node moves, and that nobody sets. A message dated ahead of it counts as of now, and does
            not outlast what comes after it.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._offsets = MinimumOffsets()
        self.limit = self._limit = CardinalityLimit()
        self._nodes, self._nics = self._limit.nodes, self._limit.nics
        self._ports: dict[str, PortState] = {}
        self._port_dates: dict[str, Date] = {}
        self._ports_of: dict[str, set[str]] = {}
        """Per node, its NICs among those."""
        self._ways = RoutingView(self._limit)
        self._verdicts = Verdicts()
        """On NICs and probes."""
        self._dead: dict[str, bool] = {}
        """Per node of which the detector ever judged: whether its probe is dead."""
        self._losing: dict[str, str] = {}
        """Per NIC: what the detector last said that it loses, in words; empty: nothing."""
        self._touched: set[str] = set()
        """NICs whose tile may have changed since somebody looked."""
        self._clocks: dict[str, ClockState] = {}
        self._drained: set[str] = set()
        self._paths = PathTable(self._limit)
        self._inferred = InferredLinks()
        self._map = MapReader(self._paths, self._inferred)

    def fold_node(self, name: str, node: Node | None) -> None:
        """Takes a node's inventory record; None: it has left."""
        self._touched |= self._nics_of(name)
        before = self._nodes.pop(name, None)
        for nic in () if before is None else before.nics:
            del self._nics[nic.name]
        if node is not None:
            self._nodes[name] = node
            self._nics |= {nic.name: nic for nic in node.nics}
            self._touched |= self._nics_of(name)
        else:
            self._forget(name, frozenset() if before is None else before.clocks)
        self._paths.look_up_anew()

    def _forget(self, name: str, clocks: frozenset[str]) -> None:
        """Forgets a node that has left, and its NICs' clocks: if it comes back, it begins anew."""
        for nic in self._ports_of.pop(name, set()):
            del self._ports[nic], self._port_dates[nic]
            self._losing.pop(nic, None)
            self._verdicts.forget(nic)
        self._dead.pop(name, None)
        self._verdicts.forget(f"{name}/probe")
        self._offsets.forget(name)
        self._paths.forget(name)
        for clock in {name, *clocks}:
            if not self._limit.knows_clock(clock):
                self._clocks.pop(clock, None)
        self._touched |= self._ways.forget(name)

    def fold_drain(self, node: str, drain: Drain | None) -> None:
        """Takes whether somebody wants no rank of a training job on a node; None: nobody does."""
        if drain is None or drain.over:
            self._drained.discard(node)
        elif len(self._drained) < MOST_STRANGERS or node in self._nodes:
            self._drained.add(node)

    def fold_port(self, port: PortState) -> None:
        """Takes the state of a NIC's port, unless a later one is known.

        One sent at once on a change has no counters: the last ones stand.
        """
        known = self._ports.get(port.nic)
        if not self._limit.has_for(port.nic, self._ports) and port.nic not in self._nics:
            return
        self._offsets.learn(port.node, port.at_ns, self._now_ns())
        date = self._date(port.node, port.at_ns)
        if known is not None and date.is_before(self._port_dates[port.nic]):
            return
        if known is not None and not port.counters:
            port = msgspec.structs.replace(port, counters=known.counters)
        if known is None or (known.carrier, known.admin_up) != (port.carrier, port.admin_up):
            self._touched.add(port.nic)
        self._ports[port.nic], self._port_dates[port.nic] = port, date
        self._ports_of.setdefault(port.node, set()).add(port.nic)

    def fold_delays(self, batch: DelayBatch) -> None:
        """Takes the delays that one node saw.

        Raises:
            ValueError: as `PathTable.fold`.
        """
        if batch.node in self._nodes or batch.node in self._ports_of:
            self._offsets.learn(batch.node, batch.at_ns, self._now_ns())
        self._paths.fold(batch)

    def fold_hops(self, batch: HopBatch) -> None:
        """Takes the routers of some paths.

        Raises:
            ValueError: as `PathTable.fold_hops`.
        """
        self._paths.fold_hops(batch)

    def fold_clock(self, state: ClockState) -> None:
        """Takes the word of sync on a clock."""
        if self._limit.has_for(state.clock, self._clocks) or self._limit.knows_clock(state.clock):
            self._clocks[state.clock] = state

    def fold_wanted(self, node: str, wanted: NodePaths | None) -> None:
        """Takes the ways that the remediator wants in force on a node."""
        self._touched |= self._ways.want(node, wanted)

    def fold_event(self, event: Event) -> None:
        """Takes the detector's verdict on a path, a NIC or a process, or on a link that delays alone tell of.

        Raises:
            ValueError: it names something that is no path.
        """
        if event.kind == "path":
            source, destination, _ = parse_path(event.who)
            # The detector dates a verdict by the clock of whom it is about: of a path, by its receiver's.
            if self._paths.judge(event, self._date(node_of(destination), event.at_ns)):
                self._touched |= {source, destination}
        elif event.kind == "nic" and event.who in self._nics:
            if self._verdicts.take(event, self._date(node_of(event.who), event.at_ns)):
                self._losing[event.who] = losing(event) if event.state == "lossy" else ""
                self._touched.add(event.who)
        elif event.kind == CONTENTION.name and (flows := event.related.get("flows")):
            # The detector dates it by the clock of who sends the first flow.
            self._inferred.take(event, self._date(node_of(flows[0].partition(">")[0]), event.at_ns))
        elif event.kind == "process" and event.who.endswith("/probe"):
            self._fold_probe(event.who.removesuffix("/probe"), event)

    def fold_outcome(self, outcome: Outcome) -> None:
        """Takes an agent's report of its routes; an older report never overrides a newer one."""
        if outcome.status not in {"done", "already"}:
            return
        self._touched |= self._ways.report(outcome, self._date(outcome.node, happened_ns(outcome)))

    def nodes(self) -> Iterator[NodeView]:
        """Every node by name, from the inventory or from its ports, each as it is when it is taken.

        It passes over those that have left by then.
        """
        for name in sorted(self._nodes.keys() | self._ports_of.keys()):
            if name in self._nodes or name in self._ports_of:
                nics = tuple(self._nic(nic) for nic in sorted(self._nics_of(name)))
                yield NodeView(node=name, nics=nics, drained=name in self._drained)

    def paths(self, *, node: str = "", nic: str = "") -> Iterator[PathView]:
        """Every path, as `PathTable.views` has it."""
        # Paths of one node follow each other.
        return self._paths.views(functools.lru_cache(1)(self._ways.in_force_of), node=node, nic=nic)

    def ways(self, node: str) -> dict[tuple[str, str], Placement]:
        """As `RoutingView.ways`."""
        return self._ways.ways(node)

    def path(self, name: str) -> PathView | None:
        """A path that traffic takes; None: nothing was ever said of it."""
        return self._paths.view(name)

    def map(self, asked: MapQuery) -> Iterator[Entry | None]:
        """Paths with their links, and the routers between these, as `MapReader.read` has them."""
        return self._map.read(asked)

    def clocks(self) -> tuple[ClockState, ...]:
        """The last word of sync on each clock."""
        return tuple(state for _, state in sorted(self._clocks.items()))

    def changed_tiles(self) -> dict[str, Tile | None]:
        """By name, the NICs that may look different since the last call; None: it is gone."""
        touched, self._touched = self._touched, set()
        return {nic: self._tile(nic) if nic in self._ports or nic in self._nics else None for nic in touched}

    def _date(self, node: str, at_ns: int) -> Date:
        return Date(at_ns, self._offsets.here_ns(node, at_ns, self._now_ns()))

    def _fold_probe(self, node: str, event: Event) -> None:
        if node not in self._nodes and not self._limit.has_for(node, self._dead):
            return
        if self._verdicts.take(event, self._date(node, event.at_ns)):
            self._dead[node] = event.state == "dead"
            self._touched |= self._nics_of(node)

    def _nics_of(self, node: str) -> set[str]:
        record = self._nodes.get(node)
        described = () if record is None else record.nics
        return {nic.name for nic in described} | self._ports_of.get(node, set())

    def _tile(self, nic: str) -> Tile:
        node, rail = node_of(nic), rail_of(nic)
        moved = self._ways.is_moved(node, rail)
        condition, why = judge(
            self._ports.get(nic),
            self._paths.of(nic),
            moved=moved,
            probe_dead=self._dead.get(node, False),
            losing=self._losing.get(nic, ""),
        )
        return Tile(nic=nic, node=node, rail=rail, condition=condition, moved=moved, why=why)

    def _nic(self, nic: str) -> NicView:
        port, described, tile = self._ports.get(nic), self._nics.get(nic), self._tile(nic)
        return NicView(
            nic=nic,
            rail=tile.rail,
            state=_state(port),
            carrier=port is not None and port.carrier,
            admin_up=port is not None and port.admin_up,
            moved=tile.moved,
            condition=tile.condition,
            why=tile.why,
            at_ns=0 if port is None else port.at_ns,
            carrier_down_count=0 if port is None else port.carrier_down_count,
            carrier_up_count=0 if port is None else port.carrier_up_count,
            counters={} if port is None else port.counters,
            device="" if described is None else described.device,
            address="" if described is None else described.address,
            service_address="" if described is None else described.service_address,
        )


def _state(port: PortState | None) -> NicState:
    if port is None:
        return "unknown"
    if not port.admin_up:
        return "admin-down"
    return "up" if port.carrier else "down"
