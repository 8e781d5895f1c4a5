"""A real server lets nobody speak as another, command anyone, or have the server do so for it."""

from __future__ import annotations

import msgspec
import pytest

from foliot_schemas import Command, Event, Node, Outcome, PortState, encode
from foliot_schemas.permissions import NODE_ROLES, ROLES
from foliot_schemas.subjects import BUCKETS, CHANNELS, CLAIMS, COMMAND, EVENT, INVENTORY, OUTCOME, PATHS, PORT
from patience import patience

pytestmark = pytest.mark.nats


@pytest.fixture
def refusals(until):
    """What the server forbade, once it has said so this many times."""

    async def wait(client, forbidden, count):
        await client.flush()
        await until(lambda: len(forbidden) >= count)
        return forbidden

    return wait


def collector():
    """A list, and a handler that appends to it."""
    heard = []

    async def hear(message, _subject=""):
        heard.append(message)

    return heard, hear


def subjects(role):
    """All that can be published with the names node3 and node4, and what of it this role, on node3, may."""
    everything, own = [], []
    for name in ("node3", "node4"):
        for family, writers, tokens in (
            *((channel, channel.publishers, channel.tokens) for channel in CHANNELS),
            *((bucket, bucket.writers, (bucket.key,)) for bucket in BUCKETS),
        ):
            subject = family.subject(*(name for _ in tokens))
            everything.append(subject)
            # A claim's key is the thing claimed, not who claims it.
            if role in writers and (name == "node3" or role not in NODE_ROLES or family is CLAIMS):
                own.append(subject)
    return everything, own


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
async def test_a_role_is_heard_on_its_own_subjects_alone(secured, role, until, refusals):
    """Each role tries every channel and bucket, with its own name and with another's; an administrator listens."""
    listener, _ = await secured.client("admin")
    heard, hear = collector()
    for everything in ("foliot.>", "$KV.>"):
        await listener.subscribe(everything, cb=hear)
    await listener.flush()
    client, forbidden = await secured.client(role, "node3" if role in NODE_ROLES else "")
    tried, own = subjects(role)
    for subject in tried:
        await client.publish(subject, b"hello")

    assert len(await refusals(client, forbidden, len(tried) - len(own))) == len(tried) - len(own)
    await until(lambda: len(heard) >= len(own))
    assert sorted(message.subject for message in heard) == sorted(own)


async def test_a_node_cannot_listen_to_what_others_are_told(secured, refusals):
    """Neither to their commands nor to the answers to their requests."""
    client, forbidden = await secured.client("agent", "node3")
    for subject in ("foliot.v1.command.>", COMMAND.subject("reroute", "node4"), "$KV.paths.>", "_INBOX.>", ">"):
        await client.subscribe(subject)
    assert len(await refusals(client, forbidden, 5)) == 5


async def test_a_message_that_names_another_than_its_subject_is_rejected(secured, until):
    """A node may publish on its own subject whatever it likes; nobody believes it of others."""
    detector, node = await secured.bus("detector"), await secured.bus("probe", "node3")
    heard, hear = collector()
    await detector.subscribe(PORT, hear)
    lie, truth = (
        PortState(
            node=name, nic=f"{name}.rail0", at_ns=1, carrier=True, admin_up=True,
            carrier_down_count=0, carrier_up_count=1,
        )
        for name in ("node4", "node3")
    )  # fmt: skip
    await node._client.publish(PORT.subject("node3"), encode(lie))
    await node.publish(PORT, truth, "node3")
    await until(lambda: heard)

    assert heard == [truth]
    assert detector.counts["rejected"] == 1


async def test_the_server_cannot_be_made_to_say_it_for_a_node(secured, until):
    """It sends answers wherever a request asks: of all that a node may ask, none comes back as anybody's message."""
    remediator, agent = await secured.bus("remediator"), await secured.bus("agent", "node4")
    believed, believe = collector()
    await agent.subscribe(COMMAND, believe, "", "node4")
    await remediator.subscribe(EVENT, believe)
    rogue, _ = await secured.client("agent", "node3")
    forged = encode(
        Command(id="c", verb="reroute", node="node4", cause="e", issued_ns=0, deadline_ns=1 << 62, lease_revision=9)
    )
    for target in (COMMAND.subject("reroute", "node4"), EVENT.subject("flap", "x")):
        await rogue.publish(INVENTORY.subject("node3"), forged, reply=target)
        await rogue.publish(OUTCOME.subject("reroute", "node3"), forged, reply=target)
        for read in ("$JS.API.STREAM.MSG.GET.KV_inventory", "$JS.API.STREAM.MSG.GET.OUTCOMES"):
            await rogue.publish(read, b'{"last_by_subj":"$KV.inventory.node3"}', reply=target)
        await rogue.publish(f"$JS.API.DIRECT.GET.KV_inventory.{INVENTORY.subject('node3')}", b"", reply=target)
        consumer = (
            b'{"stream_name":"OUTCOMES","config":{"name":"x","ack_policy":"none","deliver_subject":"%s"}}'
            % target.encode()
        )
        await rogue.publish("$JS.API.CONSUMER.CREATE.OUTCOMES.x", consumer)
    await rogue.flush()
    marker = Command(id="m", verb="restore", node="node4", cause="e", issued_ns=0, deadline_ns=0, lease_revision=1)
    remediator.publish_kept(COMMAND, marker, "restore", "node4")
    await until(lambda: marker in believed)

    assert believed == [marker]
    assert remediator.counts["rejected"] + agent.counts["rejected"] >= 4


