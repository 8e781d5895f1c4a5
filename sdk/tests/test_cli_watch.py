"""``foliot watch`` on a real NATS server: once as a person runs it, and otherwise forked."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import sys
from pathlib import Path

import forked
import msgspec
import nats
import pytest

from foliot.bus.client import Bus
from foliot.text.messages import one_line
from foliot_schemas import Command, Event, NodePaths, Outcome, Rejected, encode
from foliot_schemas.subjects import CLOCK, COMMAND, EVENT, OUTCOME, PATHS, REJECTED
from patience import patience

pytestmark = pytest.mark.nats

FOLIOT = Path(sys.executable).with_name("foliot")
NOW_NS = 1_790_000_000_123_000_000
DOWN = "2026-09-21T14:13:20.123Z  event        node3.rail0 lost its carrier (penalty 1000, suppressed no)"


def event(number=0, **fields):
    """An event of its own id."""
    return Event(
        id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=NOW_NS, since_ns=NOW_NS,
        evidence={"penalty": 1_000.0, "suppressed": False}, **fields,
    )  # fmt: skip


def _interruptible():
    """What a shell starts in the background ignores an interrupt, and so would what the tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


async def _by_name(*arguments, stdout, stderr):
    """The command as a person starts it."""
    return await asyncio.create_subprocess_exec(
        FOLIOT, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr, preexec_fn=_interruptible
    )


async def _forked(*arguments, stdout, stderr):
    """The same by what has imported it."""
    return forked.start("foliot.cli", *arguments, stdout=stdout, stderr=stderr)


async def _pipe():
    """What comes from a program, how to stop reading it, and the descriptor that the program writes to."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
    )
    return reader, transport, writing


class Foliot:
    """The command, running; its output by lines."""

    def __init__(self):
        self.process = self.stdout = self.stderr = None
        self._pipes = ()

    async def start(self, how, *arguments):
        """Starts it."""
        self.stdout, out, writes_out = await _pipe()
        self.stderr, errors, writes_errors = await _pipe()
        self._pipes = out, errors
        try:
            self.process = await how(*map(str, arguments), stdout=writes_out, stderr=writes_errors)
        finally:
            os.close(writes_out)
            os.close(writes_errors)
        return self

    def close_output(self):
        """Nobody reads it any more."""
        self._pipes[0].close()

    def close(self):
        """Ends it."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        for each in self._pipes:
            each.close()

    async def line(self):
        """The next line of its output."""
        async with asyncio.timeout(patience(60)):
            return (await self.stdout.readline()).decode().rstrip("\n")

    async def said(self, sentence):
        """Waits until it said this on standard error."""
        async with asyncio.timeout(patience(60)):
            while sentence not in (line := (await self.stderr.readline()).decode()):
                assert line, f"it ended and did not say {sentence!r}"

    async def ended(self):
        """Its exit status, and what was left of its output and errors."""
        async with asyncio.timeout(patience(60)):
            out, errors = await asyncio.gather(self.stdout.read(), self.stderr.read())
            return await self.process.wait(), out.decode(), errors.decode()


@pytest.fixture
async def bus(nats_server):
    """A service's connection; streams and buckets are there."""
    bus = await Bus.connect(nats_server.settings, "detector")
    yield bus
    await bus.close()


@pytest.fixture
def watch(nats_server, watch_at):
    """Starts ``foliot watch`` on the server."""
    return functools.partial(watch_at, nats_server.settings.url)


@pytest.fixture
async def watch_at():
    """Starts ``foliot watch`` on a bus, and ends what is left."""
    running = []

    async def start(url, *arguments, how=_forked):
        running.append(Foliot())
        return await running[-1].start(how, "watch", *arguments, "--bus", url)

    yield start
    for each in running:
        each.close()
        if each.process is not None:
            await each.process.wait()


async def kept(bus, channel, message, *names):
    """Published, and stored."""
    before = bus.counts["kept"]
    bus.publish_kept(channel, message, *names)
    async with asyncio.timeout(patience(60)):
        while bus.counts["kept"] == before:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.01)


async def hears(seen, bus, channel):
    """Once it hears the channel: it is called until it answers, and then has shown all calls."""
    answer = asyncio.ensure_future(seen.line())
    while not answer.done():
        await bus._client.publish(channel.subject("call"), b"")
        await asyncio.wait([answer], timeout=0.1)
    await bus._client.publish(channel.subject("last-call"), b"")
    while "last-call" not in await seen.line():
        pass


