"""What is told of ports when the bus is back."""

from __future__ import annotations

import pytest

from foliot import telemetry
from foliot_probe.missed import Missed
from foliot_schemas import PortState


def port(nic: str = "n.r", *, carrier: bool = True, downs: int = 0, change: bool = True) -> PortState:
    """A port's state."""
    return PortState(
        node="n", nic=nic, at_ns=downs, carrier=carrier, admin_up=True, carrier_down_count=downs,
        carrier_up_count=downs + carrier, fault="boot", change=change,
    )  # fmt: skip


NOW = port(carrier=False, downs=2, change=False)


@pytest.fixture
def missed():
    """A carrier that was lost long ago and came back, and twice while the bus was away, which was noticed late."""
    missed = Missed()
    missed.take(port(carrier=False, downs=0), 10.0)
    missed.take(port(carrier=False, downs=1), 100.0)
    missed.away(102.0)
    missed.take(port(downs=1), 105.0)
    missed.take(port("n.other", downs=7), 105.0)
    missed.take(port(downs=1, change=False), 106.0)
    missed.take(port(carrier=False, downs=2), 110.0)
    return missed


def told(changes):
    """What of them counts here."""
    return [(change.state.carrier_down_count, change.state.carrier) for change in changes]


def test_what_happened_while_the_bus_was_away_is_told_in_order_before_what_is_so_now(missed):
    """Of this port, the changes alone, and those before the cut was noticed; also to those who find the bus later."""
    missed.back(160.0)
    assert told(missed.before(NOW, 160.0)) == told(missed.before(NOW, 163.0)) == [(1, False), (1, True), (2, False)]
    assert told(missed.before(NOW, 163.1)) == []


def test_while_the_bus_is_there_nothing_is_told_twice():
    """A change is told once."""
    missed = Missed()
    missed.take(NOW, 10.0)
    assert missed.before(NOW, 10.0) == []


def test_a_change_after_the_return_stands_behind_those_before(missed):
    """Who has not heard these yet would leave them out as old."""
    missed.back(160.0)
    change = port(downs=2)
    missed.take(change, 161.0)
    assert told(missed.before(change, 161.0)) == [(1, False), (1, True), (2, False)]
    assert told(missed.before(NOW, 162.0)) == [(1, False), (1, True), (2, False), (2, True)]


def test_a_bus_that_goes_again_at_once_takes_nothing_along(missed):
    """What some have not heard yet is told after the second cut too."""
    missed.back(160.0)
    missed.away(161.0)
    missed.away(162.0)
    missed.back(170.0)
    assert len(missed.before(NOW, 170.0)) == 3


def test_each_is_told_in_the_span_of_its_fault(missed, spans):
    """And not in whatever span there is by then."""
    loss = port(carrier=False, downs=3)
    with telemetry.span("link lost", fault="f", root=True):
        span = telemetry.span_id()
        missed.take(loss, 120.0)
    missed.back(160.0)
    *_, change = missed.before(NOW, 160.0)
    assert change.state is loss
    assert change.context.run(telemetry.span_id) == span
