"""Two messages about the same port: which is the newer, and what the kernel's counters say happened between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_schemas import PortState


BELIEVED_NS = 5_000_000_000
"""Ports report every second. If for so long nothing came but what is older than the latest, it is the latest that was wrong: a
clock that had run ahead, or a message from the future."""


def is_old(latest: PortState, seen: PortState) -> bool:
    """Whether `seen` was said before the latest.

    The counters know best: a node's clock may have been set back between two messages.
    """
    if seen.fault != latest.fault or _changes(seen) > _changes(latest):
        return False
    return seen.at_ns < latest.at_ns or (seen.at_ns == latest.at_ns and _changes(seen) < _changes(latest))


def is_made_anew(before: PortState, seen: PortState) -> bool:
    """Whether the host booted or the device was made again, so that the counters began again."""
    return (
        seen.fault != before.fault
        or seen.carrier_down_count < before.carrier_down_count
        or seen.carrier_up_count < before.carrier_up_count
    )


def flaps_between(before: PortState, seen: PortState) -> int:
    """Carriers lost, less those that an administrator's down took along."""
    if not before.admin_up:
        return 0
    lost = seen.carrier_down_count - before.carrier_down_count
    return lost if seen.admin_up else max(lost - 1, 0)


def _changes(port: PortState) -> int:
    return port.carrier_down_count + port.carrier_up_count
