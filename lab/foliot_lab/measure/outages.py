"""Judges the witness's pulses: times of silence, times of flow, devices, and the number of changes.

A pulse is a small datagram from one service address to another, numbered by the turn it was sent in. Its receiver knows when it
came (the kernel's stamp) and by which device, hence which way the sender had chosen. Times are lab time in ns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OVERLAY = re.compile(r"fo(?P<rail>\d+)e(?P<entropy>\d+)")
REACH_NS = 50_000_000
"""A silence that begins later after an injection is not its doing. It is twice what 200 full-size packets queued at 200 Mb/s take, 24 ms
with a fabric link's two queues. Pulses sent before the cut still wait in these queues."""
FULL_SIZE_EVERY = 4
"""Of so many pulses one is sent where only those of full size tell anything: 4 Mb/s out of a NIC in a fleet of eight, 2 % of a link of 200 Mb/s."""
FULL_SIZE_REACH_NS = FULL_SIZE_EVERY * REACH_NS
"""Their `REACH_NS`: as many of them are within it."""

STRANDED_NS = 50_000_000
"""A pulse overtaken by so much did not wait in a queue of the fabric (as above). It waited for the wire itself, in a host that kept it
until the route was healed, and no useful traffic flowed that way."""


class End(NamedTuple):
    """A service address, by its node and rail."""

    node: str
    rail: str


class Pair(NamedTuple):
    """One direction between two service addresses."""

    source: End
    destination: End


class Pulses(msgspec.Struct, frozen=True, kw_only=True):
    """The pulses of one pair in one armed spell, in the order of their sending."""

    sent_ns: NDArray[np.int64]
    arrived_ns: NDArray[np.int64]
    """0: it did not."""
    device: NDArray[np.int16]
    """Index into `devices`; of no meaning where the pulse did not arrive."""
    devices: tuple[str, ...]

    def until(self, at_ns: int) -> Pulses:
        """The pulses that were sent before."""
        count = int(np.searchsorted(self.sent_ns, at_ns, side="left"))
        return Pulses(
            sent_ns=self.sent_ns[:count],
            arrived_ns=self.arrived_ns[:count],
            device=self.device[:count],
            devices=self.devices,
        )


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one pair's pulses on a fault."""

    began_ns: int | None
    """When the last pulse before the silence was sent; None: nothing was interrupted."""
    flowed_ns: int | None
    """Arrival of the first pulse after the silence, or after the injection if nothing was interrupted; None: it never came."""
    changes: int
    """How often the device changed, of pulses that arrived."""
    returned_ns: int | None
    """Arrival of the first pulse back on the way of before, to stay there; None: never left it, or never came back.

    If that way was another fault's detour, back on the own rail."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of all pairs' pulses on a fault."""

    interrupted: int
    """Pairs that fell silent."""
    changed: int
    """Pairs that took another device."""
    moved_ns: int | None
    """When all of them flowed, the last at last; None: no pair took another device, or one stayed silent."""
    restored_ns: int | None
    """When the last pair was back on its way of before; None: none had left it, or one has not come back."""
    moves: int
    """The most changes that any pair made, away and back."""


def look(
    pulses: Pulses, injected_ns: int, until_ns: int | None = None, reach_ns: int = REACH_NS, *, rail: str = ""
) -> Sight:
    """Judges one pair's pulses on a fault injected at this time, up to a later one.

    The silence is the first that may have begun within `reach_ns` of the injection, be it a single pulse: a move may be that quick. It began after
    the pulse before its first lost one: a witness that stood still around the injection still sees it. A pair that fell silent through its queue,
    with pulses sent before the injection, began its silence with those.
    `rail` is the pair's own, by its number.
    """
    last = len(pulses.sent_ns) if until_ns is None else int(np.searchsorted(pulses.sent_ns, until_ns, side="right"))
    sent_ns, arrived_ns = pulses.sent_ns[:last], pulses.arrived_ns[:last]
    start = int(np.searchsorted(sent_ns, injected_ns, side="left"))
    came = _came(arrived_ns)
    before_each_ns = sent_ns[start - 1 : -1] if start else np.concatenate((sent_ns[:1], sent_ns[:-1]))
    lost = np.flatnonzero(~came[start:] & (before_each_ns <= injected_ns + reach_ns))
    again = np.flatnonzero(came[start:])
    began_ns = None
    if len(lost):
        again = again[again > lost[0]]
        before = np.flatnonzero(came[: start + lost[0]])
        began_ns = int(sent_ns[before[-1]]) if len(before) else int(sent_ns[start + lost[0]])
    changes, returned_ns = _ways(pulses, np.flatnonzero(came), start, rail)
    flowed_ns = int(arrived_ns[start + again[0]]) if len(again) else None
    return Sight(began_ns=began_ns, flowed_ns=flowed_ns, changes=changes, returned_ns=returned_ns)


