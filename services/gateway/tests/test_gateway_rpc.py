"""gRPC over a real socket, by a client that knows what it learns by reflection alone."""

import asyncio
import functools
import itertools
import re
import socket
import sys

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from reflected import Reflected, first
from structlog.testing import capture_logs
from told_fabric import ToldFabric

from foliot_gateway import pace, service
from foliot_gateway.http import sockets
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.trace_store import Span
from foliot_schemas import Event, Nic, Node, PortState
from patience import patience

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
WATCH = "foliot.v1.LiveService/Watch"


@pytest.fixture
async def reader(served, rpc_port):
    """A client of it."""
    with await asyncio.to_thread(Reflected, rpc_port, patience(30)) as client:
        yield client


def port(nic="node3.rail0", *, carrier=True):
    """The state of a NIC's port."""
    return PortState(
        node=nic.partition(".")[0], nic=nic, at_ns=7, carrier=carrier, admin_up=True, carrier_down_count=1,
        carrier_up_count=1, counters={"rx_bytes": 1 << 40},
    )  # fmt: skip


def flap(number, why=""):
    """An event."""
    return Event(
        id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number,
        evidence={"why": why},
    )  # fmt: skip


async def ask(reader, method, **asked):
    """An answer, while the loop turns."""
    return await asyncio.to_thread(functools.partial(reader.ask, f"foliot.v1.{method}", **asked))


async def follow(reader, method=WATCH, **asked):
    """What a stream goes on telling."""
    return await asyncio.to_thread(functools.partial(reader.stream, method, **asked))


async def next_of(stream, change=""):
    """The next message of a stream; the next that tells a change of a name, if one is given."""
    return await asyncio.to_thread(first, stream, change)


async def refused(call):
    """The error that ends a call."""
    with pytest.raises(grpc.RpcError) as caught:
        await asyncio.to_thread(call)
    return caught.value


def reason(error):
    """What programs read of an error: google.rpc.ErrorInfo in its status."""
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message, info.domain) == (error.code().value[0], error.details(), "foliot")
    return info.reason


