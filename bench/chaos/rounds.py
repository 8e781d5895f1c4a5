"""One round: a fault, a victim in the middle of it, and then a fresh fault to see whether Foliot works again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from foliot_lab.faults.actions import Action, prepare
from foliot_lab.measure.outages import judge
from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.spec import FaultSpec
from foliot_schemas.subjects import COMMAND, EVENT, LEASES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.chaos.draw import FaultName, Round
    from bench.chaos.vitals import Vitals
    from foliot_lab.measure.outages import Verdict
    from foliot_lab.measure.wire_witness import Watch, Witness
    from foliot_lab.scenario.spec import FaultKind
    from foliot_lab.services.lab import Lab
    from foliot_schemas import Command, Event

KINDS: dict[FaultName, FaultKind] = {"carrier": "link-down", "silent": "drop"}
_BEFORE_S = 0.08
_LOOK_S = 0.03
_TRIGGER_S = 1.0
"""The wait for a command before a round goes on without one. Armed agents need no command."""
_REST_S = 0.1


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a fault demands."""

    fault: str
    nic: str
    from_ns: int
    until_ns: int


class Result(msgspec.Struct, kw_only=True):
    """The result of a round. Times in ns are the lab's."""

    number: int
    victim: str
    process: str
    means: str
    moment: str
    fault: str
    nic: str
    from_ns: int
    until_ns: int = 0
    healed: bool = False
    why_not: str = ""
    recovery_s: float | None = None
    moved_ms: float | None = None
    fresh_moved_ms: float | None = None
    done_twice: int = 0
    lost: int = 0
    demands: list[Demand] = []


class NotHealedError(RuntimeError):
    """A part of the lab did not recover in time; the message says which."""


