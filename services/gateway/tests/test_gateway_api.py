"""The HTTP interface over a real socket: answers, errors, metrics, health."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from told_fabric import ToldFabric

from foliot_gateway import pace
from foliot_gateway.http.api import make
from foliot_gateway.state.trace_store import Span
from foliot_gateway.subscription import Hub
from foliot_schemas import ClockState, Command, Event, Node, Outcome, PortState
from foliot_schemas.fault import port_fault, root_span_id, trace_id

FAULT = port_fault("boot", "node3.rail0", 1)
TRACE = f"{trace_id(FAULT):032x}"
EVENT_ID = f"{FAULT}/down#1>x"


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


def spans(count):
    """So many spans of the fault's trace, the first being its root."""
    root = f"{root_span_id(FAULT):016x}"
    return [
        Span(
            trace_id=TRACE, span_id=f"{number:016x}" if number else root, parent_id=root if number else "",
            name="lose carrier", service="probe", start_ns=1_800_000_000_000_000_000 + number,
            end_ns=1_800_000_000_000_000_100,
        )
        for number in range(count)
    ]  # fmt: skip


async def test_the_fleet_is_shown_with_its_nics(client, store):
    """A list of nodes, each with what is known of its NICs."""
    store.fleet.fold_port(port(carrier=False))

    (node,) = (await client.get("/api/v1/fleet")).json()

    assert node["node"] == "node3"
    assert tuple(node["nics"][0][key] for key in ("nic", "state", "moved", "at_ns")) == (
        "node3.rail0",
        "down",
        False,
        7,
    )


async def test_the_map_tells_the_links_of_the_paths_that_are_asked_for(client, store):
    """With what they join, and how many of all paths cross them."""
    fabric = ToldFabric()
    for host in range(fabric.hosts):
        store.fleet.fold_hops(fabric.hops(host))

    asked = {"from": "node0", "to": "node3.rail0", "rail": "rail0"}
    found = (await client.get("/api/v1/map", params=asked)).json()
    (second,) = (await client.get("/api/v1/map", params=asked | {"after": found["paths"][0]["path"]})).json()["paths"]
    (first,) = (await client.get("/api/v1/map", params=asked | {"limit": 1})).json()["paths"]
    crossing = (await client.get("/api/v1/map", params={"link": "10.1.0.3"})).json()["paths"]

    assert found["paths"] == [first, second]
    assert first == {
        "path": "node0.rail0>node3.rail0#0", "source": "node0.rail0", "destination": "node3.rail0", "rail": "rail0",
        "entropy": 0, "links": ["node0.rail0/out", "10.1.0.3", "10.1.1.2", "node3.rail0/in"], "known": True,
        "told_ns": 1,
    }  # fmt: skip
    assert [link["link"] for link in found["links"]] == list(dict.fromkeys(first["links"] + second["links"]))
    assert found["links"][1] == {
        "link": "10.1.0.3", "source": "10.0.0.0", "destination": "10.1.0.3", "paths": 4, "inferred": False,
    }  # fmt: skip
    assert len(crossing) == 4
    assert {router["role"] for router in found["routers"]} == {"leaf", "spine"}


async def test_clocks_keep_their_whole_nanoseconds(client, store):
    """Integers beyond 2**53 leave as integers, not as floats."""
    state = ClockState(
        clock="node1", reference="node0", offset_ns=1_800_000_000_123_456_789, drift_ppb=1.5, hard_bound_ns=9,
        bound_ns=4, growth_ppb=1.0, as_of_ns=1, void_after_ns=2, status="synchronised",
    )  # fmt: skip
    store.fleet.fold_clock(state)

    (clock,) = (await client.get("/api/v1/clocks")).json()

    assert clock["offset_ns"] == 1_800_000_000_123_456_789


async def test_events_are_filtered_by_the_query(client, store):
    """kind, since and limit."""
    for number in range(5):
        store.event(flap(f"e{number}", at_ns=number))

    async def ids(query):
        return [event["id"] for event in (await client.get(f"/api/v1/events?{query}")).json()]

    assert await ids("limit=2") == ["e4", "e3"]
    assert await ids("since=2&kind=flap") == ["e4", "e3", "e2"]
    assert await ids("kind=path") == []


async def test_commands_come_with_their_outcomes(client, store):
    """Joined by id; the status is that of the last outcome."""
    store.command(
        Command(id="c1", verb="reroute", node="node0", cause=EVENT_ID, issued_ns=1, deadline_ns=9, lease_revision=3)
    )
    store.outcome(Outcome(id="o1", command="c1", verb="reroute", node="node0", status="done", started_ns=2, moved_ns=3))

    (command,) = (await client.get("/api/v1/commands")).json()

    assert (
        command["id"],
        command["status"],
        command["command"]["lease_revision"],
        command["outcomes"][0]["id"],
    ) == ("c1", "done", 3, "o1")


