"""The agent's own reactions, when an own NIC turns or a peer speaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from foliot import tracing
from foliot_agent.control.action_handlers import outcome_of
from foliot_agent.control.move_queue import Move, joined
from foliot_agent.control.route_handler import told
from foliot_agent.core.failed_links import acts_on_notice, acts_on_own
from foliot_agent.core.peer_protocol import ReplayGuard
from foliot_schemas import Reroute
from foliot_schemas.names import nic_name
from foliot_schemas.notice import Echo, Notice, NoticeSeen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from foliot.clock import Clock
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.control.route_handler import RouteHandler
    from foliot_agent.core.failed_links import LinkTransition
    from foliot_agent.core.route_guard import Situation
    from foliot_agent.peers.failure_notifier import FailureNotifier
    from foliot_agent.peers.sockets import Reply
    from foliot_agent.settings import AgentSettings
    from foliot_schemas import Outcome

    Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

log = structlog.get_logger()


@dataclass(kw_only=True, eq=False)
class Failover:
    """The agent's behaviour without commands, between its parts; it knows no bus and no kernel."""

    situation: Situation
    settings: AgentSettings
    move_queue: MoveQueue
    notifier: FailureNotifier
    routes: RouteHandler
    """Confirms what was moved, and its confirmer answers peers that confirm their moves."""
    clock: Clock
    publish: Callable[[Outcome], None]
    """Hands an outcome to the bus, which keeps it until it is stored."""
    bus_connected: Callable[[], bool]
    spawn: Spawn
    """Starts work that outlives the call."""
    restored: Callable[[str], Awaitable[None]]
    """Waits until what the kernel dropped with the NIC of a rail is there again."""
    catch_up: Callable[[], Awaitable[None]]
    """Does what the bus asks for and a lost NIC stood against, as one is back."""

    def __post_init__(self) -> None:
        self._node, self._peers = self.situation.layout.node.name, self.situation.peers
        self._losses = self.situation.losses
        self._guard = ReplayGuard()
        self._seen: dict[tuple[str, str], NoticeSeen] = {}
        self._evaded: dict[tuple[str, str], str] = {}
        """The fault of the loss that was last evaded, by peer and rail."""
        self._returning: dict[str, asyncio.Task[None]] = {}
        """Tasks by rail, each of which waits until what goes with the NIC stands again."""

    # -- an own NIC ---------------------------------------------------------------------------------------------------

    def on_turn(self, turn: LinkTransition) -> None:
        """Takes the loss or the return of an own NIC."""
        if (returning := self._returning.pop(turn.rail, None)) is not None:
            returning.cancel()
        if turn.state == "back":
            self._returning[turn.rail] = self.spawn(self._return(turn, self.clock.now_ns()))
        elif self._acts_on_own():
            self.spawn(self._flee(turn, self.clock.now_ns()))
            return
        log.info("nic_turned", rail=turn.rail, state=turn.state, fault=turn.fault)

    def on_bus_away(self) -> None:
        """Acts, as the bus does not answer any more, on losses that were left to the remediator.

        It may never have heard of them.
        """
        acts_with, acts_without = (
            acts_on_own(self.settings.armed, self.settings.policy, bus_connected=connected)
            for connected in (True, False)
        )
        if acts_without and not acts_with:
            for turn in self._losses.lasting():
                self.spawn(self._flee(turn, self.clock.now_ns()))

    def _acts_on_own(self) -> bool:
        return acts_on_own(self.settings.armed, self.settings.policy, bus_connected=self.bus_connected())

    async def _flee(self, turn: LinkTransition, started_ns: int) -> None:
        # Before all else, as each message and span takes longer than the kernel does.
        move = await self.move_queue.flee(turn.rail)
        nic = nic_name(self._node, turn.rail)
        with tracing.span(
            "own carrier lost", fault=turn.fault, start_ns=started_ns, nic=nic, armed=self.settings.armed
        ) as span:
            if turn.rail in self._losses.own:
                # Also if nothing is armed here: the peers may have a way, and must not take this one.
                self.spawn(self._tell(turn))
                await asyncio.sleep(0)  # the first notices leave here
            log.info("nic_turned", rail=turn.rail, state=turn.state, fault=turn.fault)
            move = joined(move, await self.move_queue.mend())
            span.set_attribute("foliot.status", move.status)
            await self._report(move, f"armed/{turn.fault}", turn.fault, started_ns)

    async def _return(self, turn: LinkTransition, started_ns: int) -> None:
        """Takes the return of an own NIC.

        Traffic that flows stays where it is, unless it was to come back and the NIC was lost. Traffic that stands still
        comes back, because the rail that it fled to died meanwhile.
        """
        await self.restored(turn.rail)
        del self._returning[turn.rail]
        if acts_on_notice(self.settings.armed, self.settings.policy):
            self.spawn(self._tell(turn))
            self.spawn(self.notifier.tell_again())
        if self._acts_on_own():
            await self._mend(turn, started_ns)
        await self.catch_up()

    async def _mend(self, turn: LinkTransition, started_ns: int) -> None:
        move = await self.move_queue.mend()
        if move.status == "already":
            return
        nic = nic_name(self._node, turn.rail)
        with tracing.span(
            "own carrier back", fault=turn.fault, start_ns=started_ns, nic=nic, armed=self.settings.armed
        ) as span:
            span.set_attribute("foliot.status", move.status)
            await self._report(move, f"armed/{turn.fault}/back", turn.fault, started_ns)

    async def _tell(self, turn: LinkTransition) -> None:
        with tracing.span("notify peers", fault=turn.fault, kind="producer", state=turn.state) as span:
            moved = await self.notifier.tell(turn.rail, turn.state, turn.fault, tracing.span_id())
            span.set_attribute("foliot.moved", sum(moved.values()))

    # -- a peer -------------------------------------------------------------------------------------------------------

    def on_message(self, message: Notice | NoticeSeen | Echo, reply: Reply) -> None:
        """Takes a sealed datagram that arrived."""
        if isinstance(message, NoticeSeen):
            self.notifier.take(message)
        elif isinstance(message, Notice):
            self._take_notice(message, reply)
        elif self.routes.confirmer is not None:
            self.routes.confirmer.take(message, reply)

    def forget(self, peer: str) -> None:
        """Forgets a peer that has left the fleet, with what it said and what became of it."""
        self._losses.forget(peer)
        self._guard.forget(peer)
        self.notifier.forget(peer)
        for memory in (self._seen, self._evaded):
            for place in [place for place in memory if place[0] == peer]:
                del memory[place]

    def _take_notice(self, notice: Notice, reply: Reply) -> None:
        if notice.node not in self._peers:
            log.warning("notice_from_unknown", node=notice.node)
            return
        if notice.rail not in {nic.rail for nic in self._peers[notice.node].nics}:
            log.warning("notice_of_unknown_rail", node=notice.node, rail=notice.rail)
            return
        verdict = self._guard.judge(notice, self.clock.now_ns(), synchronised=self.clock.bound_ns() >= 0)
        if verdict == "old":
            log.warning("notice_old", node=notice.node, sequence=notice.sequence)
        elif verdict == "repeat":
            if (seen := self._seen.get((notice.node, notice.rail))) is not None and seen.sequence == notice.sequence:
                reply(seen)
        else:
            self._losses.take_notice(notice)
            self.spawn(self._heed(notice, reply, self.clock.now_ns()))
            if notice.state == "back":
                # There was perhaps no way to this peer when an own NIC was lost.
                self.spawn(self.notifier.tell_again(notice.node))

    async def _heed(self, notice: Notice, reply: Reply, started_ns: int) -> None:
        if acts_on_notice(self.settings.armed, self.settings.policy):
            await self._evade(notice, reply, started_ns)
        else:
            self._answer(notice, reply, moved=False)
        if notice.state == "back":
            await self.catch_up()

    async def _evade(self, notice: Notice, reply: Reply, started_ns: int) -> None:
        of_peer = self.move_queue.routing.of_peer(notice.node)
        move = await self.move_queue.mend(of_peer)
        moved = not any(self._losses.dead(way.peer, way.via) for way in self.move_queue.routing.now(of_peer))
        self._answer(notice, reply, moved=moved)
        # Opened only now: the move comes first, and then the answer, as the peer asks again until it has it.
        with tracing.span(
            "peer lost a NIC" if notice.state == "lost" else "peer has a NIC back",
            fault=notice.fault,
            kind="consumer",
            start_ns=started_ns,
            parent_span=notice.span,
            nic=nic_name(notice.node, notice.rail),
        ) as span:
            span.set_attribute("foliot.status", move.status)
            if not moved and move.status == "already" and notice.state == "lost":
                move = Move(status="refused", reason=f"no way to all of {notice.node} has both of its NICs")
            if move.status != "already":
                await self._report(move, self._name(notice), notice.fault, started_ns)

    def _name(self, notice: Notice) -> str:
        """Names the move that a notice led to; a loss told again may move something again, which is another move."""
        nic = notice.node, notice.rail
        if notice.state == "back":
            return f"armed/{notice.fault}/back"
        if self._evaded.get(nic) == notice.fault:
            return f"armed/{notice.fault}/{notice.sequence}"
        self._evaded[nic] = notice.fault
        return f"armed/{notice.fault}"

    def _answer(self, notice: Notice, reply: Reply, *, moved: bool) -> None:
        seen = NoticeSeen(node=self._node, sequence=notice.sequence, moved=moved)
        self._seen[notice.node, notice.rail] = seen
        reply(seen)

    # -- what became of it --------------------------------------------------------------------------------------------

    async def _report(self, move: Move, command: str, fault: str, started_ns: int) -> None:
        result = told(move, Reroute)
        confirmed = await self.routes.confirm(result, fault)
        outcome = outcome_of(
            result, confirmed, command=command, node=self._node, fault=fault, started_ns=started_ns, armed=True
        )
        self.publish(outcome)
