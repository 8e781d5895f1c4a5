"""The whole gateway on a real bus: what it hears, what it reads of the past, and the span that it adds."""

import asyncio
import json
import time

import httpx
import numpy as np
import pytest
from told_fabric import ToldFabric

from foliot import cli
from foliot_gateway import service
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_schemas import Command, DelayBatch, DelayRow, Event, NodePaths, Outcome, Placement, PortState
from foliot_schemas.fault import root_span_id, trace_id
from foliot_schemas.subjects import COMMAND, DELAY, EVENT, HOPS, OUTCOME, PATHS, PORT

pytestmark = pytest.mark.nats

FAULT = "boot/node3.rail0/carrier-1"


def flap(number=1):
    """An event."""
    return Event(
        id=f"{FAULT}/{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number, fault=FAULT
    )


def port(at_ns):
    """The port of a NIC that lost its carrier."""
    return PortState(
        node="node3",
        nic="node3.rail0",
        at_ns=at_ns,
        carrier=False,
        admin_up=True,
        carrier_down_count=1,
        carrier_up_count=0,
    )


def outcome(number=1, started_ns=1):
    """What an agent did."""
    return Outcome(
        id=f"o{number}", command=f"c{number}", verb="reroute", node="node3", status="done", away=("rail0",),
        started_ns=started_ns, fault=FAULT,
    )  # fmt: skip


async def test_what_the_bus_shows_is_shown(gateway, bus, eventually):
    """Ports, delays, wanted paths, events, commands and outcomes reach their addresses.

    How late probes are reaches the metrics.
    """
    client = gateway()
    await eventually(client.healthy)
    path = "node0.rail0>node3.rail0#0"
    row = DelayBatch.of(
        np.array([(0, 1, 4, 4, 800, 900, 950, 49, 7, 1, 1, 1_450, 0)], DelayRow), node="node3",
        at_ns=50, interval_ns=100, bound_ns=1,
        paths=(path,), late_ns=30_000_000,
    )  # fmt: skip
    await bus.publish(PORT, port(50), "node3")
    await bus.publish(DELAY, row, "node3")
    placement = Placement(peer="node3", rail="rail0", via="rail0", entropy=0)
    await bus.put(PATHS, "node0", NodePaths(node="node0", lease_revision=1, placements=(placement,)))
    bus.publish_kept(EVENT, flap(), "flap", "node3.rail0")
    command = Command(id="c1", verb="reroute", node="node3", cause="e", issued_ns=1, deadline_ns=2, lease_revision=1)
    bus.publish_kept(COMMAND, command, "reroute", "node3")
    bus.publish_kept(OUTCOME, outcome(), "reroute", "node3")

    async def shown():
        fleet, paths, events, commands = [
            (await client.get(f"/api/v1/{name}")).json() for name in ("fleet", "paths", "events", "commands")
        ]
        if not (fleet and paths and events and commands):
            return None
        complete = paths[0]["in_force"] and commands[0]["status"] == "done" and fleet[0]["nics"][0]["moved"]
        return complete and (fleet, paths, events, commands)

    fleet, paths, events, commands = await eventually(shown)
    assert (fleet[0]["nics"][0]["state"], fleet[0]["nics"][0]["moved"]) == ("down", True)
    assert (path, "speaking", 900) == (paths[0]["path"], paths[0]["state"], paths[0]["median_ns"])
    assert [flap().id] == [event["id"] for event in events]
    assert [each["id"] for each in commands] == ["c1"]
    assert 'foliot_probe_lateness_seconds_bucket{le="0.05"} 1.0' in (await client.get("/metrics")).text


async def test_what_happened_before_the_start_is_there_too(gateway, bus, eventually):
    """Events, commands and outcomes of the streams are read once, and old outcomes make no spans."""
    for number in range(1, 4):
        bus.publish_kept(EVENT, flap(number), "flap", "node3.rail0")
    bus.publish_kept(OUTCOME, outcome(), "reroute", "node3")
    await eventually(lambda: kept(bus, 4))

    client = gateway()
    await eventually(client.healthy)

    assert [event["at_ns"] for event in (await client.get("/api/v1/events")).json()] == [3, 2, 1]
    assert [command["status"] for command in (await client.get("/api/v1/commands")).json()] == ["done"]
    assert (await client.get("/api/v1/traces")).json() == []


async def kept(bus, count):
    """Whether the streams have stored so many."""
    return bus.counts["kept"] >= count


async def test_only_the_newest_of_a_long_past_are_read(bus, eventually, monkeypatch):
    """The limit holds for the reading itself, in batches, and empty streams are read at once."""
    monkeypatch.setattr(service, "MOST_RECORDS", 1_100)
    for number in range(1, 1_202):
        bus.publish_kept(EVENT, flap(number), "flap", "node3.rail0")
    await eventually(lambda: kept(bus, 1_201))
    store = Store(GatewaySettings(), time.time_ns)

    await service._read_history(store, bus)

    times = [event.at_ns for event in store.records.events(limit=5_000)]
    assert len(times) == 1_100
    assert max(times) - min(times) == 1_099


