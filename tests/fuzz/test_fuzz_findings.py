"""What hostile messages once did, each by the least that did it."""

from __future__ import annotations

import time

import hostile
import numpy as np
import pytest
from msgspec import msgpack, structs

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_gateway.state.cardinality_limit import MOST_STRANGERS
from foliot_gateway.state.fleet import Fleet
from foliot_gateway.state.live_feed import Journal
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import (
    DelayBatch,
    DelayRow,
    Event,
    FlowBatch,
    FlowRow,
    Node,
    NodePaths,
    Outcome,
    Placement,
    PortState,
    StampBatch,
    StampRow,
    WireError,
    Witness,
    decode,
    encode,
)
from foliot_schemas.bounds import FAR_NS, fitting
from foliot_schemas.names import parse_path
from foliot_schemas.notice import Notice
from foliot_schemas.observation import Stream

NOW_NS = hostile.NOW_NS
PATH = "node0.rail0>node1.rail0#0"
WAY = Placement(peer="node1", rail="rail0", via="rail1", entropy=1)


def delays(*paths, node="node1", at_ns=NOW_NS, witness=Witness.DESTINATION, last_ns=NOW_NS):
    """A row for each path."""
    rows = np.zeros(len(paths), DelayRow)
    rows["path"], rows["witness"], rows["received"], rows["last_ns"] = np.arange(len(paths)), witness, 1, last_ns
    return DelayBatch.of(rows, node=node, at_ns=at_ns, interval_ns=1, bound_ns=1, paths=paths)


def stamps(responder="node1", receive_ns=5, until_ns=2):
    """A batch of one stream and one row."""
    stream = Stream(path=PATH, initiator="node0", responder=responder, kind="user")
    rows = np.array([(0, 0, 1, receive_ns)], StampRow)
    return StampBatch.of(rows, node="node0", since_ns=0, until_ns=until_ns, epoch_ns=0, streams=(stream,))


def flows(at_ns):
    """One flow between the NICs of PATH."""
    rows = np.zeros(1, FlowRow)
    rows["acked_bytes"] = rows["connections"] = 1
    return FlowBatch.of(rows, node="node0", at_ns=at_ns, interval_ns=1, flows=("node0.rail0>node1.rail0",))


def port(at_ns, downs=0, *, carrier=True, node="node0", nic="node0.rail0"):
    """The state of a NIC's port."""
    return PortState(
        node=node, nic=nic, at_ns=at_ns, carrier=carrier, admin_up=True, carrier_down_count=downs, carrier_up_count=1
    )


RECORD = hostile.INVENTORY[0]
NIC = RECORD.nics[0]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        # Its equations had no solution, which ended sync.
        (stamps(responder="node0"), "itself"),
        (stamps(until_ns=0), "not after it began"),
        # Differences of such times left 64 bits.
        (stamps(receive_ns=FAR_NS), "146 years"),
        (delays(PATH, last_ns=-FAR_NS), "146 years"),
        (delays(PATH, at_ns=FAR_NS), "at_ns"),
        # A port beyond 16 bits, and an address that is a name to be looked up, reached `sendto`.
        (structs.replace(RECORD, agent_port=65_536), "agent_port"),
        (structs.replace(RECORD, nics=(structs.replace(NIC, address="a.example"),)), "Expected 4 octets"),
        (structs.replace(RECORD, nics=(structs.replace(NIC, name="node1.rail0"),)), "is named"),
        (structs.replace(RECORD, nics=(NIC, NIC)), "two NICs on one rail"),
        (structs.replace(RECORD, nics=(structs.replace(NIC, entropies=()),)), "more path addresses"),
        (Node(name="a>b", nics=()), "cannot be a name"),
        # It was taken for a span's id, in hex, after the move and before the answer.
        (Notice(node="a", rail="b", state="lost", fault="", sequence=1, at_ns=1, span="zz"), "span"),
        (Event(id="e", kind="path", who="nonsense", state="silent", at_ns=1, since_ns=1), "not a path"),
        (Event(id="e", kind="clock", who="a", state="x", at_ns=1, since_ns=1, evidence={"x": float("nan")}), "float"),
    ],
)
def test_what_contradicts_itself_is_refused_where_it_is_decoded(message, reason):
    """No core meets it."""
    with pytest.raises(WireError, match=reason):
        decode(encode(message), type(message))


def test_an_error_about_a_long_message_is_short():
    """It once quoted all of it, and was then too long to be published."""
    columns = msgpack.decode(encode(delays(PATH))) | {"columns": {"n" * 60: b"x" * 100_000}, "paths": ["p" * 100_000]}
    with pytest.raises(WireError) as caught:
        decode(msgpack.encode(columns), DelayBatch)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["a>b#01", "a>b#٣", "a>b#100000", f"a>b#{'9' * 5_000}"])
