"""Any bytes on any subject and socket: every service goes on, says what it could not read, and takes no more memory."""

from __future__ import annotations

import asyncio
import random
import socket

import fleet as fleets
import mutation
import pytest
import seeds
from targets import KINDS

from foliot_agent.core.peer_protocol import Seal
from foliot_schemas import decode, encode
from foliot_schemas.subjects import BUCKETS, CHANNELS, SERVICES

pytestmark = pytest.mark.nats

THIRD = 2_000
"""Messages in each third of the flood."""
MOST_GROWN_KIB = 2 * 1024
"""Between the first and the last third, which is 4,000 messages: 1.2 MiB at most were seen after four times as many."""
READS = {"sync", "detector", "remediator", "gateway", "agent", "probe"}


@pytest.fixture(params=[SERVICES], ids=["all"])
async def fleet(request, nats_server, bus, tmp_path):
    """All services at work, or some."""
    made = fleets.Fleet(bus, tmp_path, nats_server.settings.url, request.param)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


class Flood:
    """Seeded hostile messages, each to a subject that somebody reads."""

    def __init__(self, client, seed: int) -> None:
        self._client = client
        self._draw = random.Random(seed)
        self._sound = {kind: [seed[1:] for seed in seeds.of("messages") if KINDS[seed[0]] is kind] for kind in KINDS}

    async def send(self, count: int) -> None:
        """So many, with a pause now and then, so that the server lets nobody go as too slow."""
        for number in range(count):
            subject, data, headers = self._next()
            await self._client.publish(subject, data, headers=headers)
            if number % 100 == 99:
                await self._client.flush()
                await asyncio.sleep(0.02)

    def _next(self):
        draw = self._draw
        headers = draw.choice([None, None, None, _headers(draw)])
        if draw.random() < 0.2:
            bucket = draw.choice(BUCKETS[:-1])  # the lease's own revision is not read, but compared by the server
            key = draw.choice(["node0", "node1", "_zz", "evil.node1", f"n{draw.getrandbits(32):x}"])
            # Never a sound record: what the inventory names may be remembered.
            return f"$KV.{bucket.name}.{key}", draw.randbytes(draw.randrange(200)), headers
        channel = draw.choice(CHANNELS)
        sound = draw.choice(self._sound[channel.message])
        match draw.randrange(5):
            case 0:
                data = draw.randbytes(draw.choice([0, 1, 50, 5_000]))
            case 1:
                data = sound[: draw.randrange(len(sound))]
            case 2:
                data = encode(fleets.random_names(draw, decode(sound, channel.message)))
            case _:
                data = mutation.mutate(sound, 0, draw.getrandbits(32))
        return _subject(channel, data, draw), data, headers


def _subject(channel, data, draw):
    """The one that the message speaks of, if it is one; else any."""
    try:
        message = decode(data, channel.message)
        return channel.subject(*(getattr(message, token) for token in channel.tokens))
    except (ValueError, AttributeError):
        return channel.subject(*(draw.choice(["node0", "node1", "flap", "reroute"]) for _ in channel.tokens))


def _headers(draw):
    return draw.choice(
        [
            {"Nats-Msg-Id": "i" * draw.choice([1, 5_000])},
            {"Nats-Msg-Id": f"{draw.getrandbits(64):x}", "traceparent": draw.choice(["", "00-zz-1-01", "x" * 500])},
            {"traceparent": f"00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01", "tracestate": "a=b,,=,"},
            {"KV-Operation": draw.choice(["DEL", "PURGE", "nonsense"])},
        ]
    )


async def test_any_bytes_on_any_subject(fleet):
    """6,000 messages, most of them unreadable: all six go on working, all say so, and memory stays where it was."""
    flood = Flood(fleet.bus._client, seed=5)
    await flood.send(THIRD)
    await fleet.works()
    first = fleet.memory_kib()
    await flood.send(2 * THIRD)
    await fleet.works()
    last = fleet.memory_kib()

    assert {service for service in SERVICES if fleet.rejected[service]} == READS
    grown = {service: last[service] - first[service] for service in SERVICES}
    assert max(grown.values()) < MOST_GROWN_KIB, grown


@pytest.mark.parametrize("fleet", [("agent", "probe")], indirect=True, ids=["node"])
async def test_any_datagrams_at_probe_and_agent(fleet):
    """Random, truncated, replayed, under another key, too long, from strangers: both go on, say so, and do not grow."""
    draw = random.Random(6)
    (notice, seen, echo), packets = seeds.of("datagrams"), seeds.of("probes")
    seal, wrong = Seal(fleets.KEY), Seal("a key of somebody else's")
    sealed = [seal._digest(body) + body for body in (notice, seen, echo)]
    other = [wrong._digest(body) + body for body in (notice, seen, echo)]
    nic = fleet.own.nics[0]
    ends = [(nic.address, fleet.own.agent_port), (nic.path_addresses[0], fleet.own.probe_port)]

    def datagram():
        base = draw.choice([*sealed, *other, *packets])
        mutated = mutation.mutate(notice, 0, draw.getrandbits(32))
        return draw.choice(
            [
                draw.randbytes(draw.randrange(0, 300)), base, base[: draw.randrange(len(base))],
                draw.randbytes(9_000), seal._digest(mutated) + mutated,
            ]
        )  # fmt: skip

    async def send(count):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.9.9.9", 0))
            for number in range(count):
                for end in ends:
                    stranger.sendto(datagram(), end)
                if number % 50 == 49:
                    await asyncio.sleep(0.02)

    await send(THIRD)
    await fleet.works()
    first = fleet.memory_kib()
    await send(2 * THIRD)
    await fleet.works()
    last = fleet.memory_kib()

    await fleets.until(lambda: fleet.rejected["agent"] and fleet.rejected["probe"], "both say what they could not read")
    assert max(last[service] - first[service] for service in ("agent", "probe")) < MOST_GROWN_KIB
