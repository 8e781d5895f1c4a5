"""The whole gateway on a real bus, read by HTTP and by gRPC at the same time."""

import asyncio
import functools
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from reflected import Reflected, first
from told_fabric import ToldFabric

from foliot_schemas import (
    ClockState,
    Command,
    Confirmation,
    DelayBatch,
    DelayRow,
    Event,
    Nic,
    Node,
    NodePaths,
    Outcome,
    Placement,
    PortState,
)
from foliot_schemas.fault import root_span_id, trace_id
from foliot_schemas.subjects import CLOCK, COMMAND, DELAY, EVENT, HOPS, INVENTORY, OUTCOME, PATHS, PORT
from patience import patience

pytestmark = pytest.mark.nats

FAULT = "boot/node3.rail0/carrier-1"
TRACE = f"{trace_id(FAULT):032x}"
LONG_AGO_NS = -60_000_000_000
"""Of an old outcome the gateway makes no span of its own, which could arrive between the answers of the two
transports."""
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "nodes_grpc.py"


def flap(number=1):
    """An event with evidence of every type."""
    return Event(
        id=f"{FAULT}/{number}", kind="flap", who="node3.rail0", state="down", at_ns=1_800_000_000_000_000_000 + number,
        since_ns=number, confidence=0.75, fault=FAULT, cause="c", policy="p",
        evidence={"count": 1 << 60, "share": 0.5, "boot": "b", "admin_up": True},
    )  # fmt: skip


def port(*, carrier=False):
    """The port of a NIC."""
    return PortState(
        node="node3", nic="node3.rail0", at_ns=50, carrier=carrier, admin_up=True, carrier_down_count=1,
        carrier_up_count=0, counters={"rx_bytes": 1 << 50, "tx_errors": 0},
    )  # fmt: skip


async def publish_all(bus, client):
    """One message or more of every sort that is shown, all fields filled in."""
    placement = Placement(peer="node3", rail="rail0", via="rail1", entropy=3)
    nic = Nic(
        name="node3.rail0", rail="rail0", device="eth2", address="10.16.0.13", clock="node3",
        service_address="10.200.0.4", path_addresses=("10.0.0.1",), entropies=(40_000,),
    )  # fmt: skip
    row = DelayBatch.of(
        np.array([(0, 1, 4, 4, 800, 900, 950, 49, 7, 1, 1, 1_450, 0)], DelayRow), node="node3", at_ns=50, interval_ns=100,
        bound_ns=1, paths=("node0.rail0>node3.rail0#0",),
    )  # fmt: skip
    clock = ClockState(
        clock="node3", reference="node0", offset_ns=1_800_000_000_123_456_789, drift_ppb=-1.5, hard_bound_ns=900,
        bound_ns=40, growth_ppb=2.5, as_of_ns=7, void_after_ns=8, status="holdover", window=5, neighbours=10,
        surplus_ns=0.25, hard_growth_ppb=3.5, timescale="tai", wander_ppb=1.25, epoch_ns=-9, utc_error_ns=77,
        utc_offset_s=37, tai_offset_s=36, leap_s=-1, leap_at_ns=11, utc_offset_error_ns=78, utc_disagreement="leap",
        stamp_noise_ns=25.5, rate_wander_ppb=6.75, monotonic_ns=12, monotonic_ppb=-13.5,
    )  # fmt: skip
    command = Command(
        id="c1", verb="reroute", node="node3", cause="e", issued_ns=1, deadline_ns=2, lease_revision=3, away=("rail0",),
        back=("rail1",), placements=(placement,), fault=FAULT,
    )  # fmt: skip
    confirmed = Confirmation(peer="node0", rail="rail0", at_ns=1_800_000_000_000_000_004, round_trip_ns=5)
    outcome = Outcome(
        id="o1", command="c1", verb="reroute", node="node3", status="done", armed=True, cause="e", reason="r",
        started_ns=LONG_AGO_NS, moved_ns=LONG_AGO_NS + 1, confirmed_ns=LONG_AGO_NS + 2, expected=1,
        confirmations=(confirmed,), away=("rail0",), placements=(placement,), undo=(placement,), fault=FAULT,
    )  # fmt: skip
    await bus.put(INVENTORY, "node3", Node(name="node3", nics=(nic,)))
    await bus.put(PATHS, "node0", NodePaths(node="node0", lease_revision=1, placements=(placement,)))
    await bus.publish(PORT, port(), "node3")
    await bus.publish(DELAY, row, "node3")
    for host in (0, 3):
        await bus.publish(HOPS, ToldFabric().hops(host), f"node{host}")
    await bus.publish(CLOCK, clock, "node3")
    for number in (1, 2):
        bus.publish_kept(EVENT, flap(number), "flap", "node3.rail0")
    bus.publish_kept(COMMAND, command, "reroute", "node3")
    bus.publish_kept(OUTCOME, outcome, "reroute", "node3")
    array = {"arrayValue": {"values": [{"intValue": "1"}, {"doubleValue": 0.5}, {"boolValue": True}]}}
    nested = {"kvlistValue": {"values": [{"key": "inner", "value": {"stringValue": "x"}}, {"key": "none"}]}}
    attributes = [{"key": "list", "value": array}, {"key": "map", "value": nested}, {"key": "none", "value": {}}]
    span = {
        "traceId": TRACE, "spanId": f"{root_span_id(FAULT):016x}", "name": "lose carrier", "kind": 4,
        "startTimeUnixNano": "1800000000000000000", "endTimeUnixNano": "1800000000000000009", "attributes": attributes,
        "status": {"code": 2, "message": "m"}, "events": [{"name": "e", "timeUnixNano": "3", "attributes": attributes}],
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "probe"}}]}
    spans = [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]
    assert (await client.post("/v1/traces", json={"resourceSpans": spans})).status_code == 200


