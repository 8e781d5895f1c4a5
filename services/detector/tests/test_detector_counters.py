"""Counters that wrap, stick, run back or leap, and an RDMA device's: what is a flap, and what they do not say."""

from __future__ import annotations

import pytest
from host_kernel import ADMIN_DOWN, LOST

LARGEST = (1 << 32) - 1


def test_a_counter_that_wraps(kernel):
    """After 2 ** 32 - 1 comes 0: two flaps, by the counts before and after."""
    kernel.says(LARGEST, LARGEST)
    (event,) = kernel.says(1, 1)

    assert (event.evidence["flaps"], event.evidence["between_messages"]) == (2, True)
    assert "device_made_anew" not in event.evidence


def test_a_counter_that_wraps_as_the_carrier_is_lost(kernel):
    """One fall, then the return."""
    kernel.says(LARGEST, 0)
    kernel.says(0, 0, **LOST)
    kernel.says(0, 1)

    assert (kernel.states, kernel.flaps) == (["down", "up"], 1)


def test_a_counter_that_wraps_of_an_older_probe(kernel):
    """One that does not say the index: so near to the end, it wrapped."""
    kernel.says(LARGEST, LARGEST, index=0)
    (event,) = kernel.says(0, 0, index=0)

    assert event.evidence["flaps"] == 1


def test_a_counter_that_runs_back(kernel):
    """Of the same device and boot: no driver does that. Nothing can be said of what happened, and then it counts on."""
    kernel.says(40, 41)
    assert kernel.says(3, 4) == []
    (event,) = kernel.says(4, 5)

    assert event.evidence["flaps"] == 1


def test_a_carrier_lost_while_the_counter_runs_back_is_lost(kernel):
    """That much was seen."""
    kernel.says(40, 41)
    (event,) = kernel.says(4, 4, **LOST)

    assert (event.state, event.evidence["flaps"], event.evidence["counters_ran_back"]) == ("down", 1, True)


@pytest.mark.parametrize("downs", [1 << 20, 3_000_000_000])
def test_a_counter_that_leaps(kernel, downs):
    """A million flaps in a second are no flaps."""
    kernel.says(3, 4)

    assert kernel.says(downs, downs + 1) == []


def test_a_counter_that_sticks(kernel):
    """The carrier goes and comes, and the counts stay: what is seen is counted, and each loss is a fault of its own."""
    kernel.says(9, 9)
    for _ in range(3):
        kernel.says(9, 9, **LOST)
        kernel.says(9, 9)

    assert kernel.states == ["down", "up"] * 3
    assert kernel.flaps == 3
    assert kernel.is_suppressed == (kernel.rule != "gpud")
    assert len({event.id for event in kernel.events}) == 6
    assert [event.fault for event in kernel.events[::2]] == [event.fault for event in kernel.events[1::2]]


def test_flaps_that_only_the_rdma_device_counted(make_kernel):
    """The network device noticed nothing.

    Told with the next report, when no lost carrier has explained them by then.
    """
    kernel = make_kernel()
    kernel.says(3, 4, link_downed=10)
    assert kernel.says(3, 4, link_downed=12) == []
    (event,) = kernel.says(3, 4, link_downed=12)

    assert (event.state, event.evidence["flaps"], event.evidence["penalty"]) == ("up", 2, 2000.0)
    assert kernel.says(3, 4, link_downed=12) == []


@pytest.mark.parametrize("first", ["kernel", "device"])
def test_a_loss_that_both_count_is_one(make_kernel, first):
    """Whichever shows it first, and with seconds between them."""
    kernel = make_kernel()
    kernel.says(3, 4, link_downed=10)
    if first == "device":
        kernel.says(3, 4, link_downed=11)
    kernel.says(4, 4, **LOST)
    kernel.says(4, 5)
    for link_downed in (10, 10, 11, 11, 11) if first == "kernel" else (11, 11, 11):
        kernel.says(4, 5, link_downed=link_downed)

    assert kernel.flaps == 1


def test_losses_of_an_administrator_do_not_hide_later_ones(make_kernel):
    """The RDMA device counts none of them; what it counts a while later is its own."""
    kernel = make_kernel()
    kernel.says(3, 4, link_downed=10)
    kernel.says(4, 4, **ADMIN_DOWN)
    kernel.says(4, 5)
    for _ in range(10):
        kernel.says(4, 5, link_downed=10)
    kernel.says(4, 5, link_downed=11)
    kernel.says(4, 5, link_downed=11)

    assert kernel.flaps == 1


def test_a_link_downed_that_stands_at_255(kernel):
    """InfiniBand's counter of 8 bits sticks at the end, as on a port of a real H100 host: the carrier's goes on."""
    kernel.says(3, 4, link_downed=255)
    for _ in range(5):
        assert kernel.says(3, 4, link_downed=255) == []
    kernel.says(4, 4, link_downed=255, **LOST)
    kernel.says(4, 5, link_downed=255)

    assert (kernel.states, kernel.flaps) == (["down", "up"], 1)


def test_a_link_downed_that_somebody_clears(kernel):
    """As perfquery -R and many a monitor do: a lower count says nothing, the next rise does."""
    kernel.says(3, 4, link_downed=200)
    assert kernel.says(3, 4, link_downed=0) == []
    assert kernel.says(3, 4, link_downed=0) == []
    kernel.says(3, 4, link_downed=1)
    kernel.says(3, 4, link_downed=1)

    assert kernel.flaps == 1