async def test_the_gateway_says_what_there_is(reader):
    """Every service is listed, described, and implemented, in both versions of reflection."""
    services = await asyncio.to_thread(reader.services)

    assert {"foliot.v1.FleetService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= set(services)
    methods = {name: await asyncio.to_thread(reader.methods, name) for name in services}
    assert list(methods["foliot.v1.LiveService"]) == ["Watch"]
    (newer,) = methods["grpc.reflection.v1.ServerReflection"].values()
    assert newer.input_type.full_name == "grpc.reflection.v1.ServerReflectionRequest"


async def test_every_method_without_a_request_of_its_own_answers(reader, store):
    """An empty gateway has empty lists and says how it is."""
    for method in (
        "FleetService/ListNodes",
        "FleetService/ListPaths",
        "FleetService/ListClocks",
        "JobsService/ListJobs",
    ):
        assert await ask(reader, method) == []
    for method in ("RecordsService/ListEvents", "RecordsService/ListCommands", "TracesService/ListTraces"):
        assert await ask(reader, method) == []
    assert (await ask(reader, "HealthService/GetHealth"))["healthy"] is False


async def test_lists_are_filtered_by_the_request(reader, store):
    """kind, since, limit and NIC, as HTTP does it; a node that nobody knows has no paths."""
    for number in range(5):
        store.event(flap(number))
    store.event(Event(id="p", kind="path", who="node0.rail0>node1.rail0#0", state="silent", at_ns=9, since_ns=9))

    async def ids(**asked):
        return [event["id"] for event in await ask(reader, "RecordsService/ListEvents", **asked)]

    async def paths(**asked):
        return [path["path"] for path in await ask(reader, "FleetService/ListPaths", **asked)]

    assert await ids() == ["p", "e4", "e3", "e2", "e1", "e0"]
    assert await ids(limit=2) == ["p", "e4"]
    assert await ids(since_ns=3) == ["p", "e4", "e3"]
    assert await ids(kind="flap", limit=1) == ["e4"]
    assert await ids(kind="refusal") == []
    assert await paths(node="node1") == await paths(nic="node0.rail0") == ["node0.rail0>node1.rail0#0"]
    assert await paths(node="nobody") == []


@pytest.mark.parametrize(
    ("method", "asked", "expected"),
    [
        ("JobsService/GetJob", {"job": "nobody"}, ("NOT_FOUND", "no-such-job: There is no job nobody now.")),
        ("TracesService/GetTrace", {"trace_id": "0" * 32}, ("NOT_FOUND", "no-such-trace: There is no trace 000")),
        ("TracesService/GetTraceOfEvent", {"event": "nobody"},
         ("NOT_FOUND", "no-such-event: There is no event nobody")),
        ("TracesService/GetTraceOfEvent", {"event": "e1"}, ("NOT_FOUND", "no-fault: The event e1 belongs to no fault")),
        ("RecordsService/ListEvents", {"limit": 0}, ("INVALID_ARGUMENT", "The limit is from 1 to 10000, not 0")),
        ("RecordsService/ListCommands", {"limit": -3}, ("INVALID_ARGUMENT", "The limit is from 1 to 10000, not -3")),
        ("FleetService/GetMap", {"limit": 0}, ("INVALID_ARGUMENT", "The limit is from 1 to 10000, not 0")),
        ("TracesService/ListTraces", {"limit": 10_001},
         ("INVALID_ARGUMENT", "The limit is from 1 to 10000, not 10001")),
        ("RecordsService/ListEvents", {"kind": "quake"},
         ("INVALID_ARGUMENT", "There is no kind of event quake; there are")),
    ],
)  # fmt: skip
async def test_errors_have_a_code_a_sentence_and_a_reason(reader, store, method, asked, expected):
    """The sentences and reasons of HTTP."""
    store.event(flap(1))
    error = await refused(functools.partial(reader.ask, f"foliot.v1.{method}", **asked))

    code, words = expected
    assert error.code().name == code
    said = f"{reason(error)}: {error.details()}" if code == "NOT_FOUND" else error.details()
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("method", "data", "code"),
    [
        ("TracesService/GetTrace", b"\xff\xff\xff", "INVALID_ARGUMENT"),
        ("RecordsService/ListEvents", b"\x08", "INVALID_ARGUMENT"),
        ("LiveService/Watch", b"\x0a\x04\xff\xff\xff\xff", "INVALID_ARGUMENT"),
        ("TracesService/GetTrace", b"\x0a\xff\xff\x7f" + bytes(100_000), "RESOURCE_EXHAUSTED"),
        ("LiveService/Watch", bytes(70_000), "RESOURCE_EXHAUSTED"),
    ],
)
async def test_broken_and_oversized_requests_end_alone(reader, method, data, code):
    """They are refused with a code, and the next request of the same connection is answered."""
    error = await refused(lambda: reader.raw(f"foliot.v1.{method}", data))

    assert error.code().name == code
    assert await ask(reader, "FleetService/ListNodes") == []


async def test_a_fault_of_the_gateway_ends_one_request(reader, store, monkeypatch):
    """Nothing of it leaks; a reader that watches goes on, and so do others."""
    watching = await follow(reader)
    await next_of(watching, "state")
    with monkeypatch.context() as broken:
        broken.setattr(store.fleet, "nodes", lambda: 1 / 0)
        error = await refused(lambda: reader.ask("foliot.v1.FleetService/ListNodes"))

    assert (error.code().name, error.details()) == ("INTERNAL", "The gateway failed on this request; its log says why.")
    assert await ask(reader, "FleetService/ListNodes") == []
    assert (await next_of(watching, "state")).state.now_ns > 0


async def test_a_large_fleet_comes_in_slices(reader, store):
    """None is larger than clients take by default, and together they are all."""
    for number in range(500):
        nics = tuple(
            Nic(
                name=f"node{number:03}.rail{rail}", rail=f"rail{rail}", device="eth0", address="10.0.0.1", clock="c",
                service_address="10.1.0.1", path_addresses=(), entropies=(),
            )
            for rail in range(8)
        )  # fmt: skip
        store.fleet.fold_node(f"node{number:03}", Node(name=f"node{number:03}", nics=nics))
    parts = await asyncio.to_thread(reader.messages, "foliot.v1.FleetService/ListNodes")
    tiles = await follow(reader)
    slices = [await next_of(tiles, "tiles") for _ in range(16)]

    assert len(parts) > 1
    assert max(part.ByteSize() for part in parts) < 1 << 20
    assert [node.node for part in parts for node in part.nodes] == [f"node{number:03}" for number in range(500)]
    assert [part.tiles.whole for part in slices] == [True] + [False] * 15
    assert len({tile.nic for part in slices for tile in part.tiles.tiles}) == 4_000


