"""OTLP bodies: what the SDK's own encoder makes, the JSON form, and what is broken."""

import base64
import contextlib
import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from foliot_gateway.http.otlp_decoder import OtlpError, from_json, from_protobuf, inflate

TRACE, ROOT, CHILD = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174", "eee19b7ec3c1b173"


def encoded():
    """Two spans made and encoded by the real SDK."""
    exporter = InMemorySpanExporter()
    resource = Resource({"service.name": "agent", "service.instance.id": "node3/agent"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("carry out command", kind=SpanKind.CONSUMER, start_time=10) as outer:
        attributes = {"foliot.nic": "node3.rail0", "n": 3, "share": 0.5, "armed": True, "rails": ["rail0", "rail1"]}
        inner = tracer.start_span("move routes", attributes=attributes, start_time=20)
        inner.add_event("rule written", {"priority": 7000}, timestamp=25)
        inner.set_status(Status(StatusCode.ERROR, "no such table"))
        inner.end(end_time=30)
    provider.shutdown()
    return encode_spans(exporter.get_finished_spans()), outer.get_span_context()


def test_what_the_sdk_encodes_comes_back_whole():
    """Names, ids, times, kinds, attributes of every type, events and status survive the wire."""
    request, context = encoded()

    inner, outer = from_protobuf(request.SerializeToString()).spans

    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}", "") == (
        outer.trace_id,
        outer.span_id,
        outer.parent_id,
    )
    assert (
        outer.name,
        outer.service,
        outer.instance,
        outer.kind,
    ) == ("carry out command", "agent", "node3/agent", "consumer")
    assert outer.span_id == inner.parent_id
    assert (inner.start_ns, inner.end_ns, inner.status, inner.message) == (20, 30, "error", "no such table")
    assert inner.attributes == {
        "foliot.nic": "node3.rail0",
        "n": 3,
        "share": 0.5,
        "armed": True,
        "rails": ["rail0", "rail1"],
    }
    assert [(each.name, each.at_ns, each.attributes) for each in inner.events] == [
        ("rule written", 25, {"priority": 7000})
    ]


def document(**more):
    """A request of one span in JSON, with some of its fields replaced."""
    span = {
        "traceId": TRACE,
        "spanId": CHILD,
        "parentSpanId": ROOT,
        "name": "judge port change",
        "kind": 5,
        "startTimeUnixNano": "1544712660000000007",
        "endTimeUnixNano": 1544712661000000000,
        "attributes": [
            {"key": "text", "value": {"stringValue": "x"}},
            {"key": "whole", "value": {"intValue": "9007199254740993"}},
            {"key": "number", "value": {"intValue": 7}},
            {"key": "yes", "value": {"boolValue": True}},
            {"key": "bytes", "value": {"bytesValue": base64.b64encode(b"\x01\x02").decode()}},
            {"key": "list", "value": {"arrayValue": {"values": [{"doubleValue": 0.5}]}}},
            {"key": "map", "value": {"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "b"}}]}}},
            {"key": "none", "value": {}},
        ],
        "links": [{"traceId": TRACE, "spanId": ROOT}],
        "status": {"code": 1},
        "fieldOfTheFuture": {"deep": [1]},
    } | more
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "detector"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": [span]}]}]}


def test_json_has_hex_ids_and_integers_as_text():
    """The JSON of the OTLP specification: hex ids, 64-bit integers as strings or numbers, unknown fields ignored."""
    (span,) = from_json(json.dumps(document()).encode()).spans

    assert (span.trace_id, span.span_id, span.parent_id) == (TRACE, CHILD, ROOT)
    assert (span.start_ns, span.end_ns) == (1544712660000000007, 1544712661000000000)
    assert (span.service, span.name, span.kind, span.status) == ("detector", "judge port change", "consumer", "ok")
    assert span.attributes == {
        "text": "x",
        "whole": 9007199254740993,
        "number": 7,
        "yes": True,
        "bytes": "AQI=",
        "list": [0.5],
        "map": {"a": "b"},
        "none": None,
    }


def test_json_may_name_the_kind():
    """Enumerations come as numbers by the specification, and as names from proto3's own encoders."""
    (span,) = from_json(json.dumps(document(kind="SPAN_KIND_PRODUCER")).encode()).spans

    assert span.kind == "producer"


@pytest.mark.parametrize(
    "ids", [{"traceId": "0" * 32}, {"spanId": "12"}, {"traceId": "not hex"}, {"spanId": 7}, {"spanId": ""}]
)
def test_a_span_without_proper_ids_is_left_out_and_counted(ids):
    """One broken span costs itself, not its batch."""
    broken = document(**ids)
    good = document()["resourceSpans"]
    received = from_json(json.dumps({"resourceSpans": broken["resourceSpans"] + good}).encode())

    assert [span.span_id for span in received.spans] == [CHILD]
    assert received.broken == 1


def test_a_span_that_ends_before_it_begins_takes_no_time():
    """Durations are never negative, whatever a clock did in between."""
    (span,) = from_json(json.dumps(document(endTimeUnixNano="5")).encode()).spans

    assert span.start_ns == span.end_ns


def test_deep_nesting_becomes_text():
    """A bottomless attribute ends at a fixed depth instead of in a recursion error."""
    value = {"stringValue": "core"}
    for _ in range(20):
        value = {"arrayValue": {"values": [value]}}
    (span,) = from_json(json.dumps(document(attributes=[{"key": "deep", "value": value}])).encode()).spans

    nested, depth = span.attributes["deep"], 0
    while isinstance(nested, list):
        nested, depth = nested[0], depth + 1
    assert depth == 8
    assert "core" in nested


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [7]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": 3}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": 5}]}]}',
        b"[" * 100_000,
    ],
)
def test_json_that_is_something_else_is_refused(body):
    """The sender is told that the body is no request, in every way in which it may not be one."""
    with pytest.raises(OtlpError, match="not a JSON ExportTraceServiceRequest"):
        from_json(body)


