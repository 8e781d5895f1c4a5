"""The present losses, and the times at which what they carry is checked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.retention import Retained

if TYPE_CHECKING:
    from foliot_remediator.core.state.routing_table import Cause


@dataclass(slots=True)
class Incident:
    """A NIC or path that is down."""

    who: str
    is_nic: bool
    cause: Cause
    at_ns: int
    """Of the event, by the time of whoever listens, as all times here."""
    since_ns: int
    lossy: bool = False
    """It is heard, but loses packets."""
    restate: bool = True
    """Nothing was commanded for it yet: what armed agents have done is commanded too, so that everybody knows."""
    by_rule: bool = True
    """A node did not refuse to send the whole rail away."""


class Incidents:
    """Open troubles by NIC or path, and a queue of when each is due."""

    def __init__(self) -> None:
        self._open: Retained[Incident] = Retained()
        self._due = DueQueue()

    def __contains__(self, who: str) -> bool:
        """Whether it is in trouble."""
        return who in self._open

    def get(self, who: str) -> Incident | None:
        """The trouble of a NIC or path."""
        return self._open.get(who)

    def open(self, incident: Incident) -> None:
        """Opens an incident."""
        self._open[incident.who] = incident

    def close(self, who: str) -> None:
        """Closes the incident of a NIC or path."""
        self._open.pop(who)

    def forget(self, nic: str) -> None:
        """A NIC has left the fleet for good."""
        self._open.forget(nic)

    def retry(self, incident: Incident, at_ns: int) -> None:
        """Looks at it again at a time."""
        self._due.put(incident.who, at_ns)

    def inherit(self, at_ns: int) -> None:
        """Looks at all of them as a new holder of the lease: what was done for them is known, by whomever it was."""
        for incident in self._open.values():
            incident.restate = False
            self.retry(incident, at_ns)

    def due(self, now_ns: int) -> list[Incident]:
        """The incidents to be looked at now; each must be put off again by `retry`."""
        found = map(self._open.get, self._due.take(now_ns))
        return [incident for incident in found if incident is not None]