async def test_the_map_comes_in_slices(reader, store):
    """Together they are what HTTP has, and a limit holds for all of them."""
    fabric = ToldFabric(hosts=16, below=4, spines=4, entropies=16)
    for host in range(fabric.hosts):
        store.fleet.fold_hops(fabric.hops(host))
    parts = await asyncio.to_thread(reader.messages, "foliot.v1.FleetService/GetMap")
    narrow = await ask(reader, "FleetService/GetMap", source="node0", destination="node15.rail0", rail="rail0")
    last = narrow["paths"][-1]["path"]

    async def names(**asked):
        return [path["path"] for path in (await ask(reader, "FleetService/GetMap", **asked))["paths"]]

    assert len(parts) > 1
    assert max(part.ByteSize() for part in parts) < 1 << 20
    assert [path.path for part in parts for path in part.map.paths] == sorted(fabric.paths())
    assert sum(len(part.map.routers) for part in parts) == 8
    assert sorted(path["entropy"] for path in narrow["paths"]) == list(range(16))
    assert {router["role"] for router in narrow["routers"]} == {"leaf", "spine"}
    assert await names(path=last) == [last]
    assert await names(limit=2, after=last) == ["node0.rail0>node2.rail0#0", "node0.rail0>node2.rail0#1"]
    assert last in await names(link=narrow["paths"][-1]["links"][1])


async def test_a_long_trace_is_one_answer_and_the_loop_turns_meanwhile(reader, store, monkeypatch, turns):
    """Thousands of spans, made in steps; if the time is up after each, others have a turn after each."""
    monkeypatch.setattr(pace, "_STEP_S", -1.0)
    spans = [
        Span(
            trace_id="ab" * 16, span_id=f"{number:016x}", parent_id="", name="x", service="s", start_ns=number,
            end_ns=number,
        )
        for number in range(2_000)
    ]  # fmt: skip
    store.traces.add(spans, at_ns=0)

    before = turns()
    trace = await ask(reader, "TracesService/GetTrace", trace_id="AB" * 16)

    assert turns() - before > 2_000
    assert (trace["summary"]["span_count"], len(trace["spans"])) == (2_000, 2_000)


async def test_watch_tells_all_there_is_and_then_changes(reader, store):
    """Tiles, events, then the state; after that the NIC that changed, the event that came."""
    store.fleet.fold_port(port())
    store.past_read()
    store.event(flap(1))
    await next_of(await follow(reader), "tiles")  # the gateway has looked at its fleet
    watching = await follow(reader)

    def first_words():
        told = list(itertools.takewhile(lambda message: message.WhichOneof("change") != "state", watching))
        return [message.WhichOneof("change") for message in told]

    assert await asyncio.to_thread(first_words) == ["tiles", "told"]
    store.fleet.fold_port(port(carrier=False))
    changed = (await next_of(watching, "tiles")).tiles
    store.event(flap(2))
    told = await next_of(watching, "told")

    assert (changed.whole, changed.tiles[0].nic, changed.tiles[0].why) == (False, "node3.rail0", "no carrier")
    assert (told.told.event.id, told.told.words, told.told.bad) == ("e2", "node3.rail0 lost its carrier", True)


async def test_a_reader_that_comes_back_misses_nothing(reader, store):
    """It names the last event that it has had."""
    store.past_read()
    store.event(flap(1))
    before = await follow(reader)
    had = await next_of(before, "told")
    before.cancel()
    store.event(flap(2))
    again = await follow(reader, after=had.number)

    assert (await next_of(again, "told")).told.event.id == "e2"


async def test_a_slow_reader_holds_nobody_up_and_is_told_what_it_missed(reader, store):
    """The gateway sends it no more than it takes; another one has read all meanwhile."""
    store.past_read()
    slow, quick = await follow(reader), await follow(reader)
    for stream in (slow, quick):
        await next_of(stream, "state")
    for number in range(500):
        store.event(flap(number, "x" * 4_000))
    ids = [(await next_of(quick, "told")).told.event.id for _ in range(500)]
    for number in range(500, 3_000):
        store.event(flap(number, "x" * 4_000))
    await next_of(quick, "missed")

    def late():
        """What the slow one is told until it has had the last event."""
        for message in slow:
            yield message
            if message.told.event.id == "e2999":
                return

    told = await asyncio.to_thread(list, late())
    missed = sum(message.missed.events for message in told)

    assert ids == [f"e{number}" for number in range(500)]
    # A thousand wait at most, beside what the connection itself has taken by then.
    assert 1_500 <= missed <= 2_000
    assert sum(message.WhichOneof("change") == "told" for message in told) == 3_000 - missed


