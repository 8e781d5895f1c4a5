"""What tests of several packages need: a real NATS server, and the spans that were made."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foliot import telemetry
from foliot.settings import BusSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from opentelemetry.sdk.trace import ReadableSpan


class Server:
    """A nats-server that can be killed and started again with its store."""

    def __init__(self, store: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.settings = BusSettings(url=f"nats://127.0.0.1:{self.port}")
        self._store = store
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it and waits until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("nats-server")), "--addr", "127.0.0.1", "--port", str(self.port),
            "--jetstream", "--store_dir", str(self._store), stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[Server]:
    """A running server; its `settings` are for `Bus.connect`."""
    server = Server(tmp_path)
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def bus_settings(nats_server: Server) -> BusSettings:
    """Settings of a NATS server that runs for the test."""
    return nats_server.settings


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
