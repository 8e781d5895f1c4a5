"""A detector that starts anew ends what its predecessor began."""

from __future__ import annotations

import pytest

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import ClockState
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)


def start_anew(inventory):
    """Another detector, which is told what the first one has said last."""
    said = {(event.kind, event.who): event for event in inventory.take()}
    inventory.start_detector()
    for event in said.values():
        inventory.detector.resume(event)
    return said


@pytest.mark.parametrize("healed_first", [True, False])
def test_a_silence_of_an_earlier_run_ends(make_fleet, healed_first):
    """Whether the path was healed before or after the start: it speaks, in the trace of its silence, and once."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    if healed_first:
        said = {("path", str(PATH)): inventory.take()[0]}
        inventory.cut.clear()
        inventory.run(1_000)
        start_anew(inventory)
        inventory.detector.resume(said["path", str(PATH)])
    else:
        said = start_anew(inventory)
        inventory.run(1_500)
        assert inventory.take() == [], "it is known already"
        inventory.cut.clear()
    inventory.run(1_500)
    (event,) = inventory.take()
    silence = said["path", str(PATH)]
    assert (event.who, event.state, event.cause, event.fault) == (str(PATH), "speaking", silence.id, silence.fault)
    assert event.at_ns > silence.at_ns


def test_a_silence_of_an_earlier_run_ends_though_clocks_were_set_back(make_fleet):
    """The event says which probe was heard last."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    said = start_anew(inventory)
    for name in inventory.names:
        inventory.offset_ns[name] -= 60_000_000_000
    inventory.run(1_000)
    inventory.cut.clear()
    inventory.run(1_500)
    (event,) = inventory.take()
    assert (event.who, event.state, event.cause) == (str(PATH), "speaking", said["path", str(PATH)].id)


def test_a_loss_of_an_earlier_run_ends(make_fleet):
    """As a silence does."""
    inventory = make_fleet()
    inventory.lose[PATH] = lambda number: number % 4 == 0
    inventory.run_until_said(25_000)
    said = start_anew(inventory)
    inventory.lose.clear()
    inventory.run_until_said(25_000)
    (event,) = inventory.take()
    assert (event.who, event.state, event.cause) == (str(PATH), "speaking", said["path", str(PATH)].id)


def test_a_death_of_an_earlier_run_ends(make_fleet):
    """The process was back before the detector was."""
    inventory = make_fleet()
    inventory.stopped.add("node2")
    inventory.run(3_000)
    said = start_anew(inventory)
    inventory.run(2_000)
    assert inventory.take() == []
    inventory.restart("node2")
    inventory.run(2_000)
    (event,) = inventory.take()
    assert (event.who, event.state, event.cause) == ("node2/probe", "alive", said["process", "node2/probe"].id)


def test_a_disruption_of_an_earlier_run_ends(make_node):
    """The first word of sync may be that all is well again."""

    def state(status, window):
        return ClockState(
            clock="node2", reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
            as_of_ns=window, void_after_ns=window, status=status, window=window,
        )  # fmt: skip

    first, anew = Pipeline(DetectorSettings()), Pipeline(DetectorSettings())
    for detector in (first, anew):
        detector.observe(make_node("node2"))
    (disrupted,) = first.observe(state("disrupted", 1))
    anew.resume(disrupted)
    (event,) = anew.observe(state("synchronised", 2))
    assert (event.state, event.cause) == ("synchronised", disrupted.id)


def test_a_damped_nic_stays_damped(make_fleet):
    """What flapped before the start counts for what flaps after it."""
    inventory = make_fleet()
    for _ in range(3):
        inventory.set_carrier("node2.rail0", carrier=False)
        inventory.run(100)
        inventory.set_carrier("node2.rail0", carrier=True)
        inventory.run(100)
    before = start_anew(inventory)["flap", "node2.rail0"]
    assert before.evidence["suppressed"]
    inventory.run(2_000)
    assert inventory.take() == []
    inventory.set_carrier("node2.rail0", carrier=False)
    inventory.run(100)
    (again,) = inventory.take()
    assert again.evidence["suppressed"]
    assert again.evidence["penalty"] > before.evidence["penalty"]
    assert again.evidence["reuse_at_ns"] > before.evidence["reuse_at_ns"]


def test_what_was_over_or_concerns_nobody_is_not_taken_up(make_fleet):
    """A path that spoke again, and one between NICs that have left."""
    inventory = make_fleet()
    inventory.cut.add(PATH)
    inventory.run(500)
    (silence,) = inventory.take()
    inventory.cut.clear()
    inventory.run(1_000)
    (speaking,) = inventory.take()
    inventory.start_detector()
    inventory.detector.resume(speaking)
    inventory.detector = Pipeline(DetectorSettings())
    inventory.detector.resume(silence)
    inventory.start_detector()
    inventory.run(2_000)
    assert inventory.take() == []
