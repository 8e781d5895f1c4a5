"""The read model: the questions that may have no answer, beside the lists of the store's parts.

Transports map answers and errors. Nothing here depends on how an answer travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_schemas import event_kinds
from foliot_schemas.fault import trace_id as trace_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_gateway.state.job_table import JobView, JobWhy
    from foliot_gateway.state.store import Store
    from foliot_gateway.state.trace_store import Trace
    from foliot_schemas import Event

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
    """The gateway knows nothing of what was asked for.

    Its reason is ``no-such-event``, ``no-fault``, ``no-spans``, ``no-such-trace`` or ``no-such-job``.
    """


class WrongQueryError(QueryError):
    """A parameter is out of its bounds."""


class BusyError(QueryError):
    """No place is free: ``busy``."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gateway does its work, and of each part whether it does."""

    healthy: bool
    parts: dict[str, str]


def events(store: Store, *, limit: int, kind: str = "", since_ns: int = 0) -> tuple[Event, ...]:
    """Events with their evidence, newest first, as `Records.events` has them.

    Raises:
        WrongQueryError: there is no such kind.
    """
    found = store.records.events(limit=limit, kind=kind, since_ns=since_ns)
    if kind and not found and event_kinds.find(kind) is None:
        known = ", ".join(each.name for each in event_kinds.kinds())
        raise WrongQueryError(f"There is no kind of event {_shown(kind)}; there are {known}.", "no-such-kind")
    return found


def trace(store: Store, trace_id: str, now_ns: int) -> Trace:
    """A trace by its 32 hex digits.

    Parameters:
        now_ns: by the monotonic clock, as where spans arrive.

    Raises:
        NotFoundError: it is not among those that the gateway keeps.
    """
    found = store.traces.get(trace_id.lower(), now_ns)
    if found is None:
        raise NotFoundError(f"There is no trace {_shown(trace_id)} among those the gateway keeps.", "no-such-trace")
    return found


def trace_of_event(store: Store, event_id: str, now_ns: int) -> Trace:
    """The trace of the fault that an event belongs to; `now_ns` as of `trace`.

    Raises:
        NotFoundError: the event is not kept, it belongs to no fault, or no span of the fault's trace is here.
    """
    event = store.records.event(event_id)
    if event is None:
        raise NotFoundError(f"There is no event {_shown(event_id)} among those the gateway keeps.", "no-such-event")
    if not event.fault:
        raise NotFoundError(f"The event {_shown(event_id)} belongs to no fault, so it has no trace.", "no-fault")
    identity = f"{trace_id_of(event.fault):032x}"
    found = store.traces.get(identity, now_ns)
    if found is None:
        raise NotFoundError(
            f"No span of the event's trace {identity} is here: none has arrived yet, or they were let go.", "no-spans"
        )
    return found


def jobs(store: Store) -> Iterator[JobView]:
    """Every job, by name."""
    return store.jobs.views(store.records.all_events())


def why(store: Store, job: str) -> JobWhy:
    """A job, its slowest flow, and what that suffers from.

    Raises:
        NotFoundError: nobody has registered it, and no nodes that talk to each other make it.
    """
    found = store.jobs.why(job, store.records.all_events())
    if found is None:
        raise NotFoundError(f"There is no job {_shown(job)} now.", "no-such-job")
    return found


def health(store: Store, now_s: float) -> Health:
    """The parts of the gateway, and whether each does its work, at a time of the monotonic clock."""
    bus = "connected" if store.bus_connected else "not connected: what is shown is what was last heard"
    history = "read" if store.journal.is_open else "not read: events and commands from before the start are missing"
    unstoring = store.unstoring(now_s)
    stores = f"does not store what comes from: {', '.join(unstoring)}" if unstoring else "stores"
    return Health(
        healthy=store.bus_connected and store.journal.is_open and not unstoring,
        parts={"bus": bus, "history": history, "store": stores},
    )


def _shown(name: str) -> str:
    """A name as sentences repeat it: gRPC sends them as metadata, which clients take 8 KiB of."""
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
