"""The workload of TCP flows: its plan, its record, and real flows over a wire that is cut."""

import socket
import time

import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.workload.flow_loop import FlowPlan, Loop, LoopPlan
from foliot_lab.workload.flow_record import SLOT_NS, FlowRecord
from foliot_lab.workload.flows import Flows, plan
from foliot_schemas import Nic, Node

MS = 1_000_000
BASE = 1_700_000_000_000_000_000
DEADLINE_S = 60.0


def node(number, rails=2):
    """A node of the inventory with its service addresses."""
    return Node(
        name=f"node{number}",
        nics=tuple(
            Nic(
                name=f"node{number}.rail{rail}",
                rail=f"rail{rail}",
                device=f"rail{rail}",
                address="10.0.0.1",
                clock="",
                service_address=f"10.20{rail}.0.{number + 1}",
                path_addresses=(),
                entropies=(),
            )
            for rail in range(rails)
        ),
    )


def record(flows=2, slots=50):
    """An empty record."""
    record = FlowRecord(bytearray(FlowRecord.size(flows, slots)), flows, slots)
    record.begin(BASE)
    return record


def wait_until(condition):
    """Waits for something that must come about."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


def test_ring_sends_to_the_next_node_on_every_rail():
    """In a ring every node sends to the next one, the last to the first, at the full load on each rail."""
    flows = plan("ring", [node(0), node(1), node(2)], link_mbps=200, load=0.6)
    assert [flow.id for flow in flows] == [
        "node0>node1/rail0", "node0>node1/rail1", "node1>node2/rail0", "node1>node2/rail1", "node2>node0/rail0",
        "node2>node0/rail1",
    ]  # fmt: skip
    assert {flow.bytes_per_s for flow in flows} == {15_000_000}
    assert (flows[1].source_address, flows[1].destination_address) == ("10.201.0.1", "10.201.0.2")


def test_all_to_all_splits_the_load_among_the_peers():
    """In an all-to-all a NIC's load is shared by its flows, one to every other node."""
    flows = plan("all-to-all", [node(number, rails=1) for number in range(4)], link_mbps=240, load=0.5)
    assert len({(flow.source, flow.destination) for flow in flows}) == len(flows) == 12
    assert {flow.bytes_per_s for flow in flows} == {5_000_000}


def test_no_workload_has_no_flows():
    """A scenario without a workload has no flows, and a ring of one node has none either."""
    assert plan("none", [node(0), node(1)], link_mbps=200, load=0.6) == ()
    assert plan("ring", [node(0)], link_mbps=200, load=0.6) == ()


def test_a_workload_of_another_kind_is_refused():
    """A training job is not made of plain flows."""
    with pytest.raises(ValueError, match=r"workload\.kind: 'train'"):
        plan("train", [node(0), node(1)], link_mbps=200, load=0.6)


def test_rate_counts_whole_slots_inside_the_interval():
    """The rate of an interval is that of the whole slots inside it, and only of the flow asked for."""
    filled = record()
    for slot in range(5):
        filled.received(slot, 0, 250_000 if slot != 2 else 0)
        filled.received(slot, 1, 1)
    filled.written(BASE + 5 * SLOT_NS)
    assert filled.mbps(0, BASE, BASE + 5 * SLOT_NS) == pytest.approx(80.0)
    assert filled.mbps(0, BASE + SLOT_NS + 1, BASE + 3 * SLOT_NS - 1) is None
    assert filled.mbps(0, BASE + 2 * SLOT_NS - 1, BASE + 3 * SLOT_NS + 1) == 0.0
    assert filled.mbps(0, BASE - SLOT_NS, BASE + SLOT_NS) == pytest.approx(100.0)


def test_rate_forgets_slots_that_were_written_over():
    """A time older than the record is unknown, not zero and not that of a younger slot."""
    filled = record(flows=1, slots=10)
    for slot in range(15):
        filled.clear(slot)
        filled.received(slot, 0, 1000 * slot)
    filled.written(BASE + 15 * SLOT_NS - 1)
    assert filled.mbps(0, BASE, BASE + 5 * SLOT_NS) is None
    assert filled.mbps(0, BASE + 13 * SLOT_NS, BASE + 14 * SLOT_NS) == pytest.approx(13_000 * 8e3 / SLOT_NS)


def test_gaps_count_where_they_overlap_the_interval():
    """The longest gap of an interval is taken whole, of the flow asked for, and if it only overlaps."""
    filled = record()
    filled.gap(filled.slot(BASE + 150 * MS), 0, 50 * MS)
    filled.gap(filled.slot(BASE + 900 * MS), 1, 800 * MS)
    filled.gap(filled.slot(BASE + 330 * MS), 0, 30 * MS)
    filled.last_ns[:] = BASE + 1000 * MS
    filled.written(BASE + 1001 * MS)
    assert filled.longest_gap_ms(0, BASE, BASE + 1000 * MS) == pytest.approx(50.0)
    assert filled.longest_gap_ms(0, BASE + 140 * MS, BASE + 200 * MS) == pytest.approx(50.0)
    assert filled.longest_gap_ms(0, BASE + 160 * MS, BASE + 1000 * MS) == pytest.approx(30.0)
    assert filled.longest_gap_ms(0, BASE + 400 * MS, BASE + 1000 * MS) == 0.0


