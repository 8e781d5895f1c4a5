"""The report of a run, and the verdicts on it."""

import json

import msgspec
import numpy as np
import pytest
from made_runs import (
    FAULT,
    MS,
    QUIET,
    SECOND,
    SEEN,
    START,
    NoSkew,
    command,
    event,
    judge,
    lab_ns,
    record,
    report,
    scenario,
)

from foliot_lab.collector import Collector
from foliot_lab.faults import Injection
from foliot_lab.flow_record import SLOT_NS
from foliot_lab.lateness import Lateness, Machine
from foliot_lab.plan import plan
from foliot_lab.pulses import End, Pair, Pulses
from foliot_lab.report import Unexplained, witnessed
from foliot_lab.truth import LabTime, Truth
from foliot_lab.verdicts import Judgement, excuse
from foliot_schemas import ClockState
from foliot_schemas.fault import trace_id


def test_the_report_has_the_promised_form():
    """The report's JSON has exactly the promised keys, and null for what did not happen."""
    made = json.loads(report(scenario(), events=[event(10.001)], kept=record()).json())
    (fault,) = made["faults"]
    assert list(made) == ["faults", "clocks", "unexplained", "machine", "train", "verdict"]
    assert list(fault) == [
        "id", "kind", "where", "injected_ns", "detected_ns", "commanded_ns", "moved_ns", "restored_ns", "moves", "events",
        "trace_id", "flows", "train",
    ]  # fmt: skip
    assert fault["commanded_ns"] is fault["train"] is made["train"] is None
    assert list(fault["flows"][0]) == ["id", "errors", "longest_gap_ms", "mbps"]
    assert list(fault["flows"][0]["mbps"]) == ["before", "during", "after"]
    assert list(made["clocks"]) == ["windows", "true_error_ns", "within_hard_bound", "within_bound"]
    assert made["machine"] == {"idle_cpu": 0.5, "scheduler_lateness_ms": {"p50": 0.1, "p99": 1.0}}
    assert made["unexplained"] == {"events": 0, "commands": 0, "least_idle_cpu": None}


def test_times_inside_messages_become_lab_times():
    """Detection and command are told in lab time, by when they were decided and not by when they came."""
    (fault,) = report(scenario(), events=[event(10.001)], commands=[command(10.003)]).faults
    assert (fault.detected_ns, fault.commanded_ns) == (lab_ns(10.001), lab_ns(10.003))
    assert (fault.moved_ns, fault.restored_ns, fault.moves) == (SEEN.moved_ns, SEEN.restored_ns, 2)
    assert fault.events == ["flap-node3.rail0-down"]
    assert fault.trace_id == f"{trace_id(FAULT):032x}"


def test_a_time_from_before_the_clocks_were_in_step_gives_way_to_the_arrival():
    """A time inside a message that cannot be true is replaced by the message's arrival."""
    (fault,) = report(scenario(), events=[event(10.001, at_ns=START)]).faults
    assert fault.detected_ns == lab_ns(10.001) + 2 * MS


def test_relief_and_refusals_detect_nothing():
    """A fault is not detected by the end of an earlier trouble nor by a refusal; a return is no command for it."""
    (fault,) = report(
        scenario(),
        events=[event(10.001, state="up"), event(10.002, kind="refusal", state="refused")],
        commands=[command(41, verb="restore", away=(), back=("rail0",))],
    ).faults
    assert (fault.detected_ns, fault.commanded_ns) == (None, None)
    assert len(fault.events) == 2


def test_strays_are_counted():
    """Events and commands that no fault explains are counted."""
    made = report(scenario(), events=[event(10.1, who="node0.rail1")], commands=[command(5), command(6, node="node0")])
    assert (made.unexplained.events, made.unexplained.commands) == (1, 2)


def test_flows_that_may_cross_the_fault_are_told():
    """Only flows with an end on the fault are told, with rates before, during and after it and the longest gap."""
    (fault,) = report(scenario(), kept=record()).faults
    (flow,) = fault.flows
    assert (flow.id, flow.errors, flow.longest_gap_ms) == ("node2>node3/rail0", 0, 200.0)
    assert flow.mbps.before == pytest.approx(80.0)
    assert flow.mbps.during == pytest.approx(80.0 * (1 - 0.2 / 30), rel=1e-3)
    assert flow.mbps.after == pytest.approx(80.0)


@pytest.mark.parametrize(("where", "gap_ms"), [("node3.rail0", 200.0), ("node0.rail1", 3_000.0)])
def test_what_a_flow_suffers_from_the_next_fault_is_told_there(where, gap_ms):
    """A gap after the healing is this fault's, unless another one has begun that may touch the flow."""
    kept = record()
    kept.gap(lab_slot(49), 0, round(3e9))
    later = Injection(
        fault_id="f2", kind="link-down", where=where, injected_ns=lab_ns(45), healed_ns=lab_ns(50), edges=()
    )  # fmt: skip
    fault, _ = report(scenario(), kept=kept, later=[later]).faults
    assert fault.flows[0].longest_gap_ms == gap_ms


