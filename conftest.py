"""What tests of several packages need: real NATS servers, with credentials and without, and the spans that were made."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import connection, telemetry
from foliot.bus import Bus
from foliot.keys.keyring import Keyring
from foliot.settings import BusSettings
from foliot_schemas.permissions import NODE_ROLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from opentelemetry.sdk.trace import ReadableSpan


# Probes that tests start write no page where this machine's own has it.
os.environ["FOLIOT_CLOCK__PAGE"] = ""

_REAL = frozenset({"nats", "net", "e2e", "browser", "containers"})
"""Marks of tests that wait for real parts: two at once would wait for each other."""
_REAL_FIXTURES = frozenset({"nats_server", "bus", "bus_settings"})
_REAL_PLACES = ("tests", "services/agent", "services/probe", "lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, one of them has all that wait for real parts; the rest is computed beside it meanwhile, file by file."""
    root = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(root).as_posix()
        marked = any(mark.name in _REAL for mark in item.iter_markers())
        real = (
            marked or place.startswith(_REAL_PLACES) or not _REAL_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        )
        item.add_marker(pytest.mark.xdist_group("real" if real else place))


class Server:
    """A nats-server that can be killed and started again with its store.

    Parameters:
        options: of its command line, beside those that name address and store.
        port: 0 for one that is free here.
    """

    def __init__(self, store: Path, *options: str, address: str = "127.0.0.1", port: int = 0) -> None:
        if not port:
            with socket.socket() as probe:
                probe.bind((address, 0))
                port = probe.getsockname()[1]
        self.port = port
        self.settings = BusSettings(url=f"nats://{address}:{port}")
        self.process: asyncio.subprocess.Process | None = None
        self.store = store
        self._address = address
        self._options = options

    async def start(self) -> None:
        """Starts it, in the namespace that the calling thread is in, and waits until it listens."""
        self.process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("nats-server")), "--addr", self._address, "--port", str(self.port),
            "--jetstream", "--store_dir", str(self.store), *self._options, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            try:
                _, writer = await asyncio.open_connection(self._address, self.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return

    async def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def begin_anew(self) -> None:
        """SIGKILL, and a start with an empty store."""
        await self.kill()
        shutil.rmtree(self.store)
        await self.start()


class SecuredServer(Server):
    """A nats-server that includes what `foliot keys` wrote; credentials for node3 and node4 are there.

    Parameters:
        hosts: as of `Keyring.make`: with any, the server speaks TLS alone.
    """

    def __init__(self, folder: Path, hosts: tuple[str, ...] = ()) -> None:
        self.keyring = Keyring(folder / "keys", time.time)
        self.keyring.make(hosts)
        for name in ("node3", "node4"):
            self.keyring.issue_node(name)
        super().__init__(folder / "store", "--config", str(self.keyring.server_conf))
        self._open: list[nats.NATS] = []
        self._buses: list[Bus] = []

    def settings_for(self, role: str, name: str = "") -> BusSettings:
        """For a service of this role, of a node if it is a node's; no role: without credentials."""
        folder = self.keyring.folder
        path = self.keyring.path(role, name or role) if role else folder
        ca = folder / "ca.pem"
        return BusSettings(
            url=f"{'tls' if ca.exists() else 'nats'}://127.0.0.1:{self.port}",
            credentials=str(path) if role else "",
            ca=str(ca) if ca.exists() else "",
        )

    async def client(self, role: str, name: str = "") -> tuple[nats.NATS, list[str]]:
        """A bare connection, and what the server forbade it so far."""
        forbidden: list[str] = []

        async def failed(error: Exception) -> None:
            forbidden.append(str(error))

        options = connection.options(self.settings_for(role, name), role)
        client = await nats.connect(**options, allow_reconnect=False, error_cb=failed, connect_timeout=5)
        self._open.append(client)
        return client, forbidden

    async def bus(self, role: str, name: str = "") -> Bus:
        """A service's connection."""
        bus = await Bus.connect(self.settings_for(role, name), role, makes=role not in {*NODE_ROLES, "reader"})
        self._buses.append(bus)
        return bus

    def reload(self) -> None:
        """Lets it read its configuration again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """Closes all connections and ends it."""
        for bus in self._buses:
            await bus.close()
        for client in self._open:
            await client.close()
        await self.kill()


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[Server]:
    """A running server; its `settings` are for `Bus.connect`."""
    server = Server(tmp_path)
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def make_server() -> type[Server]:
    """For tests that start servers of their own."""
    return Server


@pytest.fixture
def bus_settings(nats_server: Server) -> BusSettings:
    """Settings of a NATS server that runs for the test."""
    return nats_server.settings


@pytest.fixture
def bus_free_settings() -> BusSettings:
    """Settings that are never connected with."""
    return BusSettings()


@pytest.fixture
async def buses(bus_settings: BusSettings) -> AsyncIterator[tuple[Bus, Bus]]:
    """Two connections to one server."""
    one, other = [await Bus.connect(bus_settings, name) for name in ("one", "other")]
    yield one, other
    await one.close()
    await other.close()


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[SecuredServer]:
    """A server that asks for credentials."""
    server = SecuredServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[SecuredServer]:
    """A server that asks for credentials and speaks TLS alone."""
    server = SecuredServer(tmp_path, ("127.0.0.1", "nats.example"))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Awaits until a condition holds that no event of ours tells; the deadline is only there to end a broken test."""

    async def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[ReadableSpan]]:
    """The finished spans of a name; services that start exporting of their own do not get to."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=telemetry._Ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "start", lambda *_, **__: None)
    monkeypatch.setattr(telemetry._now, "tracer", provider.get_tracer("test"))
    return lambda name: [span for span in exporter.get_finished_spans() if span.name == name]
