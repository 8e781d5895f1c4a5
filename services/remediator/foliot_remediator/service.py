"""The remediator's shell: messages off the bus, commands and refusals onto it, paths into their bucket."""

from __future__ import annotations

import asyncio
import collections
import os
import socket
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot import tracing
from foliot.bus.lease import Lease, counted
from foliot.bus.retry import BUS_ERRORS, heed_cancellation
from foliot.node.shard import WHOLE, ShardSettings
from foliot.runtime.service import keep_what_is_loaded, on_bus
from foliot.settings import SettingsError, load
from foliot_remediator.core.actions.decision import Decision
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_remediator.shell.candidacy import Candidacy
from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import DelayBatch, Drain, Event, Job, MoveAnswer, MoveOrder, Node, NodeHomes, NodePaths
from foliot_schemas.event_kinds import CONTENTION, HANG, REFUSAL, STRAGGLER
from foliot_schemas.subjects import (
    COMMAND,
    DELAY,
    DRAINS,
    EVENT,
    FLOW,
    HOMES,
    HOPS,
    INVENTORY,
    JOBS,
    MOVE,
    MOVED,
    OUTCOME,
    PATHS,
    PORT,
    WORKER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot.bus.client import Bus
    from foliot.bus.lease import Count
    from foliot.node.shard import Shard
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_remediator.core.remediator import Action
    from foliot_schemas.subjects import Bucket

log = structlog.get_logger()

_TICK_S = 0.01
_WRITE_AGAIN_S = 0.25
_SPANS = 4_096
"""Events whose spans are remembered: an hour of them at the highest rate planned for."""
_AGAIN = 512
"""How many events and outcomes to take once more: those of a busy second, which takes some 50 ms."""


class Service:
    """Feeds a remediator from the bus and publishes what it decides.

    Parameters:
        shards: all shards of the fleet.

    Raises:
        SettingsError: a remedy of an extension cannot be.
    """

    def __init__(
        self,
        bus: Bus,
        settings: RemediatorSettings,
        clock: FleetClock,
        shard: Shard = WHOLE,
        shards: Sequence[Shard] = (),
    ) -> None:
        self._bus = bus
        self._shard = shard
        self._settings = settings
        self._clock = clock
        try:
            self._core = Remediator(settings, shard, shards)
        except ValueError as error:
            raise SettingsError(f"extensions.modules: {error}") from error
        role, holder = self._core.coordination.role, f"{socket.gethostname()}/{os.getpid()}/{settings.instance}"
        self._lease = Lease(bus, role, holder)
        self._candidacy = Candidacy(bus, f"{holder}/{role}")
        self._coordinates = self._core.coordination.is_shared and settings.improve != "off"
        """Whether it stands for the rails."""
        self._knows_all = False
        """Whether it knows the ways of all shards' traffic."""
        self._to_tell: asyncio.Queue[MoveOrder | MoveAnswer] = asyncio.Queue()
        self._to_write: dict[Bucket, dict[str, NodePaths | NodeHomes]] = {PATHS: {}, HOMES: {}}
        """Values to write, by bucket and node. Those that failover needs are written first."""
        self._written = asyncio.Event()
        self._count: Count | None = None
        """The count of leases, as the bus last gave it; None: it has not."""
        self._spans: collections.OrderedDict[tuple[str, str], str] = collections.OrderedDict()
        """Of the last events, by id and fault: the span in which each was judged."""
        self._taking_values = asyncio.Lock()
        """One value after the other: the bus may be asked before one is taken."""

    async def run(self) -> None:
        """Learns what is in force, then asks for the lease, and works until cancelled."""
        bus, inventory = self._bus, self._core.inventory
        # Messages for other shards' nodes are not even decoded.
        nodes, own, things = (
            (None, None, None)
            if self._shard.is_whole
            else (inventory.nodes.__contains__, inventory.owns, inventory.concerns)
        )
        await bus.watch(INVENTORY, self._on_node)
        self._count = await counted(bus)
        await bus.watch(HOMES, self._on_homes, about=own)  # first: what is in force is told as what is away from home
        await bus.watch(PATHS, self._on_paths, about=own)
        await bus.subscribe(DELAY, self._on_delays, about=nodes)
        await bus.subscribe(PORT, self._on_message, about=nodes)
        await bus.watch(DRAINS, self._on_drain)
        await bus.subscribe(WORKER, self._on_message, about=nodes)
        durable = self._shard.role(self._settings.instance)
        if not self._shard.is_whole:
            for kind in (HANG.name, STRAGGLER.name):  # a job is no shard's own
                await bus.subscribe_kept(EVENT, self._on_message, kind, "", durable=f"{durable}-{kind}", again=_AGAIN)
        if self._core.hears_traffic:
            await bus.subscribe(HOPS, self._on_message, about=self._is_coordinator if self._coordinates else None)
            await bus.subscribe(FLOW, self._on_message, about=self._is_coordinator if self._coordinates else None)
            await bus.watch(JOBS, self._on_job)
        if self._coordinates:
            await bus.subscribe(MOVE, self._on_order, self._core.coordination.role)
            await bus.subscribe(MOVED, self._on_message, about=self._is_coordinator)
            for kind in (CONTENTION.name, REFUSAL.name):  # a link between routers is no shard's own
                await bus.subscribe_kept(EVENT, self._on_message, kind, "", durable=f"{durable}-{kind}", again=_AGAIN)
        # A process may end between an event and its commands, or between a report and the writing of the paths. So the
        # next one takes the last of both again.
        await bus.subscribe_kept(EVENT, self._on_message, durable=f"{durable}-events", again=_AGAIN, about=things)
        await bus.subscribe_kept(OUTCOME, self._on_message, durable=f"{durable}-outcomes", again=_AGAIN, about=own)
        keep_what_is_loaded()
        for remedy, budget in self._core.decider.budgets.items():
            if (most := self._core.decider.nodes_at_once(remedy)) < budget.nodes_at_once:
                log.warning("remedy_budget_clamped", remedy=remedy, nodes_at_once=most)
        log.info("remediator_started", instance=durable, **msgspec.structs.asdict(self._shard))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease.run())
            tasks.create_task(self._tick())
            tasks.create_task(self._write())
            if self._coordinates:
                tasks.create_task(self._candidacy.run())
                tasks.create_task(self._learn_all())
                tasks.create_task(self._tell())

    def _is_coordinator(self, _name: str) -> bool:
        return bool(self._candidacy.terms)

    async def _learn_all(self) -> None:
        """Learns of other shards' nodes which way their traffic goes, once this process is elected."""
        await self._candidacy.elected()
        await self._bus.watch(HOMES, self._on_homes, about=self._is_other)
        await self._bus.watch(PATHS, self._on_paths, about=self._is_other)
        self._knows_all = True
        log.info("coordinates", rails=len(self._candidacy.terms))

    def _is_other(self, node: str) -> bool:
        return not self._shard.owns(node)

    # -- in -----------------------------------------------------------------------------------------------------------

    async def _on_node(self, key: str, node: Node | None) -> None:
        if node is None or not node.nics:
            self._clock.forget(key)
        self._observe(Node(name=key, nics=()) if node is None else node)
        if self._core.whole is not None:
            self._candidacy.stand_for(self._core.whole.inventory.fabric_rails())

    async def _on_paths(self, node: str, paths: NodePaths | None) -> None:
        if paths is not None:
            async with self._taking_values:
                await self._take_value(paths, self._core.routing.revision(node))

    async def _on_homes(self, node: str, homes: NodeHomes | None) -> None:
        """Takes a value. A deleted one had no choices in it, and was of the last lease."""
        async with self._taking_values:
            whole = self._core.whole
            known = self._core.homes if whole is None or self._shard.owns(node) else whole.homes
            revision = known.revision(node)
            await self._take_value(NodeHomes(node=node, lease_revision=revision) if homes is None else homes, revision)

    async def _on_job(self, key: str, job: Job | None) -> None:
        self._observe(Job(name=key, nics=()) if job is None else job)

    async def _on_drain(self, key: str, drain: Drain | None) -> None:
        self._observe(Drain(node=key, at_ns=0, over=True) if drain is None else drain)

    async def _take_value(self, value: NodePaths | NodeHomes, revision: int) -> None:
        """Takes a value of a bucket, of which the last one that was told had this lease's revision."""
        if value.lease_revision < revision and await self._counts_anew(value.lease_revision, revision):
            log.warning("lease_counted_anew", seen=revision, revision=value.lease_revision)
            self._core.forget_revisions(above=0)
        self._observe(value)

    async def _counts_anew(self, revision: int, seen: int) -> bool:
        """Whether the bus has lost the count of leases since it gave the revision `seen`."""
        before, self._count = self._count, await counted(self._bus) or self._count
        if self._count is None:
            return False
        began_anew = before is not None and self._count.since_ns != before.since_ns
        return revision <= self._count.last and (began_anew or seen > self._count.last)

    async def _on_delays(self, batch: DelayBatch, _subject: str) -> None:
        if batch.node in self._core.inventory.nodes:
            self._clock.learn(batch)
        self._observe(batch)

    async def _on_order(self, order: MoveOrder, _subject: str) -> None:
        refused = self._core.coordination.refused_orders
        self._observe(order)
        if self._core.coordination.refused_orders > refused:
            log.warning("order_refused", rail=order.rail, term=order.term, orders_refused=refused + 1)

    async def _on_message(self, message: Seen, _subject: str) -> None:
        if isinstance(message, Event) and (span := tracing.span_id()):
            self._spans[message.id, message.fault] = span
            if len(self._spans) > _SPANS:
                self._spans.popitem(last=False)
        self._observe(message)

    def _observe(self, seen: Seen) -> None:
        self._act(lambda now_ns: self._core.observe(seen, now_ns))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._act(self._core.tick)

    def _hold(self, now_ns: int) -> None:
        self._core.hold(self._lease.revision, now_ns, held_by_another=self._lease.held_by_another)
        if self._coordinates:
            self._core.coordinate(self._candidacy.terms if self._knows_all else {}, self._candidacy.led)

    # -- out ----------------------------------------------------------------------------------------------------------

    def _act(self, decide: Callable[[int], list[Action]]) -> None:
        now_ns = self._clock.now_ns()
        self._hold(now_ns)
        actions = decide(now_ns)
        for part, reason, failures, _ in self._core.failures.news(now_ns):
            log.error("remedy_failed", remedy=part, reason=reason, failures=failures)
        for action in actions:
            if isinstance(action, Decision):
                self._publish(action, now_ns)
            elif isinstance(action, MoveOrder | MoveAnswer):
                self._to_tell.put_nowait(action)
            else:
                self._put(action)

    def _put(self, value: NodePaths | NodeHomes) -> None:
        self._to_write[HOMES if isinstance(value, NodeHomes) else PATHS][value.node] = value
        self._written.set()

    def _publish(self, decision: Decision, began_ns: int) -> None:
        with tracing.span(
            f"decide {decision.verb}",
            fault=decision.fault,
            kind="consumer",
            start_ns=began_ns,
            # What follows later than its event, as the end of a probation, belongs below it all the same.
            parent_span=self._spans.get((decision.cause, decision.fault), ""),
            event=decision.cause,
            who=decision.who,
            commands=len(decision.commands),
            refusals=len(decision.refusals),
        ):
            for command in decision.commands:
                self._bus.publish_kept(COMMAND, command, command.verb, command.node)
            for refusal in decision.refusals:
                self._bus.publish_kept(EVENT, refusal, refusal.kind, refusal.who)
        log.info(
            "move_decided", verb=decision.verb, who=decision.who, cause=decision.cause, commands=len(decision.commands)
        )
        for refusal in decision.refusals:
            log.warning("move_refused", who=refusal.who, guard=refusal.policy, cause=refusal.cause, **refusal.evidence)

    async def _tell(self) -> None:
        """Publishes orders and answers. Those that are lost are given again by who waits for them."""
        while True:
            message = await self._to_tell.get()
            await self._bus.publish(MOVE if isinstance(message, MoveOrder) else MOVED, message, message.shard)

    async def _write(self) -> None:
        """Writes the newest values of each node, one after the other: a slow bus must not keep commands waiting."""
        while True:
            await self._written.wait()
            self._written.clear()
            while bucket := next((each for each, values in self._to_write.items() if values), None):
                values = self._to_write[bucket]
                node, value = next(iter(values.items()))
                if value.lease_revision != self._lease.revision:
                    del values[node]  # the present holder of the lease writes it
                    continue
                try:
                    await self._bus.put(bucket, node, value)
                except BUS_ERRORS as error:
                    log.warning(
                        "value_not_written", bucket=bucket.name, node=node, reason=str(error) or type(error).__name__
                    )
                    heed_cancellation()
                    await asyncio.sleep(_WRITE_AGAIN_S)
                else:
                    if values.get(node) is value:
                        del values[node]


async def main() -> None:
    """Runs the remediator until it is cancelled."""
    settings, clock = load(RemediatorSettings, "remediator"), FleetClock()
    shards = load(ShardSettings, "shard")
    async with on_bus("remediator", clock) as bus:
        await Service(bus, settings, clock, shards.shard(), shards.all()).run()
