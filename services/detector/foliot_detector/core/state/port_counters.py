"""Two messages about the same port: what happened between them by the kernel's counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_schemas.port_order import falls_between, is_another_device, returns_between

if TYPE_CHECKING:
    from foliot_schemas import PortChange, PortState


SECOND_NS = 1_000_000_000
_LAG_NS = 5 * SECOND_NS
"""How long a lost carrier may wait for the port's own counter to show it; five readings."""


class Change(NamedTuple):
    """Changes at a port since the last message about it. It leaves out what an administrator did."""

    at_ns: int
    carrier: bool
    """Whether it can be used now."""
    falls: int = 0
    """Carriers lost."""
    returns: int = 0
    """Carriers that came back."""
    outage_ns: int = 0
    """How long it was without a carrier, where one came back after that; 0: none did, or nobody saw it go."""
    link_downed: int = 0
    """By how much the RDMA device's count rose."""


def unheard(latest: PortState, seen: PortState) -> list[PortState]:
    """The port's changes between the latest message and a newer one, oldest first, each as a message of its own."""
    found: list[PortState] = []
    for change in reversed(seen.changes):
        if not _is_between(latest, change, seen):
            break
        found.append(
            msgspec.structs.replace(seen, **msgspec.structs.asdict(change), change=True, counters={}, changes=())
        )
    return found[::-1]


def _is_between(latest: PortState, change: PortChange, seen: PortState) -> bool:
    """Whether a change that came with `seen` happened after the latest word.

    The counters know best, as in `port_order.is_old`. Where they did not move the time does, unless the clock was set
    back after the change.
    """
    is_same = seen.fault == latest.fault and not is_another_device(latest, change)
    if is_same and (falls_between(latest, change) or returns_between(latest, change)):
        return True
    return latest.at_ns < change.at_ns <= seen.at_ns


def is_made_anew(before: PortState, seen: PortState) -> bool:
    """Whether the host booted or the device was made again, so that the counters began again."""
    return seen.fault != before.fault or is_another_device(before, seen)


def ran_back(before: PortState, seen: PortState) -> bool:
    """Whether a counter is where counting cannot have brought it: it was reset, or is no counter.

    It says nothing of what happened.
    """
    fell_back = seen.carrier_down_count != before.carrier_down_count and not falls_between(before, seen)
    return fell_back or (seen.carrier_up_count != before.carrier_up_count and not returns_between(before, seen))


@dataclass(slots=True)
class LinkDowned:
    """The RDMA device's own count of lost links, which finds those that the network device did not notice.

    It has 8 bits and stays at 255 (InfiniBand's PortCounters; on a real H100 host one of nine ports stands there).
    Anybody may clear it, so only a rise says anything.

    The two counters do not move in the same instant. So a lost carrier may explain a rise until the next reading, and
    may take some seconds to show here.
    """

    count: int = -1
    ahead: int = 0
    """Carriers lost that it has not shown yet; below 0: what it has shown that no lost carrier explains yet."""
    lost_ns: int = 0

    def read(self, seen: PortState, falls: int) -> tuple[int, int]:
        """Takes a message and the carriers lost since the last one.

        Returns the losses that those do not explain, and the count's rise.
        """
        if falls:
            self.ahead, self.lost_ns = self.ahead + falls, seen.at_ns
        count = seen.counters.get("link_downed", -1)
        if count < 0:
            return 0, 0
        if self.ahead > 0 and seen.at_ns - self.lost_ns > _LAG_NS:
            self.ahead = 0
        hidden, self.ahead = max(-self.ahead, 0), max(self.ahead, 0)
        rose = max(count - self.count, 0) if self.count >= 0 else 0
        if count < self.count:
            self.ahead = 0
        self.ahead, self.count = self.ahead - rose, count
        return hidden, rose
