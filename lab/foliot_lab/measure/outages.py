"""Judges the witness's pulses on a fault: silences, the return of flow, devices, and the number of changes.

A pulse is a small datagram from one service address to another, numbered by the turn it was sent in. The kernel's stamp
tells its arrival. The receiving device tells which way the sender had chosen. Times are lab time in ns.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OVERLAY = re.compile(r"fo(?P<rail>\d+)e(?P<entropy>\d+)")
REACH_NS = 50_000_000
"""The reach of an injection: it did not cause a silence that begins later. It is twice the time of 200 full-size
packets queued at 200 Mb/s, 24 ms with a fabric link's two queues. Pulses sent before the cut still wait in these
queues."""
FULL_SIZE_EVERY = 4
"""If only full-size pulses show the fault, the witness sends one pulse in so many. That is 4 Mb/s out of a NIC in a
fleet of eight, 2 % of a link of 200 Mb/s."""
FULL_SIZE_REACH_NS = FULL_SIZE_EVERY * REACH_NS
"""`REACH_NS` of full-size pulses: as many of them lie within it."""

STRANDED_NS = 50_000_000
"""A pulse overtaken by so much did not wait in a queue of the fabric (as above). It waited in a host that kept it
until the route was healed. No useful traffic flowed that way."""


class End(NamedTuple):
    """A service address, by its node and rail."""

    node: str
    rail: str


class Pair(NamedTuple):
    """One direction between two service addresses."""

    source: End
    destination: End

    def __str__(self) -> str:
        """It in words, by its NICs."""
        return ">".join(f"{node}.{rail}" for node, rail in self)


class Pulses(msgspec.Struct, frozen=True, kw_only=True):
    """The pulses of one pair in one armed spell, in the order of their sending."""

    sent_ns: NDArray[np.int64]
    arrived_ns: NDArray[np.int64]
    """Arrival of each pulse; 0: it did not arrive."""
    device: NDArray[np.int16]
    """Index into `devices`; it has no meaning if the pulse did not arrive."""
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
    """Arrival of the first pulse after the silence, or after the injection if nothing was interrupted; None: it
    never came."""
    changes: int
    """How often the device changed, among the pulses that arrived."""
    returned_ns: int | None
    """Arrival of the first pulse back on the former way, to stay there. None: it never left that way, or never came
    back.

    If that way was another fault's detour, back on the own rail."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of all pairs' pulses on a fault."""

    interrupted: int
    """Pairs that fell silent."""
    changed: int
    """Pairs that took another device."""
    moved_ns: int | None
    """The moment at which all of them flowed again; None: no pair took another device, or one stayed silent."""
    restored_ns: int | None
    """The moment at which the last pair was back on its former way; None: none had left it, or one has not come
    back."""
    moves: int
    """The most changes that any pair made, away and back."""
    astray: tuple[Pair, ...] = ()
    """Pairs that left their former way and are not back."""


UNSEEN = Verdict(interrupted=0, changed=0, moved_ns=None, restored_ns=None, moves=0)
"""Where the witness saw nothing."""


def look(
    pulses: Pulses, injected_ns: int, until_ns: int | None = None, reach_ns: int = REACH_NS, *, rail: str = ""
) -> Sight:
    """Judges one pair's pulses on a fault injected at this time, up to a later one.

    The silence is the first that may have begun within `reach_ns` of the injection, even a single pulse: a move may be
    that quick. It began after the pulse before its first lost one. So a witness that stood still around the injection
    still sees it. A pair may fall silent through its queue, with pulses sent before the injection. Its silence began
    with those. `rail` is the pair's own, by its number.
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
    pulses: Mapping[Pair, Pulses],
    injected_ns: int,
    until_ns: int | None = None,
    reach_ns: int = REACH_NS,
    steered: Mapping[Pair, int] = MappingProxyType({}),
) -> Verdict:
    """Judges the pulses of all affected pairs on a fault.

    The fault's traffic has moved when every direction of every pair flows.

    A pair that was neither interrupted nor took another device does not count: the fault did not affect it. Nor is an
    interruption alone a move. If no pair took another device, traffic flowed again because the trouble had gone.

    Parameters:
        steered: pairs that were moved for contention after the injection, and when first: from then on their former way
            is not theirs any more, and need not be taken again.
    """

    def sight_of(pair: Pair, seen: Pulses) -> Sight:
        return look(seen, injected_ns, until_ns, reach_ns, rail=pair.source.rail.removeprefix("rail"))

    by_pair = {pair: sight_of(pair, seen) for pair, seen in pulses.items()}
    for pair in steered.keys() & by_pair.keys():
        before = sight_of(pair, pulses[pair].until(steered[pair]))
        by_pair[pair] = msgspec.structs.replace(by_pair[pair], changes=before.changes, returned_ns=before.returned_ns)
    sights = by_pair.values()
    changed = [sight for sight in sights if sight.changes]
    concerned = [sight for sight in sights if sight.changes or sight.began_ns is not None]
    return Verdict(
        interrupted=sum(sight.began_ns is not None for sight in sights),
        changed=len(changed),
        moved_ns=_last(sight.flowed_ns for sight in concerned) if changed else None,
        restored_ns=_last(sight.returned_ns for pair, sight in by_pair.items() if _is_to_return(pair, sight, steered)),
        moves=max((sight.changes for sight in sights), default=0),
        astray=tuple(
            pair for pair, sight in by_pair.items() if _is_to_return(pair, sight, steered) and sight.returned_ns is None
        ),
    )


def _is_to_return(pair: Pair, sight: Sight, steered: Mapping[Pair, int]) -> bool:
    """Whether a pair left its way, and either came back or should have."""
    return sight.changes > 0 and (pair not in steered or sight.returned_ns is not None)


def _came(arrived_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A mask of the pulses that arrived, without the stranded ones, which a later pulse overtook by far."""
    never = np.iinfo(np.int64).max
    arrivals = np.where(arrived_ns > 0, arrived_ns, never)
    soonest_from_here = np.minimum.accumulate(arrivals[::-1])[::-1]
    return (arrived_ns > 0) & (arrivals - soonest_from_here < STRANDED_NS)


def _ways(pulses: Pulses, came: NDArray[np.intp], start: int, rail: str) -> tuple[int, int | None]:
    """How often the device changed after the injection, and when the former way was taken for good.

    The order is that of sending, which is the order of the sender's choices. A queue on the old way may deliver late.
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
    # Away from the rail, any return to the rail is enough: the remediator chooses the entropy that carries it there.
    left_rail = bool((rails[trail] != rails[trail[0]]).any())
    home = rails[trail] == rails[trail[0]] if left_rail else trail == trail[0]
    if left_rail and (rails[trail] == rail).any():
        home = rails[trail] == rail
    away = np.flatnonzero(~home)
    if not len(away) or away[-1] == len(trail) - 1:
        return changes, None
    # The trail is one longer than `after`: the pulse after the last one away has there the index of that one in the
    # trail.
    return changes, int(pulses.arrived_ns[after[away[-1]]])


def _way(device: str) -> tuple[str, str]:
    """Rail and entropy of an overlay device; any other device is its own rail."""
    match = _OVERLAY.fullmatch(device)
    return (match["rail"], match["entropy"]) if match else (device, "")


def _last(moments: Iterable[int | None]) -> int | None:
    """The latest moment; None if there is none, or one of them never came."""
    known: list[int] = []
    for moment in moments:
        if moment is None:
            return None
        known.append(moment)
    return max(known, default=None)
