"""The parts of a large fleet."""

from __future__ import annotations

import pytest

from foliot.node.shard import ShardSettings
from foliot.settings import SettingsError, read
from foliot_schemas import Nic, Node
from foliot_schemas.subjects import EVENT, PORT

STARTS = ("node2", "node5.a", "rack")


def shards(starts=STARTS):
    """All of them, in order."""
    return [ShardSettings(starts=starts, number=number).shard() for number in range(len(starts) + 1)]


def node(name, *peers):
    """A record."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="eth0", clock=name, address="10.0.0.1", service_address="10.1.0.1",
        path_addresses=(), entropies=(1,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,), peers=peers)


@pytest.mark.parametrize("name", ["", "a", "node1", "node10", "node2", "node2.b", "node5", "node5.a", "z", "é"])
def test_every_name_has_one_owner(name):
    """Also those that nobody thought of."""
    assert sum(shard.owns(name) for shard in shards()) == 1


def test_without_starts_there_is_one_shard_that_is_whole():
    """And of several none is."""
    (whole,) = shards(())
    assert whole.is_whole
    assert whole.owns("anything")
    assert not any(shard.is_whole for shard in shards())


def test_a_shard_is_concerned_by_its_nodes_and_whoever_talks_to_them():
    """Who names no peers talks to all."""
    first, second, *_ = shards()
    assert second.concerns(node("node3", "node1"))
    assert second.concerns(node("node1", "node0", "node3"))
    assert not second.concerns(node("node1", "node0"))
    assert second.concerns(node("node1"))
    assert first.narrow(node("node3", "node4")) == Node(name="node3", nics=())
    assert first.narrow(node("node3", "node1")) == node("node3", "node1")


def test_each_shard_has_a_role_of_its_own():
    """As a subject token; the first shard's is that of a whole fleet's, so that these two never act at once."""
    roles = [shard.role("remediator") for shard in shards()]
    assert roles == ["remediator", "remediator-node2", "remediator-node5_2ea", "remediator-rack"]
    assert shards(())[0].role("remediator") == "remediator"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"starts": ["node2", "node1"]}, "in order"),
        ({"starts": ["node2", "node2"]}, "in order"),
        ({"starts": ["node2"], "number": 2}, "from 0 to 1"),
        ({"number": -1}, "from 0 to 0"),
        ({"starts": [""]}, "starts.*cannot be a name"),
    ],
)
def test_shards_that_make_no_sense_are_refused(settings, complaint):
    """With the key's name."""
    with pytest.raises(SettingsError, match=complaint):
        read(ShardSettings, "shard", {"shard": settings}, {}, source="test")


def test_the_one_concerned_is_read_off_a_subject():
    """The last token, whatever it holds; what is no name is nobody's."""
    assert PORT.concerned(PORT.subject("rack2.node_3")) == "rack2.node_3"
    assert EVENT.concerned(EVENT.subject("path", "a.rail0>b.rail0#1")) == "a.rail0>b.rail0#1"
    assert EVENT.concerned(f"{EVENT.subject('flap', 'a')}_zz") == ""
