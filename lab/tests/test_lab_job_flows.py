"""The flows of jobs: steps that wait for the slowest, slow readers, beginnings and ends, over real sockets."""

import time

import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.workload.flow_loop import FlowPlan, Loop, LoopPlan
from foliot_lab.workload.flow_record import SLOT_NS, FlowRecord
from foliot_lab.workload.job_steps import GREETING_BYTES, JobPlan, JobSteps
from patience import patience

MS = 1_000_000
BASE = 1_700_000_000_000_000_000


class Stepped:
    """A flow that delivers when a test says so."""

    def __init__(self):
        self.sent = self.delivered = 0
        self.may_send = None

    def send(self):
        """Sends all that it may."""
        self.sent = self.may_send


def record(flows=2, slots=50, jobs=1, base_ns=BASE):
    """An empty record."""
    made = FlowRecord(bytearray(FlowRecord.size(flows, slots, jobs)), flows, slots, jobs)
    made.begin(base_ns)
    return made


def test_a_step_begins_when_the_slowest_flow_has_delivered():
    """Not when the others have; each step has its time in the record."""
    flows, kept = [Stepped(), Stepped()], record()
    steps = JobSteps(0, JobPlan(step_bytes=100), flows, kept)
    assert [flow.may_send for flow in flows] == [GREETING_BYTES] * 2
    for flow in flows:
        flow.sent = flow.delivered = GREETING_BYTES
    steps.turn(BASE)
    assert [flow.may_send for flow in flows] == [GREETING_BYTES] * 2, "nobody wants it to run yet"
    kept.want(0, runs=True)
    steps.turn(BASE + 1)
    for flow in flows:
        flow.send()
    flows[0].delivered = 101
    steps.turn(BASE + 2)
    assert [flow.may_send for flow in flows] == [101, 101]
    flows[1].delivered = 101
    steps.turn(BASE + 7)
    assert [flow.may_send for flow in flows] == [201, 201]
    assert kept.steps(0, BASE, BASE + 10).tolist() == [[BASE + 1, BASE + 7]]
    assert not len(kept.steps(0, BASE + 2, BASE + 10))
    assert not len(kept.steps(0, BASE, BASE + 6))


def test_a_job_that_ends_sends_nothing_more_and_one_that_begins_again_takes_a_new_step():
    """What it had begun is no step; what it has sent still arrives."""
    (flow,), kept = [Stepped()], record(flows=1)
    steps = JobSteps(0, JobPlan(step_bytes=100), [flow], kept)
    kept.want(0, runs=True)
    steps.turn(BASE)
    flow.sent = 40
    kept.want(0, runs=False)
    steps.turn(BASE + 1)
    assert flow.may_send == 40
    flow.delivered = 40
    steps.turn(BASE + 2)
    kept.want(0, runs=True)
    steps.turn(BASE + 3)
    assert flow.may_send == 140
    assert not len(kept.steps(0, BASE, BASE + 10))


def test_a_job_without_steps_sends_all_the_time():
    """While it is wanted."""
    (flow,), kept = [Stepped()], record(flows=1)
    steps = JobSteps(0, JobPlan(), [flow], kept)
    kept.want(0, runs=True)
    steps.turn(BASE)
    assert flow.may_send is None
    flow.sent = 70
    kept.want(0, runs=False)
    steps.turn(BASE + 1)
    assert flow.may_send == 70


def test_a_flow_is_not_slower_for_waiting():
    """Its rate leaves out the time for which nothing of it was due."""
    filled = record()
    for slot in range(4):
        for flow in range(2):
            filled.received(slot, flow, 125_000)
        filled.was_due(slot, 0, 10 * MS)
        filled.was_due(slot, 1, 20 * MS)
    filled.written(BASE + 4 * SLOT_NS)
    until_ns = BASE + 4 * SLOT_NS
    assert [filled.mbps_while_due(flow, BASE, until_ns) for flow in range(2)] == pytest.approx([100.0, 50.0])
    assert filled.mbps(0, BASE, until_ns) == pytest.approx(50.0)
    assert filled.mbps_while_due(0, until_ns, until_ns + SLOT_NS) is None
    filled.clear(50)
    assert filled.mbps_while_due(0, BASE, BASE + SLOT_NS) is None, "a slot that begins has nothing of the former"


class Turned:
    """A loop over two hosts, turned by the test; flows from the first host to the second, one for each job."""

    def __init__(self, wires, *jobs, bytes_per_s=0):
        addresses = {end.node: address for end, address in wires.ends.items()}
        flows = tuple(
            FlowPlan(
                id=f"{number}", source="node0", destination="node1", rail="rail0", source_address=addresses["node0"],
                destination_address=addresses["node1"], bytes_per_s=bytes_per_s, job=number,
            )
            for number in range(len(jobs))
        )  # fmt: skip
        lab = LabTime.starting_now()
        self.now_ns = lab.now_ns
        self.record = record(len(jobs), 5000, len(jobs), lab.now_ns())
        plan = LoopPlan(
            flows=flows, namespaces={name: namespace.fd for name, namespace in wires.namespaces.items()}, record=-1,
            slots=5000, base_ns=lab.base_ns, port=7950, jobs=jobs,
        )  # fmt: skip
        self.loop = Loop(plan, self.record)

    def until(self, condition):
        """Turns until something has come about."""
        end_s = time.monotonic() + patience(60)
        while not condition():
            assert time.monotonic() < end_s, "it did not come about"
            self.loop.turn()
            time.sleep(0.002)

    def for_ms(self, lasting_ms):
        """Turns for a while; the time before and after, of which the record has all."""
        began_ns = self.now_ns()
        self.until(lambda: self.record.written_ns > began_ns + lasting_ms * MS)
        return began_ns, self.record.written_ns


