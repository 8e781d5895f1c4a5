"""The HTTP interface over a real socket: answers, errors, the receiver, metrics, health."""

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
from prometheus_client.parser import text_string_to_metric_families

from foliot_gateway.api import make
from foliot_schemas import ClockState, Command, Event, Outcome, PortState
from foliot_schemas.fault import port_fault, root_span_id, trace_id

FAULT = port_fault("boot", "node3.rail0", 1)
TRACE = f"{trace_id(FAULT):032x}"
EVENT_ID = f"{FAULT}/down#1>x"
PROTOBUF = {"content-type": "application/x-protobuf"}


def flap(event_id=EVENT_ID, at_ns=1_800_000_000_000_000_001, fault=FAULT):
    """The event of a lost carrier."""
    return Event(
        id=event_id, kind="flap", who="node3.rail0", state="down", at_ns=at_ns, since_ns=at_ns, fault=fault,
        evidence={"carrier_down_count": 1, "admin_up": True, "share": 0.5, "boot": "b"},
    )  # fmt: skip


def port(*, carrier):
    """The port of node3.rail0."""
    return PortState(
        node="node3",
        nic="node3.rail0",
        at_ns=7,
        carrier=carrier,
        admin_up=True,
        carrier_down_count=1,
        carrier_up_count=1,
    )


def request_of(spans, trace=TRACE):
    """A protobuf body of so many spans, the first being the root."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "probe"
    scope = resource.scope_spans.add()
    for number in range(spans):
        span_id = root_span_id(FAULT).to_bytes(8) if not number else number.to_bytes(8)
        parent = b"" if not number else root_span_id(FAULT).to_bytes(8)
        scope.spans.add(
            trace_id=bytes.fromhex(trace), span_id=span_id, parent_span_id=parent, name="lose carrier",
            start_time_unix_nano=1_800_000_000_000_000_000 + number, end_time_unix_nano=1_800_000_000_000_000_100,
        )  # fmt: skip
    return request.SerializeToString()


async def test_the_fleet_is_shown_with_its_nics(client, present):
    """A list of nodes, each with what is known of its NICs."""
    present.fleet.fold_port(port(carrier=False))

    (node,) = (await client.get("/api/v1/fleet")).json()

    assert node["node"] == "node3"
    assert tuple(node["nics"][0][key] for key in ("nic", "state", "moved", "at_ns")) == (
        "node3.rail0",
        "down",
        False,
        7,
    )


async def test_clocks_keep_their_whole_nanoseconds(client, present):
    """Integers beyond 2**53 leave as integers, not as floats."""
    state = ClockState(
        clock="node1", reference="node0", offset_ns=1_800_000_000_123_456_789, drift_ppb=1.5, hard_bound_ns=9, bound_ns=4,
        growth_ppb=1.0, as_of_ns=1, void_after_ns=2, status="synchronised",
    )  # fmt: skip
    present.fleet.fold_clock(state)

    (clock,) = (await client.get("/api/v1/clocks")).json()

    assert clock["offset_ns"] == 1_800_000_000_123_456_789


async def test_events_are_filtered_by_the_query(client, present):
    """kind, since and limit."""
    for number in range(5):
        present.event(flap(f"e{number}", at_ns=number))

    async def ids(query):
        return [event["id"] for event in (await client.get(f"/api/v1/events?{query}")).json()]

    assert await ids("limit=2") == ["e4", "e3"]
    assert await ids("since=2&kind=flap") == ["e4", "e3", "e2"]
    assert await ids("kind=path") == []


async def test_commands_come_with_their_outcomes(client, present):
    """Joined by id; the status is that of the last outcome."""
    present.command(
        Command(id="c1", verb="reroute", node="node0", cause=EVENT_ID, issued_ns=1, deadline_ns=9, lease_revision=3)
    )
    present.outcome(
        Outcome(id="o1", command="c1", verb="reroute", node="node0", status="done", started_ns=2, moved_ns=3)
    )

    (command,) = (await client.get("/api/v1/commands")).json()

    assert (
        command["id"],
        command["status"],
        command["command"]["lease_revision"],
        command["outcomes"][0]["id"],
    ) == ("c1", "done", 3, "o1")


async def test_an_event_leads_to_its_trace_whatever_its_id_holds(client, present):
    """Slashes, > and # in an id are no obstacle; both ways lead to the same spans."""
    present.event(flap())
    await client.post("/v1/traces", content=request_of(3), headers=PROTOBUF)

    by_event = (await client.get("/api/v1/events/trace", params={"event": EVENT_ID})).json()
    by_id = (await client.get(f"/api/v1/traces/{TRACE.upper()}")).json()
    (summary,) = (await client.get("/api/v1/traces")).json()

    assert by_id["spans"] == by_event["spans"]
    assert len(by_id["spans"]) == 3
    assert summary == by_id["summary"]
    assert (
        summary["trace_id"],
        summary["name"],
        summary["span_count"],
        summary["services"],
    ) == (TRACE, "lose carrier", 3, ["probe"])


