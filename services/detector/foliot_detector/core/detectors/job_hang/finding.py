"""Who holds up a job, and how sure that is: what the looks at a job have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_schemas.event import Evidence

    Told = dict[str, float | int | str | bool]

S = 1_000_000_000
LOOK_NS = S // 4
"""How often jobs are looked at: as often as nodes speak of them."""
CONFIRMED_NS = 3 * LOOK_NS
"""For so long a finding must hold: nodes speak one after the other, so that a job that goes on looks torn for a moment."""
MOST_NAMES = 64
"""Ranks that are named for one hang, and nodes in an event."""
DOUBT = 0.5
"""Confidence where others may know better."""


class Finding(NamedTuple):
    """Who is to be named, and why. Times are reference times of its first node."""

    who: str
    state: str
    nodes: tuple[str, ...]
    at_ns: int
    since_ns: int
    confidence: float
    evidence: Evidence
    confirmed_ns: int = CONFIRMED_NS
    """For so long it must hold."""
    process: int = 0
    """The number of its process on its node; 0: not known."""


def name(job: str, rank: int) -> str:
    """The name of a rank of a job, as events have it."""
    return f"{job}/rank{rank}"


def rank_of(who: str) -> int | None:
    """The rank that an event is about; None: it is about the job."""
    number = who.rpartition("/rank")[2]
    return int(number) if "/rank" in who and number.isdecimal() else None
