"""Computes the changes that a new value in the bucket `paths` asks for. Pure.

It compares a value with the one before it, not with what is in force. So it takes over only what the remediator changed
its mind about. A notice or a command may just have moved something: a value written for another reason must not move it
back. What a value asks for over a lost NIC waits until that is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_agent.core.routing_table import destination_of
from foliot_schemas import Placement  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.core.routing_table import RoutingTable
    from foliot_schemas import NodePaths


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to be made; `backups` is the whole new set."""

    away: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    backups: tuple[Placement, ...] = ()


def wanted(
    before: NodePaths | None,
    after: NodePaths,
    routing: RoutingTable,
    losses: FailedLinks,
    *,
    is_known: Callable[[Placement], bool],
) -> Wanted:
    """The changes that lead from one value to the next, less those that would lead onto a lost NIC.

    Parameters:
        before: the value before, as far as it was followed. None for the first one heard: then everything in it counts
            as a change of mind.
        is_known: whether the node knows a placement's peer, rails and entropy.
    """
    unchanged = set() if before is None else set(before.placements)
    was_away = _away(before, routing)
    return Wanted(
        away=tuple(rail for rail in after.away if rail not in was_away or before is None),
        back=tuple(sorted(rail for rail in was_away - set(after.away) if rail not in losses.own)),
        placements=tuple(
            placement
            for placement in after.placements
            if placement not in unchanged
            and routing.placements.get(destination_of(placement)) != placement
            and is_known(placement)
            and not losses.dead(placement.peer, placement.via)
        ),
        backups=tuple(backup for backup in after.backups if is_known(backup)),
    )


def followed(before: NodePaths | None, after: NodePaths, routing: RoutingTable, losses: FailedLinks) -> NodePaths:
    """A value as far as `wanted` follows it: compared with this, it asks once more for what waits for a lost NIC.

    Parameters:
        before: the value before, as far as it was followed; None for the first one heard.
    """
    unchanged = set() if before is None else set(before.placements)
    waiting = (_away(before, routing) - set(after.away)) & losses.own
    return msgspec.structs.replace(
        after,
        away=(*after.away, *sorted(waiting)),
        placements=tuple(
            placement
            for placement in after.placements
            if placement in unchanged
            or routing.placements.get(destination_of(placement)) == placement
            or not losses.dead(placement.peer, placement.via)
        ),
    )


def _away(before: NodePaths | None, routing: RoutingTable) -> set[str]:
    return set(routing.away if before is None else before.away)
