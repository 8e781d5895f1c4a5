"""The state of the fleet: its inventory, which ports are down, and when each node last gave a sign of life."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np

from foliot.clock.message_dating import MinimumOffsets
from foliot.jobs import Jobs
from foliot_detector.core.state.liveness import Liveness
from foliot_detector.core.state.path_table import ELSEWHERE, Delays, PathTable
from foliot_detector.core.state.recent_peak import RecentPeak
from foliot_detector.core.state.training_jobs import Collectives, TrainingJobs
from foliot_detector.core.state.ways import Ways
from foliot_detector.core.state.workers import WorkerJob, Workers
from foliot_schemas import Witness
from foliot_schemas.bounds import FAR_NS
from foliot_schemas.event_kinds import CONTENTION, is_relief
from foliot_schemas.names import node_of
from foliot_schemas.port_order import BELIEVED_NS, is_old, returns_between

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot.node.shard import Shard
    from foliot_schemas import CollectiveBatch, DelayBatch, Event, HostLoad, Job, Node, PortState, WorkerBatch
    from foliot_schemas.names import Path

ALIVE_NS = 500_000_000
"""A sender that was heard elsewhere for this long, without a break of half of it, has sent on every path it probes.
This is two intervals of the slow sweep, and some. The sender's own word that it sent on the path needs no such wait."""
_APART_NS = 10_000_000
"""Each sign that is kept lies at least this far from the next but one. A claim needs one from the right moment."""
_SIGNS = 128
_INTERVALS = 2
"""Where two reports lie further apart than so many intervals, one was left out. Each may be half an interval late."""
REPORT_HOLDS_NS = 500_000_000
"""How long a report holds at least; it is `_INTERVALS_OF_SILENCE` where a node reports less than five times a second."""
_INTERVALS_OF_SILENCE = 2.5
"""In intervals of a node's reports. One that left out a report is late, and not dead; nor is it half an interval
later."""
_LONGEST_INTERVAL_NS = 10_000_000_000
"""The most that `probe.delay_interval_ms` may be."""
_NOTABLE_NS = 10_000_000
"""A shorter delay changes nothing: twice that delay is less than the time that every proven probe has to arrive."""

_HELD_NS = 4_000_000_000
"""How long a packet may have waited for a NIC that came back. The kernel holds it until it knows the neighbour's
address, and asks for that three times, a second apart (arp(7)). The report comes after it."""

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class InventorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about all nodes and paths. Every detector finds them at the inventory."""

    report_ms: _Positive = 100.0
    """The shortest interval that the detector takes a node's regular reports to have. Nodes of an earlier version do
    not say theirs (`probe.delay_interval_ms`), so it is this one. A node that leaves out a report was itself away."""
    process_silence_s: _Positive = 2.0
    """A process is dead if neither probes nor messages came from it for this long. It has two and a half intervals
    of its reports if that is more. One whose words had gaps lately has up to twice as long. After half of that time,
    it was away: its paths have a while to speak again once it is back. Where every processor is taken, a process may
    stand still for longer than a second."""
    late_silence_s: _Positive = 1.0
    """A path not heard for this long is silent although nobody said so at once. The default is five probes of the
    slow sweep."""


class Sign(msgspec.Struct, frozen=True, gc=False):
    """Proof that a node's process sent a probe, on whatever path."""

    here_ns: int
    """When, on the detector's timeline."""
    at_ns: int
    """When, by the witness's reference time."""
    bound_ns: int
    """The bound of the witness's clock; -1: not synchronised."""
    witness: str
    """The node that says so."""
    sequence: int = 0
    """The number of the probe, where it was on the path in question; 0: it was on another, or nobody says."""


class _Said(NamedTuple):
    """What the rows of a batch are about, where all of them could be believed. Mostly a node's next batch is alike."""

    places: NDArray[np.int32]
    """As `PathTable.ids_said_by` gave it."""
    columns: tuple[bytes, bytes]
    """Those of path and witness."""
    ids: NDArray[np.intp]
    from_source: NDArray[np.bool_]


