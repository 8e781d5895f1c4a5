"""The report of a run: what it says of a fault, and from what it is made."""

import json

import msgspec
import numpy as np
import pytest
from made_runs import FAULT, MS, SECOND, SEEN, START, NoSkew, command, event, lab_ns, record, report, scenario

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.bus_recorder import Collector
from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_lab.measure.outages import End, Pair, Pulses
from foliot_lab.report.report import witnessed
from foliot_lab.scenario.topology import plan
from foliot_lab.workload.flow_record import SLOT_NS
from foliot_schemas import ClockState
from foliot_schemas.fault import trace_id


def test_the_report_has_the_promised_form():
    """The report's JSON has exactly the promised keys, and null for what did not happen."""
    made = json.loads(report(scenario(), events=[event(10.001)], kept=record()).json())
    (fault,) = made["faults"]
    assert list(made) == [
        "faults",
        "flows",
        "clocks",
        "unexplained",
        "machine",
        "train",
        "jobs",
        "contended",
        "contention",
        "moves",
        "mismatches",
        "hangs",
        "stragglers",
        "replacements",
        "map",
        "verdict",
        "commit",
        "versions",
        "scenario",
    ]
    assert made["jobs"] == made["contended"] == made["contention"] == made["moves"] == made["mismatches"] == []
    assert made["hangs"] == made["stragglers"] == made["replacements"] == []
    assert list(fault) == [
        "id", "kind", "where", "injected_ns", "healed_ns", "detected_ns", "commanded_ns", "moved_ns", "restored_ns",
        "moves", "events",
        "trace_id", "not_counted", "flows", "train", "ranks",
    ]  # fmt: skip
    assert fault["commanded_ns"] is fault["train"] is made["train"] is None
    assert list(fault["not_counted"]) == ["found", "moved", "no_way_ms", "back"]
    assert list(fault["flows"][0]) == ["id", "errors", "longest_gap_ms", "gap_with_way_ms", "mbps"]
    assert list(made["flows"][0]) == ["id", "longest_gap_ms", "gap_with_way_ms"]
    assert list(fault["flows"][0]["mbps"]) == ["before", "during", "after"]
    assert list(made["clocks"]) == ["windows", "true_error_ns", "within_hard_bound", "within_bound"]
    assert list(made["machine"]) == [
        "idle_cpu", "stolen_cpu", "speed", "fixed_work_s", "scheduler_lateness_ms", "processes", "loops",
    ]  # fmt: skip
    assert made["machine"]["scheduler_lateness_ms"] == {"p50": 0.1, "p99": 1.0}
    assert made["unexplained"] == {"events": 0, "commands": 0, "least_idle_cpu": None, "first": []}


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
    assert made.unexplained.first == ["reroute node3", "reroute node0", "flap node0.rail1 down"]


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
    """Pulses after the next fault at the same place do not count for the fault before."""
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


@pytest.mark.parametrize(("back_s", "restored_s"), [(12, 12), (16, None)])
def test_what_is_back_before_another_fault_begins_is_not_held_against_that(back_s, restored_s):
    """A fault elsewhere on the pair's path moves it anew soon after; what had not come back by then is still away."""
    sent_ns = lab_ns(9) + np.arange(1000, dtype=np.int64) * 10 * MS
    away = (sent_ns > lab_ns(10)) & (sent_ns <= lab_ns(back_s)) | (sent_ns > lab_ns(14.1))
    pulses = Pulses(sent_ns=sent_ns, arrived_ns=sent_ns + 1, device=away.astype(np.int16), devices=("fo0e0", "fo1e0"))
    pair = Pair(End("node3", "rail0"), End("node0", "rail0"))
    own, other = (
        Injection(
            fault_id=id_, kind="link-down", where=where, injected_ns=lab_ns(at_s), healed_ns=lab_ns(at_s + 1), edges=()
        )
        for id_, where, at_s in (("own", "node3.rail0", 10), ("other", "node0.rail0", 14))
    )
    seen = witnessed([own, other], {"own": {pair: pulses}}, plan(scenario().fabric, 7))["own"]
    assert seen.restored_ns == (None if restored_s is None else pulses.arrived_ns[sent_ns > lab_ns(restored_s)][0])


@pytest.mark.parametrize(("kind", "interrupted"), [("drop", 0), ("mtu", 1)])
def test_pulses_of_full_size_are_fewer_so_their_silence_may_begin_later(kind, interrupted):
    """A hole for large packets is seen by one pulse in 20 ms, of which a busy machine may leave some out."""
    sent_ns = lab_ns(9) + np.arange(100, dtype=np.int64) * 20 * MS
    silent = (sent_ns > lab_ns(10.1)) & (sent_ns < lab_ns(10.5))
    pulses = Pulses(
        sent_ns=sent_ns, arrived_ns=np.where(silent, 0, sent_ns + 1), device=np.zeros(100, np.int16), devices=("fo0e0",)
    )
    fault = Injection(fault_id="f1", kind=kind, where="node3.rail0", injected_ns=lab_ns(10), edges=())
    pair = Pair(End("node3", "rail0"), End("node0", "rail0"))
    seen = witnessed([fault], {"f1": {pair: pulses}}, plan(scenario().fabric, 7))
    assert seen["f1"].interrupted == interrupted


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


def test_a_report_may_say_what_was_run():
    """The commit and the scenario, with every default, as JSON has them."""
    whole = msgspec.structs.replace(report(scenario()), commit="abc+", scenario=scenario())
    written = json.loads(whole.json())
    assert written["commit"] == "abc+"
    assert written["scenario"]["fabric"]["hosts"] == scenario().fabric.hosts
    assert written["scenario"]["faults"][0]["id"] == "f1"
