"""All that the gateway knows, in one place: what the bus fills and the API shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from foliot_gateway.fleet import Fleet
from foliot_gateway.records import Records
from foliot_gateway.traces import TraceStore
from foliot_schemas.fault import trace_id

if TYPE_CHECKING:
    from foliot_gateway.settings import GatewaySettings
    from foliot_schemas import Command, Event, Outcome


class Present:
    """What is known now."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.fleet = Fleet()
        self.records = Records(events=settings.events, commands=settings.commands)
        self.traces = TraceStore(
            traces=settings.traces, memory_bytes=settings.trace_bytes, spans_per_trace=settings.spans_per_trace
        )
        self.rejected: Counter[str] = Counter()
        """Messages that could not be read, by the service that rejected them."""
        self.spans_refused = 0
        """Spans without proper ids."""
        self.bus_connected = False
        self.history_read = False
        """What happened before the start has been read from the streams."""

    def event(self, event: Event) -> None:
        """Takes an event, once.

        Raises:
            ValueError: it is of a path and names none.
        """
        if self.records.add_event(event):
            self.fleet.fold_event(event)

    def command(self, command: Command) -> None:
        """Takes a command, once."""
        self.records.add_command(command)

    def outcome(self, outcome: Outcome) -> bool:
        """Takes an outcome, once; False: it is known."""
        if not self.records.add_outcome(outcome):
            return False
        self.fleet.fold_outcome(outcome)
        return True

    def trace_of(self, event: Event) -> str:
        """The trace id of an event's fault, in hex; empty: it belongs to none."""
        return f"{trace_id(event.fault):032x}" if event.fault else ""
