"""Moves of traffic, whatever asks for them: a command, a notice, the bucket `paths` or a lost carrier of one's own.

A few routes at a time change the kernel, and whoever waits for it has the next turn. So the loss of a NIC waits for few
routes, however many a command or the arming of a large fleet still has to put. Those look before each turn whether its
routes are still wanted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.core.routing_table import destination_of, detours
from foliot_schemas import OutcomeStatus, Placement  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from foliot.clock import Clock
    from foliot_agent.actuators.overlay import OverlayActuator
    from foliot_agent.core.desired_diff import Wanted
    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.core.routing_table import Destination, RoutingTable
    from foliot_schemas import Reroute, Restore

_Item = TypeVar("_Item")

_ROUTES_A_TURN = 32
"""The kernel needs some 5 µs for each."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move."""

    status: OutcomeStatus
    reason: str = ""
    moved_ns: int = 0
    away: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    destinations: tuple[tuple[str, str], ...] = ()
    """Peers and rails concerned."""
    before: tuple[Placement, ...] = ()
    after: tuple[Placement, ...] = ()


class MoveQueue:
    """Serialises the moves of one node: two causes of the same move find that it was done already.

    A lock is held while the kernel is spoken to, never while a peer is waited for.
    """

    def __init__(self, actuator: OverlayActuator, losses: FailedLinks, clock: Clock) -> None:
        self._actuator = actuator
        self._losses = losses
        self._clock = clock
        self._turn = asyncio.Lock()
        """Held for `_ROUTES_A_TURN` changes of the kernel at most. asyncio's lock is fair: who lets it go has it again
        when all who wait have had it."""
        self._commanded = asyncio.Lock()
        """One command after the other, each whole."""
        self._armed = asyncio.Lock()
        """One set of backups after the other, each whole."""
        self._turned_ns: dict[str, int] = {}
        """By rail, the reference time at which the last command that turned it began."""
        self._placed_ns: dict[Destination, int] = {}
        """The same of destinations, those of turned rails included."""

    @property
    def routing(self) -> RoutingTable:
        """The ways in force."""
        return self._actuator.routing

    async def apply(self, order: Reroute | Restore) -> Move:
        """Moves what is not there yet."""
        for placement in order.placements:
            self._losses.overrule(placement.peer, placement.via)
        async with self._commanded:
            began_ns = self._clock.now_ns()
            move = await self._apply(order.away, order.back, order.placements)
            if move.status in {"done", "already"}:
                self._turned_ns |= dict.fromkeys((*order.away, *order.back), began_ns)
                self._placed_ns |= dict.fromkeys(move.destinations, began_ns)
                if len(self._placed_ns) > len(self.routing.placements):  # peers have left
                    self._placed_ns = {
                        each: at_ns for each, at_ns in self._placed_ns.items() if each in self.routing.placements
                    }
            return move

    async def flee(self, rail: str) -> Move:
        """Leaves a rail whose own NIC is lost: one rule, however many peers there are."""
        if rail not in self._losses.own:
            return Move(status="refused", reason="the NIC is back already", away=(rail,))
        if rail not in self.routing.away and not self.routing.can_leave(rail, self._losses.dead):
            reason = f"{rail} cannot be left: no backup that is alive is armed for any of its addresses"
            return Move(status="refused", reason=reason, away=(rail,))
        return await self._apply((rail,))

    async def mend(self, destinations: Iterable[Destination] | None = None) -> Move:
        """Takes all destinations, or these, off the ways that have lost a NIC at either end.

        Where one rule does that, it moves a whole rail. It leaves the rail of an own NIC that is lost. It goes back to
        an own NIC that is there again, but only where none of the rail's backups is alive.
        """
        if destinations is not None:
            return await self._detour(tuple(destinations))
        routing, losses = self.routing, self._losses
        away = tuple(rail for rail in sorted(losses.own - routing.away) if routing.can_leave(rail, losses.dead))
        back = tuple(rail for rail in sorted(routing.away - losses.own) if routing.can_return(rail, losses.dead))
        return joined(await self._apply(away, back), await self._detour(tuple(routing.placements)))

    async def follow(self, wanted: Wanted, *, act: bool, decided_ns: int = 0) -> Move:
        """Arms the wanted backups and, where the node may act, makes the wanted moves.

        A command overtakes the value that was decided before it, above all when the bus comes back. So a destination or
        a rail that a command has turned since stays as it is; a later value has both.

        Parameters:
            decided_ns: when the value was decided, reference time; 0: not known, and then no command was later.
        """

        def is_open(last_ns: int) -> bool:
            return decided_ns == 0 or last_ns <= decided_ns

        async with self._armed:
            reason = await self._arm(wanted.backups)
        if not act:
            return Move(status="failed" if reason else "advised", reason=reason)
        away = tuple(rail for rail in wanted.away if self.routing.can_leave(rail, self._losses.dead))
        async with self._commanded:
            move = await self._apply(
                tuple(rail for rail in away if is_open(self._turned_ns.get(rail, 0))),
                tuple(rail for rail in wanted.back if is_open(self._turned_ns.get(rail, 0))),
                tuple(each for each in wanted.placements if is_open(self._placed_ns.get(destination_of(each), 0))),
            )
        return msgspec.structs.replace(move, status="failed", reason=reason) if reason else move

    async def renew(self, is_concerned: Callable[[Placement], bool]) -> None:
        """Puts the routes by devices that were made anew.

        Parameters:
            is_concerned: whether a placement goes by one of them.

        Raises:
            ActuatorError: the kernel refuses one.
        """
        async with self._armed:
            for number, destination in enumerate(tuple(self.routing.placements)):
                kept = self.routing.placements.get(destination), self.routing.backups.get(destination)
                if any(placement is not None and is_concerned(placement) for placement in kept):
                    await _let_others(number)
                    async with self._turn:
                        await self._actuator.renew(destination)

    async def _arm(self, backups: Iterable[Placement]) -> str:
        """Makes these, and no others, the backups; says why one of them could not be armed, if any."""
        wanted, failed = {destination_of(backup): backup for backup in backups}, ""
        new = [backup for destination, backup in wanted.items() if self.routing.backups.get(destination) != backup]
        for number, some in enumerate(_turns(new)):
            await _let_others(number)
            async with self._turn:
                try:
                    await self._actuator.arm(*(each for each in some if self._may_arm(destination_of(each), each)))
                except ActuatorError as error:
                    failed = failed or str(error)
        for number, old in enumerate(_turns([each for each in self.routing.backups if each not in wanted])):
            await _let_others(number)
            async with self._turn:
                try:
                    await self._actuator.disarm(*old)
                except ActuatorError as error:
                    failed = failed or str(error)
        return failed

    def _may_arm(self, destination: Destination, backup: Placement) -> bool:
        """A backup in use is not replaced by one that has lost a NIC: it was chosen before that was known."""
        in_use = destination[1] in self.routing.away and destination in self.routing.backups
        return destination in self.routing.placements and not (in_use and self._losses.dead(backup.peer, backup.via))

    async def _apply(
        self, away: tuple[str, ...], back: tuple[str, ...] = (), placements: tuple[Placement, ...] = ()
    ) -> Move:
        routing = self.routing
        rails = [routing.of_rail(rail) for rail in (*away, *back)]
        concerned = dict.fromkeys([*(each for rail in rails for each in rail), *map(destination_of, placements)])
        before = routing.now(concerned)
        # Laid ready before the rail comes back: no packet takes the old placement in between.
        ahead = [
            each for each in placements if each.rail in back and routing.placements.get(destination_of(each)) != each
        ]
        others = [each for each in placements if each.rail not in back and routing.way(destination_of(each)) != each]
        changed, reason, undone = False, "", ""
        try:
            for rail in away:
                changed |= await self._rail(rail, away=True)
            changed |= await self._place(ahead, ahead=True)
            changed |= await self._place(others)
            for rail in back:
                changed |= await self._rail(rail, away=False)
        except ActuatorError as error:
            reason = str(error)
        else:
            if back:
                detoured, undone = await self._take_detours(concerned)
                changed |= detoured
        move = self._move(concerned, before, away=away, back=back, changed=changed, failed=reason)
        if (ahead or others) and move.status == "already":
            return msgspec.structs.replace(
                move, status="refused", reason="a NIC of every way that it asks for was lost meanwhile"
            )
        if undone:  # the rail is back all the same, and with it whatever needs no detour
            return msgspec.structs.replace(move, reason=undone)
        return move

    async def _detour(self, destinations: tuple[Destination, ...]) -> Move:
        """Moves, by their routes alone, those of these destinations whose way is dead."""
        concerned = [destination_of(each) for each in detours(self.routing, destinations, self._losses.dead)]
        before = self.routing.now(concerned)
        changed, reason = await self._take_detours(concerned)
        return self._move(concerned, before, changed=changed, failed=reason)

    async def _take_detours(self, destinations: Iterable[Destination]) -> tuple[bool, str]:
        """Takes those of these destinations whose way is dead off it; says whether there were any, and what failed."""
        changed, failed = False, ""
        for number, some in enumerate(_turns(tuple(destinations))):
            await _let_others(number)
            async with self._turn:
                # Looked at only now: they may have been moved meanwhile, or their NIC be back.
                found = detours(self.routing, some, self._losses.dead)
                try:
                    await self._actuator.place(*found)
                except ActuatorError as error:
                    failed = failed or str(error)
                changed |= any(self.routing.way(destination_of(each)) == each for each in found)
        return changed, failed

    async def _place(self, placements: Sequence[Placement], *, ahead: bool = False) -> bool:
        """Places those that have not lost a NIC while others had their turn; says whether there were any."""
        changed = False
        for number, some in enumerate(_turns(placements)):
            await _let_others(number)
            async with self._turn:
                found = [
                    each
                    for each in some
                    if destination_of(each) in self.routing.placements and not self._losses.dead(each.peer, each.via)
                ]
                await self._actuator.place(*found, ahead=ahead)
                changed |= bool(found)
        return changed

    async def _rail(self, rail: str, *, away: bool) -> bool:
        async with self._turn:
            if away:
                return await self._actuator.away(rail)
            return rail not in self._losses.own and await self._actuator.back(rail)

    def _move(
        self,
        concerned: Iterable[Destination],
        before: tuple[Placement, ...],
        *,
        away: tuple[str, ...] = (),
        back: tuple[str, ...] = (),
        changed: bool,
        failed: str,
    ) -> Move:
        return Move(
            status="failed" if failed else "done" if changed else "already",
            reason=failed,
            moved_ns=self._clock.now_ns() if changed else 0,
            away=away,
            back=back,
            destinations=tuple(concerned),
            before=before,
            after=self.routing.now(concerned),
        )


def _turns(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """These, as many at a time as a turn may have."""
    for begin in range(0, len(items), _ROUTES_A_TURN):
        yield items[begin : begin + _ROUTES_A_TURN]


async def _let_others(turns_had: int) -> None:
    """Lets others come between two turns: the kernel is not waited for, and so nobody else would run meanwhile."""
    if turns_had:
        await asyncio.sleep(0)


def joined(first: Move, second: Move) -> Move:
    """Two moves for one cause, told as one; the first speaks for both unless only the second did anything."""
    speaker = second if first.status in {"refused", "already"} and second.status in {"done", "failed"} else first
    return Move(
        status=speaker.status,
        reason=speaker.reason or first.reason,
        moved_ns=second.moved_ns if second.status == "done" else first.moved_ns,
        away=first.away + second.away,
        back=first.back + second.back,
        destinations=tuple(dict.fromkeys(first.destinations + second.destinations)),
        before=first.before + second.before,
        after=first.after + second.after,
    )