class _Port(NamedTuple):
    latest: PortState
    up: bool
    back_ns: int
    """When it came up, if it was down before; else 0."""
    here_ns: int
    """When it was last believed."""


class Inventory:
    """Fed with every observation before any detector sees it; detectors only read it.

    A node was away if its signs of life had a gap longer than half of `process_silence_s`. If the gap was longer than half of
    `ALIVE_NS`, it may have stalled. The interval of a node's reports is `report_ms` at least.

    Parameters:
        shard: the nodes that the inventory is told of, with their peers.
    """

    def __init__(self, settings: InventorySettings, shard: Shard) -> None:
        self.settings = settings
        self._is_whole = shard.is_whole
        self.nics: dict[str, int] = {}
        """Names of NICs, and how many entropies each has."""
        self.clocks: dict[str, set[str]] = {}
        """Per clock, the nodes whose records name it."""
        self.nodes: dict[str, Node] = {}
        self.jobs = Jobs()
        """The registered jobs, on the timeline."""
        self.training = TrainingJobs()
        self.workers = Workers()
        self.contention: dict[str, Event] = {}
        """What stands of contention, by whom it is about."""
        self.paths = PathTable(shard)
        self.ways = Ways()
        self.counts: collections.Counter[str] = collections.Counter()
        self.liveness = Liveness()
        self.signs: collections.defaultdict[str, collections.deque[Sign]] = collections.defaultdict(
            functools.partial(collections.deque, maxlen=_SIGNS)
        )
        """Per node, its signs of life on the fabric in the last second or so, the latest last."""
        self.news: collections.Counter[str] = collections.Counter()
        """Per node, how often anything was learnt of what it sent."""
        self.hearing_ns: dict[str, int] = {}
        """Per node, when it last heard a probe, whosever."""
        self.told_ns: dict[str, int] = {}
        """Per node, when its latest report was true."""
        self.listening_ns: dict[str, int] = {}
        """Per node, the beginning of its unbroken reports. It may not have listened before."""
        self.bound_ns: dict[str, int] = {}
        self._back_ns: dict[str, int] = {}
        self.unbroken_ns: dict[str, int] = {}
        """Per node, the beginning of its unbroken signs of life on the fabric."""
        self._touched: dict[str, None] = {}
        """Nodes of which anything was learnt, for `take_touched`."""
        self._turned: dict[str, None] = {}
        """NICs whose ports came up, for `take_turned`."""
        self._away_ns = round(settings.process_silence_s * 1e9 / 2)
        self._interval_ns = round(settings.report_ms * 1e6)
        self._intervals_ns: dict[str, int] = {}
        """Per node, the interval of its reports as it names it, and `_interval_ns` at least."""
        self._ports: dict[str, _Port] = {}
        self._offsets = MinimumOffsets()
        self._reported_ns: dict[str, int] = {}
        self._said: dict[str, _Said] = {}
        """By node, of its last batch that was new in that."""
        self.delay_ns: collections.defaultdict[str, RecentPeak] = collections.defaultdict(RecentPeak)
        """Per node, the longest one-way delays of what it sent or heard lately."""
        self.late_ns: collections.defaultdict[str, RecentPeak] = collections.defaultdict(RecentPeak)
        """Per node, by how much steps of its probe came late lately."""
        self.load: dict[str, HostLoad] = {}
        """Per node, how busy its host was as it last said."""

    # -- what it is told ----------------------------------------------------------------------------------------------

    def learn_node(self, node: Node) -> None:
        """Takes an inventory record; one without NICs takes the node out."""
        known = self.nodes.pop(node.name, None)
        before = {nic.name: len(nic.entropies) for nic in known.nics} if known is not None else {}
        present = {nic.name: len(nic.entropies) for nic in node.nics}
        for nic in before:
            del self.nics[nic]
        self.nics |= present
        for clock in _clocks(known):
            self.clocks[clock].discard(node.name)
            if not self.clocks[clock]:
                del self.clocks[clock]
        for clock in _clocks(node if node.nics else None):
            self.clocks.setdefault(clock, set()).add(node.name)
        self.liveness.enlist(node.name, listed=bool(node.nics))
        if node.nics:
            self.nodes[node.name] = node
        else:
            self._forget(node.name, before)
        if before != present:
            self.paths.forget_batches()

    def _forget(self, node: str, nics: Iterable[str]) -> None:
        times = (self.hearing_ns, self.told_ns, self.listening_ns, self.unbroken_ns, self.bound_ns)
        lately = (self.delay_ns, self.late_ns, self.load)
        self._offsets.forget(node)
        own = (self.news, self.signs, self._back_ns, self._reported_ns, self._said, self._intervals_ns)
        for memory in (*times, *lately, *own):
            memory.pop(node, None)
        for nic in nics:
            self._ports.pop(nic, None)

    def learn_job(self, job: Job, now_ns: int) -> None:
        """Takes a job, or counts that it is refused. A shard does not know all of the fleet's NICs."""
        if self.jobs.take(job, now_ns, self.nics if self._is_whole else None):
            self.counts["jobs_refused"] += 1

    def learn_event(self, event: Event) -> None:
        """Takes what a detector says, for others that look for a cause."""
        if event.kind != CONTENTION.name:
            return
        if is_relief(event):
            self.contention.pop(event.who, None)
        else:
            self.contention[event.who] = event

    def learn_collectives(self, batch: CollectiveBatch, now_ns: int) -> Collectives | None:
        """Takes what a node tells of a job's ranks.

        Returns:
            What detectors see; None: nothing, as a registered job of that name has no NIC there, or by `TrainingJobs`.

        Raises:
            ValueError: the batch contradicts itself.
        """
        batch.check()
        workers, ranks = self.workers.get(batch.job), [state.rank for state in batch.ranks]
        paused = frozenset() if workers is None else workers.paused(ranks, now_ns)
        seen = self.training.take(batch, now_ns, paused) if self._is_of_job(batch) else None
        self.counts["collectives_refused"] += seen is None
        return seen

    def learn_workers(self, batch: WorkerBatch, now_ns: int) -> WorkerJob | None:
        """Takes what a node tells of a job's workers.

        Returns:
            What detectors see; None: nothing, as with `learn_collectives`, or by `Workers`.

        Raises:
            ValueError: the batch contradicts itself.
        """
        batch.check()
        seen = self.workers.take(batch, now_ns) if self._is_of_job(batch) else None
        self.counts["workers_refused"] += seen is None
        return seen

    def _is_of_job(self, batch: CollectiveBatch | WorkerBatch) -> bool:
        """Whether a node may speak of a job: a registered one has a NIC there."""
        registered = self.jobs.get(batch.job)
        return registered is None or any(node_of(nic) == batch.node for nic in registered.nics)

    def learn_port(self, port: PortState, now_ns: int) -> None:
        """Takes the state of a port of the inventory."""
        self._on_bus(port.node, port.at_ns, now_ns)
        if port.nic not in self.nics or node_of(port.nic) != port.node:
            return
        up = port.carrier and port.admin_up
        before = self._ports.get(port.nic)
        if before is None:
            self._ports[port.nic] = _Port(port, up, 0, now_ns)
        elif not is_old(before.latest, port) or now_ns - before.here_ns > BELIEVED_NS:
            was_away, back_ns = not before.up or returns_between(before.latest, port) > 0, before.back_ns
            if up and was_away:
                back_ns, self._turned[port.nic] = now_ns, None
            self._ports[port.nic] = _Port(port, up, back_ns, now_ns)

    def learn_delays(self, batch: DelayBatch, now_ns: int) -> Delays:
        """Takes a batch and returns those of its rows that can be believed.

        Raises:
            ValueError: its columns do not fit together.
        """
        rows = batch.rows()
        self._note_interval(batch)
        # Ports alone would not do: they are read in turn with reports, and so they may be ahead of a backlog of those.
        self._offsets.learn(batch.node, batch.at_ns, now_ns)
        self._on_bus(batch.node, batch.at_ns, now_ns)
        at_here_ns = self.here_ns(batch.node, batch.at_ns, now_ns)
        self.told_ns[batch.node] = at_here_ns
        self._note_listening(batch, at_here_ns)
        self._note_load(batch, now_ns)
        self.bound_ns[batch.node] = batch.bound_ns
        self.news[batch.node] += 1
        rows, ids, from_source = self._believed(batch, rows)
        here_ns = self._all_here_ns(batch.node, rows["last_ns"], now_ns)
        dated, last_ns = here_ns > 0, rows["last_ns"]
        if (sent := from_source & dated).any():
            self.paths.send(ids[sent], here_ns[sent], last_ns[sent], rows["sequence"][sent])
            latest = int(np.where(sent, here_ns, 0).argmax())
            self._sign(batch.node, int(here_ns[latest]), int(last_ns[latest]), batch)
        if (heard := ~from_source & dated).any():
            self._learn_heard(batch, ids[heard], here_ns[heard], last_ns[heard])
        if batch.bound_ns >= 0:
            self._note_delays(batch.node, ids, rows, now_ns)
        return Delays(
            batch.node, batch.at_ns, at_here_ns, batch.bound_ns, batch.interval_ns, rows, ids, here_ns,
            batch.delay_counts(),
        )  # fmt: skip

    def _believed(
        self, batch: DelayBatch, rows: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.bool_]]:
        """The rows that name known paths and come from the right end; the paths, and whether that is the source."""
        places = self.paths.ids_said_by(batch.node, batch.paths, self.nics)
        columns, known = (batch.columns["path"], batch.columns["witness"]), self._said.get(batch.node)
        if known is not None and known.places is places and known.columns == columns:
            return rows, known.ids, known.from_source
        ids = places.astype(np.intp)[rows["path"]]
        from_source = rows["witness"] == Witness.SOURCE
        end = np.where(from_source, self.paths.source_node[ids], self.paths.destination_node[ids])
        right = (ids >= 0) & (end == self.paths.node_id(batch.node)) & (rows["witness"] <= Witness.SPEAKS_AGAIN)
        if not right.all():
            self.counts["rows_foreign"] += len(rows) - int((right | (ids == ELSEWHERE)).sum())
            return rows.compress(right), ids[right], from_source[right]
        self._said[batch.node] = _Said(places, columns, ids, from_source)
        return rows, ids, from_source

    # -- what it can say ----------------------------------------------------------------------------------------------

    def is_down(self, nic: str) -> bool:
        """Whether a NIC's port is known to be down, by the administrator or for want of a carrier."""
        port = self._ports.get(nic)
        return port is not None and not port.up

    def has_down_end(self, path: Path) -> bool:
        """Whether `is_down` is so of a NIC at either end of a path."""
        return self.is_down(path.source) or self.is_down(path.destination)

    def place_of(self, event: Event) -> int:
        """The place of the path that an event is about, made where it is new; below 0: it is about no known path."""
        return int(self.paths.ids((event.who,), self.nics)[0]) if event.kind == "path" else -1

    def back_ns(self, nic: str) -> int:
        """When the NIC or its node's process last came back; 0: it was never away."""
        port = self._ports.get(nic)
        return max(self._back_ns.get(node_of(nic), 0), 0 if port is None else port.back_ns)

    def silence_ns(self, node: str) -> int:
        """How long a node must be silent to count as away. Where it reports seldom, that is longer."""
        return max(self._away_ns, round(_INTERVALS_OF_SILENCE * self.interval_ns(node)))

    def interval_ns(self, node: str) -> int:
        """The interval of a node's reports."""
        return self._intervals_ns.get(node, self._interval_ns)

    def report_holds_ns(self, node: str) -> int:
        """For how long a node's report holds: until it is clear that the next one does not come."""
        return max(REPORT_HOLDS_NS, round(_INTERVALS_OF_SILENCE * self.interval_ns(node)))

    def is_heard(self, node: str, now_ns: int) -> bool:
        """Whether a node's latest report still holds."""
        return now_ns - self.told_ns.get(node, 0) <= self.report_holds_ns(node)

    def own_words(self, node: str, place: int) -> list[Sign]:
        """A node's own word of when it sent on a path, in its latest batches, the earliest first."""
        bound_ns = self.bound_ns.get(node, -1)
        words = self.paths.sent[place].tolist()
        return [Sign(here_ns, at_ns, bound_ns, node, sequence) for here_ns, at_ns, sequence in words if here_ns]

    def at_ns(self, node: str, here_ns: int) -> int:
        """A time of the timeline by a node's own reference time."""
        offset_ns = self._offsets.offset_ns(node) or 0
        return min(max(here_ns - offset_ns, 1 - FAR_NS), FAR_NS - 1)

    def here_ns(self, node: str, at_ns: int, now_ns: int) -> int:
        """A node's own time on the timeline, however late it came.

        Dates in its future count as now, and so does all before its first report.
        """
        if self._offsets.offset_ns(node) is None:
            return max(now_ns, 1)
        return max(self._offsets.here_ns(node, at_ns, now_ns), 1)

    def siblings(self, path: Path) -> NDArray[np.intp]:
        """The paths between the same two nodes by other NICs, of those that were ever heard."""
        none = [np.zeros(0, np.intp)]
        leaving = [*map(self.paths.leaving, self._nics_beside(path.source))] or none
        entering = [*map(self.paths.entering, self._nics_beside(path.destination))] or none
        return np.intersect1d(np.concatenate(leaving), np.concatenate(entering))

    def stirred_ns(self, node: str) -> int:
        """When a node's host last did not stand still: others heard the node, or the node heard something."""
        heard = (sign.here_ns for sign in reversed(self.signs.get(node, ())) if sign.witness != node)
        return max(next(heard, 0), self.hearing_ns.get(node, 0))

    def take_touched(self) -> Iterable[str]:
        """Nodes of which anything was learnt since the last call: what they or their NICs did, or who heard them."""
        touched, self._touched = self._touched, {}
        return touched

    def take_turned(self) -> Iterable[str]:
        """The NICs whose ports came up since the last call."""
        turned, self._turned = self._turned, {}
        return turned

    # -- inside -------------------------------------------------------------------------------------------------------

    def _nics_beside(self, nic: str) -> list[str]:
        """The other NICs of its node."""
        node = self.nodes.get(node_of(nic))
        return [] if node is None else [other.name for other in node.nics if other.name != nic]

    def _on_bus(self, node: str, at_ns: int, now_ns: int) -> None:
        self._touched[node] = None
        here_ns = self.here_ns(node, at_ns, now_ns)
        self._note_return(node, here_ns, self.liveness.on_bus_ns(node) or None)
        self.liveness.speak(node, here_ns)

    def _note_listening(self, batch: DelayBatch, at_here_ns: int) -> None:
        before_ns = self._reported_ns.get(batch.node)
        self._reported_ns[batch.node] = batch.at_ns
        missed_ns = _INTERVALS * self.interval_ns(batch.node)
        if before_ns is None or batch.at_ns - before_ns > missed_ns:
            self.listening_ns[batch.node] = at_here_ns

    def _note_interval(self, batch: DelayBatch) -> None:
        """Takes the set interval of a node's reports: the time that a report covers is longer after a stall."""
        interval_ns = max(self._interval_ns, min(batch.every_ns, _LONGEST_INTERVAL_NS))
        if interval_ns != self._intervals_ns.get(batch.node):
            self._intervals_ns[batch.node] = interval_ns
            self.liveness.allow(batch.node, self.silence_ns(batch.node))

    def _note_load(self, batch: DelayBatch, now_ns: int) -> None:
        if batch.late_ns:
            self.late_ns[batch.node].note(batch.late_ns, now_ns)
        if batch.host is not None:
            self.load[batch.node] = batch.host

    def _note_delays(self, node: str, ids: NDArray[np.intp], rows: NDArray[Any], now_ns: int) -> None:
        """Notes how long probes from or to a node take lately, where its clock is synchronised."""
        notable = np.flatnonzero(rows["p99_ns"] > _NOTABLE_NS)
        for path_id, delay_ns in zip(ids[notable].tolist(), rows["p99_ns"][notable].tolist(), strict=True):
            source, destination, _ = self.paths.path(path_id)
            if self._was_away(source, now_ns) or self._was_away(destination, now_ns):
                continue
            for end in (node, node_of(source)):
                self.delay_ns[end].note(delay_ns, now_ns)

    def _was_away(self, nic: str, now_ns: int) -> bool:
        """Whether a probe may have waited for a NIC without carrier, or one whose peer's address was asked for anew."""
        port = self._ports.get(nic)
        return port is not None and (not port.up or (port.back_ns > 0 and now_ns - port.back_ns < _HELD_NS))

    def _all_here_ns(self, node: str, at_ns: NDArray[np.int64], now_ns: int) -> NDArray[np.int64]:
        """As `here_ns`, of many; 0 stays 0."""
        age_ns = np.maximum(now_ns - (self._offsets.offset_ns(node) or 0) - at_ns, 0)  # in this order no time overflows
        return np.where(at_ns > 0, np.maximum(now_ns - age_ns, 1), 0)

    def _learn_heard(
        self, batch: DelayBatch, ids: NDArray[np.intp], here_ns: NDArray[np.int64], last_ns: NDArray[np.int64]
    ) -> None:
        self.paths.hear(ids, here_ns)
        self.hearing_ns[batch.node] = max(int(here_ns.max()), self.hearing_ns.get(batch.node, 0))
        sources = self.paths.source_node[ids]
        # Sorted by source, then time: the last of each source's run is its latest.
        order = np.lexsort((here_ns, sources))
        runs = sources[order]
        is_end = np.ones(len(order), np.bool_)
        np.not_equal(runs[1:], runs[:-1], out=is_end[:-1])
        latest = order[is_end]
        nodes = self.paths.nodes
        for source, heard_ns, at_ns in zip(
            sources[latest].tolist(), here_ns[latest].tolist(), last_ns[latest].tolist(), strict=True
        ):
            self._sign(nodes[source], heard_ns, at_ns, batch)

    def _sign(self, node: str, here_ns: int, at_ns: int, batch: DelayBatch) -> None:
        signs = self.signs[node]
        self.news[node] += 1
        self._touched[node] = None
        before_ns = signs[-1].here_ns if signs else None
        if before_ns is not None and here_ns <= before_ns:
            return
        self._note_return(node, here_ns, before_ns)
        if before_ns is None or here_ns - before_ns > ALIVE_NS // 2:
            self.unbroken_ns[node] = here_ns
        if len(signs) > 1 and here_ns - signs[-2].here_ns < _APART_NS:
            signs.pop()
        signs.append(Sign(here_ns, at_ns, batch.bound_ns, batch.node))
        self.liveness.show(node, here_ns)

    def _note_return(self, node: str, here_ns: int, before_ns: int | None) -> None:
        # No node's silence is shorter, and nearly all gaps are.
        if before_ns is None or here_ns - before_ns <= self._away_ns:
            return
        if here_ns - before_ns > self.silence_ns(node):
            self._back_ns[node] = max(here_ns, self._back_ns.get(node, 0))


def _clocks(node: Node | None) -> frozenset[str]:
    """The clocks of a record: that of the node, and those of its NICs."""
    return frozenset() if node is None else node.clocks
