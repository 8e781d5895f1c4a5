"""The read model: the questions of a transport, and their answers. Transports map these answers and errors, and know nothing else.

Nothing here depends on how an answer travels. A long answer is an iterator, so that a transport can pause between two
entries.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from foliot_gateway.state.records import MOST_RECORDS
from foliot_schemas import event_kinds
from foliot_schemas.fault import trace_id as trace_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_gateway.state.fleet import NodeView
    from foliot_gateway.state.path_table import PathView
    from foliot_gateway.state.records import CommandView
    from foliot_gateway.state.store import Store
    from foliot_gateway.state.trace_store import Trace, TraceSummary
    from foliot_schemas import ClockState, Event

FEW_RECORDS = 100
"""The limit where the question does not say one."""

_LONGEST_SHOWN = 200


class QueryError(Exception):
    """A question without an answer; its text is the sentence that the caller reads.

    Parameters:
        reason: one word for programs, where they have a choice to make; empty: they have none.
    """

    def __init__(self, detail: str, reason: str = "") -> None:
        super().__init__(detail)
        self.reason = reason


class NotFoundError(QueryError):
    """The gateway knows nothing of what was asked for: ``no-such-event``, ``no-fault``, ``no-spans``, ``no-such-trace``."""


class WrongQueryError(QueryError):
    """A parameter is out of its bounds."""


class BusyError(QueryError):
    """No place is free: ``busy``."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gateway does its work, and of each part whether it does."""

    healthy: bool
    parts: dict[str, str]


class Queries:
    """All questions that the gateway answers.

    Parameters:
        store: all that is known.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def nodes(self) -> Iterator[NodeView]:
        """Every node and its NICs, by name; each node as it is when it is taken."""
        return self._store.fleet.nodes()

    def paths(self, *, node: str = "", nic: str = "") -> Iterator[PathView]:
        """Every path by name, or those that begin or end at a node or NIC; each path as it is when it is taken."""
        return self._store.fleet.paths(node=node, nic=nic)

    def clocks(self) -> tuple[ClockState, ...]:
        """The last word of sync on each clock, by name. Times are of the clock itself."""
        return self._store.fleet.clocks()

    def events(self, *, limit: int = FEW_RECORDS, kind: str = "", since_ns: int = 0) -> tuple[Event, ...]:
        """Events with their evidence, newest first.

        Parameters:
            limit: at most so many, 1 to `MOST_RECORDS`.
            kind: only of this kind; empty: any.
            since_ns: only of this reference time or later.

        Raises:
            WrongQueryError: the limit is out of its bounds, or there is no such kind.
        """
        _check_limit(limit)
        found = self._store.records.events(limit=limit, kind=kind, since_ns=since_ns)
        if kind and not found and event_kinds.find(kind) is None:
            known = ", ".join(each.name for each in event_kinds.kinds())
            raise WrongQueryError(f"There is no kind of event {_shown(kind)}; there are {known}.", "no-such-kind")
        return found

    def commands(self, *, limit: int = FEW_RECORDS, node: str = "", fault: str = "") -> tuple[CommandView, ...]:
        """Commands and armed moves with their outcomes, newest first.

        Parameters:
            limit: at most so many, 1 to `MOST_RECORDS`.
            node: only commands of this node; empty: any.
            fault: only commands that this fault led to; empty: any.

        Raises:
            WrongQueryError: the limit is out of its bounds.
        """
        _check_limit(limit)
        return self._store.records.commands(limit=limit, node=node, fault=fault)

    def traces(self, *, limit: int = FEW_RECORDS) -> Iterator[TraceSummary]:
        """The traces that began last, newest first, each as it is when it is taken.

        Parameters:
            limit: at most so many, 1 to `MOST_RECORDS`.

        Raises:
            WrongQueryError: the limit is out of its bounds.
        """
        _check_limit(limit)
        return self._store.traces.recent(limit)

    def trace(self, trace_id: str) -> Trace:
        """A trace: its spans by their start, with the ids of their parents.

        Parameters:
            trace_id: 32 hex digits.

        Raises:
            NotFoundError: it is not among those that the gateway keeps.
        """
        trace = self._store.traces.get(trace_id.lower(), time.monotonic_ns())
        if trace is None:
            raise NotFoundError(f"There is no trace {_shown(trace_id)} among those the gateway keeps.", "no-such-trace")
        return trace

    def trace_of_event(self, event_id: str) -> Trace:
        """The trace of the fault that an event belongs to.

        Raises:
            NotFoundError: the event is not kept, it belongs to no fault, or no span of the fault's trace is here.
        """
        known = self._store.records.event(event_id)
        if known is None:
            raise NotFoundError(f"There is no event {_shown(event_id)} among those the gateway keeps.", "no-such-event")
        if not known.fault:
            raise NotFoundError(f"The event {_shown(event_id)} belongs to no fault, so it has no trace.", "no-fault")
        identity = f"{trace_id_of(known.fault):032x}"
        trace = self._store.traces.get(identity, time.monotonic_ns())
        if trace is None:
            raise NotFoundError(
                f"No span of the event's trace {identity} is here: none has arrived yet, or they were let go.",
                "no-spans",
            )
        return trace

    def health(self) -> Health:
        """The parts of the gateway, and whether each does its work."""
        store = self._store
        bus = "connected" if store.bus_connected else "not connected: what is shown is what was last heard"
        history = "read" if store.journal.is_open else "not read: events and commands from before the start are missing"
        unstoring = store.unstoring(time.monotonic())
        stores = f"does not store what comes from: {', '.join(unstoring)}" if unstoring else "stores"
        return Health(
            healthy=store.bus_connected and store.journal.is_open and not unstoring,
            parts={"bus": bus, "history": history, "store": stores},
        )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST_RECORDS:
        raise WrongQueryError(f"The limit is from 1 to {MOST_RECORDS}, not {limit}.")


def _shown(name: str) -> str:
    """A name as sentences repeat it: gRPC sends them as metadata, which clients take 8 KiB of."""
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
