"""What gRPC is asked: any bytes to any method, and any bytes instead of gRPC."""

import asyncio
import socket
import time

import grpc
import hostile
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reflected import Reflected

from foliot_gateway import service
from foliot_gateway.rpc import descriptors
from foliot_gateway.rpc.services import handlers
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_gateway.subscription import Hub
from foliot_schemas import Event
from patience import patience

METHODS = [f"{name}/{method.name}" for name, of in descriptors.services().items() for method in of.methods]
SOME = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(["e1", "\x00", "a" * 20_000])
numbers = st.integers(-(1 << 31), (1 << 31) - 1)


class Context:
    """Of a request: it notes how the request was refused."""

    def __init__(self):
        self.code = None

    async def abort(self, code, details, _trailing=()):
        """As grpc.aio's."""
        assert details
        self.code = code
        raise grpc.aio.AbortError


@pytest.fixture(scope="module")
def known():
    """What a gateway knows: a little."""
    present = Store(GatewaySettings(), time.time_ns)
    for record in hostile.INVENTORY:
        present.fleet.fold_node(record.name, record)
    present.event(Event(id="e1", kind="clock", who="node0", state="disrupted", at_ns=1, since_ns=1, fault="f"))
    return present


@pytest.fixture(scope="module")
def methods(known):
    """What answers each method; a stream that would go on is ended before it begins."""
    hub = Hub(known)
    hub.close()
    made = handlers(known, hub)

    def find(method):
        (found,) = filter(None, (each.service(Details(method)) for each in made))
        return found

    return {method: find(method) for method in METHODS}


class Details:
    """Of a call, as far as a handler asks."""

    invocation_metadata = ()

    def __init__(self, method):
        self.method = f"/{method}"


def requests():
    """A method and bytes for it: any, or a request of the right types and the worst values."""

    def sound(method):
        service_name, _, name = method.partition("/")
        described = descriptors.services()[service_name].methods_by_name[name].input_type
        fields = {field.name: texts if field.type == field.TYPE_STRING else numbers for field in described.fields}
        kind = descriptors.message(described.name)
        return st.fixed_dictionaries({}, optional=fields).map(lambda asked: kind(**asked).SerializeToString())

    return st.sampled_from(METHODS).flatmap(
        lambda method: st.tuples(st.just(method), st.binary(max_size=200) | sound(method))
    )


@SOME
@given(request=requests())
def test_any_request_has_an_answer(methods, request):
    """An answer that can be read, or one of two refusals with a sentence; never a failure of the gateway's own."""
    method, data = request
    handler, context = methods[method], Context()
    output = descriptors.services()[method.partition("/")[0]].methods_by_name[method.partition("/")[2]].output_type

    async def answers():
        try:
            if handler.unary_unary:
                return [await handler.unary_unary(data, context)]
            return [part async for part in handler.unary_stream(data, context)]
        except grpc.aio.AbortError:
            return []

    for part in asyncio.run(answers()):
        descriptors.message(output.name).FromString(part)
    assert context.code in {None, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT}


async def test_what_is_no_grpc_is_sent_away(known, kept_port):
    """Nonsense on the port, of HTTP/2 and of nothing; others are answered afterwards."""
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.ensure_future(service.serve(known, [listener], rpc_at=[("127.0.0.1", kept_port)]))
    with await asyncio.to_thread(Reflected, kept_port, patience(30)) as reader:
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for nonsense in (b"\x00" * 4_096, b"GET / HTTP/1.1\r\n\r\n", preface + b"\xff" * 4_096, preface + bytes(9)):
            incoming, outgoing = await asyncio.open_connection("127.0.0.1", kept_port)
            outgoing.write(nonsense)
            outgoing.write_eof()
            async with asyncio.timeout(patience(30)):
                await incoming.read()
            outgoing.close()
        nodes = await asyncio.to_thread(reader.ask, "foliot.v1.FleetService/ListNodes")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert {record.name for record in hostile.INVENTORY} <= {node["node"] for node in nodes}