@pytest.mark.parametrize(
    ("address", "status", "expected"),
    [
        ("/api/v1/events/trace?event=nobody", 404, ("no-such-event", "There is no event nobody")),
        ("/api/v1/events/trace?event=alone", 404, ("no-fault", "belongs to no fault")),
        ("/api/v1/events/trace?event=early", 404, ("no-spans", "none has arrived yet")),
        (f"/api/v1/traces/{'0' * 32}", 404, ("no-such-trace", "There is no trace")),
        ("/api/v1/events?limit=0", 400, (None, "limit: Expected `int` >= 1")),
        ("/api/v1/events?kind=quake", 400, (None, "kind: Invalid enum value 'quake'")),
        ("/api/v1/nothing", 404, (None, "There is nothing at /api/v1/nothing; /schema lists")),
        ("/v1/traces", 405, (None, "does not take GET")),
    ],
)
async def test_errors_are_problems_in_plain_sentences(client, present, address, status, expected):
    """application/problem+json, with one word for programs where they have a choice."""
    present.event(flap("alone", fault=""))
    present.event(flap("early"))

    answer = await client.get(address)

    reason, words = expected
    assert status == answer.status_code == answer.json()["status"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert reason == answer.json().get("reason")
    assert words in answer.json()["detail"]


async def test_a_fault_of_the_gateway_is_a_problem_too(client, present, monkeypatch):
    """The caller is sent to the log, which has the traceback; nothing of it leaks."""
    monkeypatch.setattr(present.fleet, "nodes", lambda: 1 / 0)

    answer = await client.get("/api/v1/fleet")

    assert (answer.status_code, answer.json()["detail"]) == (
        500,
        "The gateway failed on this request; its log says why.",
    )


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
async def test_the_real_sdk_exports_into_the_gateway(client, present, compression):
    """OpenTelemetry's own exporter, in a thread as in every service, over HTTP."""

    def work():
        provider = TracerProvider(resource=Resource({"service.name": "agent", "service.instance.id": "node3/agent"}))
        exporter = OTLPSpanExporter(
            endpoint=f"{client.base_url}/v1/traces".replace("//v1", "/v1"), compression=compression
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
        (bytes((1 << 20) + 1), PROTOBUF, 413, "larger than 1048576 bytes"),
        (gzip.compress(bytes(1 << 24)), PROTOBUF | {"content-encoding": "gzip"}, 413, "larger than 1048576 bytes"),
    ],
)
async def test_bodies_that_are_no_spans_are_refused(client, body, headers, status, words):
    """By a status that makes exporters give up instead of repeating themselves, and a sentence."""
    answer = await client.post("/v1/traces", content=body, headers=headers)

    assert status == answer.status_code
    assert words in answer.json()["detail"]


async def test_the_sender_is_told_how_many_spans_were_not_kept(client, present):
    """Partial success of the protocol, in the sender's own encoding."""
    limit = present.settings.spans_per_trace
    answer = await client.post("/v1/traces", content=request_of(limit + 5), headers=PROTOBUF)
    response = ExportTraceServiceResponse.FromString(answer.content)
    broken = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz", "name": "x"}]}]}]}
    in_json = (await client.post("/v1/traces", json=broken)).json()

    assert response.partial_success.rejected_spans == 5
    assert "5 are over the limit" in response.partial_success.error_message
    assert in_json["partialSuccess"]["rejectedSpans"] == "1"


async def test_metrics_are_few_and_true(client, present):
    """What happened is counted; no series is per NIC or path; Prometheus' own parser reads it."""
    present.event(flap())
    present.outcome(
        Outcome(id="o", command="c", verb="reroute", node="n", status="done", away=("rail0",), started_ns=1)
    )
    present.fleet.fold_port(port(carrier=False))
    present.rejected["sync"] += 2
    present.bus_connected = True
    await client.post("/v1/traces", content=request_of(3), headers=PROTOBUF)

    answer = await client.get("/metrics")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    expected = {
        ("foliot_events_total", "flap"): 1,
        ("foliot_outcomes_total", "done", "reroute"): 1,
        ("foliot_nics", "down"): 1,
        ("foliot_rejected_messages_total", "sync"): 2,
        ("foliot_bus_connected",): 1,
        ("foliot_traces",): 1,
        ("foliot_spans",): 3,
    }
    assert expected == {key: samples.get(key) for key in expected}
    assert "node3" not in answer.text
    assert len(samples) < 30


async def test_health_says_which_part_does_not_work(client, present):
    """503 until the bus is connected and the past is read; the parts say which of them is missing."""
    present.history_read = True
    ill = await client.get("/healthz")
    present.bus_connected = True
    well = await client.get("/healthz")

    assert (ill.status_code, ill.json()["healthy"], ill.json()["parts"]["history"]) == (503, False, "read")
    assert ill.json()["parts"]["bus"].startswith("not connected")
    assert (well.status_code, well.json()["healthy"]) == (200, True)


async def test_the_schema_describes_every_address(client, present):
    """OpenAPI 3.1 at /schema, of what is really served."""
    schema = (await client.get("/schema")).json()

    assert schema["openapi"].startswith("3.1")
    served = {route.path for route in make(present).routes if not route.path.startswith("/schema")}
    assert served == {path.replace("{trace_id}", "{trace_id:str}") for path in schema["paths"]}
