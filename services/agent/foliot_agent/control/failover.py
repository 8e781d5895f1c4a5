"""What the agent does when something happens: an own NIC turns, a peer speaks, a command comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from foliot import tracing
from foliot_agent.control.move_queue import Move, joined
from foliot_agent.core.command_guard import OutcomeCache, Situation, judge
from foliot_agent.core.failed_links import acts_on_notice, acts_on_own
from foliot_agent.core.peer_protocol import ReplayGuard
from foliot_agent.core.routing_table import destination_of
from foliot_schemas import Outcome
from foliot_schemas.bounds import fitting
from foliot_schemas.names import nic_name
from foliot_schemas.notice import Echo, Notice, NoticeSeen

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from foliot.clock import Clock
    from foliot_agent.control.lease_fence import LeaseFence
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.failed_links import FailedLinks, LinkTransition
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.core.routing_table import Destination
    from foliot_agent.peers.echo_confirm import EchoConfirmer
    from foliot_agent.peers.failure_notifier import FailureNotifier
    from foliot_agent.peers.sockets import Reply
    from foliot_agent.settings import AgentSettings
    from foliot_schemas import Command, Confirmation, Node, Verb

    Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

log = structlog.get_logger()


class Failover:
    """The agent's behaviour, between its parts; it knows no bus and no kernel.

    Parameters:
        confirmer: None where nothing is on a wire (the emulated actuator): then nothing is expected to be confirmed.
        publish: hands an outcome to the bus, which keeps it until it is stored.
        bus_connected: whether the bus is there, as far as is known.
        fence: of commands, and of what the bucket `paths` has.
        spawn: starts work that outlives the call.
        restart_cache: of answers, over restarts.
        restored: waits until what the kernel dropped with the NIC of a rail is there again.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        layout: Layout,
        peers: Mapping[str, Node],
        losses: FailedLinks,
        move_queue: MoveQueue,
        notifier: FailureNotifier,
        confirmer: EchoConfirmer | None,
        clock: Clock,
        publish: Callable[[Outcome], None],
        bus_connected: Callable[[], bool],
        fence: LeaseFence,
        spawn: Spawn,
        restart_cache: RestartCache,
        restored: Callable[[str], Awaitable[None]],
    ) -> None:
        self.fence = fence
        self._settings = settings
        self._layout = layout
        self._peers = peers
        self._losses = losses
        self._move_queue = move_queue
        self._notifier = notifier
        self._confirmer = confirmer
        self._clock = clock
        self._publish = publish
        self._bus_connected = bus_connected
        self._spawn = spawn
        self._guard = ReplayGuard()
        self._restart_cache = restart_cache
        self._restored = restored
        self._answers = OutcomeCache(restart_cache.recall().answers)
        self._under_way: set[str] = set()
        self._seen: dict[tuple[str, str], NoticeSeen] = {}
        self._evaded: dict[tuple[str, str], str] = {}
        """The fault of the loss that was last evaded, by peer and rail."""
        self._returning: dict[str, asyncio.Task[None]] = {}
        """By rail: waits until what goes with the NIC stands again."""

    # -- an own NIC ---------------------------------------------------------------------------------------------------

    def on_turn(self, turn: LinkTransition) -> None:
        """An own NIC was lost, or is back."""
        if (returning := self._returning.pop(turn.rail, None)) is not None:
            returning.cancel()
        if turn.state == "back":
            if acts_on_notice(self._settings.armed, self._settings.policy):
                self._returning[turn.rail] = self._spawn(self._return(turn, self._clock.now_ns()))
        elif self._acts_on_own():
            self._spawn(self._flee(turn, self._clock.now_ns()))
            return
        log.info("nic_turned", rail=turn.rail, state=turn.state, fault=turn.fault)

    def on_bus_away(self) -> None:
        """The bus does not answer any more: a loss that the remediator was left to act upon may be one that it never heard of."""
        if acts_on_own(self._settings.armed, self._settings.policy, bus_connected=False):
            for turn in self._losses.lasting():
                self._spawn(self._flee(turn, self._clock.now_ns()))

    def _acts_on_own(self) -> bool:
        return acts_on_own(self._settings.armed, self._settings.policy, bus_connected=self._bus_connected())

    async def _flee(self, turn: LinkTransition, started_ns: int) -> None:
        nic = nic_name(self._layout.node.name, turn.rail)
        with tracing.span(
            "own carrier lost", fault=turn.fault, start_ns=started_ns, nic=nic, armed=self._settings.armed
        ) as span:
            if turn.rail in self._losses.own:
                # Sent while the kernel's answer to the rule is awaited. Also if nothing is armed here: the peers may have a way, and
                # must not take this one.
                self._spawn(self._tell(turn))
            move = await self._move_queue.flee(turn.rail)
            log.info("nic_turned", rail=turn.rail, state=turn.state, fault=turn.fault)
            move = joined(move, await self._move_queue.mend())
            span.set_attribute("foliot.status", move.status)
            outcome = await self._outcome(move, f"armed/{turn.fault}", "reroute", turn.fault, started_ns, armed=True)
            self._publish(outcome)

    async def _return(self, turn: LinkTransition, started_ns: int) -> None:
        """An own NIC is back. What flows stays where it is; what stands still, because the rail that it fled to died meanwhile, comes back."""
        await self._restored(turn.rail)
        del self._returning[turn.rail]
        self._spawn(self._tell(turn))
        self._spawn(self._notifier.tell_again())
        if not self._acts_on_own():
            return
        move = await self._move_queue.mend()
        if move.status == "already":
            return
        nic = nic_name(self._layout.node.name, turn.rail)
        with tracing.span(
            "own carrier back", fault=turn.fault, start_ns=started_ns, nic=nic, armed=self._settings.armed
        ) as span:
            span.set_attribute("foliot.status", move.status)
            command = f"armed/{turn.fault}/back"
            self._publish(await self._outcome(move, command, "reroute", turn.fault, started_ns, armed=True))

    async def _tell(self, turn: LinkTransition) -> None:
        with tracing.span("notify peers", fault=turn.fault, kind="producer", state=turn.state) as span:
            moved = await self._notifier.tell(turn.rail, turn.state, turn.fault, tracing.span_id())
            span.set_attribute("foliot.moved", sum(moved.values()))

    # -- a peer -------------------------------------------------------------------------------------------------------

    def on_message(self, message: Notice | NoticeSeen | Echo, reply: Reply) -> None:
        """A sealed datagram arrived."""
        if isinstance(message, NoticeSeen):
            self._notifier.take(message)
        elif isinstance(message, Notice):
            self._take_notice(message, reply)
        elif self._confirmer is not None:
            self._confirmer.take(message, reply)

    def forget(self, peer: str) -> None:
        """A peer has left the fleet: what it said and what became of it is of nobody any more."""
        self._losses.forget(peer)
        self._guard.forget(peer)
        self._notifier.forget(peer)
        for restart_cache in (self._seen, self._evaded):
            for place in [place for place in restart_cache if place[0] == peer]:
                del restart_cache[place]

    def _take_notice(self, notice: Notice, reply: Reply) -> None:
        if notice.node not in self._peers:
            log.warning("notice_from_unknown", node=notice.node)
            return
        if notice.rail not in {nic.rail for nic in self._peers[notice.node].nics}:
            log.warning("notice_of_unknown_rail", node=notice.node, rail=notice.rail)
            return
        verdict = self._guard.judge(notice, self._clock.now_ns(), synchronised=self._clock.bound_ns() >= 0)
        if verdict == "old":
            log.warning("notice_old", node=notice.node, sequence=notice.sequence)
        elif verdict == "repeat":
            if (seen := self._seen.get((notice.node, notice.rail))) is not None and seen.sequence == notice.sequence:
                reply(seen)
        else:
            self._losses.take_notice(notice)
            if acts_on_notice(self._settings.armed, self._settings.policy):
                self._spawn(self._evade(notice, reply, self._clock.now_ns()))
            else:
                self._answer(notice, reply, moved=False)
            if notice.state == "back":
                # There was perhaps no way to this peer when an own NIC was lost.
                self._spawn(self._notifier.tell_again(notice.node))

    async def _evade(self, notice: Notice, reply: Reply, started_ns: int) -> None:
        of_peer = self._move_queue.routing.of_peer(notice.node)
        move = await self._move_queue.mend(of_peer)
        moved = not any(self._losses.dead(way.peer, way.via) for way in self._move_queue.routing.now(of_peer))
        # Opened only now: the move comes first.
        with tracing.span(
            "peer lost a NIC" if notice.state == "lost" else "peer has a NIC back",
            fault=notice.fault,
            kind="consumer",
            start_ns=started_ns,
            parent_span=notice.span,
            nic=nic_name(notice.node, notice.rail),
        ) as span:
            self._answer(notice, reply, moved=moved)
            span.set_attribute("foliot.status", move.status)
            if not moved and move.status == "already" and notice.state == "lost":
                move = Move(status="refused", reason=f"no way to all of {notice.node} has both of its NICs")
            if move.status != "already":
                command = self._name(notice)
                outcome = await self._outcome(move, command, "reroute", notice.fault, started_ns, armed=True)
                self._publish(outcome)

    def _name(self, notice: Notice) -> str:
        """Of the move that a notice led to. A loss may be told again, and move something again: that is another move."""
        nic = notice.node, notice.rail
        if notice.state == "back":
            return f"armed/{notice.fault}/back"
        if self._evaded.get(nic) == notice.fault:
            return f"armed/{notice.fault}/{notice.sequence}"
        self._evaded[nic] = notice.fault
        return f"armed/{notice.fault}"

    def _answer(self, notice: Notice, reply: Reply, *, moved: bool) -> None:
        seen = NoticeSeen(node=self._layout.node.name, sequence=notice.sequence, moved=moved)
        self._seen[notice.node, notice.rail] = seen
        reply(seen)

    # -- a command ----------------------------------------------------------------------------------------------------

    async def on_command(self, command: Command) -> None:
        """Carries out a command, once, and answers it, as often as it comes."""
        if (answered := self._answers.get(command.id)) is not None:
            self._publish(answered)
            return
        if command.id in self._under_way:
            return
        self._under_way.add(command.id)
        try:
            with tracing.span(
                "apply command", fault=command.fault, kind="consumer", command=command.id, verb=command.verb
            ) as span:
                outcome = await self._carry_out(command, self._clock.now_ns())
                span.set_attribute("foliot.status", outcome.status)
                self._answers.keep(outcome)
                self._restart_cache.keep_answer(outcome)
                self._publish(outcome)
        finally:
            self._under_way.discard(command.id)

    async def _carry_out(self, command: Command, started_ns: int) -> Outcome:
        passes = await self.fence.passes(command.lease_revision)
        judgement = judge(command, self._situation())
        if passes and command.node == self._layout.node.name:
            self.fence.raise_to(command.lease_revision)
        if judgement.status == "act":
            move = await self._move_queue.apply(away=command.away, back=command.back, placements=command.placements)
        else:
            log.info("command_not_done", id=command.id, status=judgement.status, reason=judgement.reason)
            move = Move(status=judgement.status, reason=judgement.reason, away=command.away, back=command.back)
        return await self._outcome(
            move, command.id, command.verb, command.fault, started_ns, armed=False, cause=command.cause
        )

    def _situation(self) -> Situation:
        return Situation(
            layout=self._layout,
            peers=self._peers,
            routing=self._move_queue.routing,
            losses=self._losses,
            policy=self._settings.policy,
            now_ns=self._clock.now_ns(),
            synchronised=self._clock.bound_ns() >= 0,
            highest_lease=self.fence.highest,
        )

    # -- what became of it --------------------------------------------------------------------------------------------

    async def _outcome(
        self, move: Move, command: str, verb: Verb, fault: str, started_ns: int, *, armed: bool, cause: str = ""
    ) -> Outcome:
        own = self._layout.node.name
        to_confirm = move.destinations if move.status in {"done", "already"} and self._confirmer is not None else ()
        confirmations = await self._confirmed(to_confirm, move, fault)
        complete = bool(to_confirm) and len(confirmations) == len(to_confirm)
        outcome = Outcome(
            id=fitting(f"{command}/outcome/{own}"),
            command=command,
            verb=verb,
            node=own,
            status=move.status,
            armed=armed,
            cause=cause,
            reason=move.reason,
            started_ns=started_ns,
            moved_ns=move.moved_ns,
            confirmed_ns=max(each.at_ns for each in confirmations) if complete else 0,
            expected=len(to_confirm),
            confirmations=tuple(confirmations),
            away=move.away,
            back=move.back,
            placements=move.after,
            undo=move.before,
            fault=fault,
        )
        log.info("outcome_made", command=command, status=move.status, reason=move.reason, confirmed=complete)
        return outcome

    async def _confirmed(self, destinations: tuple[Destination, ...], move: Move, fault: str) -> list[Confirmation]:
        if not destinations or self._confirmer is None:
            return []
        made = {destination_of(way): way for way in move.after}

        def stands(destination: Destination) -> bool:
            return self._move_queue.routing.way(destination) == made.get(destination)

        with tracing.span("confirm on the wire", fault=fault, expected=len(destinations)) as span:
            confirmations = await self._confirmer.confirm(destinations, stands=stands)
            span.set_attribute("foliot.confirmed", len(confirmations))
        return confirmations
