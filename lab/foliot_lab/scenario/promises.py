"""The promises that outcomes are judged by, for each class of fault.

`[expect]` overrides them; docs/lab.md has the same table. A promise holds on any machine that the lab accepts, a slow
and busy one too. So it is far from the times of a quick machine, which are reported and not judged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from foliot_lab.scenario.spec import FaultSpec, Scenario

FaultClass = Literal["carrier", "silent", "mtu", "rank", "other"]
Key = Literal["found_ms", "moved_ms", "gap_ms", "back_s", "stall_ms"]


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table; infinite: nothing is promised."""

    found_ms: float = math.inf
    moved_ms: float = math.inf
    gap_ms: float
    stall_ms: float = math.inf
    """How long a job whose ranks can be replaced makes no step, beyond the usual length of one."""
    back_s: float = math.inf
    """The time beyond the probation and the damping that the settings ask for."""
    source: str
    """The source of the numbers."""


PROMISES: dict[FaultClass, Promise] = {
    "carrier": Promise(
        found_ms=500.0,
        moved_ms=500.0,
        gap_ms=1_500.0,
        back_s=10.0,
        source="docs/performance.md, road, p99: 18 to 46 ms, by the bus and armed; ten times that where others have the"
        " processors. Gap: TCP sends again 0.2, 0.6 and 1.4 s after what was lost; the second of these that comes"
        " after the move."
        " Back: docs/performance.md, failover: 3.0 to 3.6 s after the healing, with a probation of 3 s.",
    ),
    "silent": Promise(
        found_ms=1_000.0,
        moved_ms=1_000.0,
        gap_ms=3_200.0,
        back_s=10.0,
        source="docs/performance.md, road, p99: 200 and 204 ms with four hosts, 319 and 446 ms with eight; twice the"
        " longest and more. Gap: TCP's fourth time, after 3.0 s, and the queues. Back: as above.",
    ),
    "mtu": Promise(
        found_ms=6_000.0,
        moved_ms=6_000.0,
        gap_ms=13_000.0,
        back_s=10.0,
        source="docs/performance.md, quiet: found after 1.3 s in the median of 108, 5.3 s behind a hog."
        " Gap: TCP's sixth time, after 12.6 s, and the queues.",
    ),
    "rank": Promise(
        found_ms=10_000.0,
        gap_ms=math.inf,
        source="Three seconds and three steps of a second, half of which a hog takes, and the words' way. A rank that is"
        " slower must cost a tenth of the time to be named, so nothing is promised there.",
    ),
    "other": Promise(
        gap_ms=1_500.0,
        source="Nothing stops traffic, so nothing has to move; TCP may lose the same packet three times in a full"
        " queue.",
    ),
}
"""By the class of a fault, see `class_of`."""

_CLASSES: dict[str, FaultClass] = {
    "link-down": "carrier", "admin-down": "carrier", "flap": "carrier", "reload": "carrier",
    "drop": "silent", "drop-one-way": "silent",
    "mtu": "mtu",
}  # fmt: skip
CUTS = frozenset(_CLASSES)
"""Kinds that stop traffic for good, so that it must move."""
LETS_PASS = frozenset({"loss", "loss-one-way", "rate", "cut-off"})
"""Kinds without a promise. The settings and the share decide whether traffic moves, and how TCP reacts. Traffic of a
host that is cut off has no way at all."""
_HOLDS_UP = frozenset({"hang", "mismatch", "stop", "reset"})
"""Kinds after which the other ranks wait without end."""
OF_PATHS = CUTS | LETS_PASS
"""Kinds for which traffic may be moved."""


_STALL_MS = 8_000.0
"""A rank that is stopped or begins nothing is known after three seconds. Then processors that others use too have to
decide, to meet and to copy the state."""
_TAKES_RANKS = frozenset({"kill", "stop", "hang", "mismatch", "cut-off", "drain"})
"""Kinds after which the ranks there are to be replaced, done to a rank or to its host."""
BREAKS = "reset"
"""The kind after which the same ranks are to form their group anew."""


def class_of(kind: str, where: str) -> FaultClass:
    """The class of a fault.

    The lost carrier of a fabric link is a switch's, and hosts notice it like any silence.
    """
    if "/rank" in where:
        return "rank"
    found = _CLASSES.get(kind, "other")
    return "silent" if found == "carrier" and where.startswith("rail") else found


def promise_of(kind: str, where: str) -> Promise:
    """The default promise on a fault."""
    row = PROMISES[class_of(kind, where)]
    if holds_up_all(kind, where):
        row = msgspec.structs.replace(row, stall_ms=_STALL_MS)
    if class_of(kind, where) == "rank" and kind not in _HOLDS_UP:
        return msgspec.structs.replace(row, found_ms=math.inf)
    return msgspec.structs.replace(row, gap_ms=math.inf) if kind in LETS_PASS else row


def takes_ranks(kind: str, where: str) -> bool:
    """Whether a fault takes ranks away that can be replaced: its own, or those of its host."""
    return kind in _TAKES_RANKS and ("/rank" in where or (where.startswith("node") and where.isalnum()))


def holds_up_all(kind: str, where: str) -> bool:
    """Whether a job whose ranks can be replaced stands after a fault until its group is formed anew."""
    return takes_ranks(kind, where) or kind == BREAKS


def expected(key: Key, fault: FaultSpec, scenario: Scenario) -> float | None:
    """The scenario's own expectation of a fault; None: there is none, and the promise holds.

    The run's own expectation applies to the faults that have a promise. Its limit on a flow's gap applies to all
    faults.
    """
    own = getattr(fault.expect, key) if fault.expect is not None else None
    if own is not None:
        return float(own)
    of_run = getattr(scenario.expect, key)
    if key == "stall_ms":
        return float(of_run) if of_run is not None and holds_up_all(fault.kind, fault.where) else None
    if class_of(fault.kind, fault.where) == "rank" or of_run is None or (key != "gap_ms" and fault.kind not in CUTS):
        return None
    return float(of_run)
