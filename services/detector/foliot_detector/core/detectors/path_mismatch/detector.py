"""Traffic that does not take the path that is probed for it, as its round trips are quicker than that path is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from foliot.jobs import TALKS_NS, jobs_of
from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.path_mismatch.least_delays import LeastDelays
from foliot_detector.core.detectors.path_mismatch.round_trips import Ends, Reading, RoundTrips
from foliot_detector.core.state.path_table import Delays
from foliot_schemas import ClockState, Event, FlowBatch, Node
from foliot_schemas.event_kinds import MISMATCH
from foliot_schemas.names import Flow, Path, is_nic_clock, node_of, parse_flow, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foliot_detector.core.detectors.path_mismatch.settings import PathMismatchSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

_S = 1_000_000_000
_LOOK_NS = _S // 4
_WINDOW_NS, _WINDOW_INTERVALS = _S, 2
"""A reading is held against the least delay of so long before it: of two intervals, in which its round trips were."""
_TOLD_NS = 3 * _S // 10
"""So long after a reading, the delays of its time are told, where nodes report ten times a second."""
_TOO_LATE_NS = 3 * _S
"""A reading whose delays are not told by then says nothing."""
_LEAST_BYTES = 1 << 19
"""What the connection must have had acknowledged in the interval. An acknowledgement is of 64 KiB at most, as the
receiver's kernel takes no more together, so these are eight at least."""
_ONE_WAY_LEAST_NS = 8 * _S // 1_000
"""How late a path must be for delays one way to count. A daemon may slew a host's clock by 500 ppm, as adjtime(3) does.
For the 4 s until its node has told that and sync has passed it on, delays are wrong by 2 ms. That is far from half of
this."""
_SETTLE_NS = 6 * _S
"""How long nothing is said after a change of a flow's ways. A move that no agent answers is taken back after five
seconds, and all that time the bucket tells of a way that nothing takes."""
_AGREES_NS = 3 * _S
"""For how long a flow must be as late as its path to end a mismatch."""
_GONE_NS = 10 * _S
"""What was said of a flow is over when nothing was told of it for so long."""
_DROP_NS = 2 * _S


class _Key(NamedTuple):
    flow: str
    between_nics: bool
    """Whether it goes by the NICs' own addresses."""


class _Found(NamedTuple):
    """The delays of a flow's path in one moment, there and back."""

    path_ns: int
    quickest_ns: int
    """The same by the quickest paths between the same NICs."""


@dataclass(slots=True)
class _Open:
    """A mismatch that was said and is not over."""

    event: Event
    key: _Key
    told_ns: int
    """When its flow was last told; 0: not by this run."""


