"""Two reports of the same port: which was said first, by the kernel's counters before the node's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_schemas.observation import PortChange, PortState

BELIEVED_NS = 5_000_000_000
"""Ports report every second. If for so long only messages older than the latest came, the latest was wrong. Its
clock had run ahead, or it was a message from the future."""
_WRAP = 1 << 32
"""The kernel counts carriers in 32 bits (``atomic_t`` of struct net_device)."""
_MOST_BETWEEN = 1 << 16
"""Carriers lost between two messages at most: a second holds no tenth of them. Further apart, counters did not
count."""


def is_old(latest: PortState, seen: PortState) -> bool:
    """Whether `seen` was said before the latest.

    The counters know best: a node's clock may have been set back between two messages.
    """
    if seen.fault != latest.fault:
        return False
    if is_another_device(latest, seen):
        return seen.at_ns < latest.at_ns
    if falls_between(latest, seen) or returns_between(latest, seen):
        return False
    return seen.at_ns < latest.at_ns or (seen.at_ns == latest.at_ns and _counts(seen) != _counts(latest))


def is_another_device(before: PortState, seen: PortState | PortChange) -> bool:
    """Whether the device was made again, so that its counters began again.

    A probe that does not say the index tells nothing of it.
    """
    return bool(before.index and seen.index) and seen.index != before.index


def falls_between(before: PortState, seen: PortState | PortChange) -> int:
    """Carriers lost, an administrator's among them; 0 if the counter does not tell.

    It may have begun again at 0 after 2 ** 32 - 1.
    """
    return _rose(before.carrier_down_count, seen.carrier_down_count)


def returns_between(before: PortState, seen: PortState | PortChange) -> int:
    """As `falls_between`, of carriers that came back."""
    return _rose(before.carrier_up_count, seen.carrier_up_count)


def _rose(before: int, now: int) -> int:
    rose = (now - before) % _WRAP
    return rose if rose < _MOST_BETWEEN else 0


def _counts(port: PortState) -> tuple[int, int]:
    return port.carrier_down_count, port.carrier_up_count
