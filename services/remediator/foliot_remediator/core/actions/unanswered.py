"""Tells of an unanswered or refused command about routes what to ask for again, and what to undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.state_machine import State
from foliot_schemas import SERVICE_ADDRESSES, Placement, Reroute, Restore
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.routing.path_selection import PathSelector
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.core.state.routing_table import RoutingTable
    from foliot_schemas import Order


def present_part(sent: Sent, health: PathHealth, selector: PathSelector, routing: RoutingTable) -> Order:
    """The part of an unanswered order that is believed in force still and is not lost; of any but routes, all of it.

    Later commands and moves of its node are another thing.
    """
    node, order = sent.command.node, sent.order
    if not isinstance(order, Reroute | Restore) or not is_ours(order):
        return order
    back = (rail for rail in order.back if health.nic_state(nic_name(node, rail)) is not State.DOWN)
    ways = (way for way in order.placements if not selector.is_lost(node, way))
    return msgspec.structs.replace(
        order,
        away=tuple(rail for rail in order.away if (node, rail) in routing.away),
        back=tuple(rail for rail in back if (node, rail) not in routing.away),
        placements=tuple(way for way in ways if routing.placed(Destination(node, way.peer, way.rail)) == way),
    )


def forget_result(sent: Sent, others: Iterable[Sent], routing: RoutingTable) -> None:
    """Forgets what a command about routes was to bring about: its node refused it, or never answered.

    The next command of its node, if not answered, is undone to what was before both. Its own undo keeps what the
    node was told nothing of since.

    Parameters:
        others: commands that are not answered, in the order of their sending; it may be among them.
    """
    if not isinstance(sent.undo, Reroute | Restore):
        return
    node, issued_ns, before = sent.command.node, sent.command.issued_ns, parts(sent.undo)
    for other in others:
        is_later = other.command.node == node and other.command.issued_ns > issued_ns
        if is_later and isinstance(other.undo, Reroute | Restore):
            undo = parts(other.undo)
            other.undo = _order(undo | {part: before.pop(part) for part in undo.keys() & before.keys()})
    told = {part: routing.told_ns.get(Destination(node, *part)) for part in before}
    sent.undo = _order({part: was for part, was in before.items() if told[part] == issued_ns})


def parts(order: Reroute | Restore) -> dict[tuple[str, str], Placement | bool]:
    """The ways that an order names, by peer and rail; for whole rails, which have no peer, whether they are left."""
    rails = dict.fromkeys(order.away, True) | dict.fromkeys(order.back, False)
    return {("", rail): left for rail, left in rails.items()} | {(way.peer, way.rail): way for way in order.placements}


def _order(parts: dict[tuple[str, str], Placement | bool]) -> Reroute:
    return Reroute(
        away=tuple(rail for (_, rail), way in parts.items() if way is True),
        back=tuple(rail for (_, rail), way in parts.items() if way is False),
        placements=tuple(way for way in parts.values() if isinstance(way, Placement)),
    )


def is_ours(order: Reroute | Restore) -> bool:
    """Whether an order is about service addresses."""
    return order.traffic == SERVICE_ADDRESSES
