"""``foliot watch`` with the credentials of a reader, with others, and with none, on a real server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import nats.js.errors
import pytest

from foliot_schemas import Event, Node, NodePaths
from foliot_schemas.subjects import EVENT, INVENTORY, PATHS
from patience import patience

pytestmark = pytest.mark.nats


async def watch(settings, *arguments):
    """What ``foliot watch`` printed, said and returned."""
    options = {"--bus": settings.url, "--credentials": settings.credentials, "--ca": settings.ca}
    given = [word for option, value in options.items() if value for word in (option, value)]
    pipe = asyncio.subprocess.PIPE
    command = (Path(sys.executable).with_name("foliot"), "watch", *arguments, *given)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(patience(60)):
        out, errors = await process.communicate()
    return process.returncode, out.decode(), errors.decode()


async def fill(server):
    """An event and a node's ways, from those who may write them."""
    detector, remediator = await server.bus("detector"), await server.bus("remediator")
    event = Event(id="e1", kind="flap", who="node3.rail0", state="down", at_ns=1, since_ns=1)
    detector.publish_kept(EVENT, event, "flap", "node3.rail0")
    await remediator.put(PATHS, "node3", NodePaths(node="node3", lease_revision=7))
    async with asyncio.timeout(patience(60)):
        while not detector.counts["kept"]:  # noqa: ASYNC110 - the bus sets no event of ours
            await asyncio.sleep(0.01)


async def test_a_reader_sees_the_past_and_the_present(encrypted):
    """Over TLS: events by age and by number, and a bucket, with nothing forbidden on the way."""
    await fill(encrypted)
    for past in (("--since", "1h"), ("--last", "1")):
        status, out, errors = await watch(encrypted.settings_for("reader"), "event", "paths", *past, "--no-follow")

        assert (status, errors) == (0, "")
        assert "lease 7" in out
        assert "node3.rail0 lost its carrier" in out


async def test_what_may_not_be_heard_is_said(secured):
    """Nothing hangs, and nothing fails."""
    await fill(secured)
    status, out, errors = await watch(secured.settings_for("sync"), "event", "--since", "1h", "--no-follow")

    assert (status, out) == (0, "")
    assert 'the bus forbids: permissions violation for subscription to "foliot.v1.event.>"' in errors.lower()


async def test_nobody_listens_without_credentials_and_nobody_waits_for_ever(secured):
    """The refusal is said, with the address and without what it may hold of passwords."""
    settings = secured.settings_for("")
    status, out, errors = await watch(settings)

    assert (status, out) == (1, "")
    place = settings.url.removeprefix("nats://")
    assert errors.splitlines()[-1] == f"foliot watch: the bus at {place} refuses our credentials"


async def test_credentials_that_are_not_there_are_said(tmp_path, secured):
    """Before anything is tried."""
    arguments = ("--credentials", str(tmp_path / "none.creds"))
    status, _, errors = await watch(secured.settings_for(""), *arguments)

    assert status == 1
    assert "none.creds: No such file or directory" in errors


async def test_the_example_for_tools_runs_with_credentials(secured):
    """It reads the inventory and keeps durable consumers of its own, with what `foliot keys tool` makes."""
    await fill(secured)
    agent = await secured.bus("agent", "node3")
    await agent.put(INVENTORY, "node3", Node(name="node3", nics=()))
    secured.keyring.issue("reader", "my-tool")
    settings = secured.settings_for("reader", "my-tool")
    example = Path(__file__).parents[1] / "docs" / "examples" / "subscribe.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, example, settings.url, settings.credentials, "my-tool", stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(patience(60)):
            assert await process.stdout.readline() == b"node node3 []\n"
            gateway = await secured.bus("gateway")
            for stream in ("EVENTS", "OUTCOMES"):
                await there(gateway, stream, f"example-tool-{stream.lower()}")
    finally:
        process.kill()
        await process.communicate()


async def there(bus, stream, consumer):
    """Once the consumer is there."""
    while True:
        try:
            return await bus._stream.consumer_info(stream, consumer)
        except nats.js.errors.NotFoundError:
            await asyncio.sleep(0.05)