async def test_what_comes_is_told_in_words_until_interrupted(bus, watch):
    """A line a message with the time in it, and no fuss at Ctrl-C."""
    seen = await watch("event.flap.node3.rail0", "rejected", how=_by_name)
    await seen.said("listening at")
    await hears(seen, bus, REJECTED)
    await kept(bus, EVENT, event(), "flap", "node3.rail0")

    assert await seen.line() == DOWN
    seen.process.send_signal(signal.SIGINT)
    assert await seen.ended() == (0, "", "")


async def test_it_says_where_and_to_what_it_listens(nats_server, bus, watch):
    """On standard error, once it does: a bus on which nothing happens looks like no hang.

    Not if it will not wait for more.
    """
    seen = await watch("event.flap.node3.rail0", "inventory")
    where = f"127.0.0.1:{nats_server.port}"
    await seen.said(f"foliot watch: listening at {where} to foliot.v1.event.flap.node3_2erail0, $KV.inventory.>\n")

    assert await (await watch("inventory", "--no-follow")).ended() == (0, "", "")


async def test_a_message_that_cannot_be_read_is_said_and_the_next_one_shown(bus, watch):
    """Garbage, a message of a future version, and a channel of which this version knows nothing."""
    seen = await watch(">")
    await hears(seen, bus, REJECTED)
    newer = msgspec.msgpack.encode({"type": "event.v9", "id": "x"})

    for subject, data in (("event.flap.x", b"\xff"), ("event.flap.x", newer), ("gossip.x", encode(event()))):
        await bus._client.publish(f"foliot.v1.{subject}", data)
    await bus.publish(REJECTED, Rejected(service="sync", subject="s", reason="r", head=b""), "sync")

    assert (await seen.line()).endswith("1 bytes on foliot.v1.event.flap.x that cannot be read: no message of Foliot's")
    assert (await seen.line()).endswith("cannot be read: event.v9 is not known to this version")
    assert "node3.rail0 lost its carrier" in await seen.line()
    assert (await seen.line()).endswith("rejected     sync could not read s: r")


async def test_what_streams_have_kept_is_shown_first(bus, watch):
    """Of all streams, in the order of time; the newest N, or all of an age."""
    for number in range(30):
        await kept(bus, EVENT, event(number), "flap", "node3.rail0")
    command = Command(
        id="c1", verb="reroute", node="node3", cause="e29", issued_ns=NOW_NS, deadline_ns=NOW_NS, lease_revision=1,
        away=("rail0",),
    )  # fmt: skip
    await kept(bus, COMMAND, command, "reroute", "node3")
    outcome = Outcome(id="o1", command="c1", verb="reroute", node="node3", status="failed", reason="no such device")
    await kept(bus, OUTCOME, outcome, "reroute", "node3")

    _, out, _ = await (await watch("--last", 3, "--no-follow", "--json")).ended()
    assert [json.loads(line)["message"]["id"] for line in out.splitlines()] == ["e29", "c1", "o1"]
    _, out, _ = await (await watch("event", "--since", "1h", "--no-follow", "--json")).ended()
    assert [json.loads(line)["message"]["id"] for line in out.splitlines()] == [f"e{number}" for number in range(30)]
    _, out, _ = await (await watch("--last", 2, "--count", 2)).ended()
    first, second = (line.partition("Z  ")[2] for line in out.splitlines())
    assert first == "command      node3 is told to reroute (away from rail0)"
    assert second == "outcome      node3 reroute: failed: no such device"


def test_an_order_of_another_verb_is_told_by_its_fields():
    """Whether this version knows the verb or not."""
    action = {"verb": "mark", "rail": "rail0", "sizes": [1, 2], "alias": ""}
    command = Command(
        id="c", verb="mark", node="node3", cause="e", issued_ns=1, deadline_ns=2, lease_revision=1, action=action
    )
    done = Outcome(
        id="o", command="c", verb="mark", node="node3", status="done", started_ns=1_000_000, confirmed_ns=3_000_000,
        expected=1, action=action,
    )  # fmt: skip
    assert one_line(command) == "node3 is told to mark (rail rail0, sizes (2))"
    assert one_line(done) == "node3 mark: done (rail rail0, sizes (2)), confirmed after 2 ms"


