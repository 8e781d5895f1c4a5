"""Ports: what befell them that nobody heard of, from the changes that each of their words has."""

from __future__ import annotations

import msgspec
import pytest
from host_kernel import ADMIN_DOWN, LOST

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import PortChange

NIC = "node3.rail0"
T = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


class Port:
    """A port with a past, and a detector that hears of it now and then."""

    def __init__(self, detector, make_port):
        self._detector, self._make_port = detector, make_port
        self._changes = ()
        self._state = {"downs": 3, "ups": 4}
        self.events = []

    def change(self, second, **state):
        """It changes; nobody hears of it."""
        self._state = state
        word = self.word(second)
        self._changes += (
            PortChange(
                at_ns=word.at_ns, carrier=word.carrier, admin_up=word.admin_up,
                carrier_down_count=word.carrier_down_count,
                carrier_up_count=word.carrier_up_count, index=word.index,
            ),
        )  # fmt: skip

    def word(self, second):
        """What it would say."""
        state = dict(self._state)
        index = state.pop("index", 0)
        word = self._make_port(NIC, T + round(second * SECOND_NS), **state)
        return msgspec.structs.replace(word, index=index, changes=self._changes)

    def says(self, second):
        """The detector hears of it."""
        self.events += self._detector.observe(self.word(second))

    @property
    def told(self):
        """What the detector said: second, state, kernel's count, flaps."""
        return [
            ((event.at_ns - T) / SECOND_NS, event.state, event.number("carrier_down_count"), event.number("flaps"))
            for event in self.events
        ]


@pytest.fixture
def port(make_node, make_port):
    """One that was up when it was heard last, at second 0."""
    detector = Pipeline(DetectorSettings())
    detector.observe(make_node("node3"))
    port = Port(detector, make_port)
    port.says(0)
    return port


def lose_twice(port):
    """It loses its carrier twice, and has it back."""
    port.change(1, downs=4, ups=4, **LOST)
    port.change(3, downs=4, ups=5)
    port.change(6, downs=5, ups=5, **LOST)
    port.change(14, downs=5, ups=6)


@pytest.mark.parametrize("second", [14.001, 15, 30, 86_400])
def test_each_loss_and_return_is_told_however_late_it_is_heard(port, second):
    """In order, each when it was and once, under the name of its loss."""
    lose_twice(port)
    port.says(second)
    port.says(second + 1)
    assert port.told == [(1, "down", 4, 1), (3, "up", 4, 0), (6, "down", 5, 1), (14, "up", 5, 0)]
    faults = [event.fault for event in port.events]
    assert faults == [f"boot1/{NIC}/carrier-{count}" for count in (4, 4, 5, 5)]
    assert [event.number("down_ms") for event in port.events[1::2]] == [2_000, 8_000]


@pytest.mark.parametrize("heard", range(16))
def test_whichever_changes_were_heard_the_others_are_told_in_their_place(port, heard):
    """A word may be lost anywhere: in a cut, in a queue that was left out, between two that came."""
    steps = [(1, {"downs": 4, "ups": 4, **LOST}), (3, {"downs": 4, "ups": 5}), (6, {"downs": 5, "ups": 5, **LOST})]
    for number, (second, state) in enumerate([*steps, (14, {"downs": 5, "ups": 6})]):
        port.change(second, **state)
        if heard >> number & 1:
            port.says(second)
    port.says(15)
    assert [(second, state) for second, state, _, _ in port.told] == [(1, "down"), (3, "up"), (6, "down"), (14, "up")]


def test_what_an_administrator_did_unheard_is_no_flap(port):
    """It is told as what it was, although no counter moved."""
    port.change(1, downs=4, ups=4, **LOST)
    port.says(1)
    port.change(2, downs=4, ups=4, **ADMIN_DOWN)
    port.change(3, downs=4, ups=5)
    port.says(4)
    assert port.told == [(1, "down", 4, 1), (2, "admin-down", 4, 0), (3, "admin-up", 4, 0)]


def test_the_past_of_a_port_that_is_met_is_not_told(make_node, make_port):
    """An earlier run may have told it: the kernel's counts say nothing of that."""
    detector = Pipeline(DetectorSettings())
    detector.observe(make_node("node3"))
    port = Port(detector, make_port)
    lose_twice(port)
    port.says(15)
    port.says(16)
    assert port.told == []


def test_a_past_that_the_clock_was_set_back_from_is_not_told_again(port):
    """Its times are later than those of the words it comes with, and the words go on to be believed."""
    port.change(1, downs=4, ups=4, **LOST)
    port.says(1)
    port.change(3, downs=4, ups=5)
    port.says(3)
    port.change(-100, downs=5, ups=5, **LOST)
    port.says(-99)
    for second in range(-98, 10):
        port.says(second)
    assert port.told == [(1, "down", 4, 1), (3, "up", 4, 0), (-100, "down", 5, 1)]
    port.change(11, downs=5, ups=6)
    port.says(12)
    assert port.told[3:] == [(11, "up", 5, 0)]


def test_a_device_that_was_made_anew_unheard_begins_to_count_anew(port):
    """What the old one lost is told under its own name; its counts say nothing of the new one's."""
    port.change(1, downs=4, ups=4, index=7, **LOST)
    port.says(1)
    port.change(2, downs=0, ups=1, index=8)
    port.change(3, downs=1, ups=1, index=8, **LOST)
    port.change(4, downs=1, ups=2, index=8)
    for second in (5, 6):
        port.says(second)
    assert [(second, state) for second, state, _, _ in port.told] == [(1, "down"), (2, "up"), (3, "down"), (4, "up")]