def without_tags(document):
    """What JSON says beside the names of messages, which are types in gRPC; without what is later with each look."""
    if isinstance(document, list):
        return [without_tags(each) for each in document]
    if not isinstance(document, dict):
        return document
    tagged = str(document.get("type", "")).endswith(".v1")
    unsaid = document.get("key") == ""  # of a placement, which JSON leaves out
    left_out = {"quiet_ns", *(["type"] if tagged else []), *(["key"] if unsaid else [])}
    return {name: without_tags(each) for name, each in document.items() if name not in left_out}


@pytest.fixture
async def both(gateway, bus, rpc_port, eventually):
    """HTTP and gRPC to a gateway that knows something of everything."""
    client = gateway()
    await eventually(client.healthy)
    await publish_all(bus, client)

    async def complete():
        names = ("fleet", "paths", "map", "clocks", "events", "commands", "traces")
        fleet, paths, found, clocks, events, commands, traces = [
            (await client.get(f"/api/v1/{name}")).json() for name in names
        ]
        if not (fleet and paths and len(found["paths"]) == 12 and clocks and len(events) == 2 and commands and traces):
            return False
        (nic,) = fleet[0]["nics"]
        return commands[0]["status"] == "done" and commands[0]["command"] and nic["device"] and nic["state"] == "down"

    await eventually(complete)
    with await asyncio.to_thread(Reflected, rpc_port, patience(30)) as reader:
        yield client, reader