async def test_the_trace_ends_where_the_fault_is_shown(gateway, bus, eventually):
    """An outcome's arrival is a span of the fault's trace, sent to the gateway's own receiver.

    It causes no further one.
    """
    client = gateway()
    await eventually(client.healthy)
    await bus.publish(PORT, port(1_800_000_000_000_000_000), "node3")
    await eventually(lambda: has(client, "/api/v1/fleet"))
    # Later than the port's word by more than the test waits: an outcome that is old when it comes makes no span.
    bus.publish_kept(OUTCOME, outcome(started_ns=1_800_003_600_000_000_000), "reroute", "node3")

    await eventually(lambda: has(client, "/api/v1/traces"))
    trace = (await client.get(f"/api/v1/traces/{trace_id(FAULT):032x}")).json()

    (span,) = trace["spans"]
    assert (span["name"], span["service"], span["kind"]) == ("show event", "gateway", "consumer")
    assert f"{root_span_id(FAULT):016x}" == span["parent_id"]
    assert (span["attributes"]["foliot.node"], span["attributes"]["foliot.status"]) == ("node3", "done")


async def test_the_command_prints_what_the_gateway_received(gateway, bus, eventually, capsys):
    """``foliot trace`` with the event's id, on a trace that came over the bus and the receiver."""
    client = gateway()
    await eventually(client.healthy)
    bus.publish_kept(EVENT, flap(), "flap", "node3.rail0")
    ids = {"traceId": f"{trace_id(FAULT):032x}", "spanId": f"{root_span_id(FAULT):016x}"}
    times = {"startTimeUnixNano": "1000000", "endTimeUnixNano": "3500000"}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "probe"}}]}
    spans = [{"spans": [ids | times | {"name": "lose carrier"}]}]
    await client.post("/v1/traces", json={"resourceSpans": [{"resource": resource, "scopeSpans": spans}]})
    await eventually(lambda: has(client, "/api/v1/events"))

    arguments = ["trace", flap().id, "--gateway", str(client.base_url), "--wait", "0"]
    assert await asyncio.to_thread(cli.main, arguments) == 0

    assert "      0.000       2.500  probe    lose carrier" in capsys.readouterr().out.splitlines()


async def test_the_map_is_shown_and_printed(gateway, bus, eventually, capsys):
    """What nodes tell of the routers of their paths reaches HTTP and the command ``foliot map``."""
    client = gateway()
    await eventually(client.healthy)
    fabric = ToldFabric()
    for host in range(fabric.hosts):
        await bus.publish(HOPS, fabric.hops(host), f"node{host}")

    async def whole():
        found = (await client.get("/api/v1/map")).json()
        return len(found["paths"]) == len(fabric.paths()) and found

    found = await eventually(whole)
    arguments = ["map", "--gateway", str(client.base_url)]
    assert await asyncio.to_thread(cli.main, [*arguments, "--json"]) == 0
    assert await asyncio.to_thread(cli.main, arguments) == 0

    printed = capsys.readouterr().out.splitlines()
    (said,) = [json.loads(line) for line in printed if line.startswith("{")]
    assert said == found
    assert "rail0: 4 NICs, 2 leaves, 2 spines; 24 paths" in printed


async def has(client, address):
    """Whether there is anything at an address."""
    return (await client.get(address)).json()


async def test_a_gateway_without_a_bus_serves_and_says_so(gateway, nats_server, eventually):
    """Spans are taken and health is told while the bus is away; it recovers when the bus is back."""
    await nats_server.kill()
    client = gateway()

    async def answers():
        try:
            return await client.get("/healthz")
        except httpx.TransportError:
            return None

    ill = await eventually(answers)
    assert (ill.status_code, ill.json()["parts"]["bus"].partition(":")[0]) == (503, "not connected")
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    taken = await client.post("/v1/traces", json={"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    assert taken.status_code == 200

    await nats_server.start()
    await eventually(client.healthy)


async def test_it_answers_to_the_names_of_its_settings_alone(gateway, monkeypatch, eventually):
    """A page of a site whose name was made to lead here reads nothing."""
    monkeypatch.setenv("FOLIOT_GATEWAY__HOSTS", '["foliot.example"]')
    client = gateway()
    await eventually(client.healthy)

    for host, status in (("foliot.example", 200), ("evil.example", 421)):
        assert (await client.get("/healthz", headers={"Host": host})).status_code == status


async def test_a_bus_that_goes_away_is_told_and_comes_back(gateway, nats_server, eventually):
    """Health follows the connection both ways, and what was known stays shown."""
    client = gateway()
    await eventually(client.healthy)
    await nats_server.kill()

    async def ill():
        return not await client.healthy()

    await eventually(ill)
    await nats_server.start()
    await eventually(client.healthy)


async def test_broken_messages_are_counted_by_their_reader(gateway, bus, nats_server, eventually):
    """Nonsense on a subject costs a count in the metrics, not the gateway."""
    client = gateway()
    await eventually(client.healthy)
    await bus._client.publish(PORT.subject("node3"), b"nonsense")

    async def counted():
        return 'foliot_rejected_messages_total{service="gateway"} 1.0' in (await client.get("/metrics")).text

    assert await eventually(counted)