def test_a_flow_that_stopped_shows_in_its_rates():
    """A rate after the fault is that after the return, not that of the whole run."""
    kept = record()
    for slot in range(lab_slot(45), 3000):
        kept.clear(slot)
    (fault,) = report(scenario(), kept=kept).faults
    assert fault.flows[0].mbps.after == 0.0


def lab_slot(at_s):
    """The slot of a second."""
    return round(at_s * SECOND) // SLOT_NS


def test_the_witness_looks_up_to_the_next_fault_at_the_place():
    """What pulses say after the next fault at the same place is not counted for the one before."""
    sent_ns = lab_ns(9) + np.arange(1000, dtype=np.int64) * 10 * MS
    device = np.where((sent_ns > lab_ns(10)) & (sent_ns < lab_ns(12)), 1, 0).astype(np.int16)
    device[sent_ns > lab_ns(15)] = 1
    pulses = Pulses(sent_ns=sent_ns, arrived_ns=sent_ns + 1, device=device, devices=("fo0e0", "fo1e0"))
    pair = Pair(End("node3", "rail0"), End("node0", "rail0"))
    faults = [
        Injection(fault_id=f"f{number}", kind="link-down", where="node3.rail0", injected_ns=lab_ns(at_s), edges=())
        for number, at_s in enumerate((10, 15), 1)
    ]
    seen = witnessed(faults, {"f1": {pair: pulses}, "f2": {pair: pulses}}, plan(scenario().fabric, 7))
    assert (seen["f1"].moves, seen["f2"].moves) == (2, 1)


def test_what_a_lost_nic_moves_is_not_held_against_a_killed_process():
    """Neither one that was killed before and may still be recovering, nor one that is killed meanwhile."""
    sent_ns = lab_ns(9) + np.arange(1000, dtype=np.int64) * 10 * MS
    device = np.where((sent_ns > lab_ns(12)) & (sent_ns < lab_ns(16)), 1, 0).astype(np.int16)
    pulses = Pulses(sent_ns=sent_ns, arrived_ns=sent_ns + 1, device=device, devices=("fo0e0", "fo1e0"))
    of_nic, of_other = (
        Pair(End("node3", "rail0"), End("node0", "rail0")),
        Pair(End("node3", "rail1"), End("node0", "rail1")),
    )
    faults = [
        Injection(fault_id="probe", kind="kill", where="node3/probe", injected_ns=lab_ns(10), edges=()),
        Injection(fault_id="nic", kind="link-down", where="node3.rail0", injected_ns=lab_ns(12), edges=()),
        Injection(fault_id="agent", kind="kill", where="node3/agent", injected_ns=lab_ns(14), edges=()),
    ]
    both = {of_nic: pulses, of_other: pulses}
    seen = witnessed(
        faults, {"probe": {of_nic: pulses}, "nic": {of_nic: pulses}, "agent": both}, plan(scenario().fabric, 7)
    )
    assert (seen["probe"].moves, seen["nic"].moves) == (0, 2)
    assert seen["agent"].moves == 1, "the other rail has no excuse"


def test_a_healed_cut_is_right():
    """A cut that moved, came back and broke nothing is right, and says so in numbers."""
    of_fault, of_run = judge(scenario(), events=[event(10.001)], kept=record())
    assert of_fault.right
    assert of_fault.sentence == (
        "node3.rail0 lost its carrier; both directions of every pair flowed again after 6.0 ms; "
        "all of it was back 5.0 s after the healing; no flow broke, the longest gap was 200 ms."
    )
    assert of_run == ("", True, "Nothing happened that no fault explains.")


def test_a_move_onto_the_dead_nic_and_away_again_is_told():
    """Right in the end; whoever reads the verdict is to know all the same."""
    of_fault, _ = judge(scenario(), verdict(moves=4))
    assert of_fault.right
    assert "some pair's traffic changed its way 4 times, not 2" in of_fault.sentence
    assert "changed its way" not in judge(scenario())[0].sentence


def test_a_stop_on_the_other_rail_belongs_to_a_link_between_switches():
    """Its traffic has another path of its own rail a second later."""
    link = "rail0.leaf0-spine0"
    found, _ = judge(scenario(kind="drop", where=link), verdict(moves=3))
    assert "changed its way" not in found.sentence
    found, _ = judge(scenario(kind="drop", where=link), verdict(moves=4))
    assert "changed its way 4 times, not 3" in found.sentence


@pytest.mark.parametrize(
    ("right", "idle", "late_ms", "excused"),
    [(False, 0.05, 1.0, True), (False, 0.5, 40.0, True), (False, 0.5, 1.0, False), (True, 0.05, 40.0, False)],
)
def test_a_machine_that_did_not_keep_up_is_said_to_be_why(right, idle, late_ms, excused):
    """Of what was wrong alone."""
    machine = Machine(idle_cpu=idle, scheduler_lateness_ms=Lateness(p50=0.1, p99=late_ms))
    assert bool(excuse([Judgement("f1", right, "")], machine, Unexplained(events=0, commands=0))) is excused


