"""The verbs `reroute` and `restore`: traffic is sent another way, by the actuator of its class."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot import tracing
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.control.action_handlers import Confirmed, Result
from foliot_agent.core.route_guard import object_to_own_nics, object_to_route
from foliot_agent.core.routing_table import destination_of
from foliot_schemas import SERVICE_ADDRESSES, Reroute, Restore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot.clock import Clock
    from foliot_agent.actuators.base import Actuator
    from foliot_agent.control.move_queue import Move, MoveQueue
    from foliot_agent.core.route_guard import Situation
    from foliot_agent.core.routing_table import Destination
    from foliot_agent.peers.echo_confirm import EchoConfirmer
    from foliot_schemas import Command, Confirmation


@dataclass(kw_only=True, eq=False)
class RouteHandler:
    """See `ActionHandler`."""

    verbs = ("reroute", "restore")

    situation: Situation
    move_queue: MoveQueue
    confirmer: EchoConfirmer
    """Confirms moves of service addresses."""
    clock: Clock
    others: Iterable[Actuator] = ()
    """The actuators of other classes of traffic."""

    def __post_init__(self) -> None:
        self._others = {actuator.traffic: actuator for actuator in self.others}
        self._turns = {traffic: asyncio.Lock() for traffic in self._others}

    def check(self, order: Reroute | Restore, command: Command) -> str:
        """Checks names, lost NICs, and whether anybody here moves such traffic."""
        if order.traffic == SERVICE_ADDRESSES:
            return object_to_route(order, command.issued_ns, self.situation)
        actuator = self._others.get(order.traffic)
        if actuator is None:
            return f"no actuator of this node moves {order.traffic}"
        if order.away or order.back or not order.placements:
            return f"{order.traffic} is moved by placements, and by nothing else"
        objections = (actuator.check(placement) for placement in order.placements)
        return next(filter(None, objections), "") or object_to_own_nics(order, self.situation.losses)

    async def apply(self, order: Reroute | Restore) -> Result:
        """Moves what is not there yet."""
        if order.traffic != SERVICE_ADDRESSES:
            async with self._turns[order.traffic]:
                return await self._move_other(self._others[order.traffic], order)
        return told(await self.move_queue.apply(order), type(order))

    async def confirm(self, result: Result, fault: str) -> Confirmed:
        """Confirms by the confirmer of the actuator that moved it."""
        order = result.done
        assert isinstance(order, Reroute | Restore)
        if result.status not in {"done", "already"}:
            return Confirmed()
        if order.traffic != SERVICE_ADDRESSES:
            confirmations = await self._others[order.traffic].confirm(order.placements)
            return _confirmed(len(order.placements), confirmations)
        move: Move = result.details
        if not move.destinations:
            return Confirmed()
        made = {destination_of(way): way for way in move.after}

        def stands(destination: Destination) -> bool:
            return self.move_queue.routing.way(destination) == made.get(destination)

        with tracing.span("confirm on the wire", fault=fault, expected=len(move.destinations)) as span:
            found = await self.confirmer.confirm(move.destinations, stands)
            span.set_attribute("foliot.confirmed", len(found))
        return _confirmed(len(move.destinations), found)

    async def _move_other(self, actuator: Actuator, order: Reroute | Restore) -> Result:
        before = actuator.present(order.placements)
        if before == order.placements:
            return Result(status="already", done=order)
        try:
            await actuator.set_placements(order.placements)
        except ActuatorError as error:
            reason = str(error)
        else:
            reason = ""
        return Result(
            status="failed" if reason else "done",
            reason=reason,
            done=type(order)(traffic=order.traffic, placements=actuator.present(order.placements)),
            undo=Reroute(traffic=order.traffic, placements=before),
            changed_ns=self.clock.now_ns(),
        )


def told(move: Move, kind: type[Reroute | Restore]) -> Result:
    """A move of service addresses as the result of an order."""
    return Result(
        status=move.status,
        reason=move.reason,
        changed_ns=move.moved_ns,
        done=kind(away=move.away, back=move.back, placements=move.after),
        undo=Reroute(away=move.back, back=move.away, placements=move.before),
        details=move,
    )


def _confirmed(expected: int, confirmations: Iterable[Confirmation]) -> Confirmed:
    found = tuple(confirmations)
    at_ns = max(each.at_ns for each in found) if found and len(found) == expected else 0
    return Confirmed(expected=expected, confirmations=found, at_ns=at_ns)
