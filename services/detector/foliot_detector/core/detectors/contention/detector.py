"""Flows that get less than they could: where, and whose doing it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot.jobs import jobs_of
from foliot.link_map import is_inferred, link_in
from foliot_detector.core.detectors.contention.flow_table import FlowTable
from foliot_detector.core.detectors.contention.hot_places import HotPlaces
from foliot_detector.core.detectors.contention.inferred_links import InferredLinks
from foliot_detector.core.detectors.contention.link_index import LinkIndex
from foliot_detector.core.detectors.contention.link_loads import LinkLoads
from foliot_detector.core.detectors.contention.own_queues import OwnQueues
from foliot_detector.core.detectors.contention.path_queues import SLOT_NS, PathQueues
from foliot_detector.core.detectors.contention.port_rates import PortRates
from foliot_detector.core.detectors.contention.verdict import CONTENDED, Finding, Judge
from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.state.inventory import REPORT_HOLDS_NS
from foliot_detector.core.state.path_table import Delays
from foliot_schemas import ClockState, Event, FlowBatch, HopBatch, Node, NodePaths, PortState
from foliot_schemas.event_kinds import CONTENTION
from foliot_schemas.names import is_nic_clock, node_of, parse_flow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.settings import ContentionSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

_S = 1_000_000_000
_WATCHED_NS = 5 * _S
"""For how long queues are watched after the last word of a flow."""
_GAP_NS = 2 * SLOT_NS
"""A finding may be missing for so long. Words of several senders come at different times."""
_AGREED = 0.5
"""Share of a path's queue that the round trips of its flow take at least. Both change, and are of different moments."""
_ENOUGH = 0.9
"""Share of what a flow could get that ends a trouble."""
_DRAINED = 0.5
"""A queue under this share of the least that counts is over."""
_UNREAD, _READ_AGAIN = 0.5, 0.3
"""Share of its busy time for which a flow waits for a slow receiver; and for which one waits that is not slow."""
_MOST_NAMES = 1_024
"""Names of a kind in an event, at most."""
_GRACE_NS = 10 * _S
"""For how long a trouble of an earlier run stands while its flows and links are not told again."""
_RESUMED = -1


@dataclass(slots=True)
class _Pending:
    """A finding that does not hold for long enough yet."""

    since_ns: int
    seen_ns: int


@dataclass(slots=True)
class _Open:
    """A trouble that was said and is not over."""

    event: Event
    links: tuple[int, ...]
    flows: tuple[str, ...]
    usual_bps: dict[str, float]
    capacity_bps: float
    short_ns: int
    """When flows were last short there; `_RESUMED`: an earlier run said so, and this one has not looked yet."""
    names: tuple[str, ...]
    """Its links' names."""
    queue_seen: bool
    """Whether this run has seen its queue stand. Else delays may have it in their bases, and do not tell of its end."""