def test_a_path_has_one_name(name):
    """Other spellings of a number made other paths of one, without end."""
    with pytest.raises(ValueError, match="not a path"):
        parse_path(name)


def test_ids_made_of_ids_stay_short_enough_to_be_read():
    """A refusal of an event whose id was as long as may be could be published, and read by nobody."""
    long = fitting("i" * 5_000)
    assert len(long) <= 4_096
    assert long != fitting("i" * 5_001)
    assert fitting("short") == "short"


@pytest.fixture
def detector():
    """One that knows three nodes."""
    made = Pipeline(DetectorSettings())
    for record in hostile.INVENTORY:
        made.observe(record)
    return made


@pytest.mark.parametrize("at_ns", [-(1 << 62) + 1, 0, 1])
def test_a_detector_looks_for_the_paths_of_flows_alone(detector, at_ns):
    """Before two seconds of a common time, rows without a flow seemed to have been told of lately."""
    detector.observe(flows(at_ns), 0)
    assert detector.tick(0) == []


def test_a_detector_remembers_nothing_of_strangers(detector):
    """Neither nodes nor NICs, nor paths between NICs that it knows with entropies that they do not have."""
    detector.observe(delays(PATH))
    for number in range(1_000):
        name = f"stranger{number}"
        detector.observe(delays(PATH.replace("node1", name), node=name))
        detector.observe(port(NOW_NS, node=name, nic=f"{name}.rail0"))
        detector.observe(port(NOW_NS, nic=f"node0.rail{number + 2}"))
        detector.observe(delays(f"node0.rail0>node1.rail0#{number + 2}"))
    fleet, flap = detector.inventory, detector._detectors[0]
    assert len(fleet.paths) == 1
    assert set(fleet.liveness._places) == set(fleet.nodes)
    assert set(fleet.hearing_ns) <= {"node0", "node1"}
    assert set(flap._ports) == set()
    assert detector._event_time._nodes == {"node0", "node1"}


def test_a_node_that_leaves_is_forgotten(detector):
    """With all that was kept by its name."""
    detector.observe(port(NOW_NS))
    detector.observe(delays("node1.rail0>node0.rail0#0", node="node0"))
    detector.observe(Node(name="node0", nics=()))
    fleet = detector.inventory
    for memory in (
        fleet.liveness._places,
        fleet.signs,
        fleet.hearing_ns,
        fleet.listening_ns,
        fleet.bound_ns,
        fleet.clocks,
    ):
        assert "node0" not in memory
    assert not fleet._ports
    assert not detector._detectors[0]._ports


def test_of_batches_one_of_each_node_is_remembered(detector):
    """By its rows alone: each may hold 65,536 names."""
    table = detector.inventory.paths
    for number in range(100):
        names = tuple(f"x{number}.r>y.r#{index % 7}" for index in range(8_000))
        table.ids_said_by(f"node{number % 2}", names, detector.inventory.nics)
    assert [len(rows) for _, rows in table._reported.known.values()] == [8_000, 8_000]


def test_a_port_from_the_future_is_believed_for_some_seconds(detector):
    """Once, it made all that came after it old, for ever."""
    detector.observe(port(NOW_NS))
    detector.observe(port(FAR_NS - 1))
    assert detector.observe(port(NOW_NS + 1, 0, carrier=False)) == []
    (fallen,) = detector.observe(port(NOW_NS + 2, 0, carrier=False), 6_000_000_000)
    assert (fallen.who, fallen.state) == ("node0.rail0", "down")


@pytest.fixture
def remediator():
    """One that knows three nodes and holds the lease."""
    made = Remediator(RemediatorSettings())
    for record in hostile.INVENTORY:
        made.observe(record, NOW_NS)
    made.hold(7, NOW_NS)
    return made


def test_a_remediator_remembers_nothing_of_strangers(remediator):
    """Nor of what a node says about paths that do not end at it."""
    remediator.observe(delays(PATH), NOW_NS)
    for number in range(1_000):
        name = f"stranger{number}"
        remediator.observe(delays(f"{name}.rail0>node1.rail0#0"), NOW_NS)
        remediator.observe(delays("node1.rail0>node2.rail0#0", witness=Witness.SOURCE), NOW_NS)
        remediator.observe(delays(f"node0.rail0>{name}.rail0#0", node=name, witness=Witness.FELL_SILENT), NOW_NS)
        remediator.observe(port(NOW_NS, node=name, nic=f"{name}.rail0"), NOW_NS)
        outcome = Outcome(id=name, command=name, verb="reroute", node=name, status="done", away=("rail0",))
        remediator.observe(outcome, NOW_NS)
        remediator.observe(structs.replace(outcome, node="node0", away=(name,), started_ns=NOW_NS), NOW_NS)
        dead = Event(id=name, kind="process", who=f"{name}/probe", state="dead", at_ns=NOW_NS, since_ns=NOW_NS)
        remediator.observe(dead, NOW_NS)
    assert set(remediator.health.reports._ids) == {PATH}
    assert not [*remediator.health.tracks.values()]
    assert not remediator.health.ports._ports
    assert not remediator.health.dead
    assert not remediator.routing.away