def test_an_empty_request_has_no_spans():
    """Both forms of nothing are fine."""
    assert from_protobuf(b"").spans == ()
    assert from_json(b"{}").spans == ()


@given(st.binary(max_size=300))
def test_no_bytes_break_the_protobuf_reader(body):
    """Any bytes are either a request or refused by name."""
    with contextlib.suppress(OtlpError):
        assert isinstance(from_protobuf(body).spans, tuple)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | inner))
def test_no_span_value_breaks_the_json_reader(value):
    """Any value in the place of any field is either read or refused by name."""
    for field in ("traceId", "name", "kind", "attributes", "links", "status", "startTimeUnixNano"):
        with contextlib.suppress(OtlpError):
            received = from_json(json.dumps(document(**{field: value})).encode())
            assert len(received.spans) + received.broken == 1


def test_both_codings_and_none_are_taken():
    """gzip, deflate and plain bodies give the same bytes."""
    body = b"spans " * 100

    assert body == inflate(gzip.compress(body), "gzip", 1_000)
    assert body == inflate(zlib.compress(body), "deflate", 1_000)
    assert body == inflate(body, "", 1_000) == inflate(body, "identity", 1_000)


def test_a_small_body_that_grows_large_is_refused_before_it_does():
    """A gzip of a gigabyte of zeros stops at the limit."""
    bomb = gzip.compress(bytes(50_000_000))

    with pytest.raises(RequestEntityTooLarge):
        inflate(bomb, "gzip", 1_000)


@pytest.mark.parametrize(
    ("body", "coding", "words"),
    [
        (b"plain", "gzip", "not gzip"),
        (gzip.compress(b"spans", mtime=0)[:-4], "gzip", "ends too early"),
        (b"", "gzip", "ends too early"),
        (b"x", "br", "'br' is not known"),
    ],
)
def test_a_wrong_coding_is_named(body, coding, words):
    """The sender reads what was wrong with the coding."""
    with pytest.raises(OtlpError, match=words):
        inflate(body, coding, 1_000)


def test_spans_without_a_service_name_say_so():
    """The specification's own word for a sender that did not name itself."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(ROOT), name="x"
    )

    (span,) = from_protobuf(request.SerializeToString()).spans

    assert span.service == "unknown_service"
