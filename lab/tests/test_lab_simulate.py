"""The simulated fleet: the services' cores in virtual time."""

import itertools
import random

import pytest

from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.loop import MS, SECOND, Loop
from foliot_lab.simulate.periods import spells
from foliot_lab.simulate.processors import Cores, Host, Process, Span
from foliot_lab.simulate.transit import FULL_BYTES, SMALL_BYTES, Fabric, Load
from foliot_lab.simulate.trials import Lives, _Findings, hole, quiet, silence
from foliot_schemas import DelayBatch, Witness
from foliot_schemas.names import Path

SEED = 1
FOUND_MS, LEFT_MS = 826, 1_366
"""The p99 of 540 silences under all disturbances, see quiet in docs/performance.md."""


@pytest.fixture(scope="module")
def lives():
    """Fleets that have settled; each test gets copies."""
    return Lives()


@pytest.fixture
def process():
    """One on a host of its own."""
    return Process(Host(random.Random(1)))


def test_that_what_comes_first_is_done_first():
    """Of two things for the same time, the one asked for first comes first, and the past is now."""
    loop, done = Loop(), []
    start_ns = loop.now_ns
    for at_ns, name in ((start_ns + 2, "c"), (start_ns + 1, "a"), (start_ns + 1, "b"), (start_ns - 5, "past")):
        loop.at(at_ns, done.append, name)
    loop.run(start_ns + 1)
    assert done == ["past", "a", "b"]
    loop.run(start_ns + 9)
    assert done == ["past", "a", "b", "c"]
    assert loop.now_ns == start_ns + 9


def test_that_a_halted_process_goes_on_where_it_was(process):
    """A step that begins in a halt begins after it, and one that a halt falls into takes longer by it."""
    process.halted.add(Span(100, 200))
    assert process.wake(150) == 200
    assert process.work(120, 10) == 210
    assert process.work(90, 30) == 220
    assert process.work(200, 30) == 230


def test_that_stolen_processors_hold_up_packets_too(process):
    """Packets that a NIC receives while the kernel does not run are stamped when it runs again."""
    process.host.stolen.add(Span(100, 200))
    process.halted.add(Span(190, 250))
    assert process.host.arrive(120) == 200
    assert process.wake(120) == 250


def test_that_shared_cores_serve_one_after_the_other(process):
    """Three steps of as much work on two cores: the third waits for the first, and all take longer on slow ones."""
    process.host.cores = Cores(2, 0.5)
    assert [process.work(0, 10), process.work(0, 10), process.work(5, 10)] == [20, 20, 40]
    assert process.wake(1) == 20
    assert process.wake(30) == 30
    assert process.work(100, 10) == 120
    assert process.work(50, 10) == 70  # a time that is taken later on leaves the one before it free


def test_that_a_hog_makes_steps_late(process):
    """By milliseconds most of the time, by much more now and then, and never outside of its time."""
    process.host.hog(Span(0, SECOND), 0.9)
    late_ns = [process.wake(1_000) - 1_000 for _ in range(2_000)]
    assert MS < sorted(late_ns)[1_000] < 20 * MS
    assert max(late_ns) > 100 * MS
    assert process.wake(SECOND) == SECOND


def test_that_an_undisturbed_fleet_is_at_work(lives):
    """Both ends probe every path in use and every backup fast, traffic has its ways, and nobody reports any trouble."""
    fleet = lives.take(SEED, synchronised=True)
    before = len(fleet.detector.events)
    fleet.run(2 * SECOND)
    assert len(fleet.carried()) == 4 * 3 * 2
    assert before == 0
    assert not fleet.detector.events
    assert not fleet.remediator.decisions


def test_that_a_trial_follows_from_its_seed(lives):
    """The same seed and kind twice: the same row."""
    assert silence(lives, SEED, "hog-all") == silence(Lives(), SEED, "hog-all")


@pytest.mark.parametrize("what", KINDS)
def test_that_no_disturbance_is_taken_for_a_fault(lives, what):
    """A whole trial of each, with a seed by which hogs, halted probes and stolen processors make untrue claims.

    Full queues mostly drop padded probes alone, and with the seed of the job now and then three of a path in a row.
    """
    row = quiet(lives, 0 if what == "job" else SEED, what)
    assert (row.events_false, row.commands_false, row.moves_false, row.told) == (0, 0, 0, ())
    assert bool(row.detail) == (what != "nothing")


@pytest.mark.parametrize("what", ["hog-all", "halt-probe", "halt-detector", "steal-one", "bus-all"])
def test_that_a_silence_is_found_and_left_under_a_disturbance(lives, what):
    """In no more time than 99 of a hundred took in the bench, and no other path is blamed."""
    row = silence(lives, SEED, what)
    assert row.detect_ms <= FOUND_MS
    assert row.moved_ms <= LEFT_MS
    assert (row.events_false, row.commands_false, row.moves_false) == (0, 0, 0)


def test_that_a_silence_is_found_and_left(lives):
    """Nothing disturbs: the events are about the paths that are dead, and traffic leaves them."""
    row = silence(lives, 1, "nothing")
    assert row.detect_ms is not None
    assert row.moved_ms is not None
    assert row.detect_ms < row.moved_ms
    assert (row.events_false, row.commands_false) == (0, 0)


