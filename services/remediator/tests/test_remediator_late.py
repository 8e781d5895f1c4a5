"""Reports that come late, and clocks that are wrong: each word counts as of when it was true."""

from __future__ import annotations

import pytest

from foliot.clock.message_dating import MinimumOffsets
from foliot_remediator.core.state.path_health import LastHeard
from foliot_remediator.core.state.state_machine import State
from foliot_schemas import Event

PATH = "node0.rail0>node1.rail0#0"
SECOND = 1_000_000_000
MS = 1_000_000


@pytest.fixture(params=[True, False], ids=["synchronised", "unsynchronised"])
def world(make_world, request):
    """Four nodes, of which node1 is synchronised, or is not and has a clock that is three seconds ahead."""
    world = make_world()
    if not request.param:
        world.unsynchronised.add("node1")
        world.ahead["node1"] = 3 * SECOND
        world.run(2.0)
    return world


@pytest.mark.parametrize("late_ns", [150 * MS, 1_900 * MS])
def test_a_report_that_was_on_its_way_for_long_says_how_it_was_not_how_it_is(world, late_ns):
    """Its clock synchronised or not: what it heard then does not count as heard now, nor its node as reporting."""
    reports = world.core.health.reports
    waited, heard_ns = world.batch("node1"), world.now_ns - MS
    world.deaf.add("node1")
    world.now_ns += late_ns
    world.see(waited)
    assert reports.heard_ns(PATH) == heard_ns
    assert reports.reported_ns("node1") == heard_ns + MS
    world.run(2.4 - late_ns / SECOND)
    assert world.core.health.hearing(PATH, world.now_ns) is LastHeard.UNKNOWN


def test_a_way_that_only_a_late_report_heard_is_no_way_out(world):
    """Its rail died with the path that is left; a report from before came after: a detour must be heard since then."""
    waited = world.batch("node1")
    world.silent |= {f"node0.rail0>node1.rail0#{entropy}" for entropy in range(4)}
    world.now_ns += 140 * MS
    world.see(waited)
    (command,) = world.path_event(PATH, "silent", since_ns=world.last_word(PATH)[0])
    assert command.placements[0].via == "rail1"


def test_what_waited_while_this_process_was_halted_is_of_then(make_world):
    """All of it comes at once, the oldest first, and nothing newer shows how late that is but what was known before."""
    world = make_world()
    for name in world.names:
        world.unsynchronised.add(name)
    world.run(1.0)
    waited = []
    halted_ns = world.now_ns
    for _ in range(80):
        world.now_ns += 100 * MS
        waited.append((world.now_ns, world.batch("node1")))
    for at_ns, batch in waited:
        world.see(batch)
        assert world.core.health.reports.reported_ns("node1") == at_ns
    assert world.now_ns - halted_ns == 8 * SECOND


def test_reports_that_come_in_a_burst_behind_later_ones_are_of_then(world):
    """They waited in the connection of before a cut. Their node was cut off meanwhile, and its way died."""
    world.deaf.add("node1")
    waited = []
    for _ in range(20):
        world.now_ns += 100 * MS
        waited.append(world.batch("node1"))
    heard_ns = world.now_ns - MS
    world.silent.add(PATH)
    world.run(4.0)
    world.deaf.clear()
    world.run(1.0)
    for batch in waited:
        world.see(batch)
    assert world.core.health.reports.heard_ns(PATH) <= heard_ns
    assert world.core.health.hearing(PATH, world.now_ns) is LastHeard.UNHEARD


def test_what_was_heard_is_not_overruled_by_an_earlier_probe(world):
    """Overtaken reports that pass for those of a clock that was set back are dated now.

    Their probes' numbers are lower.
    """
    reports, waited = world.core.health.reports, []
    for _ in range(3):
        world.now_ns += 10 * MS
        waited.append(world.batch("node1"))
    world.run(0.3)
    heard = reports.heard_ns(PATH), reports.heard_sequence(PATH)
    for batch in waited:
        world.now_ns += 100 * MS
        world.see(batch)
    assert (reports.heard_ns(PATH), reports.heard_sequence(PATH)) == heard


@pytest.mark.parametrize("step_s", [-8.0, -0.4, 0.4, 8.0])
def test_a_clock_that_is_stepped_silences_its_node_for_a_moment_at_most(make_world, step_s):
    """Ahead not at all, back until three words in a row show it; and what it says is never of the future."""
    world = make_world()
    world.ahead["node1"] = round(step_s * SECOND)
    silenced = []
    for _ in range(50):
        world.run(0.1)
        reported_ns = world.core.health.reports.reported_ns("node1")
        assert reported_ns <= world.now_ns
        silenced.append(world.now_ns - reported_ns > 200 * MS)
    assert not any(silenced[5:])
    assert step_s < 0 or not any(silenced)


