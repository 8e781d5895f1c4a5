"""A NATS server that asks for credentials, and connections with them."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import pytest

from foliot import connection
from foliot.bus import Bus
from foliot.keys.keyring import Keyring
from foliot.settings import BusSettings
from foliot_schemas.permissions import NODE_ROLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

sys.path.insert(0, str(Path(__file__).parent))  # for `machine`


class SecuredServer:
    """A nats-server that includes what `foliot keys` wrote; credentials for node3 and node4 are there.

    Parameters:
        hosts: as of `Keyring.make`: with any, the server speaks TLS alone.
    """

    def __init__(self, folder: Path, hosts: tuple[str, ...] = ()) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.keyring = Keyring(folder / "keys", time.time)
        self.keyring.make(hosts)
        for name in ("node3", "node4"):
            self.keyring.issue_node(name)
        self._store = folder / "store"
        self._process: asyncio.subprocess.Process | None = None
        self._open: list[nats.NATS] = []
        self._buses: list[Bus] = []

    def settings(self, role: str, name: str = "") -> BusSettings:
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

        options = connection.options(self.settings(role, name), role)
        client = await nats.connect(**options, allow_reconnect=False, error_cb=failed, connect_timeout=5)
        self._open.append(client)
        return client, forbidden

    async def bus(self, role: str, name: str = "") -> Bus:
        """A service's connection."""
        bus = await Bus.connect(self.settings(role, name), role, makes=role not in {*NODE_ROLES, "reader"})
        self._buses.append(bus)
        return bus

    async def start(self) -> None:
        """Starts it and waits until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("nats-server")), "--config", str(self.keyring.server_conf),
            "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream", "--store_dir", str(self._store),
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

    def reload(self) -> None:
        """Lets it read its configuration again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """Closes all connections and ends the server."""
        for bus in self._buses:
            await bus.close()
        for client in self._open:
            await client.close()
        if self._process is not None:
            self._process.kill()
            await self._process.wait()


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
def bus_free_settings() -> BusSettings:
    """Settings that are never connected with."""
    return BusSettings()
