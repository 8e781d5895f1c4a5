"""The examples of docs/subscribe.md, run as a reader would, on a real NATS server with messages of the sdk's Bus."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import nats.errors
import pytest
from nats.js import api

from foliot import tracing
from foliot.bus.client import Bus
from foliot_schemas import ClockState, Event, Node, Outcome
from foliot_schemas.fault import trace_id
from foliot_schemas.subjects import CHANNELS, CLOCK, EVENT, INVENTORY, OUTCOME
from patience import patience

pytestmark = pytest.mark.nats

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CLOCK_STATE = ClockState(
    clock="node3", reference="node0", offset_ns=5, drift_ppb=0.0, hard_bound_ns=900, bound_ns=400, growth_ppb=80.0,
    as_of_ns=1_000, void_after_ns=2_000, status="synchronised",
)  # fmt: skip
FAULT = "boot/node3.rail0/carrier-1"


def event(number):
    """An event of its own id."""
    return Event(
        id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number, fault=FAULT
    )


@pytest.fixture
async def bus(nats_server):
    """A service's connection; the inventory has a node."""
    bus = await Bus.connect(nats_server.settings, "detector")
    await bus.put(INVENTORY, "rack1.node3", Node(name="rack1.node3", nics=()))
    yield bus
    await bus.close()


class Example:
    """The Python example, running."""

    def __init__(self, process):
        self.process = process

    @classmethod
    async def start(cls, url):
        """Starts it."""
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(sys.executable, EXAMPLES / "subscribe.py", url, stdout=pipe))

    async def line(self, beginning):
        """The next line that begins so; any other is wrong."""
        async with asyncio.timeout(patience(60)):
            line = (await self.process.stdout.readline()).decode().strip()
        assert line.startswith(beginning)
        return line

    async def end(self):
        """Killed."""
        self.process.kill()
        return (await self.process.communicate())[0]


@pytest.fixture
async def example(nats_server):
    """Starts the example, as often as it is asked to."""
    running = []

    async def start():
        running.append(await Example.start(nats_server.settings.url))
        return running[-1]

    yield start
    for each in running:
        if each.process.returncode is None:
            await each.end()


async def has_consumer(bus, stream, name, acknowledged=0):
    """Once the durable consumer is there, and so many of the stream's messages are acknowledged."""
    async with asyncio.timeout(patience(60)):
        while True:
            found = {info.name: info for info in await bus._stream.consumers_info(stream)}
            if name in found and found[name].ack_floor.stream_seq >= acknowledged:
                return
            await asyncio.sleep(0.05)


async def test_the_python_example_hears_everything_once_and_what_it_missed(bus, example, spans):
    """Events, outcomes, clocks and nodes; after it was away, what came meanwhile, and nothing of before."""
    reader = await example()
    assert await reader.line("node") == "node rack1.node3 []"
    await has_consumer(bus, "EVENTS", "example-tool-events")
    await has_consumer(bus, "OUTCOMES", "example-tool-outcomes")

    with tracing.span("judge port change", fault=FAULT):
        bus.publish_kept(EVENT, event(1), "flap", "node3.rail0")
    assert await reader.line("event") == f"event e1 node3.rail0 down {trace_id(FAULT):032x}"
    outcome = Outcome(id="o1", command="c1", verb="reroute", node="node3", status="done")
    bus.publish_kept(OUTCOME, outcome, "reroute", "node3")
    await reader.line("outcome o1 node3 done")
    await bus.publish(CLOCK, CLOCK_STATE, "node3")
    assert await reader.line("clock") == "clock node3 synchronised (1005, 400)"
    await bus._client.publish(EVENT.subject("flap", "x"), b"\xff")
    await reader.line("skipped foliot.v1.event.flap.x")
    await has_consumer(bus, "EVENTS", "example-tool-events", acknowledged=2)
    await reader.end()

    bus.publish_kept(EVENT, event(2), "flap", "node3.rail0")
    again = await example()
    await again.line("node")
    await again.line("event e2")
    bus.publish_kept(EVENT, event(3), "flap", "node3.rail0")
    await again.line("event e3")


