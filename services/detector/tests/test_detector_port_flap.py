"""Ports: what is a flap, what an administrator did, and what is neither."""

from __future__ import annotations

import pytest

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings

NIC = "node3.rail0"
T = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


@pytest.fixture
def fan_out(make_node):
    """A detector that knows node3."""
    detector = Pipeline(DetectorSettings())
    detector.observe(make_node("node3"))
    return detector


@pytest.fixture
def say(fan_out, make_port):
    """Tells of the port, a second after the last time unless told otherwise, and returns the events."""
    seconds = iter(range(10_000))

    def say(downs, ups, nic=NIC, at_ns=None, **state):
        at_ns = T + next(seconds) * SECOND_NS if at_ns is None else at_ns
        return fan_out.observe(make_port(nic, at_ns, downs, ups, **state))

    return say


LOST = {"carrier": False}
ADMIN_DOWN = {"carrier": False, "admin_up": False}


def states(events):
    """Of a list of events."""
    return [event.state for event in events]


def test_a_lost_carrier_is_a_flap_named_by_the_kernels_count(say):
    """Who, since when, which fault, and the damping in numbers."""
    say(3, 4)
    (event,) = say(4, 4, **LOST)

    assert (event.kind, event.who, event.state, event.confidence) == ("flap", NIC, "down", 1.0)
    assert (event.fault, event.id) == ("boot1/node3.rail0/carrier-4", "boot1/node3.rail0/carrier-4/down")
    assert event.at_ns == event.since_ns == T + SECOND_NS
    assert event.evidence == {
        "carrier_down_count": 4,
        "flaps": 1,
        "flaps_last_hour": 1,
        "rule": "cisco",
        "penalty": 1000.0,
        "suppressed": False,
        "reuse_at_ns": 0,
        "half_life_s": 900.0,
    }


def test_its_return_belongs_to_the_same_fault(say):
    """And says how long it was away."""
    say(3, 4)
    (down,) = say(4, 4, **LOST)
    (up,) = say(4, 5)

    assert (up.state, up.fault, up.id) == ("up", down.fault, f"{down.fault}/up")
    assert up.since_ns == down.at_ns
    assert up.evidence["down_ms"] == 1000.0
    assert up.evidence["flaps"] == 0


def test_flaps_between_two_messages_are_found_in_the_counter(say):
    """The port looks up both times, yet fell three times: all count, and it is damped."""
    say(3, 4)
    (event,) = say(6, 7)

    assert (event.state, event.fault) == ("up", "boot1/node3.rail0/carrier-6")
    assert (event.evidence["flaps"], event.evidence["between_messages"]) == (3, True)
    assert event.evidence["suppressed"]
    assert event.evidence["reuse_at_ns"] > event.at_ns
    assert event.since_ns == T


def test_a_jump_while_going_down_counts_all_of_it(say):
    """It fell, came back and fell again before the message."""
    say(3, 4)
    (event,) = say(5, 5, **LOST)

    assert (event.state, event.evidence["flaps"], event.evidence["penalty"]) == ("down", 2, 2000.0)


def test_a_further_fall_of_a_port_that_is_down_is_a_fault_of_its_own(say):
    """It had been back in between."""
    say(3, 4)
    say(4, 4, **LOST)
    (event,) = say(5, 5, **LOST)

    assert (event.state, event.fault) == ("down", "boot1/node3.rail0/carrier-5")
    assert event.evidence["flaps_last_hour"] == 2


def test_ten_flaps_suppress_and_the_event_says_until_when(say):
    """From the third on; at the end some 10000 decay to 750 in 3.7 half-lives."""
    say(0, 1)
    downs = []
    for count in range(1, 11):
        downs += say(count, count, **LOST)
        say(count, count + 1)

    assert [event.evidence["suppressed"] for event in downs] == [False, False] + [True] * 8
    assert downs[-1].evidence["flaps_last_hour"] == 10
    wait_s = (downs[-1].evidence["reuse_at_ns"] - downs[-1].at_ns) / SECOND_NS
    assert 3.7 * 900 < wait_s < 3.74 * 900


def test_flaps_older_than_an_hour_are_not_in_the_hours_count(say):
    """The count is of the last hour alone."""
    say(0, 1, at_ns=T)
    say(1, 1, at_ns=T + 1, **LOST)
    say(1, 2, at_ns=T + 2)
    (event,) = say(2, 2, at_ns=T + 3_600 * SECOND_NS + 1, **LOST)

    assert event.evidence["flaps_last_hour"] == 1


def test_an_administrators_down_and_up_are_no_flap(say):
    """Although the carrier goes with it and the kernel counts that."""
    say(3, 4)
    (down,) = say(4, 4, **ADMIN_DOWN)
    (up,) = say(4, 5)

    assert (down.state, up.state) == ("admin-down", "admin-up")
    assert down.fault == up.fault == "boot1/node3.rail0/carrier-4"
    for event in (down, up):
        assert (event.evidence["flaps"], event.evidence["penalty"]) == (0, 0.0)


def test_an_administrators_up_is_told_when_the_carrier_is_there(say):
    """Until then nothing can be sent."""
    say(3, 4)
    say(4, 4, **ADMIN_DOWN)

    assert say(4, 4, **LOST) == []
    assert states(say(4, 5)) == ["admin-up"]


def test_a_carrier_lost_after_an_administrators_up_is_a_flap(say):
    """It came and went before it was told of."""
    say(3, 4)
    say(4, 4, **ADMIN_DOWN)
    say(4, 4, **LOST)
    (event,) = say(5, 5, **LOST)

    assert (event.state, event.evidence["flaps"]) == ("down", 1)


