"""Trials in a lab. One lab stays up for all of them, with a calm between two."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.fresh import FRESH
from bench.quiet.disturbances import DISTURBED_S, KINDS, do, draw, lost, reaches
from bench.quiet.rows import Row, SilenceRow
from foliot_lab.faults.actions import prepare
from foliot_lab.measure.bus_recorder import Collector
from foliot_lab.measure.machine import CpuTimes
from foliot_lab.measure.outages import judge
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.report.attribution import Span, explain
from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.spec import FabricSpec, FaultSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab
from foliot_lab.simulate.trials import is_trouble
from foliot_schemas.names import node_of, rail_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from bench.quiet.disturbances import TimedAction
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.scenario.spec import FaultKind
    from foliot_schemas import Event

_SETTLE_S = 6.0
_AFTERMATH_S = 1.2
"""The time after a disturbance: a path is reported silent at the latest a second and some after it was last heard."""
_CALM_S = 20.0
"""The longest wait until all is home and in step again. Clocks that were stepped need three windows."""
_LOOK_S = 0.03
_FOLLOWED_S = 3.0
"""The time after which a silence counts as missed."""
_BEFORE_S = 0.3
_TOLD = 4
_SILENT: tuple[FaultKind, ...] = ("drop", "drop-one-way")


def scenario(hosts: int) -> Scenario:
    """The scenario of the bench."""
    return Scenario(fabric=FabricSpec(hosts=hosts, spines=2), workload=WorkloadSpec(kind="none"), services=FRESH)


class _Course(NamedTuple):
    """The course of a trial."""

    what: str
    seed: int
    began_ns: int
    actions: Sequence[TimedAction]
    idle: float


class Trials:
    """Runs trials in a lab that is ready."""

    def __init__(self, lab: Lab, witness: Witness) -> None:
        self._lab = lab
        self._witness = witness
        self._collector = Collector(lab.time, lab.truth)
        self._home = self._in_force()

    @staticmethod
    @contextlib.asynccontextmanager
    async def ready(hosts: int, folder: Path) -> AsyncIterator[Trials]:
        """A lab for them, for the length of the block.

        Raises:
            NotReadyError: the services did not find one another in time.
        """
        lab = Lab(scenario(hosts), folder)
        lab.build()
        try:
            await lab.start()
            await lab.ready()
            await asyncio.sleep(_SETTLE_S)
            with Witness.over(lab.nodes, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time) as witness:
                trials = Trials(lab, witness)
                await trials._collector.follow(lab.bus)
                await trials._rest()
                yield trials
        finally:
            await lab.close()

    async def quiet(self, seed: int, kinds: Sequence[str] = KINDS) -> Row:
        """A trial without a path fault, of the kind whose turn the seed has."""
        what = kinds[seed % len(kinds)]
        chance = random.Random(f"{seed}/{what}")
        actions = draw(what, self._lab, chance)
        began_ns, before = self._lab.time.now_ns(), CpuTimes.read()
        await asyncio.gather(do(actions), asyncio.sleep(DISTURBED_S))
        idle = before.idle_share(CpuTimes.read())
        await asyncio.sleep(_AFTERMATH_S)
        await self._rest()
        return Row(**self._harm(_Course(what, seed, began_ns, actions, idle)))

    async def silence(self, seed: int, kinds: Sequence[str] = KINDS) -> SilenceRow:
        """A trial with a NIC that drops everything, from a moment of the disturbance on."""
        what = kinds[seed % len(kinds)]
        chance = random.Random(f"{seed}/{what}/silence")
        plan = self._lab.plan
        kind, nic = chance.choice(_SILENT), f"{chance.choice(plan.hosts)}.{chance.choice(plan.rails)}"
        actions = draw(what, self._lab, chance, spare_rail=rail_of(nic))
        gone = lost(actions)
        if node_of(nic) in {node_of(each) for each in gone}:  # No traffic of that host would have a way
            nic = f"{next(host for host in plan.hosts if host != node_of(nic))}.{rail_of(nic)}"
        pairs = [
            pair
            for pair in scope(kind, nic, plan).pairs()
            if all(reaches(nic, gone, end.node) for end in (pair.source, pair.destination))
        ]
        action = prepare(
            FaultSpec(at_s=0.0, kind=kind, where=nic), self._lab.scenario.fabric, self._lab.fabric, self._lab.world
        )
        began_ns, before = self._lab.time.now_ns(), CpuTimes.read()
        watch = self._witness.arm(pairs)
        disturbing = asyncio.create_task(do(actions))
        try:
            await asyncio.sleep(_BEFORE_S + chance.uniform(0.0, 0.4) * DISTURBED_S)
            injected_ns = self._lab.time.now_ns()
            action.inject()
            try:
                moved_ns = await self._moved(watch, injected_ns)
            finally:
                action.heal()
        finally:
            await disturbing
            self._witness.disarm(watch)
        idle = before.idle_share(CpuTimes.read())
        await asyncio.sleep(_AFTERMATH_S)
        await self._rest()
        own = scope(kind, nic, plan)
        found = [
            heard.at_ns
            for heard in self._collector.events
            if heard.at_ns >= injected_ns and is_trouble(heard.message) and own.has_event(heard.message)
        ]
        explaining = Span(fault_id="silence", since_ns=injected_ns, until_ns=self._lab.time.now_ns(), scope=own)
        return SilenceRow(
            **self._harm(_Course(what, seed, began_ns, actions, idle), explaining),
            fault=f"{kind} {nic}",
            detect_ms=_since(min(found, default=None), injected_ns),
            moved_ms=_since(moved_ns, injected_ns),
        )  # fmt: skip

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _moved(self, watch: Any, injected_ns: int) -> int | None:
        deadline_s = asyncio.get_running_loop().time() + _FOLLOWED_S
        while asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(_LOOK_S)
            moved_ns = judge(self._witness.look(watch), injected_ns).moved_ns
            if moved_ns is not None:
                return moved_ns
        return None

    def _harm(self, course: _Course, *explaining: Span) -> dict[str, Any]:
        """The part of a row that both kinds of trial have.

        It is everything since the trial began that no NIC it lost and no given span explains.
        """
        began_ns, now_ns, plan = course.began_ns, self._lab.time.now_ns(), self._lab.plan
        gone = [
            Span(fault_id=nic, since_ns=began_ns, until_ns=now_ns, scope=scope("link-down", nic, plan))
            for nic in lost(course.actions)
        ]
        collector = self._collector
        events = [heard for heard in collector.events if heard.at_ns >= began_ns and is_trouble(heard.message)]
        commands = [
            heard for heard in collector.commands if heard.at_ns >= began_ns and not heard.message.advice
        ]  # fmt: skip
        found = explain(events, commands, [*gone, *explaining])
        false = {heard.message.id for heard in found.stray_commands}
        moves = sum(
            len(outcome.placements) + len(outcome.away) + len(outcome.back)
            for outcome in (heard.message for heard in collector.outcomes)
            if outcome.command in false and outcome.status == "done"
        )
        return {
            "what": course.what, "where": "lab", "seed": course.seed, "idle_cpu": round(course.idle, 3),
            "events_false": len(found.stray_events), "commands_false": len(false), "moves_false": moves,
            "detail": "; ".join(timed.words for timed in course.actions),
            "told": tuple(map(_told, found.stray_events[:_TOLD])),
        }  # fmt: skip

    def _in_force(self) -> dict[str, tuple[Any, ...]]:
        """The ways of every node, as the remediator has written them."""
        return {node: (paths.away, paths.placements) for node, paths in self._lab.readiness.placed.items()}

    async def _rest(self) -> None:
        """Waits until all traffic is home, every backup armed and every clock in step, so that trials begin alike."""
        deadline_s = asyncio.get_running_loop().time() + _CALM_S
        while asyncio.get_running_loop().time() < deadline_s:
            if not self._lab.readiness.missing() and self._in_force() == self._home:
                break
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_BEFORE_S)


def _since(moment_ns: int | None, at_ns: int) -> float | None:
    return None if moment_ns is None else round((moment_ns - at_ns) * 1e-6, 1)


def _told(heard: Heard[Event]) -> str:
    return f"{heard.message.kind} {heard.message.who} {heard.message.state}"