async def test_live_readers_of_all_transports_share_the_places(reader, store, eventually):
    """One more than the setting allows is refused with the setting's name; one that leaves makes room."""
    store.settings = GatewaySettings(streams=1)
    admitted_first = await follow(reader)
    await next_of(admitted_first, "state")
    error = await refused(lambda: first(reader.stream(WATCH)))
    assert (error.code().name, reason(error)) == ("RESOURCE_EXHAUSTED", "busy")
    assert "gateway.streams" in error.details()
    admitted_first.cancel()

    async def admitted():
        try:
            return await next_of(await follow(reader))
        except grpc.RpcError:
            return None

    assert await eventually(admitted)


async def test_health_follows_healthz(reader, store):
    """Of the gateway and of each of its services; a watcher is told when it changes."""
    watching = await follow(reader, "grpc.health.v1.Health/Watch")
    assert (await next_of(watching)).status == NOT_SERVING
    store.bus_connected = True
    store.past_read()
    assert (await next_of(watching)).status == SERVING

    async def status(name):
        return await asyncio.to_thread(functools.partial(reader.ask, "grpc.health.v1.Health/Check", service=name))

    assert await status("") == await status("foliot.v1.FleetService") == "serving"
    error = await refused(lambda: reader.ask("grpc.health.v1.Health/Check", service="nobody"))
    assert error.code().name == "NOT_FOUND"
    listed = (await asyncio.to_thread(reader.messages, "grpc.health.v1.Health/List"))[0].statuses
    assert {"", "foliot.v1.FleetService"} <= listed.keys()
    assert {each.status for each in listed.values()} == {SERVING}


async def test_the_end_of_the_gateway_ends_its_readers_in_order(served, reader, store):
    """What is told without end ends without an error, and nobody waits for it."""
    watching, health = await follow(reader), await follow(reader, "grpc.health.v1.Health/Watch")
    await next_of(watching, "state")
    await next_of(health)
    served.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served

    assert {message.WhichOneof("change") for message in await asyncio.to_thread(list, watching)} <= {"state"}
    assert await asyncio.to_thread(list, health) == []


async def test_a_browser_reads_nothing_here(served, reader, rpc_port):
    """Without TLS it speaks HTTP/1.1 alone, and gets no answer to that.

    So no page of another site reads the gateway by this port.
    """
    incoming, outgoing = await asyncio.open_connection("127.0.0.1", rpc_port)
    outgoing.write(
        b"POST /foliot.v1.FleetService/ListNodes HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n"
    )
    answer = await incoming.read()
    outgoing.close()

    assert b"200" not in answer
    assert not answer.startswith(b"HTTP/1.1")


async def test_a_taken_port_is_said_and_leaves_http(store):
    """With the setting to change; two gateways never share one, and none is without its page for that."""
    taken, listening = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    with taken, capture_logs() as logs:
        serving = asyncio.ensure_future(service.serve(store, [listening], rpc_at=[taken.getsockname()]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 ")
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    (said,) = [entry["reason"] for entry in logs if entry["event"] == "grpc_not_served"]
    assert re.search(r"gRPC cannot listen on 127\.0\.0\.1:\d+; gateway\.grpc_port", said)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GatewaySettings(), [("127.0.0.1", 8471)]),
        (GatewaySettings(host="0.0.0.0", grpc_port=9), [("0.0.0.0", 9)]),
        (GatewaySettings(bind=("10.0.0.1:1", "[::1]:2", "10.0.0.1:3")), [("10.0.0.1", 8471), ("::1", 8471)]),
        (GatewaySettings(grpc_port=0), []),
    ],
)
def test_grpc_listens_beside_http(settings, expected):
    """On the same hosts, at a port of its own; 0: nowhere."""
    assert list(sockets.rpc_addresses(settings)) == expected


async def test_a_gateway_may_do_without():
    """Then nothing of gRPC is loaded."""
    program = (
        "import asyncio, sys, time; from foliot_gateway import service; from foliot_gateway.settings import GatewaySettings\n"
        "from foliot_gateway.state.store import Store\n"
        "async def main():\n"
        "    serving = asyncio.ensure_future(service.serve(Store(GatewaySettings(), time.time_ns), []))\n"
        "    await asyncio.sleep(0)\n"
        "    serving.cancel()\n"
        "    await asyncio.gather(serving, return_exceptions=True)\n"
        "asyncio.run(main()); print('grpc' in sys.modules)"
    )
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    out, _ = await ran.communicate()

    assert out.split() == [b"False"]
