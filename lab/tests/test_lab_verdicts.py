"""Verdicts: which outcomes are right, and in which words."""

import msgspec
import pytest
from made_runs import QUIET, SEEN, command, event, judge, lab_ns, record, scenario

from foliot_lab.measure.outages import End, Pair


def test_a_healed_cut_is_right():
    """A cut that moved, came back and broke nothing is right, and says so in numbers."""
    of_fault, of_run = judge(scenario(), events=[event(10.001)], kept=record())
    assert of_fault.right
    assert of_fault.sentence == (
        "node3.rail0 lost its carrier; both directions of every pair flowed again after 6.0 ms; "
        "all of it was back 5.0 s after the healing; no flow broke, the longest gap was 200 ms."
    )
    assert (of_run.fault, of_run.right, of_run.sentence) == ("", True, "Nothing happened that no fault explains.")


def test_a_move_onto_the_dead_nic_and_away_again_is_told():
    """The outcome is right in the end, but the reader of the verdict has to know all the same."""
    of_fault, _ = judge(scenario(), verdict(moves=4))
    assert of_fault.right
    assert "some pair's traffic changed its way 4 times, not 2" in of_fault.sentence
    assert "changed its way" not in judge(scenario())[0].sentence


@pytest.mark.parametrize("duration_s", [45, 400])
def test_pairs_that_are_not_back_are_named(duration_s):
    """Whether or not the run was over too soon for them."""
    pairs = tuple(Pair(End("node3", "rail0"), End(f"node{number}", "rail0")) for number in range(4))
    of_fault, _ = judge(scenario(duration_s=duration_s), verdict(restored_ns=None, astray=pairs))
    named = "by node3.rail0>node0.rail0, node3.rail0>node1.rail0, node3.rail0>node2.rail0 and 1 more"
    assert named in of_fault.sentence


def test_a_stop_on_the_other_rail_belongs_to_a_link_between_switches():
    """Its traffic has another path of its own rail a second later."""
    link = "rail0.leaf0-spine0"
    found, _ = judge(scenario(kind="drop", where=link), verdict(moves=3))
    assert "changed its way" not in found.sentence
    found, _ = judge(scenario(kind="drop", where=link), verdict(moves=4))
    assert "changed its way 4 times, not 3" in found.sentence


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
    of_fault, _ = judge(run, seen, healed_s=40 if run.faults[0].for_s else None)
    assert of_fault.right is right, of_fault.sentence


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
        ("rail0.leaf0-spine0", "", 98, True),
    ],
)
def test_what_has_flapped_is_held_back_as_long_as_the_settings_say(where, services, duration_s, right):
    """Ten flaps hold a NIC for the half-lives of its damping, and a link for the longest probation.

    The former is minutes by default, the latter a minute.
    """
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
    of_fault, of_run = judge(
        scenario(), events=[event(5), event(10.001, id="found")], commands=[command(5), command(6)]
    )
    assert of_fault.right
    assert (of_run.fault, of_run.right, of_run.sentence) == (
        "",
        False,
        "1 event and 2 commands that no fault explains (reroute node3, flap node3.rail0 down, reroute node3).",
    )