async def test_a_node_cannot_empty_a_bucket_by_a_header(secured):
    """A roll-up on a key of its own would take all others with it; the bucket permits none."""
    await secured.bus("remediator")
    rogue, other = await secured.bus("agent", "node3"), await secured.bus("agent", "node4")
    await other.put(INVENTORY, "node4", Node(name="node4", nics=()))
    await rogue.put(INVENTORY, "node3", Node(name="node3", nics=()))
    with pytest.raises(Exception, match="rollup"):
        await rogue._stream.publish(INVENTORY.subject("node3"), b"", headers={"Nats-Rollup": "all"})

    assert await other.get(INVENTORY, "node4") == Node(name="node4", nics=())


async def test_a_node_cannot_have_a_command_taken_for_a_duplicate(secured, until):
    """Whoever knows a command's message id beforehand may not use it up."""
    remediator, rogue = await secured.bus("remediator"), await secured.bus("agent", "node3")
    outcome = Outcome(id="command-7", command="x", verb="reroute", node="node3", status="done")
    rogue.publish_kept(OUTCOME, outcome, "reroute", "node3")
    await until(lambda: rogue.counts["kept"])
    command = Command(
        id="command-7", verb="reroute", node="node4", cause="", issued_ns=0, deadline_ns=0, lease_revision=1
    )
    stored = await remediator._stream.publish(
        COMMAND.subject("reroute", "node4"), encode(command), headers={"Nats-Msg-Id": "command-7"}
    )

    assert not stored.duplicate


async def test_a_tool_that_listens_can_do_nothing_else(secured, until, refusals):
    """It hears everything, reads buckets, and may not write or delete."""
    remediator = await secured.bus("remediator")
    tool = await secured.bus("reader")
    heard, hear = collector()
    await tool.subscribe(COMMAND, hear)
    command = Command(id="c", verb="reroute", node="node4", cause="", issued_ns=0, deadline_ns=0, lease_revision=1)
    remediator.publish_kept(COMMAND, command, "reroute", "node4")
    await until(lambda: heard)
    assert await tool.get(PATHS, "node4") is None
    client, forbidden = await secured.client("reader")
    attempts = (
        "foliot.v1.command.reroute.node4",
        "$KV.paths.node4",
        "$JS.API.STREAM.DELETE.EVENTS",
        "$JS.API.STREAM.PURGE.EVENTS",
        *(f"$JS.API.CONSUMER.CREATE.KV_{bucket.name}.x" for bucket in BUCKETS),
        *(f"$JS.API.CONSUMER.CREATE.KV_{bucket.name}.x.{bucket.subject('node3')}" for bucket in BUCKETS),
        *(f"$JS.API.CONSUMER.MSG.NEXT.KV_{bucket.name}.x" for bucket in BUCKETS),
        "$JS.API.CONSUMER.DURABLE.CREATE.KV_inventory.x",
        "$JS.API.DIRECT.GET.KV_inventory.$KV.inventory.node3",
    )
    for subject in attempts:
        await client.publish(subject, b"")

    assert len(await refusals(client, forbidden, len(attempts))) == len(attempts)


async def test_what_a_tool_has_a_stream_deliver_is_nobodys_message(secured, until):
    """A stolen node writes it, a stolen tool has it delivered at will: it is refused, and uses up no message's id."""
    remediator, agent = await secured.bus("remediator"), await secured.bus("agent", "node4")
    events, hear_events = collector()
    commands, hear_commands = collector()
    await remediator.subscribe_kept(EVENT, hear_events, durable="test")
    await agent.subscribe_kept(COMMAND, hear_commands, "", "node4", durable="agent-node4")
    forged = Event(id="command-7", kind="flap", who="node3", state="down", at_ns=1, since_ns=1)
    rogue, _ = await secured.client("agent", "node3")
    await rogue.publish(OUTCOME.subject("flap", "node3"), encode(forged), headers={"Nats-Msg-Id": "command-7"})
    await rogue.flush()
    tool, _ = await secured.client("reader")
    for name, target in (("a", EVENT.subject("flap", "node3")), ("b", COMMAND.subject("restore", "node4"))):
        config = {"name": name, "ack_policy": "none", "filter_subject": OUTCOME.subject("flap", "node3")}
        request = msgspec.json.encode({"stream_name": "OUTCOMES", "config": config})
        made = await tool.request(
            f"$JS.API.CONSUMER.CREATE.OUTCOMES.{name}.{OUTCOME.subject('flap', 'node3')}", request, timeout=patience(20)
        )
        assert b"error" not in made.data
        await tool.publish(f"$JS.API.CONSUMER.MSG.NEXT.OUTCOMES.{name}", b"1", reply=target)
    await until(lambda: remediator.counts["rejected"] and agent.counts["rejected"])
    command = Command(
        id="command-7", verb="restore", node="node4", cause="", issued_ns=0, deadline_ns=0, lease_revision=1
    )
    remediator.publish_kept(COMMAND, command, "restore", "node4")
    await until(lambda: commands)

    assert commands == [command]
    assert events == []
