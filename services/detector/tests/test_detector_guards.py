"""Known false alarms: what the kernel tells of ports of which nothing is wrong."""

from __future__ import annotations

import pytest
from host_kernel import ADMIN_DOWN, LOST


def test_a_port_never_cabled(kernel):
    """An hour of reports of a port without carrier, set up and down at will: a driver's first loss (1, 0) is none."""
    for _ in range(10):
        kernel.says(1, 0, **LOST)
    kernel.says(1, 0, **ADMIN_DOWN)
    kernel.says(1, 0, **LOST)

    assert kernel.events == []


def test_its_first_cable_is_no_news_and_its_first_loss_is(kernel):
    """From then on it is a port like any other."""
    kernel.says(1, 0, **LOST)
    kernel.says(1, 1)
    assert kernel.events == []
    kernel.says(2, 1, **LOST)

    assert (kernel.states, kernel.flaps) == (["down"], 1)


@pytest.mark.parametrize("carrier_is_late", [False, True])
def test_an_administrator_who_sets_it_down_and_up_a_hundred_times(kernel, carrier_is_late):
    """IFF_UP is off between; the kernel counts carriers that go with it and come back, at once or a moment later."""
    downs, ups = 3, 4
    kernel.says(downs, ups)
    for _ in range(100):
        downs += 1
        kernel.says(downs, ups, **ADMIN_DOWN)
        if carrier_is_late:
            kernel.says(downs, ups, **LOST)
        ups += 1
        kernel.says(downs, ups)

    assert kernel.states == ["admin-down", "admin-up"] * 100
    assert kernel.flaps == 0
    assert not kernel.is_suppressed


def test_a_driver_that_is_loaded_again(kernel):
    """The device goes (told as set down, with its carrier) and comes back under another index, counting from 0."""
    kernel.says(5, 6, index=7)
    for index in range(8, 28):
        kernel.says(6, 6, index=index - 1, **ADMIN_DOWN)
        kernel.says(0, 0, index=index, **ADMIN_DOWN)
        kernel.says(0, 0, index=index, **LOST)
        kernel.says(0, 1, index=index)
        kernel.says(5, 6, index=index)  # and by and by has counted as much as the one before
        kernel.events.clear()
    kernel.says(6, 6, index=27, **ADMIN_DOWN)
    (back,) = kernel.says(0, 1, index=28)

    assert (back.state, back.evidence["flaps"]) == ("admin-up", 0)


def test_a_driver_that_is_loaded_again_while_the_bus_is_away(kernel):
    """Two reports with nothing between them: the counts are higher, as if it had flapped, but it is another device."""
    kernel.says(0, 1, index=7)

    assert kernel.says(3, 4, index=8) == []
    assert kernel.says(3, 4, index=8) == []


def test_a_message_of_the_device_before_comes_late(kernel):
    """It changes nothing, and the next of the new device neither."""
    kernel.says(0, 1, index=7)
    kernel.says(0, 1, index=8)
    kernel.seconds -= 2
    assert kernel.says(1, 1, index=7, **LOST) == []
    kernel.seconds += 2

    assert kernel.says(0, 1, index=8) == []


def test_losses_of_two_devices_are_two_faults(kernel):
    """Both were the first that their device counted; with one id, whoever keeps ids would drop the second."""
    kernel.says(0, 1, index=7)
    (first,) = kernel.says(1, 1, index=7, **LOST)
    kernel.says(1, 2, index=7)
    kernel.says(0, 1, index=8)
    (second,) = kernel.says(1, 1, index=8, **LOST)

    assert (first.fault, second.fault) == (
        "boot1/node3.rail0/device-7/carrier-1",
        "boot1/node3.rail0/device-8/carrier-1",
    )


def test_a_reboot(kernel):
    """Another boot id; counts, index and even the carrier begin anew. Twenty of them are no flap."""
    kernel.says(7, 8)
    for number in range(20):
        kernel.says(1, 0, boot=f"boot{number + 2}", index=3, **LOST)
        kernel.seconds += 60
        kernel.says(1, 1, boot=f"boot{number + 2}", index=3)

    assert kernel.states == ["down", "up"] * 20  # it was in use, and is not heard of before it is back
    assert kernel.flaps == 0
    assert not kernel.is_suppressed


def test_a_reboot_that_nobody_saw(kernel):
    """Back before anybody looked, with counts that would pass for flaps."""
    kernel.says(7, 8)

    assert kernel.says(9, 10, boot="boot2") == []


def test_the_hosts_management_port(kernel):
    """The default route or the bus leaves by it: it is not a fabric's.

    It is lost with the host's own network, and reported when that is back.
    """
    kernel.says(1, 2, management=True)
    kernel.says(2, 2, management=True, **LOST)
    kernel.says(9, 10, management=True)

    assert kernel.events == []
    assert kernel.detector.counts["ports_management"] == 3


def test_a_port_that_turns_out_to_be_the_management(kernel):
    """The probe finds out a moment after its first report. When it is no longer, it is met anew."""
    kernel.says(1, 2)
    kernel.says(2, 2, management=True, **LOST)
    kernel.says(2, 3, management=True)
    kernel.says(2, 3)
    assert kernel.events == []

    assert len(kernel.says(3, 3, **LOST)) == 1


def test_a_management_port_is_judged_if_that_is_wanted(make_kernel):
    """Where a host has one network only, which is both."""
    kernel = make_kernel(management_nics="judge")
    kernel.says(1, 2, management=True)
    kernel.says(2, 2, management=True, **LOST)

    assert kernel.states == ["down"]
