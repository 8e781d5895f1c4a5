"""The gateway on a real socket."""

from __future__ import annotations

import asyncio
import socket
import time

import httpx
import pytest

from foliot_gateway import service
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_lab.services.ports import keep
from patience import patience
from patient_bus import wait_for_slow_servers


@pytest.fixture
def one_each():
    """A connection for each request.

    The server closes one that was idle for five seconds, and the next request may be on its way by then.
    """
    return httpx.Limits(max_keepalive_connections=0)


@pytest.fixture(autouse=True)
def slow_servers(monkeypatch):
    """No test asks for more than the bus's answer."""
    wait_for_slow_servers(monkeypatch)


@pytest.fixture
def store():
    """What an empty gateway knows."""
    return Store(GatewaySettings(), time.time_ns)


@pytest.fixture
async def client(store, one_each):
    """HTTP to the gateway's application, served by uvicorn on a real socket; its `base_url` says where."""
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.ensure_future(service.serve(store, [listener]))
    async with httpx.AsyncClient(
        base_url=base_url, timeout=patience(30), trust_env=False, limits=one_each
    ) as connected:
        yield connected
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


class Client(httpx.AsyncClient):
    """HTTP to a gateway."""

    async def healthy(self):
        """Whether the gateway says that it is."""
        try:
            return (await self.get("/healthz")).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def rpc_port():
    """Where a gateway serves gRPC."""
    with keep() as keeper:
        yield keeper.getsockname()[1]


@pytest.fixture
async def served(store, rpc_port):
    """A gateway that serves gRPC; its HTTP listens where nobody asks."""
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.ensure_future(service.serve(store, [listener], rpc_at=[("127.0.0.1", rpc_port)]))
    yield serving
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def gateway(nats_server, monkeypatch, kept_port, rpc_port, one_each):
    """The gateway as it starts in production, configured by the environment; starting it gives HTTP to it."""
    monkeypatch.setenv("FOLIOT_GATEWAY__PORT", str(kept_port))
    monkeypatch.setenv("FOLIOT_GATEWAY__GRPC_PORT", str(rpc_port))
    monkeypatch.setenv("FOLIOT_BUS__URL", nats_server.settings.url)
    monkeypatch.setenv("FOLIOT_TELEMETRY__ENDPOINT", "http://203.0.113.1:9")  # only others reach the gateway by it
    for name in ("FOLIOT_CONFIG", "LISTEN_FDS", "LISTEN_PID", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    started = []

    def start():
        started.append(asyncio.ensure_future(service.main()))
        return client

    base_url = f"http://127.0.0.1:{kept_port}"
    async with Client(base_url=base_url, timeout=patience(30), trust_env=False, limits=one_each) as client:
        yield start
        for running in started:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


@pytest.fixture
async def turns():
    """How often the loop has turned so far."""
    turned = 0

    async def count():
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    yield lambda: turned
    counting.cancel()


@pytest.fixture
def eventually():
    """Awaits until a look finds something; the deadline is only there to end a broken test."""

    async def look_until(look, seconds=60.0):
        async with asyncio.timeout(patience(seconds)):
            while not (found := await look()):  # noqa: ASYNC110 - it looks at another process, which sets no event
                await asyncio.sleep(0.05)
            return found

    return look_until
