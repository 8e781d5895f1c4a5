"""The event that ends a trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas import Event

if TYPE_CHECKING:
    from foliot_schemas.event import Evidence


def ended(begun: Event, state: str, at_ns: int, evidence: Evidence, *, named: str = "") -> Event:
    """The end of what an event began: it has the fault of that event, and its id as cause.

    Parameters:
        named: what its id begins with; empty: the fault.
    """
    return Event(
        id=f"{named or begun.fault}/{state}", kind=begun.kind, who=begun.who, state=state, at_ns=at_ns,
        since_ns=begun.since_ns,
        evidence=evidence, fault=begun.fault, cause=begun.id,
    )  # fmt: skip
