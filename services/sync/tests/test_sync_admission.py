"""Whose stamps count."""

from __future__ import annotations

import msgspec
import pytest

from foliot_schemas import Nic, Node
from foliot_sync.core.fit.admission import Admission
from foliot_sync.shell.clock_census import ClockCensus


@pytest.fixture
def fleet(start):
    """Four nodes."""
    return start(seed=3, nodes=4).fleet


@pytest.fixture
def admission():
    """Knows the first three of them."""
    known = Admission()
    for number in range(3):
        name = f"node{number}"
        nics = tuple(
            Nic(
                name=f"{name}.rail{rail}", rail=f"rail{rail}", device="d", address="10.0.0.1", clock=name,
                service_address="10.0.0.1", path_addresses=(), entropies=(0, 1, 2, 3),
            )
            for rail in (0, 1)
        )  # fmt: skip
        known.learn(name, Node(name=name, nics=nics))
    return known


def test_streams_to_strangers_are_left_out_and_the_others_stay_whole(admission, fleet):
    """Rows keep their streams, whose numbers may have changed."""
    batch = fleet.batch(0, 0)
    first = msgspec.structs.replace(batch, streams=batch.streams[::-1])  # strangers first: every number changes
    for each in (batch, first):
        admitted = admission.admit(each)
        assert {stream.responder for stream in admitted.streams} == {"node1", "node2"}
        for number, stream in enumerate(admitted.streams):
            before = each.rows()[each.rows()["stream"] == each.streams.index(stream)]
            after = admitted.rows()[admitted.rows()["stream"] == number]
            assert (before["receive_ns"] == after["receive_ns"]).all()


def test_a_batch_of_the_fleet_alone_is_taken_as_it_is(admission, fleet):
    """Once the fourth is known too, nothing is copied."""
    admission.learn("node3", msgspec.structs.replace(admission._nodes["node2"], name="node3", nics=tuple(
        msgspec.structs.replace(nic, name=nic.name.replace("node2", "node3"), clock="node3")
        for nic in admission._nodes["node2"].nics
    )))  # fmt: skip
    batch = fleet.batch(0, 0)
    assert admission.admit(batch) is batch
    assert not admission.foreign


@pytest.mark.parametrize(
    "wrong",
    [
        {"initiator": "node9"}, {"responder": "node0"}, {"path": "node0.rail0>nonsense"},
        {"path": "node0.rail0>node1.rail0#4"}, {"path": "node0.rail0>node1.rail9#0"},
    ],
)  # fmt: skip
def test_a_stream_must_be_what_the_inventory_says(admission, fleet, wrong):
    """Its clocks are those of its path's NICs, and the path is one of theirs."""
    batch = fleet.batch(0, 0)
    streams = (msgspec.structs.replace(batch.streams[0], **wrong), *batch.streams[1:])
    assert len(admission.admit(msgspec.structs.replace(batch, streams=streams)).streams) == 15
    assert admission.admit(msgspec.structs.replace(batch, node="node9")) is None


def test_who_has_left_is_a_stranger(admission, fleet):
    """Until it comes back."""
    admission.learn("node0", None)
    assert admission.admit(fleet.batch(0, 0)) is None
    assert admission.foreign == {"": 1}


def test_a_clock_is_known_as_long_as_a_record_names_it(admission):
    """Its node's, or, of a NIC with a clock of its own, its NIC's.

    Who has left is told once nobody names it any more.
    """
    census, record = ClockCensus({}), admission._nodes["node1"]
    census.learn("node1", record)
    nics = tuple(msgspec.structs.replace(nic, clock="node1/phc0") for nic in record.nics)
    assert census.learn("node1", msgspec.structs.replace(record, nics=nics)) == set()
    assert census.has_clock("node1.rail0:phc")
    assert [census.has_clock(clock) for clock in ("node1", "node1/phc0", "node9")] == [True, True, False]
    assert census.learn("node1", None) == {"node1", "node1/phc0", "node1.rail0:phc", "node1.rail1:phc"}
    assert not census.has_clock("node1")


def test_a_stream_that_is_not_by_the_clock_it_says_is_counted_for_its_sender(admission, fleet):
    """Whoever probes a NIC that has got a clock of its own, and does not know of it yet."""
    record = admission._nodes["node1"]
    nics = tuple(msgspec.structs.replace(nic, clock="node1/phc0") for nic in record.nics)
    admission.learn("node1", msgspec.structs.replace(record, nics=nics))
    admission.admit(fleet.batch(0, 0))
    assert admission.foreign["node0"] > 0


@pytest.mark.parametrize(
    ("path", "clocks", "known"),
    [
        ("node0.rail0>node1.rail0#1", ("node0.rail0:phc", "node1.rail0:phc"), True),
        ("node0.rail0>node1.rail0#1", ("node0", "node1.rail0:phc"), True),
        ("node0.rail0>node1.rail0#1", ("node0.rail0:phc", "node1"), True),
        ("node0.rail0>node1.rail0#1", ("node0.rail1:phc", "node1"), False),
        ("node0.rail0>node0.rail0#0", ("node0", "node0.rail0:phc"), True),
        ("node0.rail0>node0.rail0#1", ("node0", "node0.rail0:phc"), False),
        ("node0.rail0>node0.rail0#0", ("node0", "node0"), False),
        ("node0.rail0>node0.rail0#0", ("node1", "node0.rail0:phc"), False),
    ],
)
def test_a_nics_own_clock_stamps_at_its_end_and_stands_beside_its_hosts(admission, fleet, path, clocks, known):
    """Either end of a path is stamped by its host or by its NIC; a NIC's clock is read by its own host."""
    batch = fleet.batch(0, 0)
    stream = msgspec.structs.replace(batch.streams[0], path=path, initiator=clocks[0], responder=clocks[1])
    admitted = admission.admit(msgspec.structs.replace(batch, streams=(stream, *batch.streams[1:])))
    assert (stream in admitted.streams) == known
