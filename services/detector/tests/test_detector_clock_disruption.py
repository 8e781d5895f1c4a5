"""Clocks: the edges of what sync says."""

from __future__ import annotations

import pytest

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import ClockState


def state(status, as_of_ns=1_000, window=1, offset_ns=500):
    """What sync says of node2's clock."""
    return ClockState(
        clock="node2", reference="node0", offset_ns=offset_ns, drift_ppb=0.0, hard_bound_ns=9_000, bound_ns=200,
        growth_ppb=1.0, as_of_ns=as_of_ns, void_after_ns=as_of_ns + 10**10, status=status, window=window, neighbours=3,
    )  # fmt: skip


@pytest.fixture
def fan_out(make_node):
    """A detector that knows node2."""
    detector = Pipeline(DetectorSettings())
    detector.observe(make_node("node2"))
    return detector


def test_a_disrupted_clock_is_told_once_and_so_is_its_return(fan_out):
    """With reference times, and the cause of the second."""
    assert fan_out.observe(state("synchronised")) == []
    (disrupted,) = fan_out.observe(state("disrupted", 2_000, 2))
    assert fan_out.observe(state("disrupted", 3_000, 3)) == []
    (again,) = fan_out.observe(state("synchronised", 2_000_000_000, 4))

    assert (disrupted.kind, disrupted.who, disrupted.state, disrupted.at_ns) == ("clock", "node2", "disrupted", 2_500)
    assert (again.state, again.fault, again.cause) == ("synchronised", disrupted.fault, disrupted.id)
    assert again.since_ns == disrupted.at_ns
    assert again.evidence["disrupted_ms"] == pytest.approx(2_000.0, abs=0.01)


@pytest.mark.parametrize("status", ["unsynchronised", "holdover", "synchronised"])
def test_other_states_are_no_trouble(fan_out, status):
    """Starting up, and living through a lost reference within its bounds."""
    assert fan_out.observe(state("synchronised")) == []
    assert fan_out.observe(state(status, 2_000, 2)) == []


def test_a_holdover_does_not_end_a_disruption(fan_out):
    """Only a synchronised clock is in step."""
    fan_out.observe(state("disrupted"))

    assert fan_out.observe(state("holdover", 2_000, 2)) == []
    assert len(fan_out.observe(state("synchronised", 3_000, 3))) == 1


def test_an_older_word_changes_nothing(fan_out):
    """Messages may come in the wrong order."""
    fan_out.observe(state("synchronised", 3_000, 3))

    assert fan_out.observe(state("disrupted", 2_000, 2)) == []


def test_a_clock_that_was_set_back_is_heard(fan_out):
    """Its local time went down, but windows only count up."""
    fan_out.observe(state("synchronised", 3_000, 3))

    assert len(fan_out.observe(state("disrupted", 2_000, 4))) == 1
