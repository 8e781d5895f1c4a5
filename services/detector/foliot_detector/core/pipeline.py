"""The fan-out that feeds every observation to all detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.node.shard import WHOLE
from foliot.runtime.extension_failures import ExtensionFailures
from foliot_detector.core import registry
from foliot_detector.core.state.event_time import EventTime
from foliot_detector.core.state.inventory import Inventory, InventorySettings
from foliot_schemas import (
    ClockState,
    CollectiveBatch,
    DelayBatch,
    Event,
    FlowBatch,
    GpuError,
    HopBatch,
    Job,
    Node,
    NodePaths,
    PortState,
    WorkerBatch,
    decode,
    encode,
    event_kinds,
)
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.node.shard import Shard
    from foliot.runtime.extension_failures import Failure
    from foliot_detector.core.protocol import Detector, Observation, Seen
    from foliot_detector.core.state.training_jobs import Collectives
    from foliot_detector.core.state.workers import WorkerJob
    from foliot_detector.settings import DetectorSettings


_TICK_NS = 10_000_000
"""How often deadlines are looked at: small beside the 15 ms that the shortest of them takes."""
_STALE_NS = 2_000_000_000
"""A batch that is older than the node's newest by more is dropped."""
_OF_JOBS = CollectiveBatch | WorkerBatch
_FROM_NODES = PortState | DelayBatch | FlowBatch | HopBatch | _OF_JOBS | GpuError
_STALE: dict[type, str] = {
    DelayBatch: "delays_stale", FlowBatch: "flows_stale", CollectiveBatch: "collectives_stale",
    WorkerBatch: "workers_stale",
}  # fmt: skip
"""Batches that are dropped where they are old, and the counts of that."""
_BROKEN: dict[type, str] = {
    DelayBatch: "delays_broken", FlowBatch: "flows_broken", HopBatch: "hops_broken",
    CollectiveBatch: "collectives_broken", WorkerBatch: "workers_broken",
}  # fmt: skip
"""Batches whose columns may not fit together, and the counts of that."""


