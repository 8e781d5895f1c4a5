"""The OTLP/HTTP receiver over a real socket: the SDK's own exporter, JSON, and bodies that are refused."""

import asyncio
import gzip
import json

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from foliot_gateway.state.trace_store import MOST_SPANS
from patience import patience

TRACE = "0af7651916cd43dd8448eb211c80319c"
PROTOBUF = {"content-type": "application/x-protobuf"}


def request_of(spans):
    """A protobuf body of so many spans of one trace."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, spans + 1):
        scope.spans.add(
            trace_id=bytes.fromhex(TRACE), span_id=number.to_bytes(8), name="x", start_time_unix_nano=number
        )
    return request.SerializeToString()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
async def test_the_real_sdk_exports_into_the_gateway(client, store, compression):
    """OpenTelemetry's own exporter, in a thread as in every service, over HTTP."""

    def work():
        provider = TracerProvider(resource=Resource({"service.name": "agent", "service.instance.id": "node3/agent"}))
        exporter = OTLPSpanExporter(
            endpoint=f"{client.base_url}/v1/traces".replace("//v1", "/v1"),
            compression=compression,
            timeout=patience(30),
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("test")
        with tracer.start_as_current_span("carry out command") as outer:
            for number in range(600):
                with tracer.start_as_current_span("move route", attributes={"foliot.peer": f"node{number}"}):
                    pass
        provider.shutdown()
        return f"{outer.get_span_context().trace_id:032x}"

    trace = (await client.get(f"/api/v1/traces/{await asyncio.to_thread(work)}")).json()

    assert len(trace["spans"]) == 601
    (root,) = (span for span in trace["spans"] if not span["parent_id"])
    assert (root["name"], root["service"], root["instance"]) == ("carry out command", "agent", "node3/agent")
    assert {root["span_id"]} == {span["parent_id"] for span in trace["spans"] if span is not root}
    assert {f"node{number}" for number in range(600)} == {
        span["attributes"]["foliot.peer"] for span in trace["spans"] if span is not root
    }


async def test_json_spans_are_taken_as_well(client):
    """With gzip around them, as a browser or a script would send them."""
    span = {
        "traceId": TRACE,
        "spanId": "00f067aa0ba902b7",
        "name": "x",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
    }
    body = gzip.compress(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode())
    headers = {"content-type": "application/json; charset=utf-8", "content-encoding": "gzip"}

    answer = await client.post("/v1/traces", content=body, headers=headers)

    assert (answer.status_code, answer.json()) == (200, {})
    assert (await client.get("/api/v1/traces")).json()[0]["name"] == "x"


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"\xff", PROTOBUF, 400, "not a protobuf"),
        (b"{", {"content-type": "application/json"}, 400, "not a JSON"),
        (b"x", {"content-type": "text/plain"}, 415, "not as text/plain"),
        (b"plain", PROTOBUF | {"content-encoding": "gzip"}, 400, "not gzip"),
        (bytes((16 << 20) + 1), PROTOBUF, 413, "larger than 16777216 bytes"),
        (gzip.compress(bytes(1 << 25)), PROTOBUF | {"content-encoding": "gzip"}, 413, "larger than 16777216 bytes"),
    ],
)
async def test_bodies_that_are_no_spans_are_refused(client, body, headers, status, words):
    """By a status that makes exporters give up instead of repeating themselves, and a sentence."""
    answer = await client.post("/v1/traces", content=body, headers=headers)

    assert status == answer.status_code
    assert words in answer.json()["detail"]


async def test_the_sender_is_told_how_many_spans_were_not_kept(client, store):
    """Partial success of the protocol, in the sender's own encoding."""
    answer = await client.post("/v1/traces", content=request_of(MOST_SPANS + 5), headers=PROTOBUF)
    response = ExportTraceServiceResponse.FromString(answer.content)
    broken = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz", "name": "x"}]}]}]}
    in_json = (await client.post("/v1/traces", json=broken)).json()

    assert response.partial_success.rejected_spans == 5
    assert "5 are over the limit" in response.partial_success.error_message
    assert in_json["partialSuccess"]["rejectedSpans"] == "1"