class ContentionDetector:
    """Events of kind ``contention``.

    Delays say where a queue stands, and senders' kernels say who waits in it: neither alone makes an event. See
    docs/contention-reference.md.
    """

    def __init__(self, inventory: Inventory, settings: ContentionSettings) -> None:
        self._inventory = inventory
        self._settings = settings
        self._queues = PathQueues(inventory.paths)
        self._links = LinkIndex(inventory)
        self._ports = PortRates(inventory)
        self._flows = FlowTable(inventory, self._links, self._ports)
        self._loads = LinkLoads()
        self._inferred = InferredLinks(inventory, self._links, self._flows, self._loads, self._queues)
        self._own = OwnQueues(self._queues, self._links, self._flows, self._loads)
        self._judge = Judge(
            inventory, self._links, self._flows, self._loads, self._ports, share=settings.contention_share
        )
        self._judge.correlations = self._inferred.correlation
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._open: dict[str, _Open] = {}
        self._disrupted: set[str] = set()
        """Nodes with a clock that cannot be trusted."""
        self._look_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether what an earlier run said is over."""
        state = CONTENTION.state(event.state)
        if event.kind != CONTENTION.name or state is None or state.is_relief:
            return
        flows, names = event.related.get("flows", ()), event.related.get("links", ())
        for link in filter(is_inferred, names):
            self._inferred.resume(link, event.related.get("paths", ()))
        self._open[event.who] = _Open(
            event=event, links=tuple(map(self._links.id_of, names)), flows=flows, names=names,
            usual_bps={str(event.evidence.get("slowest", "")): event.number("usual_mbps") * 1e6},
            capacity_bps=event.number("capacity_mbps") * 1e6, short_ns=_RESUMED, queue_seen=False,
        )  # fmt: skip

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes what is told of delays, flows, routers, ways, ports and clocks. Events come with the ticks."""
        match seen:
            case Delays():
                if seen.node not in self._disrupted:
                    self._queues.add(seen, self._inventory.report_holds_ns(seen.node))
                    self._inferred.add(seen)
            case FlowBatch():
                self._flows.take(seen, self._inventory.here_ns(seen.node, seen.at_ns, now_ns))
            case HopBatch():
                changed = self._links.take(seen)
                self._lead_elsewhere(changed.paths, changed.elsewhere, now_ns)
                self._reclaim_links()
            case NodePaths():
                self._flows.reroute(seen.node, now_ns)
            case PortState():
                self._count(seen)
            case ClockState():
                self._take_clock(seen)
            case Node():
                gone = self._links.refresh(seen)
                self._flows.refresh(seen.name)
                self._lead_elsewhere(gone, gone, now_ns)
                if not seen.nics:
                    self._forget(seen.name)
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Judges four times a second, while anybody tells of flows."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + SLOT_NS
        is_watched = now_ns - self._flows.heard_ns < _WATCHED_NS
        self._queues.turn(now_ns, is_watched=is_watched)
        if not is_watched and not self._open:
            self._pending.clear()
            return []
        self._flows.look(now_ns)
        self._loads.look(self._flows, len(self._links), now_ns)
        hot = HotPlaces(self._queues, self._links, self._settings.contention_queue_us * 1e3)
        self._own.look(hot.least_ns)
        findings = self._find(hot, now_ns)
        reliefs = [self._clear(trouble, now_ns) for trouble in self._over(hot, now_ns)]
        begun = self._begun(findings, now_ns)
        held = {name for trouble in self._open.values() for name in trouble.names}
        self._flows.relink(self._inferred.look(hot, held, now_ns), [], now_ns)
        return [*reliefs, *begun]

    # -- what it learns -----------------------------------------------------------------------------------------------

    def _count(self, seen: PortState) -> None:
        self._ports.take(seen)
        received_bps = self._ports.received_bps.get(seen.nic)
        if received_bps is not None:
            self._loads.count(self._links.id_of(link_in(seen.nic)), received_bps)

    def _take_clock(self, state: ClockState) -> None:
        nodes = self._inventory.clocks.get(state.clock, set())
        if is_nic_clock(state.clock):
            # Delays by it are told again only when it is in step, or by the host's clock.
            if state.status == "disrupted":
                for node in nodes:
                    self._distrust(node)
        elif state.status == "synchronised":
            self._disrupted -= nodes
        elif state.status == "disrupted":
            for node in nodes - self._disrupted:
                self._distrust(node)
            self._disrupted |= nodes

    def _distrust(self, node: str) -> None:
        table = self._inventory.paths
        self._queues.bound(table.node_id(node), -1)
        record = self._inventory.nodes.get(node)
        for nic in () if record is None else record.nics:
            self._queues.forget(table.at_nic(nic.name))
            self._inferred.forget(table.at_nic(nic.name))

    def _lead_elsewhere(self, paths: list[int], elsewhere: list[int], now_ns: int) -> None:
        self._queues.forget(elsewhere)
        self._inferred.forget(elsewhere)
        self._flows.relink(paths, elsewhere, now_ns)

    def _reclaim_links(self) -> None:
        held = {name for trouble in self._open.values() for name in trouble.names}
        for link in self._links.reclaim(held):
            self._loads.forget(link)

    def _forget(self, node: str) -> None:
        self._disrupted.discard(node)
        for nic in self._ports.forget(node):
            self._loads.count(self._links.id_of(link_in(nic)), np.inf)

    # -- what it finds ------------------------------------------------------------------------------------------------

    def _find(self, hot: HotPlaces, now_ns: int) -> list[Finding]:
        flows = self._flows
        rows = np.flatnonzero(flows.is_limited & (flows.path >= 0))
        excess_ns, rtt_ns = self._excess_ns(rows), flows.rtt_ns[rows]
        # The receiver alone says how late probes are: the sender's packets must be as late.
        is_late = (excess_ns >= hot.least_ns) & ((rtt_ns >= _AGREED * excess_ns) | (rtt_ns == 0))
        is_own = self._own.hold(rows)
        waiting = is_late | is_own
        places = {}
        slow: dict[tuple[int, ...], list[int]] = {}
        for row, own in zip(rows[waiting].tolist(), is_own[waiting].tolist(), strict=True):
            path = int(flows.path[row])
            place = None
            if self._is_sound(path):
                place = self._own.place(int(flows.source[row])) if own else hot.on(path)
            if place is not None:
                places[place.links] = place
                slow.setdefault(place.links, []).append(row)
        judged = (self._judge.judge(place, np.array(slow[key]), hot, now_ns) for key, place in places.items())
        return [*filter(None, judged), *self._unread(hot)]

    def _unread(self, hot: HotPlaces) -> list[Finding]:
        flows = self._flows
        held = flows.is_active & ~flows.is_unknown & (flows.busy >= _UNREAD) & (flows.unread >= _UNREAD)
        rows = np.flatnonzero(held & (flows.path >= 0))
        return self._judge.slow_receivers(hot, self._excess_ns(rows), rows)

    def _excess_ns(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return self._queues.excess_ns(self._flows.path[rows])

    def _is_sound(self, path_id: int) -> bool:
        table = self._inventory.paths
        return not table.silent[path_id] and not self._inventory.has_down_end(table.path(path_id))

    # -- what it says -------------------------------------------------------------------------------------------------

    def _begun(self, findings: list[Finding], now_ns: int) -> list[Event]:
        events = []
        for finding in findings:
            if finding.who in self._open or any(finding.flows == trouble.flows for trouble in self._open.values()):
                continue
            pending = self._pending.setdefault(finding.key, _Pending(now_ns, now_ns))
            pending.seen_ns = now_ns
            if now_ns - pending.since_ns >= self._hold_ns(finding):
                events.append(self._begin(finding, pending.since_ns, now_ns))
        for key, pending in list(self._pending.items()):
            if now_ns - pending.seen_ns > _GAP_NS or key[0] in self._open:
                del self._pending[key]
        return events

    def _hold_ns(self, finding: Finding) -> int:
        """For how long a finding has to hold. Where its nodes report seldom, delays are older than what flows get."""
        nodes = {node_of(end) for flow in finding.flows for end in parse_flow(flow)}
        holds_ns = max(self._inventory.report_holds_ns(node) for node in nodes)
        return round(self._settings.contention_for_s * _S) + holds_ns - REPORT_HOLDS_NS

    def _begin(self, finding: Finding, since_ns: int, now_ns: int) -> Event:
        node = node_of(finding.flows[0].partition(">")[0])
        since_at_ns = self._inventory.at_ns(node, since_ns)
        fault = f"{finding.who}/contention-{since_at_ns}"
        names = tuple(sorted(self._links.names[link] for link in finding.links))
        event = Event(
            id=f"{fault}/{finding.state}", kind=CONTENTION.name, who=finding.who, state=finding.state,
            at_ns=self._inventory.at_ns(node, now_ns), since_ns=since_at_ns, confidence=finding.confidence,
            evidence=finding.evidence, fault=fault,
            related={
                "links": names[:_MOST_NAMES],
                "flows": finding.flows[:_MOST_NAMES],
                "jobs": self._jobs(finding, now_ns)[:_MOST_NAMES],
                **{name: paths[:_MOST_NAMES] for name, paths in finding.related.items()},
            },
        )  # fmt: skip
        self._open[finding.who] = _Open(
            event=event, links=finding.links, flows=finding.flows, usual_bps=self._judge.usual_bps(finding),
            capacity_bps=finding.capacity_bps, short_ns=now_ns, names=names, queue_seen=True,
        )  # fmt: skip
        return event

    def _jobs(self, finding: Finding, now_ns: int) -> tuple[str, ...]:
        found = jobs_of((*self._flows.talking(now_ns), *finding.flows), self._inventory.jobs)
        return tuple(sorted({found[flow] for flow in finding.flows}))

    def _over(self, hot: HotPlaces, now_ns: int) -> list[_Open]:
        """Takes out the troubles that are over."""
        hold_ns = round(self._settings.contention_clear_s * _S)
        for trouble in self._open.values():
            if trouble.short_ns == _RESUMED:
                trouble.short_ns = now_ns + _GRACE_NS
            if self._is_still(trouble, hot):
                trouble.short_ns = max(trouble.short_ns, now_ns)
        over = [trouble for trouble in self._open.values() if now_ns - trouble.short_ns >= hold_ns]
        for trouble in over:
            del self._open[trouble.event.who]
        return over

    def _is_still(self, trouble: _Open, hot: HotPlaces) -> bool:
        if trouble.event.state == "slow-receiver":
            return self._is_still_unread(self._flows.row_of(trouble.event.who))
        if not trouble.links:
            return False
        place, link = hot.of(trouble.links), trouble.links[0]
        least_ns = hot.threshold_ns(link)
        trouble.queue_seen |= place.queue_ns >= least_ns or self._own.stands(link)
        state, usual_bps, capacity_bps = trouble.event.state, trouble.usual_bps, trouble.capacity_bps
        if state == CONTENDED and not self._judge.still_share(place, trouble.flows):
            return False
        if not self._judge.is_still(place, state, usual_bps, capacity_bps, _ENOUGH):
            return False
        is_drained = place.queue_ns < _DRAINED * least_ns and self._own.is_drained(link)
        return not (trouble.queue_seen and is_drained)

    def _is_still_unread(self, row: int) -> bool:
        flows = self._flows
        if row < 0 or flows.is_unknown[row]:
            return row >= 0
        return bool(flows.is_active[row] and flows.busy[row] >= _UNREAD and flows.unread[row] >= _READ_AGAIN)

    def _clear(self, trouble: _Open, now_ns: int) -> Event:
        begun = trouble.event
        node = node_of(trouble.flows[0].partition(">")[0]) if trouble.flows else ""
        at_ns = max(self._inventory.at_ns(node, now_ns), begun.since_ns)
        relief = ended(begun, "clear", at_ns, {"lasted_ms": round((at_ns - begun.since_ns) / 1e6, 3)})
        return msgspec.structs.replace(relief, related=begun.related)
