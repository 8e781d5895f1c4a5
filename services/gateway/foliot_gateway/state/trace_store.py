"""The recent traces: spans in, in any order and more than once; traces out. Bounded in number and in memory."""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
SpanStatus = Literal["unset", "ok", "error"]

MOST_TRACES = 2_000
"""Traces kept; the one that has had no new span for longest goes first."""
MOST_BYTES = 64 << 20
"""Memory that traces may take, by estimate: some 50,000 spans of four attributes."""
MOST_SPANS = 4_000
"""Spans kept of one trace. Further ones are dropped, so that no single fault pushes out the others."""
_SPAN_BYTES = 700
_ENTRY_BYTES = 130
"""Bytes of a span in CPython 3.11 (struct, ids, integers, its slot in the trace), and of each attribute besides its
characters. They were measured with tracemalloc over 10,000 decoded spans. Spans with 0, 1, 4 and 12 attributes took
571, 813, 1181 and 2448 bytes each. These numbers give 716, 871, 1335 and 2578, so the estimate is on the safe side."""


_by_start = attrgetter("start_ns", "span_id")


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one time inside a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work of one service."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    parent_id: str
    """16 hex digits; empty: this is a root."""
    name: str
    service: str
    instance: str = ""
    """Which process of the service, as its resource says: ``service.instance.id``."""
    kind: SpanKind = "internal"
    start_ns: int
    end_ns: int
    status: SpanStatus = "unset"
    message: str = ""
    """Why the status is error."""
    attributes: dict[str, Any] = {}
    events: tuple[SpanEvent, ...] = ()


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in one line."""

    trace_id: str
    name: str
    """Of the root span, or of the earliest one while the root has not arrived."""
    start_ns: int
    duration_ns: int
    """From the earliest start to the latest end."""
    span_count: int
    services: tuple[str, ...]
    """In the order in which they appear."""
    errors: int
    """Spans whose status is error."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All spans of a trace that have arrived, by their start; `Span.parent_id` makes them a tree."""

    summary: TraceSummary
    quiet_ns: int
    """Time since its last span arrived: spans come in batches of about half a second."""
    spans: tuple[Span, ...]


class TraceStore:
    """The recent traces."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.memory_bytes = 0
        self.span_count = 0
        self.evicted = 0
        """Traces let go so far."""
        self.dropped = 0
        """Spans dropped so far."""

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, spans: Iterable[Span], at_ns: int) -> int:
        """Takes spans that arrived at `at_ns`, a monotonic local time.

        Returns how many were over the limit of their trace.
        """
        dropped = 0
        for span in spans:
            kept = self._kept.get(span.trace_id) or self._kept.setdefault(span.trace_id, _Kept())
            self._kept.move_to_end(span.trace_id)
            known = kept.spans.get(span.span_id)
            if known is not None:
                # Each service that sees a fault derives the same root span from it, so that two may send it. The one
                # that saw it first has it, in whichever order they arrive.
                if (span.start_ns, span.service, -span.end_ns) < (known.start_ns, known.service, -known.end_ns):
                    self._put(kept, span, weigh(span) - weigh(known))
            elif len(kept.spans) >= MOST_SPANS:
                dropped += 1
            else:
                kept.last_ns = at_ns
                self.span_count += 1
                self._put(kept, span, weigh(span))
        self.dropped += dropped
        self._evict()
        return dropped

    def get(self, trace_id: str, now_ns: int) -> Trace | None:
        """A trace as far as it has arrived; None: nothing of it is here."""
        kept = self._kept.get(trace_id)
        if kept is None:
            return None
        spans = tuple(sorted(kept.spans.values(), key=_by_start))
        return Trace(summary=summarise(spans), quiet_ns=max(0, now_ns - kept.last_ns), spans=spans)

    def recent(self, limit: int) -> Iterator[TraceSummary]:
        """The traces that began last, newest first, each as it is when it is taken."""
        newest = sorted(self._kept.values(), key=lambda kept: kept.start_ns, reverse=True)[:limit]
        return (summarise(sorted(kept.spans.values(), key=_by_start)) for kept in newest)

    def _put(self, kept: _Kept, span: Span, more_bytes: int) -> None:
        kept.spans[span.span_id] = span
        kept.start_ns = min(kept.start_ns, span.start_ns)
        kept.memory_bytes += more_bytes
        self.memory_bytes += more_bytes

    def _evict(self) -> None:
        while self._kept and (len(self._kept) > MOST_TRACES or self.memory_bytes > MOST_BYTES):
            _, gone = self._kept.popitem(last=False)
            self.memory_bytes -= gone.memory_bytes
            self.span_count -= len(gone.spans)
            self.evicted += 1


class _Kept:
    """A trace in the store."""

    __slots__ = ("last_ns", "memory_bytes", "spans", "start_ns")

    def __init__(self) -> None:
        self.spans: dict[str, Span] = {}
        self.start_ns = 1 << 63
        self.memory_bytes = 0
        self.last_ns = 0


def summarise(spans: Sequence[Span]) -> TraceSummary:
    """The summary of a trace's spans, one or more, which are in the order of their start."""
    root = next((span for span in spans if not span.parent_id), spans[0])
    start_ns = spans[0].start_ns
    return TraceSummary(
        trace_id=root.trace_id,
        name=root.name,
        start_ns=start_ns,
        duration_ns=max(span.end_ns for span in spans) - start_ns,
        span_count=len(spans),
        services=tuple(dict.fromkeys(span.service for span in spans)),
        errors=sum(span.status == "error" for span in spans),
    )


def weigh(span: Span) -> int:
    """The memory that a span takes, in bytes, by estimate."""
    text = len(span.name) + len(span.service) + len(span.instance) + len(span.message)
    events = sum(_SPAN_BYTES // 4 + len(event.name) + _weigh(event.attributes) for event in span.events)
    return _SPAN_BYTES + text + _weigh(span.attributes) + events


def _weigh(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(_ENTRY_BYTES + len(key) + _weigh(entry) for key, entry in value.items())
        case list():
            return sum(_ENTRY_BYTES + _weigh(entry) for entry in value)
        case _:
            return 0
