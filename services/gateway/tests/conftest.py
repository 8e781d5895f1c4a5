"""The gateway on a real socket."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from foliot_gateway import service
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from patience import patience


@pytest.fixture
def store():
    """What an empty gateway knows."""
    return Store(GatewaySettings(body_bytes=1 << 20))


@pytest.fixture
async def client(store):
    """HTTP to the gateway's application, served by uvicorn on a real socket; its `base_url` says where."""
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    serving = asyncio.ensure_future(service.serve(store, [listener]))
    async with httpx.AsyncClient(base_url=base_url, timeout=patience(30), trust_env=False) as connected:
        yield connected
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.fixture
def eventually():
    """Awaits until a look finds something; the deadline is only there to end a broken test."""

    async def look_until(look, seconds=30.0):
        async with asyncio.timeout(patience(seconds)):
            while not (found := await look()):  # noqa: ASYNC110 - it looks at another process, which sets no event
                await asyncio.sleep(0.05)
            return found

    return look_until