@pytest.mark.parametrize(
    ("fault_right", "least_idle", "excused"),
    [(True, 0.02, True), (True, 0.5, False), (True, None, False), (False, 0.02, False)],
)
def test_what_nobody_explains_is_excused_by_the_seconds_in_which_it_came(fault_right, least_idle, excused):
    """However idle the machine was before and after; but a fault's own outcome is not."""
    machine = Machine(idle_cpu=0.5, scheduler_lateness_ms=Lateness(p50=0.1, p99=1.0))
    judged = [Judgement("f1", fault_right, ""), Judgement("", right=False, sentence="3 events that no fault explains.")]
    strays = Unexplained(events=3, commands=0, least_idle_cpu=least_idle)
    assert bool(excuse(judged, machine, strays)) is excused


def verdict(**fields):
    """The usual verdict but for these."""
    return msgspec.structs.replace(SEEN, **fields)


@pytest.mark.parametrize(
    ("run", "seen", "right"),
    [
        (scenario(), verdict(moved_ns=None), False),
        (scenario(), None, False),
        (scenario(), QUIET, False),
        (scenario(), verdict(restored_ns=None), False),
        (scenario(duration_s=45), verdict(restored_ns=None), True),
        (scenario(more=""), verdict(restored_ns=None), True),
        (scenario(rails=1), verdict(moved_ns=None, moves=0), True),
        (scenario(services='"remediator.reroute" = "advise"'), verdict(moved_ns=None, moves=0), True),
        (scenario(where="rail0.leaf1-spine1", kind="drop"), QUIET, True),
        (scenario(where="rail0.leaf1-spine1", kind="drop"), verdict(moved_ns=None, moves=0), False),
        (scenario(where="rail0.leaf1-spine0", kind="drop", rails=1, spines=1), verdict(moved_ns=None, moves=0), True),
        (scenario(kind="loss", more="for_s = 30\nshare = 0.2"), QUIET, True),
        (scenario(kind="loss", more="for_s = 30\nshare = 0.2"), SEEN, True),
        (scenario(kind="stop", where="node3"), QUIET, True),
        (scenario(kind="stop", where="node3"), SEEN, False),
        (scenario(kind="bus-cut", where="bus"), None, True),
    ],
)
def test_what_is_right(run, seen, right):
    """Cut traffic must move where it can, and return where there is time; what is no path's fault must move nothing."""
    assert judge(run, seen, healed_s=40 if run.faults[0].for_s else None)[0].right is right


FLAP = "times = 10\ndown_s = 1\nup_s = 1"


@pytest.mark.parametrize(
    ("moves", "restored_s", "right"), [(2, 20, True), (4, 45, False), (3, 45, True), (3, 20, False)]
)
def test_flapping_costs_two_moves(moves, restored_s, right):
    """Ten flaps may cost two moves before they are damped; the return when they are over is one more, and expected."""
    seen = verdict(moves=moves, restored_ns=None if restored_s is None else lab_ns(restored_s))
    assert judge(scenario(kind="flap", more=FLAP), seen, healed_s=29)[0].right is right


@pytest.mark.parametrize(
    ("where", "services", "duration_s", "right"),
    [
        ("node3.rail0", "", 600, True),
        ("node3.rail0", '"detector.half_life_s" = 2.0', 600, False),
        ("rail0.leaf0-spine0", "", 130, False),
        ("rail0.leaf0-spine0", "", 100, True),
    ],
)
def test_what_has_flapped_is_held_back_as_long_as_the_settings_say(where, services, duration_s, right):
    """Ten flaps hold a NIC for the half-lives of its damping, minutes by default, and a link for the longest probation, a minute."""
    run = scenario(where=where, kind="flap", more=FLAP, services=services, duration_s=duration_s)
    assert judge(run, verdict(moves=1, restored_ns=None), healed_s=29)[0].right is right


def test_a_broken_flow_is_wrong():
    """A flow that breaks makes the outcome wrong, and is named."""
    kept = record()
    kept.error(0, lab_ns(11), 104)
    of_fault, _ = judge(scenario(), kept=kept)
    assert not of_fault.right
    assert "1 flow broke: node2>node3/rail0" in of_fault.sentence


def test_strays_are_wrong():
    """Something that no fault explains makes the run wrong."""
    of_fault, of_run = judge(scenario(), events=[event(5)], commands=[command(5), command(6)])
    assert of_fault.right
    assert of_run == ("", False, "1 event and 2 commands that no fault explains.")


async def test_the_collector_keeps_each_message_once():
    """A message that is published again counts once, with the time of its first coming; clocks are learnt at once."""
    truth = Truth({"node0": NoSkew()})
    told = []
    collector = Collector(LabTime(START), truth, told.append)
    heard = event(10).message
    await collector.event(heard, "subject")
    await collector.event(heard, "subject")
    await collector.command(command(10).message)
    assert [one.message for one in collector.events] == [heard]
    assert [one.message.id for one in told] == [heard.id, "c10"]
    state = ClockState(
        clock="node0", reference="node0", offset_ns=5, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0, growth_ppb=0.0,
        as_of_ns=0, void_after_ns=1, status="synchronised",
    )  # fmt: skip
    await collector.clock(state)
    assert truth.reference_ns("node0", 0) == 5
    assert collector.clocks[0].message == state
