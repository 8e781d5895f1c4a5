"""Judges what a new holder of the lease finds in force, by what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.state.inventory import path_name
from foliot_remediator.core.state.state_machine import Input, State
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.events.event_log import EventLog


def put_on_probation(view: FleetView, record: EventLog, now_ns: int) -> list[str]:
    """Treats what is away without a known reason as lost by itself; returns what is on probation by that.

    Somebody had a reason, which this process has not seen. Traffic that waits for a home that was chosen is left alone.

    A NIC waits, down, until its port is said to be good. A path whose NICs are good is taken to be speaking, and its
    probation will show it.
    """
    routing, homes = view.routing, view.selector.homes
    nics = [nic_name(node, rail) for node, rail in routing.away]
    moved = [each for each in routing.moved if not routing.is_at_home(each)]
    paths = [path_name(each.node, homes.of(each)) for each in moved if (each.node, each.rail) not in routing.away]
    return [nic for nic in nics if _is_nic_coming_back(view, record, nic, now_ns)] + [
        path for path in dict.fromkeys(paths) if _is_path_coming_back(view, path, now_ns)
    ]


def _is_nic_coming_back(view: FleetView, record: EventLog, nic: str, now_ns: int) -> bool:
    health = view.health
    if nic not in view.inventory.nics or health.nic_state(nic) not in {State.UP, State.SUSPECT}:
        return False
    health.feed(nic, Input.CARRIER_LOST, now_ns)
    if not record.says_good(nic) and health.said_good_ns(nic, 0) < 0:
        return False
    health.feed(nic, Input.CARRIER_BACK, now_ns)
    return True


def _is_path_coming_back(view: FleetView, path: str, now_ns: int) -> bool:
    health, known = view.health, view.inventory.path(path)
    if known is None or health.state(path) is not State.UP:
        return False
    if any(health.nic_state(nic) is not State.UP for nic in (known.source, known.destination)):
        return False
    health.feed(path, Input.SILENT, now_ns)
    health.feed(path, Input.SPEAKING, now_ns)
    return True
