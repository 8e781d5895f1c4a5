"""Runs that never were: scenarios, what was seen of them, and the reports on that."""

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.bus_recorder import Heard
from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_lab.measure.host_latency import Lateness, Machine
from foliot_lab.measure.outages import Verdict
from foliot_lab.report.evidence import Evidence
from foliot_lab.report.report import build
from foliot_lab.report.verdicts import verdicts
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.topology import plan
from foliot_lab.workload.flow_record import FlowRecord
from foliot_lab.workload.flows import FlowPlan
from foliot_schemas import ClockState, Command, Event

MS = 1_000_000
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
"""Lab time of the scenario's second 0; CLOCK_MONOTONIC_RAW is 0 then."""
REFERENCE = 77 * SECOND
"""Reference time then."""
FAULT = "boot/node3.rail0/carrier-1"
SCENARIO = """
[fabric]
hosts = 4
rails = {rails}
leaves = 2
spines = {spines}
[services]
{services}
[[fault]]
at_s = 10
kind = "{kind}"
where = "{where}"
{more}
[run]
duration_s = {duration_s}
"""


def scenario(
    kind="link-down", where="node3.rail0", *, more="for_s = 30", rails=2, spines=2, services="", duration_s=60
):
    """A scenario of one fault, injected at second 10."""
    return parse_scenario(SCENARIO.format(**locals()))


class NoSkew:
    """A clock that is right."""

    def offset_ns(self, raw_ns):
        """Nothing."""
        return 0


def lab_ns(at_s):
    """Lab time of a second of the scenario."""
    return START + round(at_s * SECOND)


def event(at_s, kind="flap", who="node3.rail0", state="down", **fields):
    """An event that was decided at a second and came 2 ms later."""
    at_ns = REFERENCE + round(at_s * SECOND)
    values = {
        "id": f"{kind}-{who}-{state}",
        "kind": kind,
        "who": who,
        "state": state,
        "at_ns": at_ns,
        "since_ns": at_ns,
    }
    return Heard(lab_ns(at_s) + 2 * MS, Event(**(values | {"fault": FAULT} | fields)))


def command(at_s, **fields):
    """A command that was issued at a second and came 1 ms later."""
    values = {
        "id": f"c{at_s}", "verb": "reroute", "node": "node3", "cause": "flap-node3.rail0-down", "deadline_ns": 0,
        "issued_ns": REFERENCE + round(at_s * SECOND), "lease_revision": 1, "away": ("rail0",),
    }  # fmt: skip
    return Heard(lab_ns(at_s) + MS, Command(**(values | fields)))


SEEN = Verdict(interrupted=6, changed=6, moved_ns=lab_ns(10.006), restored_ns=lab_ns(45), moves=2)
QUIET = Verdict(interrupted=0, changed=0, moved_ns=None, restored_ns=None, moves=0)
FLOWS = (
    FlowPlan(
        id="node2>node3/rail0", source="node2", destination="node3", rail="rail0", source_address="",
        destination_address="", bytes_per_s=1,
    ),
    FlowPlan(
        id="node0>node1/rail0", source="node0", destination="node1", rail="rail0", source_address="",
        destination_address="", bytes_per_s=1,
    ),
)  # fmt: skip


def record():
    """Two flows over 60 s: the first at 80 Mb/s, but for a gap of 0.2 s from second 10."""
    record = FlowRecord(bytearray(FlowRecord.size(2, 4000)), 2, 4000)
    record.begin(START)
    for slot in range(3000):
        record.received(slot, 0, 0 if 500 <= slot < 510 else 200_000)
    record.gap(record.slot(lab_ns(10.2)), 0, round(0.2e9))
    record.last_ns[:] = lab_ns(60)
    record.written(lab_ns(60))
    return record


def found(run):
    """An event that tells of the scenario's fault, soon enough."""
    where = run.faults[0].where
    return event(10.05, kind="path", who="node0.rail0>node3.rail0#0", state="silent") if "-" in where else event(10.001)


def report(run, seen=SEEN, *, events=(), commands=(), healed_s=40, kept=None, later=(), job=None, armed="off"):
    """The report of a run of a scenario."""
    fault = run.faults[0]
    injection = injected(fault, healed_s)
    return build(
        evidence(
            run,
            [injection, *later],
            {} if seen is None else {fault.id: seen},
            events,
            commands=commands,
            kept=kept,
            job=job,
            armed=armed,
        )
    )


def injected(fault, healed_s):
    """What was done of a fault of a scenario, healed at a second or not at all."""
    return Injection(
        fault_id=fault.id, kind=fault.kind, where=fault.where, injected_ns=lab_ns(fault.at_s),
        healed_ns=None if healed_s is None else lab_ns(healed_s), edges=(),
    )  # fmt: skip


def evidence(run, injections, seen, events=(), *, commands=(), kept=None, job=None, armed="off"):
    """What a report is made from: a run of 60 s with right clocks."""
    truth = Truth({"node0": NoSkew()})
    truth.learn(
        ClockState(
            clock="node0", reference="node0", offset_ns=REFERENCE, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0,
            growth_ppb=0.0, as_of_ns=0, void_after_ns=1 << 62, status="synchronised",
        )
    )  # fmt: skip
    return Evidence(
        fabric=plan(run.fabric, 7), injections=injections, seen=seen, events=events, commands=commands,
        flows=FLOWS if kept else (), record=kept, job=job, truth=truth, lab=LabTime(START), start_ns=START,
        end_ns=lab_ns(60), armed=armed,
        machine=Machine(idle_cpu=0.5, scheduler_lateness_ms=Lateness(p50=0.1, p99=1.0)),
    )  # fmt: skip


def judge(run, seen=SEEN, **more):
    """The verdicts on the first fault and on what nobody explains; the fault is found unless other events are given."""
    judged = verdicts(report(run, seen, **({"events": [found(run)]} | more)), run, {} if seen is None else {"f1": seen})
    return judged[0], judged[-1]
