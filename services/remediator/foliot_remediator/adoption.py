"""What a new holder of the lease makes of what it finds in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.states import Input, State
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from foliot_remediator.fleet import Fleet
    from foliot_remediator.health import Health
    from foliot_remediator.placement import Chooser
    from foliot_remediator.record import Record
    from foliot_remediator.ways import Ways


def put_on_probation(
    fleet: Fleet, health: Health, ways: Ways, chooser: Chooser, record: Record, now_ns: int
) -> list[str]:
    """Treats what is away without a known reason as lost by itself; returns what is on probation by that.

    Somebody had a reason, which this process has not seen. A NIC waits, down, until its port is said to be good; a path whose NICs
    are good is taken to be speaking, which its probation will show.
    """
    found = []
    for node, rail in ways.away:
        nic = nic_name(node, rail)
        if nic in fleet.nics and health.nic_state(nic) in {State.UP, State.SUSPECT}:
            health.feed_nic(nic, Input.CARRIER_LOST, now_ns)
            if record.says_good(nic) or health.port_good_for_ns(nic, now_ns) >= 0:
                health.feed_nic(nic, Input.CARRIER_BACK, now_ns)
                found.append(nic)
    for destination in ways.moved:
        primary = chooser.primary(destination)
        ends = nic_name(destination.node, primary.via), nic_name(destination.peer, primary.via)
        path = f"{ends[0]}>{ends[1]}#{primary.entropy}"
        if fleet.path(path) is None or (destination.node, destination.rail) in ways.away:
            continue
        if all(health.nic_state(end) is State.UP for end in ends) and health.path_state(path) is State.UP:
            health.feed_path(path, Input.SILENT, now_ns)
            health.feed_path(path, Input.SPEAKING, now_ns)
            found.append(path)
    return found