class PathMismatchDetector:
    """Events of kind ``mismatch``.

    A packet cannot arrive before those that wait on its way: see docs/contention-reference.md. Both directions are
    added up, so that the error of a clock cancels out.
    """

    def __init__(self, inventory: Inventory, settings: PathMismatchSettings) -> None:
        self._inventory = inventory
        self._least_ns = round(settings.mismatch_us * 1e3)
        self._for_ns = round(settings.mismatch_for_s * _S)
        self._delays = LeastDelays(inventory.paths)
        self._flows: dict[_Key, RoundTrips] = {}
        self._open: dict[str, _Open] = {}
        self._disrupted: set[str] = set()
        """Nodes with a clock that cannot be trusted."""
        self._began_ns = self._look_ns = self._drop_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether what an earlier run said is over."""
        if event.kind == MISMATCH.name and event.state == "elsewhere":
            key = _Key(event.who, event.evidence.get("addresses") == "nic")
            self._open[event.who] = _Open(event, key, 0)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes what is told of delays, flows and clocks. Events come with the ticks."""
        match seen:
            case Delays():
                if seen.node not in self._disrupted:
                    self._delays.add(seen)
            case FlowBatch():
                here_ns = self._inventory.here_ns(seen.node, seen.at_ns, now_ns)
                self._read_all(seen.flows, seen.rows(), seen.interval_ns, here_ns, between_nics=False)
                self._read_all(seen.nic_flows, seen.nic_rows(), seen.interval_ns, here_ns, between_nics=True)
            case ClockState():
                self._take_clock(seen)
            case Node() if not seen.nics:
                self._disrupted.discard(seen.name)
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Judges four times a second."""
        if now_ns < self._look_ns:
            return []
        self._look_ns, self._began_ns = now_ns + _LOOK_NS, self._began_ns or now_ns
        if now_ns >= self._drop_ns:
            self._drop_ns = now_ns + _DROP_NS
            self._drop(now_ns)
        events = [*self._over(now_ns)]
        for key, flow in self._flows.items():
            if flow.waiting:
                self._judge(flow, now_ns)
                if flow.contradicts(self._for_ns) and key.flow not in self._open:
                    events += self._begun(key, flow, now_ns)
        return events

    # -- what it learns -----------------------------------------------------------------------------------------------

    def _read_all(
        self, flows: tuple[str, ...], rows: NDArray[Any], interval_ns: int, here_ns: int, *, between_nics: bool
    ) -> None:
        columns = "flow", "rtt_ns", "busiest_acked_bytes", "in_band_ns"
        for number, rtt_ns, acked_bytes, in_band_ns in zip(*(rows[name].tolist() for name in columns), strict=True):
            reading = Reading(here_ns, rtt_ns if acked_bytes >= _LEAST_BYTES else 0, interval_ns, in_band_ns)
            self._read(_Key(flows[number], between_nics), reading)

    def _read(self, key: _Key, reading: Reading) -> None:
        flow = self._flows.get(key) or RoundTrips()
        if not self._find_ways(key, flow, reading.here_ns):
            return
        self._flows[key] = flow
        flow.told_ns = reading.here_ns
        self._delays.watch(flow.ways, reading.here_ns)
        if reading.rtt_ns:
            self._put(key, flow, reading)

    def _put(self, key: _Key, flow: RoundTrips, reading: Reading) -> None:
        """Lets a reading wait for the delays of its time, unless the latest show that its path is not late."""
        latest = [self._delays.latest_ns(path_id) for path_id in flow.ways]
        if key.flow in self._open or sum(each or 0 for each in latest) >= self._least_ns:
            flow.waiting.append(reading)

    def _find_ways(self, key: _Key, flow: RoundTrips, here_ns: int) -> bool:
        """Looks up which ways a flow and its acknowledgements are said to take. Returns whether both are known."""
        known = self._inventory.ways
        if flow.turns != known.turns or min(flow.ways) < 0:
            source, destination = parse_flow(key.flow)
            both = Flow(source, destination), Flow(destination, source)
            ways = Ends(*(self._place(each, between_nics=key.between_nics) for each in both))
            if ways != flow.ways and min(flow.ways) >= 0:
                flow.settled_ns = here_ns + _SETTLE_NS
            flow.ways, flow.turns = ways, known.turns
        return min(flow.ways) >= 0

    def _place(self, flow: Flow, *, between_nics: bool) -> int:
        """The path of a flow. What goes between two NICs is not held against a path between others."""
        name = self._inventory.ways.path_of(str(flow))
        path = parse_path(name) if name else None
        if path is None or (between_nics and path[:2] != flow):
            return -1
        return self._inventory.paths.id_of(path)

    def _take_clock(self, state: ClockState) -> None:
        if is_nic_clock(state.clock):  # round trips are by the hosts' clocks
            return
        nodes = self._inventory.clocks.get(state.clock, set())
        if state.status == "synchronised":
            self._disrupted -= nodes
        elif state.status == "disrupted":
            self._disrupted |= nodes

    def _drop(self, now_ns: int) -> None:
        self._delays.drop_unasked(now_ns)
        for key in [key for key, flow in self._flows.items() if now_ns - flow.told_ns > TALKS_NS]:
            del self._flows[key]

    # -- what it finds ------------------------------------------------------------------------------------------------

    def _judge(self, flow: RoundTrips, now_ns: int) -> None:
        """Holds readings against their paths, as far as the delays of their time are told."""
        while flow.waiting and now_ns - flow.waiting[0].here_ns >= _TOLD_NS:
            reading = self._best(flow, flow.waiting[0])
            path_ns = self._path_ns(flow, reading)
            if path_ns is None and now_ns - reading.here_ns < _TOO_LATE_NS:
                return
            flow.waiting.popleft()
            if path_ns is not None and self._is_settled(flow, reading):
                flow.judge(reading, path_ns, self._least_ns)
                if flow.since_ns:
                    self._delays.watch(self._beside(flow.ways.forward), now_ns)
                    self._delays.watch(self._beside(flow.ways.back), now_ns)

    def _best(self, flow: RoundTrips, reading: Reading) -> Reading:
        """The reading as a delay one way, if that is known, and the path late enough that no slew explains it.

        Else the round trip counts: acknowledgements may be what takes another way.
        """
        if not reading.in_band_ns:
            return reading
        one_way = reading._replace(is_one_way=True)
        path_ns = self._path_ns(flow, one_way)
        is_late = path_ns is not None and path_ns >= max(_ONE_WAY_LEAST_NS, self._least_ns)
        return one_way if is_late else reading

    def _path_ns(self, flow: RoundTrips, reading: Reading) -> int | None:
        """The least that probes of a flow's path took, there and back, less what clocks may be wrong by.

        Of a reading one way, what they took there. None: the path was not heard all the while.
        """
        ways = _ways(flow, reading)
        found = [self._delays.least_ns(path_id, _since_ns(reading), reading.here_ns) for path_id in ways]
        if None in found:
            return None
        return sum(each or 0 for each in found) - self._error_ns(ways)

    def _error_ns(self, ways: tuple[int, ...]) -> int:
        table, bounds_ns = self._inventory.paths, self._inventory.bound_ns
        ends = {column[path_id] for path_id in ways for column in (table.source_node, table.destination_node)}
        return 2 * sum(max(bounds_ns.get(table.nodes[end], 0), 0) for end in ends)

    def _is_settled(self, flow: RoundTrips, reading: Reading) -> bool:
        """Whether the traffic is surely where it is said to be."""
        inventory = self._inventory
        if reading.here_ns < max(flow.settled_ns, self._began_ns + _SETTLE_NS):
            return False
        for path_id in flow.ways:
            path = inventory.paths.path(path_id)
            if inventory.has_down_end(path):
                return False
            for nic in (path.source, path.destination):
                back_ns = inventory.back_ns(nic)
                if back_ns and reading.here_ns - back_ns < _SETTLE_NS:
                    return False
        return True

    def _beside(self, path_id: int) -> Iterator[int]:
        """All paths between the NICs of one."""
        inventory = self._inventory
        source, destination, _ = inventory.paths.path(path_id)
        for entropy in range(min(inventory.nics.get(source, 0), inventory.nics.get(destination, 0))):
            place = inventory.paths.id_of(Path(source, destination, entropy))
            if place >= 0:
                yield place

    def _delays_of(self, flow: RoundTrips) -> _Found | None:
        """The delays of a flow's path as in its latest reading; None: no other one between the NICs is as quick.

        Where none is, the queue is at a NIC, or a node's stamps are wrong: that no other way would explain.
        """
        path_ns, since_ns, until_ns = self._path_ns(flow, flow.latest), _since_ns(flow.latest), flow.latest.here_ns
        ways = _ways(flow, flow.latest)
        quickest = [self._delays.quickest_ns(self._beside(path_id), since_ns, until_ns) for path_id in ways]
        if path_ns is None or None in quickest:
            return None
        found = _Found(path_ns, sum(each or 0 for each in quickest))
        return found if 2 * found.quickest_ns <= found.path_ns else None

    # -- what it says -------------------------------------------------------------------------------------------------

    def _begun(self, key: _Key, flow: RoundTrips, now_ns: int) -> Iterator[Event]:
        delays = self._delays_of(flow)
        if delays is None:
            return
        inventory, sender = self._inventory, _sender(key.flow)
        since_ns = inventory.at_ns(sender, flow.since_ns)
        fault = f"{key.flow}/mismatch-{since_ns}"
        talking = [each.flow for each in self._flows]
        event = Event(
            id=f"{fault}/elsewhere", kind=MISMATCH.name, who=key.flow, state="elsewhere",
            at_ns=max(inventory.at_ns(sender, now_ns), since_ns), since_ns=since_ns, fault=fault,
            evidence={
                "in_band_us": round(flow.latest.took_ns / 1e3, 1),
                "out_of_band_us": round(delays.path_ns / 1e3, 1),
                "quickest_us": round(delays.quickest_ns / 1e3, 1),
                "readings": flow.readings,
                "addresses": "nic" if key.between_nics else "service",
                "measured": "one-way" if flow.latest.is_one_way else "round-trip",
            },
            related={
                "flows": (key.flow,),
                "paths": tuple(inventory.paths.names[path_id] for path_id in flow.ways),
                "jobs": (jobs_of(talking, inventory.jobs)[key.flow],),
            },
        )  # fmt: skip
        self._open[key.flow] = _Open(event, key, now_ns)
        yield event

    def _over(self, now_ns: int) -> Iterator[Event]:
        for who, mismatch in list(self._open.items()):
            mismatch.told_ns = mismatch.told_ns or now_ns
            flow = self._flows.get(mismatch.key)
            if flow is not None:
                mismatch.told_ns = max(mismatch.told_ns, flow.told_ns)
            if self._is_over(mismatch, flow, now_ns):
                del self._open[who]
                yield self._relief(mismatch, now_ns)

    def _is_over(self, mismatch: _Open, flow: RoundTrips | None, now_ns: int) -> bool:
        if flow is None or now_ns - mismatch.told_ns > _GONE_NS:
            return now_ns - mismatch.told_ns > _GONE_NS
        names = tuple(self._inventory.paths.names[path_id] for path_id in flow.ways if path_id >= 0)
        if len(names) == len(flow.ways) and names != mismatch.event.related.get("paths"):
            return True
        return flow.agrees_ns >= _AGREES_NS

    def _relief(self, mismatch: _Open, now_ns: int) -> Event:
        begun = mismatch.event
        at_ns = max(self._inventory.at_ns(_sender(begun.who), now_ns), begun.since_ns)
        relief = ended(begun, "agrees", at_ns, {"lasted_ms": round((at_ns - begun.since_ns) / 1e6, 3)})
        return msgspec.structs.replace(relief, related=begun.related)


def _ways(flow: RoundTrips, reading: Reading) -> tuple[int, ...]:
    """The paths against which a reading is held."""
    return flow.ways[:1] if reading.is_one_way else flow.ways


def _since_ns(reading: Reading) -> int:
    """The beginning of the time against which a reading is held."""
    return reading.here_ns - max(_WINDOW_NS, _WINDOW_INTERVALS * reading.interval_ns)


def _sender(flow: str) -> str:
    return node_of(flow.partition(">")[0])