async def ended(*arguments):
    """Exit status, output and errors of the Python example, which ends by itself."""
    pipe = asyncio.subprocess.PIPE
    example = (sys.executable, EXAMPLES / "subscribe.py", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*example, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(patience(60)):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, out.decode(), errors.decode()


async def test_the_python_example_says_where_there_is_no_bus(kept_port):
    """In a sentence that names the address, with the reason above it."""
    status, out, errors = await ended(f"nats://127.0.0.1:{kept_port}")

    assert (status, out) == (1, "")
    assert "Connect call failed" in errors
    assert errors.splitlines()[-1].startswith(f"There is no way onto the bus at nats://127.0.0.1:{kept_port}: ")
    assert "Traceback" not in errors


@pytest.mark.parametrize("content", ["broken", "none"])
async def test_the_python_example_says_that_it_is_not_let_in(secured, tmp_path, content):
    """Without credentials, and with a file that has none in it."""
    file = tmp_path / "my-tool.creds"
    if content == "broken":
        file.write_text("no credentials\n")
    who = () if content == "none" else (file, "my-tool")
    status, out, errors = await ended(f"nats://127.0.0.1:{secured.port}", *who)

    assert (status, out) == (1, "")
    assert errors.splitlines()[-1].startswith(f"There is no way onto the bus at nats://127.0.0.1:{secured.port}")
    assert str(file) in errors or content == "none"
    assert "Traceback" not in errors


async def test_the_python_example_names_credentials_that_are_not_there(tmp_path):
    """Before it asks anybody."""
    file = tmp_path / "my-tool.creds"
    said = f"The credentials {file} cannot be read: No such file or directory\n"

    assert await ended("nats://127.0.0.1:1", file, "my-tool") == (1, "", said)


async def test_the_python_example_says_that_the_name_may_not_fit_the_credentials(secured):
    """The bus lets nobody listen for another's answers, so none comes."""
    secured.keyring.issue("reader", "my-tool")
    settings = secured.settings_for("reader", "my-tool")
    status, out, errors = await ended(settings.url, settings.credentials, "your-tool")

    assert (status, out) == (1, "")
    assert "_inbox.reader.your-tool" in errors.lower()
    assert errors.splitlines()[-1] == (
        "The bus cannot be listened to: no answer in time. It forbade something before: "
        f"the name your-tool may not fit the credentials {settings.credentials}"
    )


async def test_the_python_example_says_that_the_bus_has_no_jetstream(tmp_path, kept_port):
    """In words; the server's answer has none."""
    config = tmp_path / "nats.conf"
    config.write_text(f"listen: 127.0.0.1:{kept_port}\n")
    server = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("nats-server"), "--config", config, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(patience(60)):
            while (told := await ended(f"nats://127.0.0.1:{kept_port}"))[2].startswith("the bus:"):
                pass  # it does not listen yet
    finally:
        server.kill()
        await server.wait()

    assert told == (
        1, "", "The bus cannot be listened to: JetStream does not answer; start nats-server with --jetstream\n",
    )  # fmt: skip


async def test_the_python_example_has_words_for_errors_that_have_none():
    """An exception is always true, also one without a text."""
    example = runpy.run_path(str(EXAMPLES / "subscribe.py"))

    assert example["reason"](EOFError()) == "EOFError"
    assert example["reason"](nats.errors.ConnectionClosedError()) == "connection closed"
    assert example["reason"](TimeoutError()) == "no answer in time"


async def test_the_python_example_says_that_the_bus_has_nothing_yet(nats_server):
    """Where no service has made the bucket; and it makes none itself."""
    assert await ended(nats_server.settings.url) == (
        1, "", "The bus has no bucket inventory yet: none of Foliot's services has run on it.\n",
    )  # fmt: skip


async def test_the_python_example_says_how_it_is_called():
    """Credentials without the name in them would hear no answer."""
    status, _, errors = await ended("nats://127.0.0.1:1", "my-tool.creds")

    assert status == 1
    assert "python subscribe.py nats://127.0.0.1:4222 keys/tools/my-tool.creds my-tool" in errors


@pytest.mark.skipif(shutil.which("nats") is None, reason="the command nats (natscli) is not installed")
async def test_the_shell_example_hears_events_catches_up_and_reads_a_key(nats_server, bus):
    """With the command ``nats`` itself."""

    async def run(*arguments, **more):
        return await asyncio.create_subprocess_exec(
            EXAMPLES / "listen.sh", *arguments, stdout=asyncio.subprocess.PIPE,
            env=os.environ
            | {"NATS_URL": nats_server.settings.url, "DECODE": f"{sys.executable} {EXAMPLES / 'decode.py'}"}
            | more,
        )  # fmt: skip

    async def output(process):
        async with asyncio.timeout(patience(60)):
            return (await process.communicate())[0].decode()

    assert '"name":"rack1.node3"' in await output(await run("node", "rack1_2enode3"))
    waiting = await run("missed")
    await has_consumer(bus, "EVENTS", "example-cli")
    bus.publish_kept(EVENT, event(1), "flap", "node3.rail0")
    assert '"id":"e1"' in await output(waiting)
    live = await run("events", COUNT="1")
    heard = asyncio.ensure_future(output(live))
    while not heard.done():
        await bus.publish(EVENT, event(2), "flap", "node3.rail0")
        await asyncio.wait([heard], timeout=0.2)
    assert '"id":"e2"' in heard.result()


async def test_what_the_shell_example_asks_for_is_there(bus):
    """The same subjects, consumer and key through nats-py, and each message through decode.py, line end or not."""
    script = (EXAMPLES / "listen.sh").read_text()
    subjects = set(re.findall(r"'(foliot\.v1\.[^']+)'", script))
    assert subjects == {"foliot.v1.event.>"}
    assert subjects <= {f"foliot.v1.{channel.name}.>" for channel in CHANNELS}
    config = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.NEW)
    consumer = await bus._stream.pull_subscribe(
        "foliot.v1.event.>", durable="example-cli", stream="EVENTS", config=config
    )

    bus.publish_kept(EVENT, event(10), "flap", "node3.rail0")
    (raw,) = await consumer.fetch(1, timeout=patience(20))
    await raw.ack()
    value = (await (await bus.store(INVENTORY)).get("rack1_2enode3")).value

    assert (await decoded(raw.data))["id"] == (await decoded(raw.data + b"\n"))["id"] == "e10"
    assert (await decoded(value))["name"] == "rack1.node3"


async def decoded(data):
    """What decode.py makes of it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, EXAMPLES / "decode.py", stdin=pipe, stdout=pipe)
    return json.loads((await process.communicate(data))[0])