def test_that_what_nothing_explains_is_counted(lives):
    """The same silence, if it is not known to be one, is false events, commands and moves."""
    fleet = lives.take(1, synchronised=True)
    path = min(fleet.carried())
    fleet.fabric.dead[path] = fleet.loop.now_ns
    fleet.run(SECOND)
    found = _Findings(fleet, set()).counts()
    assert found["events_false"] == 1
    assert found["commands_false"] >= 1
    assert found["moves_false"] >= 1
    assert _Findings(fleet, {path}).counts()["events_false"] == 0


def test_that_a_lost_carrier_explains_what_is_done_about_it(lives):
    """A NIC that is lost is left by commands, of which none is false."""
    fleet = lives.take(SEED, synchronised=True)
    fleet.lose_carrier("node1.rail0", fleet.loop.now_ns + MS)
    fleet.run(SECOND)
    assert any(heard.message.commands for heard in fleet.remediator.decisions)
    found = _Findings(fleet, set()).counts()
    assert (found["events_false"], found["commands_false"], found["moves_false"]) == (0, 0, 0)
    assert not [path for path in fleet.carried() if "node1.rail0" in path]


def test_that_clocks_that_are_not_synchronised_are_simulated_too(lives):
    """Their batches say so, and a silence is found all the same."""
    fleet = lives.take(SEED, synchronised=False)
    path = min(fleet.carried())
    fleet.fabric.dead[path] = fleet.loop.now_ns
    fleet.run(2 * SECOND)
    assert [event.message.who for event in fleet.detector.events] == [path]


def test_that_spells_come_one_after_the_other():
    """Each lasts, and is followed by a pause, and where one may begin can be moved."""
    drawn = [*spells(random.Random(1), 1_000.0, (10.0, 20.0), (5.0, 50.0))]
    assert drawn[0][0] <= 50.0
    assert all(10.0 <= lasting <= 20.0 for _, lasting in drawn)
    pauses = [after[0] - sum(before) for before, after in itertools.pairwise(drawn)]
    assert len(drawn) > 15
    assert all(5.0 <= pause <= 50.0 for pause in pauses)
    aligned = spells(random.Random(1), 1_000.0, (10.0, 20.0), (5.0, 50.0), lambda at: -(-at // 100) * 100)
    assert {at % 100 for at, _ in aligned} == {0.0}


def test_that_a_full_queue_has_room_for_small_packets_before_large_ones():
    """A queue full of packets of the MTU drops one small probe in ten, almost every padded one, and delays the rest."""
    fabric, path = Fabric(random.Random(1)), Path("node0.rail0", "node1.rail0", 0)
    fabric.load(Load(Span(0, SECOND), frozenset({path.source}), SECOND, 1.0, 0.0, 1_514))
    small, padded = (
        [fabric.delay_ns(path, str(path), 1, size) for _ in range(1_000)] for size in (SMALL_BYTES, FULL_BYTES)
    )
    assert 50 < small.count(None) < 200
    assert padded.count(None) > 900
    assert min(delay for delay in small if delay is not None) > 12 * MS
    assert fabric.delay_ns(path, str(path), 2 * SECOND, FULL_BYTES) is not None


def _told_of(fleet, path):
    """Receivers' rows of a path that the detector has taken: sent, received, of full size sent, received."""
    found = []
    for _, message in fleet.detector.taken:
        if isinstance(message, DelayBatch) and path in message.paths:
            rows = message.rows()
            mine = rows[(rows["path"] == message.paths.index(path)) & (rows["witness"] == Witness.DESTINATION)]
            found += [
                tuple(int(row[name]) for name in ("sent", "received", "full_sent", "full_received")) for row in mine
            ]
    return [sum(column) for column in zip(*found, strict=True)]


def test_that_padded_probes_are_counted(lives):
    """Every fourth probe has full size; if a link passes none, the small ones tell the receiver their number."""
    fleet = lives.take(SEED, synchronised=True)
    fleet.detector.taken = []
    narrow, whole = sorted(fleet.carried())[:2]
    fleet.fabric.holes[narrow] = fleet.loop.now_ns
    fleet.run(SECOND)
    sent, received, full_sent, full_received = _told_of(fleet, whole)
    assert full_sent == full_received
    assert sent == received
    assert abs(full_sent - sent / 4) <= 1
    sent, received, full_sent, full_received = _told_of(fleet, narrow)
    assert full_received == 0
    assert sent - received == full_sent
    assert abs(full_sent - sent / 4) <= 1


def test_that_a_path_that_passes_only_small_packets_is_found_and_left(lives):
    """By an event of its own and of no other path."""
    row = hole(lives, 1, "nothing")
    assert row.detect_ms is not None
    assert row.moved_ms is not None
    assert (row.events_false, row.commands_false) == (0, 0)
    fleet = lives.take(1, synchronised=True)
    path = min(fleet.carried())
    fleet.fabric.holes[path] = fleet.loop.now_ns
    fleet.run(3 * SECOND)
    (event,) = (heard.message for heard in fleet.detector.events)
    assert (event.who, event.state, event.evidence["full_size_lost"]) == (path, "lossy", True)
