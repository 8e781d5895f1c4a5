"""What detectors and the remediator say happened. Few, and may not be lost."""

from __future__ import annotations

from typing import Literal

import msgspec

EventKind = Literal["flap", "path", "process", "clock", "refusal"]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag="event.v1"):
    """One verdict, with the numbers it rests on, so that a person can disagree with it.

    ======== =================== ==============================================================
    kind     who                 states
    ======== =================== ==============================================================
    flap     NIC                 down · up · admin-down · admin-up
    path     path                silent · lossy · speaking
    process  ``node3/probe``     dead · alive
    clock    clock               disrupted · synchronised
    refusal  what was not moved  refused: a doubt, a guard or a budget forbade a command
    ======== =================== ==============================================================
    """

    id: str
    """Deterministic: the same fault seen twice has the same id, and is stored once."""
    kind: EventKind
    who: str
    state: str
    at_ns: int
    """Time of the observation that decided."""
    since_ns: int
    """When the trouble began, as far as the evidence reaches."""
    confidence: float = 1.0
    evidence: dict[str, float | int | str | bool] = {}
    fault: str = ""
    """What the trace id is derived from, see `foliot_schemas.fault`."""
    cause: str = ""
    """The id of the event that this one follows from, if any."""
    policy: str = ""
    """Refusals: the guard that spoke."""
