"""Moves, one at a time: whatever asks for them, a command, a notice, the bucket `paths` or a lost carrier of one's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from foliot_agent.actuator import ActuatorError
from foliot_agent.ways import destination_of, detours
from foliot_schemas import OutcomeStatus, Placement  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot.clock import Clock
    from foliot_agent.actuator import Actuator
    from foliot_agent.armed import Losses
    from foliot_agent.desired import Wanted
    from foliot_agent.ways import Destination, Ways


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a move came to."""

    status: OutcomeStatus
    reason: str = ""
    moved_ns: int = 0
    away: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    destinations: tuple[tuple[str, str], ...] = ()
    """Peers and rails concerned."""
    before: tuple[Placement, ...] = ()
    after: tuple[Placement, ...] = ()


class Mover:
    """Serialises the moves of one node: two causes of the same move find that it was done already.

    The lock is held while the kernel is spoken to, never while a peer is waited for.
    """

    def __init__(self, actuator: Actuator, losses: Losses, clock: Clock) -> None:
        self._actuator = actuator
        self._losses = losses
        self._clock = clock
        self._lock = asyncio.Lock()

    @property
    def ways(self) -> Ways:
        """What is in force."""
        return self._actuator.ways

    async def apply(
        self,
        *,
        away: tuple[str, ...] = (),
        back: tuple[str, ...] = (),
        placements: tuple[Placement, ...] = (),
    ) -> Move:
        """Moves what is not there yet."""
        for placement in placements:
            self._losses.overrule(placement.peer, placement.via)
        async with self._lock:
            return await self._apply(away, back, placements)

    async def flee(self, rail: str) -> Move:
        """Leaves a rail whose own NIC is lost: one rule, however many peers there are."""
        async with self._lock:
            if rail not in self._losses.own:
                return Move(status="refused", reason="the NIC is back already", away=(rail,))
            if rail not in self.ways.away and not self.ways.can_leave(rail, self._losses.dead):
                reason = f"{rail} cannot be left: no backup that is alive is armed for any of its addresses"
                return Move(status="refused", reason=reason, away=(rail,))
            return await self._apply((rail,), (), ())

    async def mend(self, destinations: Iterable[Destination] | None = None) -> Move:
        """Takes all destinations, or these, off the ways that have lost a NIC at either end."""
        async with self._lock:
            concerned = tuple(self.ways.placements) if destinations is None else tuple(destinations)
            return await self._apply((), (), detours(self.ways, concerned, self._losses.dead))

    async def follow(self, wanted: Wanted, *, act: bool) -> Move:
        """Arms the wanted backups and, where the node may act, makes the wanted moves."""
        async with self._lock:
            try:
                await self._actuator.arm(wanted.backups)
            except ActuatorError as error:
                return Move(status="failed", reason=str(error))
            if not act:
                return Move(status="advised")
            away = tuple(rail for rail in wanted.away if self.ways.can_leave(rail, self._losses.dead))
            return await self._apply(away, wanted.back, wanted.placements)

    async def _apply(self, away: tuple[str, ...], back: tuple[str, ...], placements: tuple[Placement, ...]) -> Move:
        ways = self.ways
        rails = [ways.of_rail(rail) for rail in (*away, *back)]
        concerned = dict.fromkeys([*(each for rail in rails for each in rail), *map(destination_of, placements)])
        before = ways.now(concerned)
        # Laid ready before the rail comes back: no packet takes the old placement in between.
        ahead = [each for each in placements if each.rail in back and ways.placements.get(destination_of(each)) != each]
        others = [each for each in placements if each.rail not in back and ways.way(destination_of(each)) != each]
        changed, status, reason = bool(ahead or others), "done", ""
        try:
            for rail in away:
                changed |= await self._actuator.away(rail)
            await self._actuator.set_placements(ahead, ahead=True)
            await self._actuator.set_placements(others)
            for rail in back:
                changed |= await self._actuator.back(rail)
            if back:
                await self._actuator.set_placements(detours(ways, concerned, self._losses.dead))
        except ActuatorError as error:
            status, reason = "failed", str(error)
        return Move(
            status="failed" if status == "failed" else "done" if changed else "already",
            reason=reason,
            moved_ns=self._clock.now_ns() if changed else 0,
            away=away,
            back=back,
            destinations=tuple(concerned),
            before=before,
            after=ways.now(concerned),
        )


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