class Rounds:
    """Runs rounds in a lab that stays up.

    Parameters:
        healed_within_s: the limit of each wait: after the victim's return, and again after the end of the fault. Sync
            needs three windows of two seconds to find all clocks anew.
    """

    def __init__(self, lab: Lab, witness: Witness, vitals: Vitals, healed_within_s: float) -> None:
        self._lab = lab
        self._witness = witness
        self._vitals = vitals
        self._healed_within_s = healed_within_s
        self._event_heard = asyncio.Event()
        self._command_heard = asyncio.Event()
        self._home = self._in_force()

    async def follow(self) -> None:
        """Listens for the events and commands of a fault."""
        await self._lab.bus.subscribe(EVENT, self._on_event)
        await self._lab.bus.subscribe(COMMAND, self._on_command)

    async def run(self, drawn: Round) -> Result:
        """Runs a round and judges it on the wire. The streams and kernels are judged later."""
        result = Result(
            number=drawn.number, victim=drawn.victim, process=drawn.process, means=drawn.means, moment=drawn.moment,
            fault=drawn.fault, nic=drawn.nic, from_ns=self._lab.time.now_ns(),
        )  # fmt: skip
        try:
            await self._fault_with_victim(drawn, result)
            await self._within(self._trouble, "after the fault")
            result.fresh_moved_ms = await self._fresh(drawn.fresh_nic, result)
            result.healed = True
        except NotHealedError as error:
            result.why_not = str(error)
        with contextlib.suppress(NotHealedError):  # reported already
            await self._within(self._trouble, "at the end")
        await asyncio.sleep(_REST_S)
        result.until_ns = self._lab.time.now_ns()
        return result

    async def _fault_with_victim(self, drawn: Round, result: Result) -> None:
        kind = KINDS[drawn.fault]
        action = self._action(kind, drawn.nic)
        result.process = drawn.process or await self._leader()
        watch = self._witness.arm(scope(kind, drawn.nic, self._lab.plan).pairs())
        try:
            await self._ways_known(watch)
            early = asyncio.ensure_future(self._strike(drawn, result)) if drawn.moment == "before" else None
            if early is not None:
                await asyncio.sleep(drawn.delay_s)
            self._event_heard.clear()
            self._command_heard.clear()
            injected_ns = self._lab.time.now_ns()
            action.inject()
            try:
                returned_ns = await (early or self._strike_later(drawn, result))
                moved_ns = await self._seen(watch, injected_ns, "moved_ns")
                result.moved_ms = round((moved_ns - injected_ns) * 1e-6, 1)
                if drawn.moment != "restore":
                    result.recovery_s = await self._recovered(drawn, result.process, returned_ns, moved_ns)
                await self._demanded()
            finally:
                self._command_heard.clear()
                action.heal()
            if drawn.moment == "restore":
                returned_ns = await self._strike_in_restoration(drawn, result)
            restored_ns = await self._seen(watch, injected_ns, "restored_ns")
            if drawn.moment == "restore":
                result.recovery_s = await self._recovered(drawn, result.process, returned_ns, restored_ns)
            until_ns = self._lab.time.now_ns()
            result.demands.append(Demand(fault=drawn.fault, nic=drawn.nic, from_ns=injected_ns, until_ns=until_ns))
        finally:
            self._witness.disarm(watch)

    async def _ways_known(self, watch: Watch) -> None:
        """Waits until every pair's way of before is known, also where the witness's thread is late."""
        deadline_s = time.monotonic() + self._healed_within_s
        await asyncio.sleep(_BEFORE_S)
        while not all((pulses.arrived_ns > 0).any() for pulses in self._witness.look(watch).values()):
            if time.monotonic() > deadline_s:
                raise NotHealedError("not every pair flows before the fault")
            await asyncio.sleep(_LOOK_S)

    # -- the victim ---------------------------------------------------------------------------------------------------

    async def _strike_later(self, drawn: Round, result: Result) -> int:
        """Strikes at the event, or at the command; not yet if that is to be during the restoration."""
        if drawn.moment == "restore":
            return 0
        heard = self._event_heard if drawn.moment == "event" else self._command_heard
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), _TRIGGER_S)
        await asyncio.sleep(drawn.delay_s)
        return await self._strike(drawn, result)

    async def _strike_in_restoration(self, drawn: Round, result: Result) -> int:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._command_heard.wait(), _TRIGGER_S)
        await asyncio.sleep(drawn.delay_s)
        return await self._strike(drawn, result)

    async def _strike(self, drawn: Round, result: Result) -> int:
        """Strikes the victim; returns the time from which it could go on."""
        world = self._lab.world
        self._vitals.note(result.process)
        if drawn.means == "SIGSTOP":
            world.stop(result.process)
            await asyncio.sleep(drawn.stopped_s)
            world.resume(result.process)
        elif drawn.means == "SIGTERM":
            world.terminate(result.process)
        else:
            world.kill(result.process)
            world.restart(result.process)
        return self._lab.time.now_ns()

    async def _leader(self) -> str:
        """The bus server that leads the leases."""
        store = await self._lab.bus.store(LEASES)
        return str((await store.status()).stream_info.cluster.leader)

    # -- observation --------------------------------------------------------------------------------------------------

    async def _recovered(self, drawn: Round, process: str, returned_ns: int, flowed_ns: int) -> float:
        """Seconds from the victim's return until traffic flows, everything lives, and the victim does its work."""
        returned_s = time.monotonic() - (self._lab.time.now_ns() - returned_ns) * 1e-9

        async def trouble() -> list[str]:
            idle = self._vitals.idle(process, returned_s, restarted=drawn.means != "SIGSTOP")
            return idle or await self._vitals.missing()

        await self._within(trouble, "after the victim's return")
        return round(max(max(flowed_ns, self._lab.time.now_ns()) - returned_ns, 0) * 1e-9, 2)

    async def _demanded(self) -> None:
        """Waits until the fault's event was told, so that a returned process has been back for a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event_heard.wait(), self._healed_within_s)

    async def _trouble(self) -> list[str]:
        if self._in_force() != self._home:
            return [f"not home: {', '.join(self._elsewhere())}"]
        # Not during a fault: there are no backups over a lost NIC.
        return self._lab.readiness.missing() or await self._vitals.missing()

    def _elsewhere(self) -> list[str]:
        return [node for node, ways in self._in_force().items() if ways != self._home.get(node)]

    def _in_force(self) -> dict[str, tuple[Any, ...]]:
        """The ways of every node, as the remediator has written them."""
        return {node: (paths.away, paths.placements) for node, paths in self._lab.readiness.placed.items()}

    async def _within(self, trouble: Callable[[], Awaitable[list[str]]], when: str) -> None:
        deadline_s = time.monotonic() + self._healed_within_s
        while words := await trouble():
            if time.monotonic() > deadline_s:
                raise NotHealedError(f"{when}: {'; '.join(words)}")
            await asyncio.sleep(_LOOK_S)

    async def _seen(self, watch: Watch, injected_ns: int, moment: str) -> int:
        deadline_s = time.monotonic() + self._healed_within_s
        while True:
            await asyncio.sleep(_LOOK_S)
            verdict: Verdict = judge(self._witness.look(watch), injected_ns)
            at_ns = getattr(verdict, moment)
            if at_ns is not None:
                return int(at_ns)
            if time.monotonic() > deadline_s:
                raise NotHealedError(f"{moment.removesuffix('_ns')} was not seen on the wire")

    # -- the fresh fault ----------------------------------------------------------------------------------------------

    async def _fresh(self, nic: str, result: Result) -> float:
        """Injects and undoes a lost carrier; returns the duration of the move, in ms."""
        kind = KINDS["carrier"]
        action = self._action(kind, nic)
        watch = self._witness.arm(scope(kind, nic, self._lab.plan).pairs())
        try:
            await self._ways_known(watch)
            self._event_heard.clear()
            injected_ns = self._lab.time.now_ns()
            action.inject()
            try:
                moved_ns = await self._seen(watch, injected_ns, "moved_ns")
                await self._demanded()
            finally:
                action.heal()
            await self._seen(watch, injected_ns, "restored_ns")
            until_ns = self._lab.time.now_ns()
            result.demands.append(Demand(fault="carrier", nic=nic, from_ns=injected_ns, until_ns=until_ns))
        except NotHealedError as error:
            raise NotHealedError(f"fresh fault on {nic}: {error}") from None
        finally:
            self._witness.disarm(watch)
        return round((moved_ns - injected_ns) * 1e-6, 1)

    def _action(self, kind: FaultKind, nic: str) -> Action:
        return prepare(
            FaultSpec(at_s=0.0, kind=kind, where=nic), self._lab.scenario.fabric, self._lab.fabric, self._lab.world
        )

    async def _on_event(self, event: Event, _subject: str) -> None:
        if event.kind in {"flap", "path"}:
            self._event_heard.set()

    async def _on_command(self, _command: Command, _subject: str) -> None:
        self._command_heard.set()