class Pipeline:
    """All detectors behind one interface.

    The times inside the observations drive it. Where somebody measures the time between calls, `elapsed_ns` and `tick`
    let deadlines pass sooner than the next observation would. A recording replays without them.

    It hears only what is in the inventory and concerns its shard, so it remembers no more than the fleet is large. Of a
    node beside the shard it knows only what that node exchanges with the shard, so it says nothing of it.

    `counts` has what was dropped and why: nodes_foreign, clocks_foreign, ports_management, delays_stale, delays_broken,
    flows_stale, flows_broken, hops_broken, rows_foreign, jobs_refused, collectives_stale, collectives_broken,
    collectives_refused, workers_stale, workers_broken, workers_refused. It also has how often detectors_failed.

    If a detector of an extension, or of jobs, raises, or says what is no event, what it would have said is lost. All
    others go on. If it fails again and again, it sees nothing for a while, and is then tried again.
    """

    def __init__(self, settings: DetectorSettings, shard: Shard = WHOLE) -> None:
        self._shard = shard
        parts = settings.parts()
        self.inventory = Inventory(parts[InventorySettings], shard)
        self.counts = self.inventory.counts
        self._event_time = EventTime()
        self._detectors = tuple(make(self.inventory, parts) for make in registry.DETECTORS.values())
        contained = {name: make(self.inventory, parts) for name, make in registry.CONTAINED.items()}
        self._contained = contained | registry.of_extensions(self.inventory)
        self._failures = ExtensionFailures()
        self._newest: dict[tuple[str, str], tuple[int, int]] = {}
        """By the count of what is dropped and by node: its newest batch's own time, and when that came."""
        self._ticked_ns = 0

    def resume(self, event: Event) -> None:
        """Takes the last event of an earlier run about something, once the inventory is known and before all else."""
        if not self._is_own(event):
            return
        self.inventory.learn_event(event)
        for detector in self._detectors:
            detector.resume(event)
        self._ask_contained(lambda detector: detector.resume(event))

    def observe(self, observation: Observation, elapsed_ns: int = 0) -> list[Event]:
        """Events that an observation gives rise to, and whatever was due before it; `elapsed_ns` as in the class."""
        self._event_time.advance(elapsed_ns)
        if isinstance(observation, Node):
            observation = self._shard.narrow(observation)
            if not observation.nics and observation.name not in self.inventory.nodes:
                return []
        if foreign := self._is_foreign(observation):
            self.counts[foreign] += 1
            return []
        if isinstance(observation, _FROM_NODES):
            self._event_time.learn(observation.node, observation.at_ns)
            if stale := self._is_stale(observation):
                self.counts[stale] += 1
                return []
        now_ns = self._event_time.now_ns
        events = self._tick() if now_ns - self._ticked_ns >= _TICK_NS else []
        try:
            seen = self._learn(observation, now_ns)
        except ValueError:
            self.counts[_BROKEN[type(observation)]] += 1
            return events
        if seen is None:
            return events
        events += self._said([event for detector in self._detectors for event in detector.observe(seen, now_ns)])
        return events + self._ask_contained(lambda detector: detector.observe(seen, now_ns))

    def tick(self, elapsed_ns: int) -> list[Event]:
        """Events that become due by the passing of time alone."""
        self._event_time.advance(elapsed_ns)
        return self._tick()

    def _tick(self) -> list[Event]:
        now_ns = self._ticked_ns = self._event_time.now_ns
        self.inventory.jobs.expire(now_ns)
        self.inventory.training.expire(now_ns)
        self.inventory.workers.expire(now_ns)
        events = self._said([event for detector in self._detectors for event in detector.tick(now_ns)])
        return events + self._ask_contained(lambda detector: detector.tick(now_ns))

    def failures(self) -> list[Failure]:
        """Takes what is to be logged of detectors that failed."""
        return self._failures.news(self._event_time.now_ns)

    def _ask_contained(self, ask: Callable[[Detector], list[Event] | None]) -> list[Event]:
        now_ns = self._event_time.now_ns
        events: list[Event] = []
        for name, detector in self._contained.items():
            if self._failures.is_left_out(name, now_ns):
                continue
            try:
                if said := ask(detector):
                    events += self._own([decode(encode(event), Event) for event in said])
            except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
                self.counts["detectors_failed"] += 1
                self._failures.note(name, error, now_ns)
        return events

    def _said(self, events: list[Event]) -> list[Event]:
        """What Foliot's own detectors have said that this shard publishes."""
        for event in events:
            self.inventory.learn_event(event)
        return self._own(events)

    def _own(self, events: list[Event]) -> list[Event]:
        return events if self._shard.is_whole else [event for event in events if self._is_own(event)]

    def _is_own(self, event: Event) -> bool:
        """Whether this shard publishes an event.

        A shard publishes those of the NICs and processes of its nodes, and of the paths that end there. Each shard with
        a node that has a clock publishes the clock's event, with the same id.

        Those of a job's ranks are of the shard in whose range the job's name lies, read as a node's.

        Of anything else, it publishes the events whose first flow or path ends at one of its nodes, as that shard sees
        the delays there. Where an event names neither, its own name, read as a node's, lies in the shard's range. No
        shard publishes an event of an unknown kind.
        """
        owns, kind = self._shard.owns, event_kinds.find(event.kind)
        match kind and kind.concerns:
            case "nic":
                return owns(node_of(event.who))
            case "path":
                return owns(node_of(event.who.partition(">")[2].partition("#")[0]))
            case "process" | "rank":
                return owns(event.who.partition("/")[0])
            case "clock":
                return any(map(owns, self.inventory.clocks.get(event.who, ())))
            case "anything":
                return owns(_witness(event) or event.who)
        return False

    def _learn(self, observation: Observation, now_ns: int) -> Seen | None:
        """Lets the inventory learn; returns what detectors see. None: nothing."""
        if isinstance(observation, DelayBatch):
            return self.inventory.learn_delays(observation, now_ns)
        if isinstance(observation, CollectiveBatch | WorkerBatch):
            return self._learn_ranks(observation, now_ns)
        if isinstance(observation, PortState):
            self.inventory.learn_port(observation, now_ns)
        elif isinstance(observation, FlowBatch | HopBatch):
            observation.check()
        elif isinstance(observation, NodePaths):
            self.inventory.ways.take(observation, now_ns)
        elif isinstance(observation, Job):
            self.inventory.learn_job(observation, now_ns)
        elif isinstance(observation, Node):
            self.inventory.learn_node(observation)
            if not observation.nics:
                self._event_time.forget(observation.name)
                for count in _STALE.values():
                    self._newest.pop((count, observation.name), None)
        return observation

    def _learn_ranks(self, batch: CollectiveBatch | WorkerBatch, now_ns: int) -> Collectives | WorkerJob | None:
        """As `_learn`, of what a node tells of a training job."""
        if isinstance(batch, CollectiveBatch):
            return self.inventory.learn_collectives(batch, now_ns)
        return self.inventory.learn_workers(batch, now_ns)

    def _is_foreign(self, observation: Observation) -> str:
        """The count of an observation that the inventory knows nothing of; empty: it knows."""
        if isinstance(observation, _OF_JOBS) and not self._shard.is_whole:
            return ""  # the job's ranks run anywhere
        if isinstance(observation, _FROM_NODES):
            return "" if observation.node in self.inventory.nodes else "nodes_foreign"
        if isinstance(observation, ClockState):
            return "" if observation.clock in self.inventory.clocks else "clocks_foreign"
        return ""

    def _is_stale(
        self, observation: PortState | DelayBatch | FlowBatch | HopBatch | CollectiveBatch | WorkerBatch | GpuError
    ) -> str:
        """The count of a batch whose node has said newer things; empty: it has not.

        A node whose clock was set back is believed after a while.
        """
        count = _STALE.get(type(observation), "")
        if not count:
            return ""
        now_ns, key = self._event_time.now_ns, (count, observation.node)
        newest_ns, here_ns = self._newest.get(key, (observation.at_ns, now_ns))
        if newest_ns - observation.at_ns > _STALE_NS and now_ns - here_ns <= _STALE_NS:
            return count
        if observation.at_ns >= newest_ns or now_ns - here_ns > _STALE_NS:
            self._newest[key] = (observation.at_ns, now_ns)
        return ""


def _witness(event: Event) -> str:
    """The node at which the first of the flows or paths ends that an event names; empty: it names none."""
    first = next((names[0] for name in ("flows", "paths") if (names := event.related.get(name))), "")
    return node_of(first.partition(">")[2].partition("#")[0])
