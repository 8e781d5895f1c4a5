"""A visit to a bus that does not answer: why, in words for a person."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl

import nats.errors
import pytest
from nats.js.errors import ServiceUnavailableError

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.settings import BusSettings


async def why(url: str, within_s: float = 3_600.0) -> str:
    """What a visit says."""
    try:
        async with OneShot(BusSettings(url=url), within_s):
            pytest.fail("the bus answered")
    except BUS_ERRORS as error:
        return in_words(error)


@contextlib.asynccontextmanager
async def web_server():
    """Something that speaks, and not as NATS does. Yields its port."""

    async def serve(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_why_the_bus_does_not_answer_is_said_in_plain_words(kept_port):
    """Nobody listens, is known, speaks, or speaks as NATS does. Only a silence takes all of the time."""
    async with web_server() as web:
        assert await why(f"nats://127.0.0.1:{web}") == "what listens there does not speak as a NATS server does"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await why(f"nats://127.0.0.1:{silent.getsockname()[1]}", within_s=1.0) == "no answer in time"
    assert await why(f"nats://127.0.0.1:{kept_port}") == "nothing listens there (connection refused)"
    assert "name" in await why("nats://nowhere.invalid:4222")
    for url in ("nats://[::1", "nats://", "nats://host:port"):
        assert await why(url) == "the address cannot be read: give it as nats://host:4222"


async def test_a_slow_bus_is_not_taken_for_one_without_jetstream(monkeypatch):
    """It did not answer in time, and that is what is said."""

    async def slow():
        raise nats.errors.TimeoutError

    visit = OneShot(BusSettings())
    monkeypatch.setattr(visit._stream, "account_info", slow)
    with pytest.raises(TimeoutError):
        await visit.has_jetstream()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("Multiple exceptions: [Errno 111] Connect call failed (1), [Errno 101] Connect call failed (2)"),
         "connection refused and network is unreachable"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 4222)"), "no route to host"),
        (OSError(), "it cannot be connected to"),
        (ServiceUnavailableError(), "JetStream does not answer"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "TLS does not come about (no reason told)"),
    ],
)  # fmt: skip
def test_errors_have_words_without_classes_and_numbers(error, words):
    """Also those that are hard to come by."""
    assert in_words(error) == words
