"""All that the gateway knows, in one place: the bus fills it and the API shows it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from foliot_gateway.state.fleet import Fleet
from foliot_gateway.state.job_table import JobTable
from foliot_gateway.state.lateness import Lateness
from foliot_gateway.state.live_feed import MOST_EVENTS, Journal
from foliot_gateway.state.records import Records
from foliot_gateway.state.trace_store import TraceStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_gateway.settings import GatewaySettings
    from foliot_schemas import Command, Event, Outcome


_QUIET_S = 10.0
"""A message is offered again every seven seconds at the least: waits double up to five, and an attempt takes two."""
_LASTING_S = 4.0
"""A new leader of a stream, or a server that starts again, takes less in general; that is no reason to call anybody."""


class Store:
    """All that is known now.

    Parameters:
        now_ns: a time that no node moves, see `Fleet`.
    """

    def __init__(self, settings: GatewaySettings, now_ns: Callable[[], int]) -> None:
        self.settings = settings
        self.fleet = Fleet(now_ns)
        self.jobs = JobTable(self.fleet, now_ns)
        self.records = Records()
        self.traces = TraceStore()
        self.lateness = Lateness()
        self.rejected: Counter[str] = Counter()
        """Messages that could not be read, by the service that rejected them."""
        self.unstored: Counter[str] = Counter()
        """Attempts of each service to have a message stored that failed."""
        self._unstored_s: dict[str, tuple[float, float]] = {}
        """When the first and the last of them were, of those that followed each other."""
        self.spans_refused = 0
        """Spans without proper ids."""
        self.journal = Journal()
        """The newest events as live pages read them."""
        self.bus_connected = False
        self.heard_s: float | None = None
        """When an observation last came, by ``time.monotonic``: how old the picture of the fleet is."""

    def event(self, event: Event) -> None:
        """Takes an event, once.

        Raises:
            ValueError: it is of a path and names none.
        """
        if self.records.add_event(event):
            self.journal.append(event)
            self.fleet.fold_event(event)

    def past_read(self) -> None:
        """Begins the journal, in the order of the events' times, as all from before the start has been taken."""
        self.journal.open(self.records.events(limit=MOST_EVENTS)[::-1])

    def command(self, command: Command) -> None:
        """Takes a command, once."""
        self.records.add_command(command)

    def outcome(self, outcome: Outcome) -> None:
        """Takes an outcome, once."""
        if self.records.add_outcome(outcome):
            self.fleet.fold_outcome(outcome)

    def not_stored(self, service: str, now_s: float) -> None:
        """Notes that an event, command or outcome of a service was not stored."""
        self.unstored[service] += 1
        first_s, last_s = self._unstored_s.get(service, (now_s, now_s))
        self._unstored_s[service] = (now_s if now_s - last_s > _QUIET_S else first_s, now_s)

    def unstoring(self, now_s: float) -> list[str]:
        """The services whose events, commands or outcomes have not been stored for a while."""
        return sorted(
            service
            for service, (first_s, last_s) in self._unstored_s.items()
            if now_s - last_s < _QUIET_S and last_s - first_s > _LASTING_S
        )