async def test_the_newest_of_one_subject_are_found_below_many_others(bus, watch):
    """The search goes back as far as it must."""
    for number in range(3):
        one = msgspec.structs.replace(event(number), kind="path", who="a.r>b.r#0")
        await kept(bus, EVENT, one, "path", "a.r>b.r#0")
    for number in range(3, 60):
        bus.publish_kept(EVENT, event(number), "flap", "node3.rail0")
    async with asyncio.timeout(patience(60)):
        while bus.counts["kept"] < 60:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.01)

    _, out, _ = await (await watch("event.path", "--last", 2, "--no-follow", "--json")).ended()

    assert [json.loads(line)["message"]["id"] for line in out.splitlines()] == ["e1", "e2"]


async def test_a_bucket_tells_what_is_there_and_then_what_changes(bus, watch):
    """Also that a key was deleted."""
    await bus.put(PATHS, "node.3", NodePaths(node="node.3", lease_revision=1))
    seen = await watch("paths", "--json", "--count", 3)
    first = json.loads(await seen.line())
    await bus.put(PATHS, "node.3", NodePaths(node="node.3", lease_revision=2))
    await (await bus.store(PATHS)).delete("node_2e3")
    _, out, _ = await seen.ended()

    lines = [first, *map(json.loads, out.splitlines())]
    assert [(line["bucket"], line["key"]) for line in lines] == [("paths", "node.3")] * 3
    assert [line["message"] and line["message"]["lease_revision"] for line in lines] == [1, 2, None]


async def test_it_waits_for_a_bus_that_is_away_and_shows_what_it_missed(nats_server, bus, watch):
    """It says so once, and what was stored while it was cut off comes after all, once."""
    seen = await watch("event", "rejected", "--json")
    await hears(seen, bus, REJECTED)
    await nats_server.kill()
    where = f"127.0.0.1:{nats_server.port}"
    await seen.said(f"the bus at {where} is away; waiting for it")
    await nats_server.start()
    await seen.said(f"the bus at {where} is back")
    for number in range(3):
        await kept(bus, EVENT, event(number), "flap", "node3.rail0")

    assert [json.loads(await seen.line())["message"]["id"] for _ in range(3)] == ["e0", "e1", "e2"]


async def test_a_bus_that_is_not_there_is_waited_for_by_its_address(make_server, tmp_path, watch_at):
    """Without the password that the address may hold."""
    server = make_server(tmp_path)
    where = f"127.0.0.1:{server.port}"
    seen = await watch_at(f"nats://me:secret@{where}")
    await seen.said(f"foliot watch: the bus at {where} is away; waiting for it\n")
    await server.start()
    try:
        await seen.said(
            f"foliot watch: listening at {where} to foliot.v1.event.>, foliot.v1.command.>, foliot.v1.outcome.>"
        )
    finally:
        await server.kill()


async def test_who_waits_for_no_messages_waits_for_no_bus_either(watch_at, kept_port):
    """A script is meant to end: where nothing listens, and where nobody speaks."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, why in (
            (kept_port, "nothing listens there (connection refused)"),
            (silent.getsockname()[1], "no answer in time"),
        ):
            seen = await watch_at(f"nats://me:secret@127.0.0.1:{port}", "inventory", "--no-follow")

            assert await seen.ended() == (1, "", f"foliot watch: the bus at 127.0.0.1:{port} does not answer: {why}\n")


async def test_it_leaves_quietly_when_nobody_reads_any_more(bus, watch):
    """As in ``foliot watch | head -1``, and also while there is nothing to write."""
    seen = await watch("clock")
    await seen.said("listening at")
    await hears(seen, bus, CLOCK)
    seen.close_output()

    async with asyncio.timeout(patience(60)):
        assert await seen.process.wait() == 0
    assert await seen.stderr.read() == b""


async def test_nothing_is_made_on_a_bus_that_has_nothing(nats_server, watch):
    """It listens and never makes a stream or a bucket; what is not there is said."""
    seen = await watch("event", "inventory", "--since", "5m", "--no-follow")
    status, out, errors = await seen.ended()
    client = await nats.connect(nats_server.settings.url)
    made = await client.jetstream().streams_info()
    await client.close()

    assert (status, out, made) == (0, "", [])
    assert "the bus has no bucket inventory yet" in errors
    assert "the bus has no stream EVENTS yet" in errors


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["evnt"], 1, "nothing travels at 'evnt'"),
        (["--since", "yesterday"], 2, "expected an age such as 90s, 10m, 6h or 2d"),
        (["--last", "0"], 2, "expected a number from 1"),
    ],
)
async def test_a_wrong_question_is_answered_at_once(watch, arguments, status, sentence):
    """With what would be right."""
    ended, _, errors = await (await watch(*arguments)).ended()

    assert ended == status
    assert sentence in errors
