"""Fixtures for tests of several packages: real NATS servers, with credentials and without, and the spans made."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import nats
import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import tracing
from foliot.bus import connection
from foliot.keys.keyring import Keyring
from foliot.settings import BusSettings
from foliot_lab.services.ports import keep
from foliot_schemas.permissions import NODE_ROLES
from patience import patience, slowness
from patient_bus import connected
from ports import port_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from foliot.bus.client import Bus


# Probes that tests start write no page where this machine's own has it.
os.environ["FOLIOT_CLOCK__PAGE"] = ""
# Each program that a test starts would compile all that it imports, which takes longer than most of them run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The services of a lab take what was compiled for the tests, and not each lab a folder of its own.
os.environ.setdefault("PYTHONPYCACHEPREFIX", "")
sys.dont_write_bytecode = False
# Its handlers end now and then what another test of this process forks ("Bad file descriptor", four of 300, grpcio
# 1.85).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# How long an example takes is for benches to say: on a busy machine, a second makes seven of some.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# For what looks at each access to memory, and not at what comes out: `make fuzz` draws as many as it has time for.
hypothesis.settings.register_profile("few", hypothesis.settings.get_profile("untimed"), max_examples=20)
hypothesis.settings.load_profile("untimed")

_LAB = "lab"
"""The group of tests that start a lab."""
_TORCH = "torch"
"""The group of tests that use PyTorch, which takes a process three seconds to import, and what forks its ranks as long."""
_USES_TORCH = re.compile(r"import forked_torch|from recorded_job|(import|from) foliot\.torch")
_NICE = 5
"""Of tests beside a lab. Each of its services weighs three times as much as a test that computes meanwhile (sched(7),
weights 1024 and 335). Deadlines of tests that wait for a server still hold."""


@functools.cache
def _group(path: str) -> str:
    """Which tests go together: those of a file; those of all files that start labs; and those that use PyTorch.

    So no lab takes the processors from another, and one process of the tests imports PyTorch.
    """
    text = (Path(__file__).parent / path).read_text()
    if "mark.e2e" in text:
        return _LAB
    return _TORCH if _USES_TORCH.search(text) else path


def pytest_configure(config: pytest.Config) -> None:
    """Whatever programs that tests start leave among temporary files goes when the tests are over: browsers leave some.

    The folders of pytest itself stay where they are, for who looks into them afterwards.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # its parent has done so
    tempfile.gettempdir()  # this process's, from now on
    folder = tempfile.TemporaryDirectory(prefix="foliot-tests-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o711)  # tests have other users, too
    os.environ["TMPDIR"] = folder.name
    config.add_cleanup(folder.cleanup)


def pytest_sessionstart() -> None:
    """Measures how fast the machine is, before anything waits."""
    slowness()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leaves the modules and tests that are found out of what the garbage collector looks through, then and later.

    They stay until the end. While they are made, it would look through all of them again and again, a fifth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Where several processes share the tests, groups are shared out, labs first, and small ones last.

    Tests of the whole, in `tests`, wait longer than they compute, and a file of them may take a minute. So they come
    before those of the packages, which have something left for every process until the end.

    Not by marks and ``--dist=loadgroup``: that reads a field that pytest 9.2 has no more. Then it shares out tests one
    by one, without a word (pytest-xdist 3.8, its issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where it is used

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.partition("::")[0])

        def _assign_work_unit(self, node: object) -> None:
            first = min(
                self.workqueue, key=lambda group: (group != _LAB, group != _TORCH, not group.startswith("tests/"))
            )
            self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lets a process beside that of the labs stand back, and makes sure that one process alone has labs.

    A process does both once, by its first test.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    if _group(item.nodeid.partition("::")[0]) != _LAB:
        _stand_back()
    elif not _has_labs():
        pytest.fail("two processes of one run start labs: they were not shared out by group")


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A bench or command run by a test in this process may say how much is logged: for itself, not for later tests."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


@functools.cache
def _stand_back() -> None:
    os.nice(_NICE)


@functools.cache
def _has_labs() -> bool:
    """Whether this process is the only one of its run that starts labs: it has a name that another could not take."""
    _held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        _held[0].bind(f"\0foliot-labs-{os.environ['PYTEST_XDIST_TESTRUNUID']}")
    except OSError:
        return False
    return True


_held: list[socket.socket] = []


class Server:
    """A nats-server that can be killed and started again with its store.

    Parameters:
        options: of its command line, beside those that name address and store.
        port: 0 for one that is kept free here, see `ports.port_for`.
    """

    def __init__(self, store: Path, *options: str, address: str = "127.0.0.1", port: int = 0) -> None:
        port = port or port_for(self, address)
        self.port = port
        self.settings = BusSettings(url=f"nats://{address}:{port}")
        self.process: asyncio.subprocess.Process | None = None
        self.store = store
        self._address = address
        self._options = options

    async def start(self) -> None:
        """Starts it, in the namespace that the calling thread is in, and waits until it listens.

        Raises:
            RuntimeError: it ended instead.
        """
        self.process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("nats-server")), "--addr", self._address, "--port", str(self.port),
            "--jetstream", "--store_dir", str(self.store), *self._options, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            try:
                _, writer = await asyncio.open_connection(self._address, self.port)
            except OSError as error:
                if self.process.returncode is not None:
                    raise RuntimeError(
                        f"nats-server on port {self.port} ended with {self.process.returncode}"
                    ) from error
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
        self._open = contextlib.AsyncExitStack()

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
        client = await nats.connect(**options, allow_reconnect=False, error_cb=failed, connect_timeout=patience(20))
        self._open.push_async_callback(client.close)
        return client, forbidden

    async def bus(self, role: str, name: str = "") -> Bus:
        """A service's connection, see `connected`."""
        makes = role not in {*NODE_ROLES, "reader"}
        return await self._open.enter_async_context(connected(self.settings_for(role, name), role, makes=makes))

    def reload(self) -> None:
        """Lets it read its configuration again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    async def disconnect(self) -> None:
        """Closes all connections."""
        await self._open.aclose()

    async def stop(self) -> None:
        """Closes all connections and ends it."""
        await self.disconnect()
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
def kept_port() -> Iterator[int]:
    """A port that is kept for a server of the test."""
    with keep() as keeper:
        yield keeper.getsockname()[1]


@pytest.fixture
def bus_settings(nats_server: Server) -> BusSettings:
    """Settings of a NATS server that runs for the test."""
    return nats_server.settings


@pytest.fixture
def bus_free_settings() -> BusSettings:
    """Settings that are never connected with."""
    return BusSettings()


@pytest.fixture
async def bus(bus_settings: BusSettings) -> AsyncIterator[Bus]:
    """A connection to it."""
    async with connected(bus_settings) as bus:
        yield bus


@pytest.fixture
async def buses(bus_settings: BusSettings) -> AsyncIterator[tuple[Bus, Bus]]:
    """Two connections to one server."""
    async with connected(bus_settings, "one") as one, connected(bus_settings, "other") as other:
        yield one, other


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
def free_port() -> Iterator[Callable[..., int]]:
    """Finds ports that nobody has, and that no other process of the tests gets before this test has ended.

    A TCP port is one of 127.0.0.1. A UDP port is one of all other loopback addresses, of which each test has its own.
    """
    with contextlib.ExitStack() as holders:

        def find(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
            holder = holders.enter_context(keep(kind=kind))
            return int(holder.getsockname()[1])

        yield find


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Awaits until a condition holds that no event of ours tells; the deadline is only there to end a broken test."""

    async def wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
        async with asyncio.timeout(patience(seconds)):
            while not condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[ReadableSpan]]:
    """The finished spans of a name; services that start exporting of their own do not get to."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=tracing._Ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "start", lambda *_, **__: None)
    monkeypatch.setattr(tracing._now, "tracer", provider.get_tracer("test"))
    return lambda name: [span for span in exporter.get_finished_spans() if span.name == name]
