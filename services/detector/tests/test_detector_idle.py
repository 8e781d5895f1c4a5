"""Paths for which another one stands: nobody misses them, whoever starts anew, and a silence of theirs has an end."""

from __future__ import annotations

import pytest

SECOND = 1_000
"""Milliseconds."""


@pytest.fixture
def fleet(make_fleet):
    """Three nodes on one rail, of whose four entropies the last two idle."""
    made = make_fleet(rails=1, entropies=4, report_ms=200, tick_ms=50)
    made.run(3 * SECOND)
    made.let_idle(*idle(made))
    made.run(2 * SECOND)
    assert made.take() == []
    return made


def idle(fleet):
    """The paths for which others stand."""
    return [path for path in fleet.paths if path.entropy > 1]


def told(events):
    """Who and state of events."""
    return [(event.who, event.state) for event in events]


def test_paths_that_idle_are_not_missed(fleet):
    """Though their senders are heard all the time, and of every second path two of the few probes are lost."""
    for path in idle(fleet)[::2]:
        fleet.lose[path] = {1, 2}.__contains__
    fleet.run(95 * SECOND)
    assert fleet.take() == []


def test_a_silence_beside_them_is_found_as_ever(fleet):
    """It is the path's alone; of the others nothing is said."""
    path = next(path for path in fleet.paths if path.entropy == 0)
    fleet.cut.update(each for each in fleet.paths if each[:2] == path[:2])
    fleet.run(400)
    assert told(fleet.take()) == [(str(path), "silent")]
    fleet.cut.clear()
    fleet.run(SECOND)
    assert told(fleet.take()) == [(str(path), "speaking")]


@pytest.mark.parametrize(("away_ms", "heard_ms"), [(600, 200), (900, 800)])
def test_a_receiver_that_starts_anew_is_told_before_it_misses_them(fleet, away_ms, heard_ms):
    """Its peers probe all paths to it again for a while."""
    into = [path for path in idle(fleet) if path.destination == "node1.rail0"]
    fleet.stopped.add("node1")
    fleet.run(away_ms)
    fleet.restart("node1")
    fleet.run(heard_ms)
    fleet.probe_again(*into)
    fleet.run(5 * SECOND)
    fleet.let_idle(*into)
    fleet.run(32 * SECOND)
    assert fleet.take() == []


def test_a_detector_that_starts_anew_does_not_know_them_and_says_nothing(fleet):
    """Nor does it when it hears of them at last, or for some time after that."""
    fleet.start_detector()
    fleet.run(45 * SECOND)
    assert fleet.take() == []


def test_a_path_that_idles_while_it_is_silent_is_said_to_speak_again(fleet):
    """By its second probe that comes through."""
    path = next(iter(idle(fleet)))
    fleet.probe_again(path)
    fleet.run(SECOND)
    fleet.cut.add(path)
    fleet.run(3 * SECOND)
    assert told(fleet.take()) == [(str(path), "silent")]
    fleet.let_idle(path)
    fleet.cut.clear()
    fleet.run(65 * SECOND)
    assert told(fleet.take()) == [(str(path), "speaking")]