def test_a_standby_adopts_only_what_can_be():
    """Ways to peers and over rails that are there."""
    standby = Remediator(RemediatorSettings())
    for record in hostile.INVENTORY:
        standby.observe(record, NOW_NS)
    wrong = [{"peer": "node9"}, {"peer": "node0"}, {"rail": "rail9"}, {"via": "rail9"}, {"entropy": 2}]
    ways = (WAY, *(structs.replace(WAY, **each) for each in wrong))
    standby.observe(NodePaths(node="node0", lease_revision=1, away=("rail0", "rail9"), placements=ways), NOW_NS)
    assert set(standby.routing.away) == {("node0", "rail0")}
    assert [way for way, _ in standby.routing.moved.values()] == [WAY]


def test_an_event_from_the_future_does_not_outlast_what_comes_after_it(remediator):
    """Once, all later events about the NIC were old."""
    far = Event(id="far", kind="flap", who="node0.rail0", state="up", at_ns=FAR_NS - 1, since_ns=FAR_NS - 1)
    remediator.observe(far, NOW_NS)
    later = Event(id="later", kind="flap", who="node0.rail0", state="down", at_ns=NOW_NS + 1, since_ns=NOW_NS)
    remediator.observe(later, NOW_NS + 2)
    assert remediator.health.state("node0.rail0") == "down"


def test_evidence_that_is_no_number_counts_as_none(remediator, detector):
    """Once, it was converted, and the event was lost."""
    fallen = Event(
        id="e", kind="flap", who="node0.rail0", state="down", at_ns=NOW_NS, since_ns=NOW_NS,
        evidence={"reuse_at_ns": "soon", "penalty": "high"},
    )  # fmt: skip
    remediator.observe(fallen, NOW_NS)
    assert remediator.health.state("node0.rail0") == "down"
    detector.resume(fallen)
    assert [event.state for event in detector.observe(port(NOW_NS, 1, carrier=False))] == ["down"]


def test_a_reader_may_claim_to_have_read_any_number():
    """One of thousands of digits is no number that was ever given."""
    journal = Journal()
    assert journal.start(f"{journal._run}-{'9' * 5_000}") == journal.start("other-1")


def test_a_gateway_counts_no_traffic_that_is_gone():
    """What is wanted of a node may name other peers each time."""
    fleet = Fleet(time.time_ns)
    for number in range(100):
        ways = (structs.replace(WAY, peer=f"peer{number}"),)
        fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=number, placements=ways))
    assert len(fleet._ways._into) == 1
    fleet.fold_wanted("node0", None)
    assert not fleet._ways._into
    assert not fleet._ways._out


def test_a_gateway_has_room_for_some_strangers_and_for_the_whole_inventory():
    """A flood of names fills the one and not the other."""
    fleet = Fleet(time.time_ns)
    for number in range(MOST_STRANGERS + 100):
        name = f"stranger{number}"
        fleet.fold_port(port(NOW_NS, node=name, nic=f"{name}.rail0"))
        # As many as of a report whose rows are remembered.
        fleet.fold_delays(delays(*(f"node1.rail0>{name}.rail0#{entropy}" for entropy in range(8)), node=name))
        fleet.fold_outcome(
            Outcome(id="o", command="c", verb="reroute", node=name, status="done", away=("r",), placements=(WAY,))
        )
        wanted = NodePaths(node=name, lease_revision=1, placements=(structs.replace(WAY, peer=name),))
        fleet.fold_wanted(name, wanted)
        dead = Event(id=name, kind="process", who=f"{name}/probe", state="dead", at_ns=NOW_NS, since_ns=NOW_NS)
        fleet.fold_event(dead)
    ways, paths = fleet._ways, fleet._paths
    tables = (fleet._ports, fleet._dead, paths._numbers, paths._reports.known, ways._away, ways._reported, ways._wanted)
    assert [len(each) for each in tables] == [MOST_STRANGERS] * len(tables)
    assert len(ways._out) + len(ways._into) + len(fleet.changed_tiles()) < 8 * MOST_STRANGERS
    for record in hostile.INVENTORY:
        fleet.fold_node(record.name, record)
    fleet.fold_port(port(NOW_NS))
    fleet.fold_delays(delays(PATH))
    assert [view.path for view in fleet.paths(node="node0")] == [PATH]
    assert any(view.node == "node0" and view.nics[0].carrier for view in fleet.nodes())
