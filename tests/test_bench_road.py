"""The bench of the road: what becomes of its faults, and when one was found."""

from types import SimpleNamespace

from bench.road import Fault, found_at_ns, row_of
from foliot_lab.measure.bus_recorder import Heard
from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_schemas import ClockState, Event

MS = 1_000_000
PLAN = plan(FabricSpec(hosts=2), 7)


def _fault(found_ms, moved_ms, *, bus=True):
    return Fault(fault="silent", armed="off", bus=bus, where="node0.rail0", found_ms=found_ms, moved_ms=moved_ms)


def _heard(at_ms, who, state, *, late_ms=5):
    event = Event(id=f"{who} {state}", kind="path", who=who, state=state, at_ns=at_ms * MS, since_ns=0)
    return Heard((at_ms + late_ms) * MS, event)


def test_a_row_has_the_times_until_found_beside_those_until_moved():
    """Percentiles as ever, between two values."""
    row = row_of([_fault(100.0, 150.0), _fault(120.0, 170.0)])
    assert (row.n, row.missed, row.p50_ms, row.p99_ms, row.max_ms) == (2, 0, 160.0, 169.8, 170.0)
    assert (row.found_missed, row.found_p50_ms, row.found_p99_ms, row.found_max_ms) == (0, 110.0, 119.8, 120.0)


def test_missed_faults_are_endless():
    """They are in the percentiles, which then have no number."""
    row = row_of([_fault(100.0, None), _fault(None, 170.0), _fault(120.0, 180.0)])
    assert (row.missed, row.p50_ms, row.p99_ms, row.max_ms) == (1, 180.0, None, None)
    assert (row.found_missed, row.found_p50_ms, row.found_p99_ms) == (1, 120.0, None)


def test_without_the_bus_nobody_is_to_find_anything():
    """No event comes, and that misses nothing."""
    row = row_of([_fault(None, 8.0, bus=False)])
    assert (row.missed, row.max_ms, row.found_missed, row.found_p50_ms) == (0, 8.0, None, None)


def test_a_fault_is_found_by_its_own_first_event_by_the_common_time():
    """Events of other paths, of before, and about the end of a trouble do not count; nor does the way over the bus."""
    truth = Truth({"node0": SimpleNamespace(offset_ns=lambda _: 0)})
    truth.learn(
        ClockState(
            clock="node0", reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0, growth_ppb=0.0,
            as_of_ns=0, void_after_ns=10**12, status="synchronised",
        )
    )  # fmt: skip
    lab, own = SimpleNamespace(truth=truth, time=LabTime(0)), scope("drop", "node0.rail0", PLAN)
    mine = "node0.rail0>node1.rail0#0"
    others = [
        _heard(990, mine, "silent"), _heard(1010, mine, "speaking"),
        _heard(1020, "node0.rail1>node1.rail1#0", "silent"),
    ]  # fmt: skip
    assert found_at_ns(lab, others, own, 1000 * MS) is None
    later = [*others, _heard(1150, mine, "silent"), _heard(1120, mine, "silent", late_ms=90)]
    assert found_at_ns(lab, later, own, 1000 * MS) == 1120 * MS
