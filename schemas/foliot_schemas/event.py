"""Events: verdicts of the detectors and the remediator. They are few, and may not be lost."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas import event_kinds
from foliot_schemas.bounds import (
    Finite,
    Id,
    Integer,
    KindName,
    LongName,
    Text,
    Time,
    Word,
)
from foliot_schemas.names import parse_path

Evidence = Annotated[dict[Word, Finite | Integer | Text | bool], msgspec.Meta(max_length=64)]
"""Numbers by name."""
_Names = Annotated[tuple[LongName, ...], msgspec.Meta(max_length=1_024)]
Related = Annotated[dict[Word, _Names], msgspec.Meta(max_length=16)]
"""Names by what they name."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag="event.v1"):
    """One verdict, with the numbers that it rests on, so that a person can disagree with it."""

    id: Id
    """Deterministic: the same fault seen twice has the same id, and is stored once."""
    kind: KindName
    """The kind of trouble. More kinds will come; ignore those you do not know."""
    who: LongName
    """Name of the NIC, path, process or clock concerned, not escaped."""
    state: Word
    """The state of the one concerned, by this verdict."""
    at_ns: Time
    """Time of the observation that decided, reference time."""
    since_ns: Time
    """When the trouble began, as far as the evidence reaches, reference time."""
    confidence: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0
    """From 0 to 1."""
    evidence: Evidence = {}
    """The numbers that the verdict rests on, by name, with units in the names."""
    fault: Text = ""
    """Name of the fault: events, commands and outcomes that share it belong together, and to one trace."""
    cause: Text = ""
    """The id of the event that this one follows from, if any."""
    policy: Word = ""
    """In refusals: the guard that refused."""
    related: Related = {}
    """Names of other things that it concerns, by what they are: `links`, `flows`, `jobs`. Where delays alone tell of a
    link: `paths` that share it, and others between the same NICs that are `free` of it, the quickest first."""

    def check(self) -> None:
        """Refuses an event of a kind about paths that names none.

        Raises:
            ValueError: it does.
        """
        kind = event_kinds.find(self.kind)
        if kind is not None and kind.concerns == "path":
            parse_path(self.who)

    def number(self, name: str) -> float:
        """A number of the evidence; 0 if it has no number of this name."""
        value = self.evidence.get(name, 0)
        return value if isinstance(value, int | float) else 0