def test_a_node_is_dated_by_the_least_difference_of_late():
    """Late by any more, it is dated that much before its arrival."""
    dating = MinimumOffsets()
    for number, late_ms in enumerate((5, 1, 4, 200, 1, 900)):
        at_ns, now_ns = number * SECOND // 10, number * SECOND // 10 + (50 + late_ms) * MS
        said_ns = dating.learn("n", at_ns, now_ns, trusted=False)
        assert said_ns == at_ns + (50 + min((5, 1, 4, 200, 1, 900)[: number + 1])) * MS
    assert dating.here_ns("n", 0, 10 * SECOND) == 51 * MS
    assert dating.here_ns("n", 10 * SECOND, 10 * SECOND) == 10 * SECOND
    assert dating.here_ns("another", 7, 10) == 7


def test_the_first_report_of_a_synchronised_node_shows_how_late_it_is():
    """A process that starts reads what has waited, too. Of others nothing is known by then."""
    assert MinimumOffsets().learn("n", 1 * SECOND, 3 * SECOND, trusted=True) == 1 * SECOND
    assert MinimumOffsets().learn("n", 1 * SECOND, 3 * SECOND, trusted=False) == 3 * SECOND


def test_a_ports_word_of_before_its_loss_does_not_say_that_the_loss_is_over(world):
    """Two servers of the bus that did not hear each other kept it back.

    The loss came by another way, while nobody held the lease.
    """
    nic = "node1.rail0"
    world.core.hold(0, world.now_ns)
    world.deaf.add("node1")
    waited = []
    for _ in range(2):
        world.run(1.0)
        waited.append(world.port_word(nic, good=True))
    world.dead_nics.add(nic)
    world.downs[nic] = 2
    world.see(world.flap_event(nic, "down", 2))
    lost = world.port_word(nic, good=False)
    world.run(4.0)
    world.deaf.clear()
    world.hear()
    for word in (*waited, lost):
        world.see(word)
    world.run(1.0)
    world.core.hold(9, world.now_ns)
    assert {command.node for command in world.run(1.0)} >= {"node0", "node2", "node3"}
    assert world.core.health.state(nic) is State.DOWN


def test_a_synchronised_clock_that_was_ahead_is_put_right_at_once():
    """One that is not synchronised may be late by as much."""
    for trusted in (True, False):
        dating = MinimumOffsets()
        dating.learn("n", 5 * SECOND, 3 * SECOND, trusted=False)
        said_ns = dating.learn("n", 4 * SECOND, 4 * SECOND, trusted=trusted)
        assert said_ns == (4 if trusted else 2) * SECOND


def test_a_clock_that_is_put_right_lets_its_node_be_commanded_at_once(make_world):
    """It was stepped ahead, and said so; in step again, it can tell a deadline."""
    world = make_world()
    world.ahead["node1"] = 2 * SECOND
    world.unsynchronised.add("node1")
    world.run(1.0)
    assert "node1" not in {command.node for command in world.flap("node3.rail0", "down")}
    world.ahead.clear()
    world.unsynchronised.clear()
    assert [command.node for command in world.run(0.6)] == ["node1"]


def test_a_clock_that_calls_itself_synchronised_and_is_far_behind_lets_its_node_not_be_commanded(make_world):
    """It could not tell a deadline: by its own time, its last word of its bound is as old as it is behind."""
    world = make_world()
    world.ahead["node1"] = -10 * SECOND
    world.run(5.0)
    assert "node1" not in {command.node for command in world.flap("node3.rail0", "down")}
    (refusal,) = [each for each in world.refusals if each.policy == "stale-clock"]
    assert (refusal.evidence["node"], refusal.evidence["bound_ns"]) == ("node1", -1)


def test_dating_goes_on_where_this_clock_is_set_back():
    """The reference may be: differences are the least there are at once, and are counted anew."""
    dating = MinimumOffsets()
    dating.learn("n", 100 * SECOND, 100 * SECOND, trusted=True)
    assert dating.learn("n", 101 * SECOND, 41 * SECOND, trusted=True) == 41 * SECOND
    for second in range(2, 8):
        said_ns = dating.learn("n", (100 + second) * SECOND, (41 + second) * SECOND, trusted=True)
    assert said_ns == 48 * SECOND


def test_a_probes_death_that_is_heard_of_after_its_end_is_over(make_world):
    """Its event had to be offered twice. The next death is another one."""
    world = make_world()
    probe = {"kind": "process", "who": "node1/probe", "at_ns": world.now_ns, "since_ns": world.now_ns}
    for number, state in enumerate(("alive", "dead")):
        world.see(Event(id=f"{number}", state=state, fault="node1/probe/dead-1", **probe))
    assert not world.core.health.dead
    world.see(Event(id="2", state="dead", fault="node1/probe/dead-2", **probe))
    assert world.core.health.dead == {"node1"}
