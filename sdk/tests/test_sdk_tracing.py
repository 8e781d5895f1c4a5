"""Spans."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import tracing
from foliot_schemas.fault import root_span_id, trace_id
from virtual_clock import VirtualClock

FAULT = "boot/node3.rail0/carrier-2"


@pytest.fixture
def spans(monkeypatch):
    """What was exported, in order of ending."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=tracing._Ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing._now, "tracer", provider.get_tracer("test"))
    monkeypatch.setattr(tracing._now, "clock", VirtualClock(now_ns=1_000))
    return exporter.get_finished_spans


def test_the_root_span_of_a_fault_has_the_ids_that_anybody_can_derive(spans):
    """Probe and agent need not ask one another."""
    with tracing.span("carrier lost", fault=FAULT, root=True):
        pass

    context = spans()[0].context
    assert (trace_id(FAULT), root_span_id(FAULT)) == (context.trace_id, context.span_id)
    assert spans()[0].parent is None


def test_who_sees_a_fault_without_the_root_joins_its_trace_all_the_same(spans):
    """An armed agent's span hangs under the root that the probe makes, sooner or later."""
    with tracing.span("own carrier lost", fault=FAULT), tracing.span("notify peers"):
        pass

    inner, outer = spans()
    assert (outer.context.trace_id, outer.parent.span_id) == (trace_id(FAULT), root_span_id(FAULT))
    assert inner.parent.span_id == outer.context.span_id


def test_a_span_inside_the_faults_trace_is_a_child_of_the_present_one(spans):
    """Naming the fault again does not lose the parent."""
    with tracing.span("outer", fault=FAULT) as outer, tracing.span("inner", fault=FAULT):
        pass

    assert spans()[0].parent.span_id == outer.get_span_context().span_id


def test_a_span_of_another_trace_is_linked_not_lost(spans):
    """Work for one fault inside the trace of another points back to it."""
    with tracing.span("one", fault=FAULT) as one, tracing.span("two", fault="other"):
        pass

    assert spans()[0].context.trace_id == trace_id("other")
    assert [link.context.span_id for link in spans()[0].links] == [one.get_span_context().span_id]


def test_a_trace_goes_on_behind_a_message(spans):
    """Headers carry it from sender to receiver."""
    headers: dict[str, str] = {}
    with tracing.span("send", fault=FAULT) as sent:
        tracing.inject(headers)
    with tracing.received(headers), tracing.span("receive"):
        pass

    assert spans()[1].parent.span_id == sent.get_span_context().span_id
    assert tracing.span_id() == ""


def test_a_parent_may_come_by_another_way_than_the_bus(spans):
    """A notice between agents carries the span id in its own field."""
    with tracing.span("peer lost a NIC", fault=FAULT, parent_span="00000000000000ab"):
        pass

    assert spans()[0].parent.span_id == 0xAB


def test_times_are_the_reference_clocks(spans):
    """Spans of different hosts can be laid side by side."""
    with tracing.span("late", start_ns=400):
        tracing._now.clock.advance(50)

    assert (spans()[0].start_time, spans()[0].end_time) == (400, 1_050)


def test_a_reference_that_moved_back_does_not_end_a_span_before_its_start(spans):
    """A word of sync in the middle of a span cannot make its duration negative."""
    with tracing.span("short"):
        tracing._now.clock.advance(-500)

    assert spans()[0].end_time == spans()[0].start_time
