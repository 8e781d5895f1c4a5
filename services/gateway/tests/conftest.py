"""The real parts: a NATS server, and the gateway on a socket of its own."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import httpx
import pytest

from foliot.settings import BusSettings
from foliot_gateway import service
from foliot_gateway.present import Present
from foliot_gateway.settings import GatewaySettings


class Nats:
    """A nats-server that can be killed and started again with its store."""

    def __init__(self, store: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.settings = BusSettings(url=f"nats://127.0.0.1:{self.port}")
        self._store = store
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it and waits until it listens."""
        binary = str(Path(sys.executable).with_name("nats-server"))
        self._process = await asyncio.create_subprocess_exec(
            binary, "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream", "--store_dir", str(self._store),
            stderr=asyncio.subprocess.DEVNULL,
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
async def nats_server(tmp_path):
    """A running server; its `settings` are for `Bus.connect`."""
    server = Nats(tmp_path)
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def present():
    """What an empty gateway knows."""
    return Present(GatewaySettings(body_bytes=1 << 20))


@pytest.fixture
async def client(present):
    """HTTP to the gateway's application, served by uvicorn on a real socket; its `base_url` says where."""
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.ensure_future(service.serve(present, [listener]))
    async with httpx.AsyncClient(base_url=base_url, timeout=30, trust_env=False) as connected:
        yield connected
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.fixture
def eventually():
    """Awaits until a look finds something; the deadline is only there to end a broken test."""

    async def look_until(look, seconds=30.0):
        async with asyncio.timeout(seconds):
            while not (found := await look()):  # noqa: ASYNC110 - it looks at another process, which sets no event
                await asyncio.sleep(0.05)
            return found

    return look_until