@pytest.mark.parametrize(
    ("address", "method", "asked"),
    [
        ("api/v1/fleet", "FleetService/ListNodes", {}),
        ("api/v1/paths", "FleetService/ListPaths", {}),
        ("api/v1/paths?node=node3", "FleetService/ListPaths", {"node": "node3"}),
        ("api/v1/paths?node=nobody", "FleetService/ListPaths", {"node": "nobody"}),
        ("api/v1/map", "FleetService/GetMap", {}),
        ("api/v1/map?from=node0&to=node3&limit=1", "FleetService/GetMap",
         {"source": "node0", "destination": "node3", "limit": 1}),
        ("api/v1/clocks", "FleetService/ListClocks", {}),
        ("api/v1/events", "RecordsService/ListEvents", {}),
        ("api/v1/events?limit=1&kind=flap", "RecordsService/ListEvents", {"limit": 1, "kind": "flap"}),
        ("api/v1/events?since=1800000000000000002", "RecordsService/ListEvents",
         {"since_ns": 1_800_000_000_000_000_002}),
        (f"api/v1/commands?fault={FAULT}", "RecordsService/ListCommands", {"fault": FAULT}),
        ("api/v1/commands?node=nobody", "RecordsService/ListCommands", {"node": "nobody"}),
        ("api/v1/traces", "TracesService/ListTraces", {}),
        (f"api/v1/traces/{TRACE}", "TracesService/GetTrace", {"trace_id": TRACE}),
        (f"api/v1/events/trace?event={FAULT}/1", "TracesService/GetTraceOfEvent", {"event": f"{FAULT}/1"}),
        ("healthz", "HealthService/GetHealth", {}),
    ],
)  # fmt: skip
async def test_both_transports_give_the_same_answer(both, eventually, address, method, asked):
    """Every field, whichever way it is read."""
    client, reader = both

    async def page():
        return without_tags((await client.get(f"/{address}")).json())

    async def at_one_time():
        """The answers of both; None: what came over the bus meanwhile has changed them."""
        before = await page()
        asking = functools.partial(reader.ask, f"foliot.v1.{method}", **asked)
        answers = before, without_tags(await asyncio.to_thread(asking))
        return answers if await page() == before else None

    by_http, by_grpc = await eventually(at_one_time)

    assert by_grpc == by_http
    assert by_http or "nobody" in address


async def test_watch_follows_the_bus(both, bus):
    """A NIC that comes back and an event reach a reader of gRPC as they reach a page."""
    _, reader = both
    watching = await asyncio.to_thread(reader.stream, "foliot.v1.LiveService/Watch")
    whole = await asyncio.to_thread(first, watching, "tiles")
    await asyncio.to_thread(first, watching, "state")
    await bus.publish(PORT, port(carrier=True), "node3")
    changed = await asyncio.to_thread(first, watching, "tiles")
    bus.publish_kept(EVENT, flap(3), "flap", "node3.rail0")
    told = await asyncio.to_thread(first, watching, "told")

    assert (whole.tiles.whole, [tile.why for tile in whole.tiles.tiles]) == (True, ["no carrier"])
    assert (changed.tiles.whole, [tile.nic for tile in changed.tiles.tiles]) == (False, ["node3.rail0"])
    assert told.told.event.evidence["count"].integer == 1 << 60


async def test_the_health_of_grpc_follows_the_bus(both, nats_server):
    """Serving while the bus is reached."""
    _, reader = both
    watching = await asyncio.to_thread(reader.stream, "grpc.health.v1.Health/Watch")
    well = await asyncio.to_thread(first, watching)
    await nats_server.kill()
    ill = await asyncio.to_thread(first, watching)
    await nats_server.start()
    again = await asyncio.to_thread(first, watching)

    assert [each.status for each in (well, ill, again)] == [1, 2, 1]


async def test_the_example_of_the_documents_prints_the_fleet(both, rpc_port):
    """As a person would run it."""
    direct = {**os.environ, "no_grpc_proxy": "127.0.0.1"}
    ran = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE), f"127.0.0.1:{rpc_port}", stdout=asyncio.subprocess.PIPE, env=direct
    )
    out, _ = await ran.communicate()

    assert out.decode().splitlines() == ["node3.rail0 CONDITION_LOST"]


def test_the_document_shows_the_example_that_is_run():
    """Line by line."""
    _, _, code = EXAMPLE.read_text().partition('"""\n\n')

    assert code in (EXAMPLE.parents[1] / "api.md").read_text()