def test_a_long_gap_is_not_forgotten_for_short_ones():
    """Slow flows have gaps between any two bursts; however many there are, a fault's long one stays in the record."""
    filled = record(flows=2, slots=5_000)
    for slot in range(5_000):
        filled.clear(slot)
        for flow in range(2):
            filled.gap(slot, flow, 12 * MS)
            if slot == 10:
                filled.gap(slot, 0, 200 * MS)
                filled.gap(slot, 0, 15 * MS)
    filled.written(BASE + 5_000 * SLOT_NS - 1)
    filled.last_ns[:] = BASE + 5_000 * SLOT_NS - 1
    assert filled.longest_gap_ms(0, BASE + 50 * MS, BASE + 500 * MS) == pytest.approx(200.0)
    assert filled.longest_gap_ms(1, BASE + 50 * MS, BASE + 500 * MS) == pytest.approx(12.0)
    assert filled.longest_gap_ms(0, BASE + 500 * MS, BASE + 900 * MS) == pytest.approx(12.0)


def test_a_gap_that_has_not_ended_counts():
    """A flow that never came back has a gap up to the end of the interval, or of the record."""
    filled = record()
    filled.last_ns[0] = BASE + 200 * MS
    filled.written(BASE + 700 * MS)
    assert filled.longest_gap_ms(0, BASE, BASE + 5000 * MS) == pytest.approx(500.0)
    assert filled.longest_gap_ms(0, BASE, BASE + 300 * MS) == pytest.approx(100.0)
    assert filled.longest_gap_ms(1, BASE, BASE + 300 * MS) == 0.0


def test_errors_count_by_flow_and_time():
    """An error counts for its flow, within the interval, ends included."""
    filled = record()
    filled.error(0, BASE + 10 * MS, 104)
    filled.error(1, BASE + 10 * MS, 104)
    filled.error(0, BASE + 30 * MS, 110)
    assert filled.errors(0, BASE, BASE + 20 * MS) == 1
    assert filled.errors(0, BASE + 10 * MS, BASE + 30 * MS) == 2
    assert filled.errors(1, BASE + 11 * MS, BASE + 30 * MS) == 0


def flow(source, destination, wires, bytes_per_s=2_500_000):
    """A flow between the two hosts."""
    addresses = {end.node: address for end, address in wires.ends.items()}
    return FlowPlan(
        id=f"{source}>{destination}/rail0", source=source, destination=destination, rail="rail0",
        source_address=addresses[source], destination_address=addresses[destination], bytes_per_s=bytes_per_s,
    )  # fmt: skip


@pytest.mark.net
def test_flows_survive_a_cut_and_show_its_gap(wires):
    """A flow whose wire is cut and that is moved to the other one stalls for that long, goes on, and has no error."""
    lab = LabTime.starting_now()
    plans = (flow("node0", "node1", wires), flow("node1", "node0", wires))
    flows = Flows.start(plans, wires.namespaces, lab, keep_s=120)
    try:
        wait_until(lambda: flows.open)
        begun_ns = lab.now_ns()
        wait_until(lambda: flows.record.written_ns > begun_ns + 500 * MS)
        cut_ns, last_ns = lab.now_ns(), flows.record.last_ns.copy()
        wires.cut(0)
        silent_ns = lab.now_ns()
        wait_until(lambda: flows.record.written_ns > silent_ns + 300 * MS)
        moving_ns = lab.now_ns()
        wires.take(1)
        moved_ns = lab.now_ns()
        wait_until(lambda: all(last > moved_ns for last in flows.record.last_ns))
        back_ns = lab.now_ns()
        wait_until(lambda: flows.record.written_ns > back_ns + 500 * MS)
        for number in range(2):
            gap_ms = flows.record.longest_gap_ms(number, cut_ns, back_ns)
            # At the least while nothing could pass, but for what was in a queue; at the most between two bytes that are
            # known.
            assert gap_ms >= (moving_ns - silent_ns) * 1e-6 - 50
            assert gap_ms <= (back_ns - last_ns[number]) * 1e-6 + 50
            assert flows.record.errors(number, begun_ns, lab.now_ns()) == 0
            assert flows.record.mbps(number, begun_ns, cut_ns) > 1
            assert flows.record.mbps(number, back_ns, flows.record.written_ns) > 1
        assert flows.pid
    finally:
        flows.stop()
    assert not flows.pid


@pytest.mark.net
def test_a_broken_flow_counts_as_an_error_and_is_opened_again(wires):
    """A connection that ends unasked counts as one error, and the flow goes on with a new one."""
    lab = LabTime.starting_now()
    kept = record(flows=1, slots=5000)
    kept.begin(lab.now_ns())
    fds = {name: namespace.fd for name, namespace in wires.namespaces.items()}
    flows = (flow("node0", "node1", wires),)
    loop = Loop(LoopPlan(flows=flows, namespaces=fds, record=-1, slots=5000, base_ns=lab.base_ns, port=7950), kept)

    def turn_until(condition):
        def turned():
            loop.turn()
            return condition()

        wait_until(turned)

    try:
        turn_until(lambda: kept.opened_ns[0])
        broken_ns = lab.now_ns()
        loop._flows[0]._sender.shutdown(socket.SHUT_RDWR)
        turn_until(lambda: kept.errors(0, broken_ns, lab.now_ns()))
        mended_ns = lab.now_ns()
        turn_until(lambda: kept.last_ns[0] > mended_ns)
        assert kept.errors(0, broken_ns, lab.now_ns()) == 1
    finally:
        loop.close()