@pytest.fixture
def turned(wires):
    """Makes loops, and closes them."""
    made = []

    def make(*jobs, **more):
        made.append(Turned(wires, *jobs, **more))
        return made[-1]

    yield make
    for each in made:
        each.loop.close()


@pytest.mark.net
def test_flows_open_before_their_job_runs_and_then_take_steps(turned):
    """Each has carried a byte and no more; and two jobs between the same two addresses are told apart."""
    both = turned(JobPlan(step_bytes=300_000), JobPlan(step_bytes=100_000))
    both.until(both.record.opened_ns.all)
    since_ns, until_ns = both.for_ms(100)
    assert [both.record.mbps(flow, since_ns, until_ns) for flow in range(2)] == [0.0, 0.0]
    both.record.want(0, runs=True)
    began_ns = both.now_ns()
    both.until(lambda: len(both.record.steps(0, began_ns, both.now_ns())) >= 5)
    steps = both.record.steps(0, began_ns, both.now_ns())
    assert (steps[1:, 0] == steps[:-1, 1]).all()
    assert [flow.delivered >= 5 * 300_000 for flow in both.loop._flows] == [True, False]
    assert both.loop._flows[1].delivered == GREETING_BYTES
    both.record.want(0, runs=False)
    both.until(lambda: not both.loop._flows[0].sent - both.loop._flows[0].delivered)
    sent = both.loop._flows[0].sent
    both.for_ms(50)
    assert both.loop._flows[0].sent == sent
    assert both.record.errors(0, began_ns, both.now_ns()) == 0


@pytest.mark.net
def test_a_flow_without_anything_due_has_no_gap(turned):
    """However long its job waits; once something is due again, time without a byte counts."""
    kept = turned(JobPlan(step_bytes=1000))
    kept.until(kept.record.opened_ns.all)
    since_ns, _ = kept.for_ms(300)
    assert kept.record.last_ns[0] == kept.record.written_ns
    kept.record.want(0, runs=True)
    kept.until(lambda: len(kept.record.steps(0, since_ns, kept.now_ns())) >= 1)
    # The reader is as if it stood still.
    kept.loop._flows[0].receiver.close()
    kept.loop._flows[0].receiver = None
    kept.loop._flows[0]._due_ns = kept.now_ns() + 10_000 * MS
    began_ns, ended_ns = kept.for_ms(300)
    assert kept.record.longest_gap_ms(0, began_ns, ended_ns) >= 250


@pytest.mark.net
def test_a_slow_reader_holds_up_its_sender(turned):
    """It gets what it reads, and its job's step lasts as long as that takes; beside it a quick one is quicker."""
    pair = turned(JobPlan(step_bytes=500_000, read_bytes_per_s=1_000_000), JobPlan(step_bytes=500_000))
    pair.until(pair.record.opened_ns.all)
    began_ns = pair.now_ns()
    for job in range(2):
        pair.record.want(job, runs=True)
    pair.until(lambda: len(pair.record.steps(0, began_ns, pair.now_ns())) >= 2)
    slow, quick = (pair.record.steps(job, began_ns, pair.now_ns()) for job in range(2))
    # 0.5 s by its rate, but for what it may make up for at the beginning.
    assert (slow[:, 1] - slow[:, 0]).min() >= 450 * MS
    assert len(quick) > len(slow)
    assert pair.record.mbps_while_due(0, began_ns, pair.now_ns()) < 9.0


@pytest.mark.net
def test_a_flow_of_a_chosen_port_takes_it_again_after_an_error(wires):
    """So its way over the fabric stays the same."""
    addresses = {end.node: address for end, address in wires.ends.items()}
    lab = LabTime.starting_now()
    kept = record(1, 5000, 1, lab.now_ns())
    plan = FlowPlan(
        id="0", source="node0", destination="node1", rail="rail0", source_address=addresses["node0"], over="nic",
        destination_address=addresses["node1"], bytes_per_s=0, source_port=20_003,
    )  # fmt: skip
    fds = {name: namespace.fd for name, namespace in wires.namespaces.items()}
    loop = Loop(
        LoopPlan(
            flows=(plan,), namespaces=fds, record=-1, slots=5000, base_ns=lab.base_ns, port=7950, jobs=(JobPlan(),)
        ),
        kept,
    )

    def until(condition):
        end_s = time.monotonic() + patience(60)
        while not condition():
            assert time.monotonic() < end_s, "it did not come about"
            loop.turn()
            time.sleep(0.002)

    try:
        kept.want(0, runs=True)
        (flow,) = loop._flows
        until(lambda: flow.delivered > 100_000)
        flow.lose(lab.now_ns())
        lost_at = flow.delivered
        assert flow.sent == lost_at
        until(lambda: flow.delivered > lost_at + 100_000)
        assert flow._sender.getsockname()[1] == 20_003
    finally:
        loop.close()