def judge(
    pulses: Mapping[Pair, Pulses], injected_ns: int, until_ns: int | None = None, reach_ns: int = REACH_NS
) -> Verdict:
    """Judges the pulses of all affected pairs on a fault: moved is when both directions of every one of them flow.

    A pair that was neither interrupted nor took another device does not count: it did not notice. Nor is an interruption alone
    a move: if no pair took another device, traffic flowed again because the trouble had gone.
    """
    sights = [
        look(seen, injected_ns, until_ns, reach_ns, rail=pair.source.rail.removeprefix("rail"))
        for pair, seen in pulses.items()
    ]
    changed = [sight for sight in sights if sight.changes]
    concerned = [sight for sight in sights if sight.changes or sight.began_ns is not None]
    return Verdict(
        interrupted=sum(sight.began_ns is not None for sight in sights),
        changed=len(changed),
        moved_ns=_last(sight.flowed_ns for sight in concerned) if changed else None,
        restored_ns=_last(sight.returned_ns for sight in changed),
        moves=max((sight.changes for sight in sights), default=0),
    )


def _came(arrived_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which pulses arrived, but for those stranded: overtaken by far by one sent later."""
    never = np.iinfo(np.int64).max
    arrivals = np.where(arrived_ns > 0, arrived_ns, never)
    soonest_from_here = np.minimum.accumulate(arrivals[::-1])[::-1]
    return (arrived_ns > 0) & (arrivals - soonest_from_here < STRANDED_NS)


def _ways(pulses: Pulses, came: NDArray[np.intp], start: int, rail: str) -> tuple[int, int | None]:
    """How often the device changed after the injection, and when the way of before was taken for good.

    In the order of sending, which is the order of the sender's choices: a queue on the old way may deliver late.
    """
    before = came[came < start]
    after = came[came >= start]
    if not len(after):
        return 0, None
    first = before[-1] if len(before) else after[0]
    trail = np.concatenate(([pulses.device[first]], pulses.device[after]))
    changes = int(np.count_nonzero(np.diff(trail)))
    ways = [_way(device) for device in pulses.devices]
    rails = np.array([number for number, _ in ways])
    # Away from the rail, being back on the rail is enough: which entropy carries it there is the remediator's choice.
    left_rail = bool((rails[trail] != rails[trail[0]]).any())
    home = rails[trail] == rails[trail[0]] if left_rail else trail == trail[0]
    if left_rail and (rails[trail] == rail).any():
        home = rails[trail] == rail
    away = np.flatnonzero(~home)
    if not len(away) or away[-1] == len(trail) - 1:
        return changes, None
    # The trail is one longer than `after`: the pulse after the last one away has there the index of that one in the trail.
    return changes, int(pulses.arrived_ns[after[away[-1]]])


def _way(device: str) -> tuple[str, str]:
    """Rail and entropy of an overlay device; any other device is its own rail."""
    match = _OVERLAY.fullmatch(device)
    return (match["rail"], match["entropy"]) if match else (device, "")


def _last(moments: Iterable[int | None]) -> int | None:
    """The latest moment; None if there is none, or one of them never came."""
    latest: int | None = None
    for moment in moments:
        if moment is None:
            return None
        latest = moment if latest is None else max(latest, moment)
    return latest
