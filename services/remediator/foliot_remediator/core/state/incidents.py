"""The present losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_remediator.core.state.routing_table import Cause


@dataclass(slots=True)
class Incident:
    """A NIC or path that is down."""

    who: str
    is_nic: bool
    cause: Cause
    at_ns: int
    """When the event was, by the time of this process, as all times here."""
    since_ns: int
    lossy: bool = False
    """It is heard, but loses packets."""
    restate: bool = True
    """Nothing was commanded for it yet. Moves of armed agents are commanded too, so that every service knows."""
    by_rule: bool = True
    """A node did not refuse to send the whole rail away."""
