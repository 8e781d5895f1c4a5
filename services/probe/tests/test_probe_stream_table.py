"""Which streams a node has, and which of them are probed fast."""

from __future__ import annotations

import msgspec
import pytest

from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_probe.core.rate.demand import in_use
from foliot_probe.core.stream_table import StreamKey, StreamTable, is_usable
from foliot_schemas import NodePaths, Placement


def node(index, rails=2, **changes):
    """A node of a fleet."""
    nics = tuple(
        NicSettings(rail=f"rail{n}", number=n, device=f"e{n}", address=f"10.{n}.0.{index}") for n in range(rails)
    )
    return describe(NodeSettings(name=f"node{index}", index=index, nics=nics, **changes))


def address(text):
    """A dotted address as it comes from a socket."""
    return int.from_bytes(bytes(map(int, text.split("."))))


def test_a_stream_for_every_common_rail_and_entropy():
    """A peer that lacks a rail or an entropy has fewer streams; the node itself is no peer."""
    table = StreamTable(node(0))
    assert len(table.set_peer(node(1))[1]) == 8
    assert len(table.set_peer(node(2, rails=1))[1]) == 4
    assert len(table.set_peer(node(3, entropies=(1, 2)))[1]) == 4
    assert table.set_peer(node(0)) == ([], [])
    assert list(table.peers) == ["node1", "node2", "node3"]


def test_64_entropies_make_as_many_streams_and_sockets_of_a_rail():
    """A row that ends is used again, the lowest first."""
    table = StreamTable(node(0, entropies=tuple(range(64))))
    assert len(table.places) == 128
    assert table.set_peer(node(1, entropies=tuple(range(64))))[1] == list(range(128))
    assert len(table.set_peer(node(2))[1]) == 8
    assert table.drop_peer("node1") == list(range(128))
    assert table.set_peer(node(3, rails=1))[1] == [0, 1, 2, 3]


def test_of_two_nodes_the_smaller_name_initiates():
    """So that every stream has one initiator, and both know it without asking."""
    forth, back = StreamTable(node(0)), StreamTable(node(1))
    forth.set_peer(node(1))
    back.set_peer(node(0))
    mine = forth.ends[forth.rows[StreamKey("node1", "rail1", 2)]]
    theirs = back.ends[back.rows[StreamKey("node0", "rail1", 2)]]
    assert mine.initiator
    assert not theirs.initiator
    assert mine.outgoing == theirs.incoming == "node0.rail1>node1.rail1#2"
    assert mine.incoming == theirs.outgoing == "node1.rail1>node0.rail1#2"


def test_a_changed_record_begins_anew_and_an_equal_one_changes_nothing():
    """A peer's streams last as long as its record."""
    table = StreamTable(node(0))
    _, begun = table.set_peer(node(1))
    assert table.set_peer(node(1)) == ([], [])
    ended, again = table.set_peer(msgspec.structs.replace(node(1), probe_port=9))
    assert sorted(ended) == sorted(begun) == sorted(again)
    assert (table.address["port"][again] == 9).all()


def test_rows_of_a_peer_that_left_are_used_again():
    """And the streams of the others stay where they are."""
    table = StreamTable(node(0))
    for index in range(1, 12):
        table.set_peer(node(index))
    assert len(table) == 128
    kept = table.rows[StreamKey("node11", "rail0", 0)]
    gone = table.drop_peer("node3")
    assert table.rows[StreamKey("node11", "rail0", 0)] == kept
    assert sorted(table.set_peer(node(20))[1]) == sorted(gone)
    assert table.drop_peer("node99") == []


@pytest.mark.parametrize("broken", [{"probe_port": 0}, {"probe_port": 70_000}, {"nics": "address"}])
def test_a_record_that_cannot_be_sent_to_is_refused(broken):
    """A broken record of one node never stops the probes of others."""
    whole = node(1)
    if broken.get("nics"):
        broken = {"nics": (msgspec.structs.replace(whole.nics[0], path_addresses=("nowhere",)),)}
    assert is_usable(whole)
    assert not is_usable(msgspec.structs.replace(whole, **broken))


def keys():
    """The streams of a node with two peers."""
    return [StreamKey(peer, rail, entropy) for peer in ("a", "b") for rail in ("r0", "r1") for entropy in range(3)]


def paths(placements=(), backups=()):
    """What is in force, each as (peer, rail, via, entropy)."""
    made = [
        tuple(Placement(peer=p, rail=r, via=v, entropy=e) for p, r, v, e in several)
        for several in (placements, backups)
    ]
    return NodePaths(node="n", lease_revision=1, placements=made[0], backups=made[1])


def test_before_anything_is_known_the_first_entropy_of_each_rail_is_in_use():
    """That is where the routes lead at first."""
    assert in_use(keys(), None) == {key for key in keys() if key.entropy == 0}


def test_what_is_placed_and_what_is_armed_is_in_use():
    """A placement takes the default's place; a backup joins."""
    fast = in_use(keys(), paths([("a", "r0", "r1", 2)], [("b", "r0", "r1", 1)]))
    default = {StreamKey("a", "r1", 0), StreamKey("b", "r0", 0), StreamKey("b", "r1", 0)}
    assert fast == default | {StreamKey("a", "r1", 2), StreamKey("b", "r1", 1)}


def test_placements_on_streams_that_do_not_exist_are_left_out():
    """A peer that has gone may still be named."""
    assert StreamKey("z", "r0", 0) not in in_use(keys(), paths([("z", "r0", "r0", 0)]))