def test_an_administrator_may_take_down_what_is_down_already(say):
    """The fault stays the same, and its end is the administrator's."""
    say(3, 4)
    (down,) = say(4, 4, **LOST)
    (admin,) = say(4, 4, **ADMIN_DOWN)
    (up,) = say(4, 5)

    assert states([down, admin, up]) == ["down", "admin-down", "admin-up"]
    assert down.fault == admin.fault == up.fault
    assert up.evidence["flaps_last_hour"] == 1


def test_real_flaps_before_an_administrators_down_count(say):
    """Three carriers lost, of which the administrator took one along."""
    say(3, 4)
    (event,) = say(6, 6, **ADMIN_DOWN)

    assert (event.state, event.evidence["flaps"]) == ("admin-down", 2)


def test_a_port_that_was_never_up_is_not_cabled(say):
    """Drivers count one carrier lost as they make the device; that is no fault, nor is its first carrier news."""
    assert say(1, 0, **LOST) == []
    assert say(1, 0, **LOST) == []
    assert say(1, 0, **ADMIN_DOWN) == []
    assert say(1, 1) == []
    assert states(say(2, 1, **LOST)) == ["down"]


def test_a_never_cabled_port_that_came_and_went_between_messages_has_fallen(say):
    """The kernel counted a carrier."""
    say(1, 0, **LOST)
    (event,) = say(2, 1, **LOST)

    assert (event.state, event.evidence["flaps"]) == ("down", 1)


@pytest.mark.parametrize(("state", "kernel"), [("down", LOST), ("admin-down", ADMIN_DOWN)])
def test_a_port_that_is_down_when_first_heard_of_but_was_up_is_told_with_half_confidence(say, state, kernel):
    """The detector may have started during the outage; nobody here saw the fall, so there is no penalty."""
    (event,) = say(5, 5, **kernel)

    assert (event.state, event.confidence) == (state, 0.5)
    assert event.id == f"boot1/node3.rail0/carrier-5/{state}"
    assert event.evidence["first_report"]
    assert event.evidence["penalty"] == 0.0
    assert len(say(5, 6)) == 1


def test_a_restarted_detector_gives_the_fault_the_same_id(say, make_node, make_port):
    """So the stream keeps it once."""
    say(3, 4)
    (before,) = say(4, 4, **LOST)
    late = Pipeline(DetectorSettings())
    late.observe(make_node("node3"))
    (after,) = late.observe(make_port(NIC, T + 60 * SECOND_NS, 4, 4, **LOST))

    assert before.id == after.id


def test_a_reboot_resets_the_counters_without_a_flap(say):
    """Counts go down, and the boot is another."""
    say(7, 8)

    assert say(1, 2, boot="boot2") == []
    (event,) = say(2, 2, boot="boot2", **LOST)
    assert (event.fault, event.evidence["flaps"]) == ("boot2/node3.rail0/carrier-2", 1)


def test_a_device_made_anew_is_no_flap(say):
    """The counts go down within one boot: a driver was loaded again."""
    say(7, 8)

    assert say(1, 1) == []
    assert say(1, 1) == []


def test_a_port_that_is_lost_by_the_reboot_is_down_without_a_penalty(say):
    """It was in use; that it no longer is must be told."""
    say(7, 8)
    (event,) = say(1, 0, boot="boot2", **LOST)

    assert (event.state, event.evidence["device_made_anew"], event.evidence["penalty"]) == ("down", True, 0.0)


def test_a_port_down_across_a_reboot_comes_back_under_its_old_fault(say):
    """Whoever waits for the end of that fault hears of it."""
    say(3, 4)
    (down,) = say(4, 4, **LOST)

    assert say(1, 0, boot="boot2", **LOST) == []
    (up,) = say(1, 1, boot="boot2")
    assert (up.state, up.fault) == ("up", down.fault)


def test_duplicates_and_the_past_change_nothing(say):
    """A message told twice, and an older one after a newer."""
    say(3, 4, at_ns=T)
    say(4, 4, at_ns=T + 5, **LOST)

    assert say(4, 4, at_ns=T + 5, **LOST) == []
    assert say(3, 4, at_ns=T) == []
    assert say(4, 4, at_ns=T + 1_000, **LOST) == []
    assert states(say(4, 5, at_ns=T + 2_000)) == ["up"]
    assert say(4, 4, at_ns=T + 1_000, **LOST) == []


def test_a_change_is_believed_though_the_nodes_clock_was_set_back(say):
    """The kernel's counters only rise."""
    say(3, 4, at_ns=T)
    (event,) = say(4, 4, at_ns=T - 50_000_000, **LOST)

    assert event.state == "down"


def test_a_kernel_that_does_not_count_still_has_its_flaps_counted(say):
    """Both counts stay 0."""
    say(0, 0)
    (event,) = say(0, 0, **LOST)

    assert (event.state, event.evidence["flaps"]) == ("down", 1)


def test_nics_that_the_inventory_does_not_know_are_ignored(say):
    """A management NIC, another node's NIC, a node that nobody described."""
    for nic in ("node3.management", "node9.rail0"):
        assert say(3, 4, nic=nic) == []
        assert say(4, 4, nic=nic, **LOST) == []


def test_a_short_half_life_trusts_again_soon(make_node, make_port):
    """What the demonstration sets, to show in seconds what takes half an hour."""
    detector = Pipeline(DetectorSettings(half_life_s=5.0))
    detector.observe(make_node("node3"))
    detector.observe(make_port(NIC, T, 0, 1))
    (event,) = detector.observe(make_port(NIC, T, 10, 11))

    assert event.evidence["suppressed"]
    assert (event.evidence["reuse_at_ns"] - T) / SECOND_NS == pytest.approx(18.685, abs=0.001)