async def test_an_event_leads_to_its_trace_whatever_its_id_holds(client, store):
    """Slashes, > and # in an id are no obstacle; both ways lead to the same spans."""
    store.event(flap())
    store.traces.add(spans(3), at_ns=0)

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
        ("/api/v1/map?limit=10001", 400, (None, "limit: Expected `int` <= 10000")),
        ("/api/v1/events?kind=quake", 400, ("no-such-kind", "There is no kind of event quake; there are flap, path, ")),
        ("/api/v1/nothing", 404, (None, "There is nothing at /api/v1/nothing; /schema lists")),
        ("/v1/traces", 405, (None, "does not take GET")),
    ],
)
async def test_errors_are_problems_in_plain_sentences(client, store, address, status, expected):
    """application/problem+json, with one word for programs where they have a choice."""
    store.event(flap("alone", fault=""))
    store.event(flap("early"))

    answer = await client.get(address)

    reason, words = expected
    assert status == answer.status_code == answer.json()["status"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert reason == answer.json().get("reason")
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("name", ["fleet", "paths", "traces"])
async def test_the_loop_turns_while_a_long_answer_is_gathered(client, store, monkeypatch, turns, name):
    """If the time is up after each entry, others have a turn after each."""
    nodes = [f"node{number}" for number in range(500)]
    for number, node in enumerate(nodes):
        store.fleet.fold_node(node, Node(name=node, nics=()))
        path = f"{node}.rail0>node3.rail1#0"
        store.event(Event(id=node, kind="path", who=path, state="silent", at_ns=1, since_ns=1))
        span = Span(trace_id=f"{number:032x}", span_id="1", parent_id="", name="x", service="s", start_ns=1, end_ns=2)
        store.traces.add([span], at_ns=0)
    monkeypatch.setattr(pace, "_STEP_S", -1.0)

    before = turns()
    answer = await client.get(f"/api/v1/{name}?limit=500")

    assert len(answer.json()) == len(nodes)
    assert turns() - before > len(nodes)


async def test_the_loop_turns_while_the_map_is_gathered(client, store, monkeypatch, turns):
    """Also while routers are looked for, and where no path is found."""
    fabric = ToldFabric(hosts=8, entropies=8)
    for host in range(fabric.hosts):
        store.fleet.fold_hops(fabric.hops(host))
    monkeypatch.setattr(pace, "_STEP_S", -1.0)

    before = turns()
    answer = await client.get("/api/v1/map?to=nobody")

    assert answer.json() == {"paths": [], "links": [], "routers": []}
    assert turns() - before > 3 * len(fabric.paths())


async def test_a_fault_of_the_gateway_is_a_problem_too(client, store, monkeypatch):
    """The caller is sent to the log, which has the traceback; nothing of it leaks."""
    monkeypatch.setattr(store.fleet, "nodes", lambda: 1 / 0)

    answer = await client.get("/api/v1/fleet")

    assert (answer.status_code, answer.json()["detail"]) == (
        500,
        "The gateway failed on this request; its log says why.",
    )


async def test_metrics_are_few_and_true(client, store):
    """What happened is counted; no series is per NIC or path; Prometheus' own parser reads it."""
    store.event(flap())
    store.outcome(Outcome(id="o", command="c", verb="reroute", node="n", status="done", away=("rail0",), started_ns=1))
    store.fleet.fold_port(port(carrier=False))
    store.rejected["sync"] += 2
    store.bus_connected = True
    store.traces.add(spans(3), at_ns=0)
    for late_ms in (0, 10, 10.5, 4_000):
        store.lateness.add(round(late_ms * 1e6))

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
        ("foliot_probe_lateness_seconds_bucket", "0.005"): 1,
        ("foliot_probe_lateness_seconds_bucket", "0.01"): 2,
        ("foliot_probe_lateness_seconds_bucket", "1.0"): 3,
        ("foliot_probe_lateness_seconds_bucket", "+Inf"): 4,
        ("foliot_probe_lateness_seconds_count",): 4,
        ("foliot_probe_lateness_seconds_sum",): pytest.approx(4.0205),
    }
    assert expected == {key: samples.get(key) for key in expected}
    assert "node3" not in answer.text
    assert len(samples) < 40


async def test_health_says_which_part_does_not_work(client, store):
    """503 until the bus is connected and the past is read, and while messages are not stored.

    The parts say which of them it is.
    """
    store.past_read()
    ill = await client.get("/healthz")
    store.bus_connected = True
    well = await client.get("/healthz")

    for ago_s in (9.0, 5.0, 1.0):
        store.not_stored("detector", time.monotonic() - ago_s)
    full = await client.get("/healthz")
    scraped = (await client.get("/metrics")).text

    assert (full.status_code, full.json()["parts"]["store"]) == (503, "does not store what comes from: detector")
    assert 'foliot_unstored_attempts_total{service="detector"} 3.0' in scraped
    assert store.unstoring(time.monotonic() + 10.0) == []
    assert (ill.status_code, ill.json()["healthy"], ill.json()["parts"]["history"]) == (503, False, "read")
    assert ill.json()["parts"]["bus"].startswith("not connected")
    assert (well.status_code, well.json()["healthy"]) == (200, True)


async def test_the_schema_describes_every_address(client, store):
    """OpenAPI 3.1 at /schema, of what is really served."""
    schema = (await client.get("/schema")).json()

    assert schema["openapi"].startswith("3.1")
    pages = {"/", "/assets/{name:str}"}
    served = {route.path for route in make(store, Hub(store)).routes if not route.path.startswith("/schema")} - pages
    assert served == {path.replace("_id}", "_id:str}").replace("{job}", "{job:str}") for path in schema["paths"]}
