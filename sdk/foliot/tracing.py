"""Spans: one trace for each fault, joined by every service that sees the fault, with times of the reference clock."""

from __future__ import annotations

import contextlib
import contextvars
import os
from typing import TYPE_CHECKING, Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foliot_schemas.fault import root_span_id, trace_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from foliot.clock import Clock
    from foliot.settings import TelemetrySettings

_QUEUE = 16_384
"""Spans that wait for export. The SDK's default of 2,048 was measured to drop two thirds of a burst of 20,000."""
_DELAY_MS = 500
"""Export interval. A person who asks for a trace right after a fault should not wait for the SDK's default of 5 s."""
_EXPORT_TIMEOUT_S = 2.0

Kind = Literal["internal", "producer", "consumer"]

_propagator = TraceContextTextMapPropagator()
_forced_root: contextvars.ContextVar[str] = contextvars.ContextVar("forced_root", default="")


class _Ids(RandomIdGenerator):
    """Random ids, except for the root span of a fault, whose ids follow from the fault."""

    def generate_trace_id(self) -> int:
        fault = _forced_root.get()
        return trace_id(fault) if fault else super().generate_trace_id()

    def generate_span_id(self) -> int:
        fault = _forced_root.get()
        return root_span_id(fault) if fault else super().generate_span_id()


class _Telemetry:
    """The state that `start` sets up; before it, spans are no-ops."""

    provider: TracerProvider | None = None
    clock: Clock | None = None
    tracer: trace.Tracer = trace.get_tracer("foliot")


_now = _Telemetry()


def start(service: str, clock: Clock, settings: TelemetrySettings, *, node: str = "") -> None:
    """Begins to send this process's spans.

    They go to the gateway (or to another `settings.endpoint`), and also to ``OTEL_EXPORTER_OTLP_ENDPOINT`` if that is
    set.
    """
    instance = {"service.instance.id": f"{node}/{service}", "host.name": node} if node else {}
    resource = Resource.create({"service.name": service, "service.namespace": "foliot", **instance})
    provider = TracerProvider(resource=resource, id_generator=_Ids())
    elsewhere = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    for endpoint in {settings.endpoint.rstrip("/"), elsewhere.rstrip("/")} - {""}:
        exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=_EXPORT_TIMEOUT_S)
        provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=_QUEUE, schedule_delay_millis=_DELAY_MS)
        )
    _now.provider, _now.clock, _now.tracer = provider, clock, provider.get_tracer("foliot")


def stop() -> None:
    """Sends what waits, and ends."""
    if _now.provider is not None:
        _now.provider.shutdown()
        _now.provider, _now.clock, _now.tracer = None, None, trace.get_tracer("foliot")


@contextlib.contextmanager
def span(
    name: str,
    *,
    fault: str = "",
    kind: Kind = "internal",
    root: bool = False,
    start_ns: int | None = None,
    parent_span: str = "",
    **attributes: str | float | bool,
) -> Iterator[trace.Span]:
    """A span around the work inside. It records exceptions, and they go on.

    Parameters:
        fault: the fault whose trace it belongs to. Within a span of that trace, the new span becomes its child. Else it
            becomes a child of the fault's root, which another process may see, later, or never.
        root: whether this is the fault's root span.
        start_ns: reference time when the work really began, if before now.
        parent_span: the parent's span id within the fault's trace, in hex, if it came by another way than the bus.
    """
    parent, links = _parent(fault, root=root, parent_span=parent_span)
    clock = _now.clock
    begin_ns = start_ns if start_ns is not None else clock.now_ns() if clock is not None else None
    token = _forced_root.set(fault if root else "")
    try:
        opened = _now.tracer.start_span(
            name,
            context=parent,
            kind=trace.SpanKind[kind.upper()],
            attributes={f"foliot.{key}": value for key, value in attributes.items()},
            links=links,
            start_time=begin_ns,
        )
    finally:
        _forced_root.reset(token)
    with trace.use_span(opened, end_on_exit=False):
        try:
            yield opened
        finally:
            end_ns = clock.now_ns() if clock is not None else None
            if end_ns is not None and begin_ns is not None:
                end_ns = max(end_ns, begin_ns)  # a new state from sync may have moved the reference back meanwhile
            opened.end(end_time=end_ns)


def past(name: str, start_ns: int, end_ns: int, **attributes: str | float | bool) -> None:
    """A span of work that is over and was done elsewhere, below the present span.

    Parameters:
        start_ns: reference time when it began.
        end_ns: reference time when it ended, not before it began.
    """
    told = _now.tracer.start_span(
        name, attributes={f"foliot.{key}": value for key, value in attributes.items()}, start_time=start_ns
    )
    told.end(end_time=end_ns)


def _parent(fault: str, *, root: bool, parent_span: str) -> tuple[otel_context.Context | None, list[trace.Link]]:
    """The context to start in, and a link to the present span where that belongs to another trace."""
    present = trace.get_current_span().get_span_context()
    if not fault:
        return None, []
    links = [trace.Link(present)] if present.is_valid and present.trace_id != trace_id(fault) else []
    if root:
        return otel_context.Context(), links
    if present.trace_id == trace_id(fault):
        return None, links
    parent = trace.SpanContext(
        trace_id=trace_id(fault),
        span_id=int(parent_span, 16) if parent_span else root_span_id(fault),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), otel_context.Context()), links


def span_id() -> str:
    """The present span's id in hex; empty outside of any."""
    present = trace.get_current_span().get_span_context()
    return f"{present.span_id:016x}" if present.is_valid else ""


def inject(headers: dict[str, str]) -> None:
    """Writes the present span into message headers (W3C Trace Context)."""
    _propagator.inject(headers)


@contextlib.contextmanager
def received(headers: Mapping[str, str] | None) -> Iterator[None]:
    """Puts the work inside into the trace that a message came with."""
    if not headers or "traceparent" not in headers:
        yield
        return
    token = otel_context.attach(_propagator.extract(dict(headers), context=otel_context.Context()))
    try:
        yield
    finally:
        otel_context.detach(token)
