"""Who may say and hear what, as plain data; `tests/test_security_*.py` holds a real server to it."""

from __future__ import annotations

import pytest

from foliot_schemas.permissions import NAME, NODE_ROLES, ROLES, permissions
from foliot_schemas.subjects import BUCKETS, CHANNELS, COMMAND, HOPS, INVENTORY, PATHS


def covers(pattern, subject):
    """Whether a subject of NATS' falls under a pattern of its."""
    asked, given = pattern.split("."), subject.split(".")
    for position, token in enumerate(asked):
        if token == ">":
            return len(given) > position
        if position >= len(given) or token not in {"*", given[position]}:
            return False
    return len(asked) == len(given)


def may(allowed, subject):
    """Whether one of the patterns covers the subject."""
    return any(covers(pattern, subject) for pattern in allowed)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_only_the_publishers_of_a_channel_may_publish_on_it(role, channel):
    """And of them only the one whose name it is, where it is a node's."""
    own = channel.subject(*("node3" for _ in channel.tokens))
    others = channel.subject(*("node4" for _ in channel.tokens))
    publishes = role in channel.publishers

    allowed = permissions(role, "node3").publish
    assert may(allowed, own) is publishes
    assert may(allowed, others) is (publishes and role not in NODE_ROLES)


def test_a_probe_hears_of_the_routers_of_all_paths_and_an_agent_of_none():
    """A path's last routers may be silent to its own node. Of what else others observe, no node hears."""
    assert HOPS.all in permissions("probe", "node3").subscribe
    assert not any("observation" in subject for subject in permissions("agent", "node3").subscribe)
    assert [subject for subject in permissions("probe", "node3").subscribe if "observation" in subject] == [HOPS.all]


def test_commands_are_the_remediators_alone():
    """Only the remediator may publish a command, or write the paths that nodes keep in force."""
    for role in set(ROLES) - {"admin", "remediator"}:
        allowed = permissions(role, "node3").publish
        assert not may(allowed, COMMAND.subject("reroute", "node3"))
        assert not may(allowed, PATHS.subject("node3"))


@pytest.mark.parametrize("role", NODE_ROLES)
def test_a_node_hears_commands_and_paths_of_its_own_alone(role):
    """A node may read no command or path of another node, but it may read the inventory."""
    allowed = permissions(role, "node3").subscribe
    assert not may(allowed, COMMAND.subject("reroute", "node4"))
    assert not may(allowed, PATHS.subject("node4"))
    assert may(allowed, PATHS.subject("node3"))
    assert may(allowed, INVENTORY.subject("node4"))
    assert may(allowed, COMMAND.subject("reroute", "node3")) is (role == "agent")


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_nobody_is_granted_what_would_send_raw_messages_elsewhere(role):
    """A direct read's answer goes wherever the request says; a stream that can be deleted or purged is no record."""
    allowed = permissions(role, "node3").publish
    forbidden = ("DIRECT.GET", "STREAM.DELETE", "STREAM.PURGE", "STREAM.UPDATE", "STREAM.MSG.DELETE", "CONSUMER.DELETE")
    for bucket in BUCKETS:
        for verb in forbidden:
            assert not may(allowed, f"$JS.API.{verb}.KV_{bucket.name}.x")
            assert not may(allowed, f"$JS.API.{verb}.KV_{bucket.name}")
    if role in {*NODE_ROLES, "reader"}:
        for bucket in BUCKETS:
            assert not may(allowed, f"$JS.API.CONSUMER.CREATE.KV_{bucket.name}.x.{bucket.subject('node3')}")
            assert not may(allowed, f"$JS.API.CONSUMER.MSG.NEXT.KV_{bucket.name}.x")
    if role in NODE_ROLES:
        assert not may(allowed, "$JS.API.CONSUMER.CREATE.EVENTS.x.foliot.v1.event.*.*")
        assert not may(allowed, "$JS.API.CONSUMER.CREATE.COMMANDS.agent-node4.foliot.v1.command.*.node4")
        assert not may(allowed, "$JS.API.CONSUMER.DURABLE.CREATE.COMMANDS.agent-node3")


@pytest.mark.parametrize("role", NODE_ROLES)
def test_a_nodes_permissions_are_one_template_for_all_nodes(role):
    """The server fills in the name; filled in by hand it is the same."""
    template, filled = permissions(role), permissions(role, "node3")
    assert filled.publish == tuple(subject.replace(NAME, "node3") for subject in template.publish)
    assert filled.subscribe == tuple(subject.replace(NAME, "node3") for subject in template.subscribe)
