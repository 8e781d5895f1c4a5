"""A detector that is wrong: ports' and receivers' own words speak against it, nothing moves, and numbers say so."""

from __future__ import annotations

import msgspec
import pytest

from foliot_remediator.core.state.port_reports import PortReports
from foliot_remediator.core.state.state_machine import State
from foliot_schemas import PortChange, PortState

SECOND = 1_000_000_000
NODES, RAILS = 4, 2
PATH = "node0.rail0>node3.rail0#0"


@pytest.fixture(params=[True, False], ids=["counting", "as of before 0.2"])
def world(make_world, request):
    """Four nodes on two rails, healthy: probes say so, and which probe they heard last, or not."""
    return make_world(nodes=NODES, rails=RAILS, count=request.param)


@pytest.fixture(params=["at once", "regularly"])
def spoken(request):
    """How the receiver of `PATH` says that it hears it: at once, or with its next report."""
    return {
        "at once": lambda world: world.word(PATH, "speaks again"),
        "regularly": lambda world: world.see(world.batch("node3")),
    }[request.param]


def false_event(world) -> None:
    """The receiver of `PATH` says that it fell silent and that it speaks again; the event is too late, and refused."""
    since_ns, told = world.now_ns - 1_000_000, world.last_word(PATH)[1]
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    world.now_ns += 70_000_000
    assert world.run(0.2) == []
    assert world.lie(PATH, "silent", since_ns, told) == []
    assert world.run(1.0) == []
    assert world.guards() == ["contradicted"]


def some_nics(world, share: float) -> list[str]:
    """A share of the fleet's NICs, node by node."""
    return [f"{node}.{rail}" for node in world.names[: round(NODES * share)] for rail in world.rails]


def paths_in_use(world, share: float) -> list[str]:
    """The paths that carry all traffic of a share of the nodes."""
    routing = {
        (node, way.via, way.peer, way.entropy)
        for node in world.names[: round(NODES * share)]
        for way in world.paths(node).placements
    }
    return [f"{node}.{via}>{peer}.{via}#{entropy}" for node, via, peer, entropy in sorted(routing)]


def is_calm(world, lies: int) -> bool:
    """Nothing was commanded; each lie was refused once, as contradicted; every backup stands."""
    assert world.commands == []
    assert world.core.routing.away == {}
    assert world.core.routing.moved == {}
    assert world.guards() == ["contradicted"] * lies
    assert len({refusal.cause for refusal in world.refusals}) == lies
    return all(len(world.paths(node).backups) == (NODES - 1) * RAILS for node in world.names)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("state", ["down", "admin-down"])
def test_a_detector_that_says_of_healthy_nics_that_they_are_down_moves_none(world, state, share):
    """Be it all NICs at once or those of half of the fleet, for as long as it may say so: the ports say otherwise."""
    lies = some_nics(world, share)
    for nic in lies:
        world.see(world.flap_event(nic, state))
    world.run(20.0)
    assert is_calm(world, len(lies))
    evidence = world.refusals[0].evidence
    assert (evidence["verb"], evidence["state"]) == ("reroute", state)
    assert evidence["port_good_ms"] >= 1_000
    assert evidence["port_said_ms_ago"] <= 1_100


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_detector_that_says_of_paths_that_they_are_silent_while_they_are_heard_moves_none(world, share):
    """Be it all paths in use or those from one half of the fleet: their receivers hear them."""
    lies = paths_in_use(world, share)
    for path in lies:
        world.lie(path, "silent")
    world.run(20.0)
    assert is_calm(world, len(lies))
    assert world.refusals[0].evidence["heard_ms_ago"] <= 200
    assert world.refusals[0].evidence["heard_ms_after"] > 0


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_detector_that_says_of_sound_paths_that_they_lose_packets_moves_none(world, share):
    """Their receivers miss nothing."""
    lies = paths_in_use(world, share)
    for path in lies:
        world.lie(path, "lossy")
    world.run(20.0)
    assert is_calm(world, len(lies))
    assert (world.refusals[0].evidence["lost_told"], world.refusals[0].evidence["lost_reported"]) == (10, 0)


def test_what_a_path_lost_long_ago_speaks_for_no_loss_of_now(world):
    """Nor where no other path has lost anything since."""
    path = paths_in_use(world, 1.0)[0]
    world.word(path, "lossy")
    world.let_pass(130.0)
    world.lie(path, "lossy")
    world.run(5.0)
    assert is_calm(world, 1)


def test_a_lie_of_long_ago_or_of_the_future_is_none_the_better(world):
    """What it is dated helps it nothing."""
    for nic, ahead_s in (("node1.rail0", -1.9), ("node2.rail0", -60.0), ("node3.rail0", 60.0)):
        at_ns = world.now_ns + round(ahead_s * SECOND)
        world.see(msgspec.structs.replace(world.flap_event(nic, "down"), at_ns=at_ns, since_ns=at_ns))
    world.run(5.0)
    assert is_calm(world, 3)


def test_a_true_loss_among_lies_moves_as_ever(world):
    """Its own NIC's traffic, to the ways armed for it; the earlier lie about the same NIC does not stand in its way."""
    for nic in some_nics(world, 1.0):
        world.see(world.flap_event(nic, "down"))
    world.run(5.0)
    armed = world.paths("node3").backups
    commands = world.flap("node3.rail0", "down", 2)
    assert {command.node for command in commands} == set(world.names)
    assert list(world.core.routing.away) == [("node3", "rail0")]
    assert world.paths("node3").backups == armed


def test_a_lie_that_comes_true_is_acted_upon(world):
    """The port itself says so: the event is still looked at, and the detector need not repeat itself."""
    world.see(world.flap_event("node3.rail0", "down"))
    world.run(2.0)
    world.dead_nics.add("node3.rail0")
    world.port("node3.rail0", good=False)
    assert {command.node for command in world.run(3.0)} == set(world.names)


def test_an_event_that_overtakes_the_word_it_follows_from_waits_for_it(world):
    """In a cluster of bus servers: some milliseconds, and nothing is said of them."""
    assert world.see(world.flap_event("node3.rail0", "down")) == []
    world.dead_nics.add("node3.rail0")
    world.now_ns += 5_000_000
    world.port("node3.rail0", good=False)
    world.now_ns += 20_000_000
    assert {command.node for command in world.act(world.core.tick(world.now_ns))} == set(world.names)
    assert world.refusals == []


def test_a_loss_that_is_over_when_its_event_comes_counts_as_ever(world):
    """The port said that it was down and is back: the event between is no lie, and the NIC has to prove itself."""
    down = world.flap_event("node3.rail0", "down")
    world.port("node3.rail0", good=False)
    world.now_ns += 1_000_000
    world.port("node3.rail0", good=True)
    assert {command.node for command in world.see(down)} == set(world.names)


def test_where_the_receivers_word_is_lost_its_reports_take_its_place(world):
    """Nobody said at once that the path fell silent; a third of a second without it says the same."""
    path = "node0.rail0>node3.rail0#0"
    world.silent.add(path)
    assert world.lie(path, "silent") == []
    (command,) = world.run(0.6)
    assert (command.node, command.cause[: len(path)]) == ("node0", path)


def test_a_report_that_was_on_its_way_for_long_takes_no_silence_back(world):
    """A busy machine's batch from before the silence comes after the word of it; by its times it heard nothing."""
    waited = world.batch("node3")
    world.silent.add(PATH)
    world.now_ns += 150_000_000
    world.word(PATH, "silent")
    world.now_ns += 20_000_000
    world.see(waited)
    (command,) = world.lie(PATH, "silent")
    assert command.node == "node0"


def test_a_silence_is_taken_back_by_its_receivers_own_later_word(world, spoken):
    """The detector's event comes late: the receiver has said since that it hears the path.

    Nothing moves, and the path is chosen as ever.
    """
    since_ns, told = world.now_ns - 1_000_000, world.last_word(PATH)[1]
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    assert world.core.health.state(PATH) is State.SUSPECT
    world.now_ns += 60_000_000
    spoken(world)
    assert world.core.health.state(PATH) is State.UP
    assert world.lie(PATH, "silent", since_ns, told) == []
    assert world.run(5.0) == []
    assert world.guards() == ["contradicted"]
    assert world.refusals[0].evidence["heard_ms_after"] >= 100


def test_a_word_of_a_silence_that_comes_after_the_word_that_it_is_over_changes_nothing(world, spoken):
    """Words are ordered by what they say, not by when they come."""
    since_ns = world.now_ns - 1_000_000
    world.now_ns += 130_000_000
    fell = world.word_of(PATH, "silent")
    world.now_ns += 60_000_000
    spoken(world)
    world.see(fell)
    assert world.core.health.state(PATH) is State.UP
    assert world.lie(PATH, "silent", since_ns) == []


def a_true_silence_is_left(world):
    """It begins now: its receiver's first word moves nothing, what follows does."""
    world.silent.add(PATH)
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    world.act(world.core.tick(world.now_ns))
    assert world.run(0.2) == []
    (command,) = world.run(0.6)
    assert command.node == "node0"


def test_what_is_silent_anew_after_a_false_event_needs_more_than_its_receivers_first_word(world):
    """The event told of a silence that was over, and its sender may only have halted now.

    Where it sends on, three tenths of a second unheard are proof: nobody else will say so.
    """
    false_event(world)
    a_true_silence_is_left(world)


def test_a_silence_that_is_seen_to_be_over_only_after_its_event_was_is_over_all_the_same(make_world):
    """Without numbers: the event is in doubt from its coming, and reports show later that the path was heard after it.

    What is silent then is another silence.
    """
    world = make_world(nodes=NODES, rails=RAILS, count=False)
    assert world.lie(PATH, "silent", world.now_ns - 1_000_000) == []
    assert world.run(1.0) == []
    a_true_silence_is_left(world)


def test_a_sender_that_halts_after_a_false_event_moves_nothing(world):
    """Its node left reports out, so that its paths prove nothing.

    That holds as it wakes up, too, and a moment later than its first report is heard.
    """
    false_event(world)
    for _ in range(3):
        halted = {
            f"node0.{rail}>{peer}.{rail}#{entropy}"
            for rail in world.rails
            for peer in world.names[1:]
            for entropy in range(4)
        }
        world.deaf.add("node0")
        world.silent |= halted
        world.now_ns += 130_000_000
        for path in sorted(halted):
            world.word(path, "silent")
        assert world.run(0.5) == []
        world.deaf.clear()
        assert world.run(0.1) == []
        world.silent.clear()
        assert world.run(1.0) == []


def test_an_event_of_a_silence_before_the_last_moves_nothing_at_once(make_world):
    """Its receiver says that it is silent, but has heard probes since those of which the event tells."""
    world = make_world()
    since_ns, told = world.now_ns - 1_000_000, world.last_word(PATH)[1]
    world.run(0.2)
    world.silent.add(PATH)
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    assert world.lie(PATH, "silent", since_ns, told) == []
    (command,) = world.run(1.0)
    assert command.node == "node0"


def test_a_true_silence_waits_for_nothing(world):
    """Neither for a tick nor more words: the event that follows from its receiver's word is answered as it comes."""
    world.silent.add(PATH)
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    world.now_ns += 15_000_000
    (command,) = world.lie(PATH, "silent", told=world.last_word(PATH)[1])
    assert (command.node, command.issued_ns) == ("node0", world.now_ns)


def test_a_path_that_falls_silent_again_is_left_at_once(world):
    """It spoke for a moment between: the new event is of the new silence."""
    world.silent.add(PATH)
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    world.now_ns += 15_000_000
    world.word(PATH, "speaks again")
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    (command,) = world.lie(PATH, "silent", told=world.last_word(PATH)[1])
    assert command.node == "node0"


def test_a_sender_that_counts_anew_from_below_does_not_leave_its_paths_in_doubt(make_world):
    """A clock that was set back, say: heard for a second, it is heard."""
    world = make_world()
    world.silent.add(PATH)
    world.now_ns += 130_000_000
    world.word(PATH, "silent")
    world.silent.clear()
    world.count = 1e-3
    world.run(1.2)
    assert world.core.health.state(PATH) is State.UP
    assert world.lie(PATH, "silent") == []


@pytest.mark.parametrize("every", [5, 10, 20])
def test_where_nodes_report_more_seldom_the_second_witness_is_as_awake(make_world, every):
    """Between two reports as right behind one: a lying detector moves nothing, and a true silence waits for nothing."""
    world = make_world(healthy_within_s=6.0)
    world.every = every
    world.run(10.0)
    for step in range(2 * every):
        assert world.lie(PATH, "silent", told=world.last_word(PATH)[1]) == [], step
        assert world.run(0.1) == [], step
    world.silent.add(PATH)
    world.run(0.1)
    (command,) = world.path_event(PATH, "silent")
    assert command.node == "node0"


def test_where_nodes_report_more_seldom_a_lost_word_is_made_up_for(make_world):
    """By the first report that heard nothing in its whole interval."""
    world = make_world(healthy_within_s=6.0)
    world.every = 10
    world.run(10.0)
    world.silent.add(PATH)
    world.run(0.5)
    assert world.lie(PATH, "silent") == []
    (command,) = world.run(4.0)
    assert command.node == "node0"


def test_a_report_between_leaves_out_none(make_world):
    """As a probe gives one with a silence.

    It covers less than the others, and the next one is not late for it: that a path is unheard counts from before.
    """
    world = make_world(healthy_within_s=6.0)
    world.every = 10
    world.run(10.0)
    world.silent.add(PATH)
    world.run(0.1)
    world.see(msgspec.structs.replace(world.batch("node0"), interval_ns=SECOND // 10, every_ns=SECOND))
    world.run(2.9)
    assert world.core.health.reports.unheard_ns(PATH) >= 2_900_000_000


def test_where_nobody_reports_an_event_is_believed(world):
    """A host whose probe is dead cannot speak for its NICs, and the detector may know from before."""
    world.deaf.add("node3")
    world.run(3.5)
    world.see(world.flap_event("node3.rail0", "down"))
    world.run(1.0)
    assert ("node0", "node3", "rail0") in world.core.routing.moved


@pytest.mark.parametrize("stood_still_ms", [1_100, 1_500])
def test_a_doubt_outlasts_a_remediator_that_stands_still(world, stood_still_ms):
    """As it goes on, deadlines come first, and nodes' words of meanwhile wait to be read: nobody is silent for that."""
    assert world.lie(PATH, "silent", world.now_ns - 1_000_000, world.last_word(PATH)[1]) == []
    world.now_ns += stood_still_ms * 1_000_000
    assert world.act(world.core.tick(world.now_ns)) == []
    assert world.run(1.0) == []
    assert set(world.guards()) == {"contradicted"}


def test_an_event_that_is_read_before_what_nodes_said_while_it_stood_still_waits_for_them(world):
    """A false one moves nothing. A true one is believed as soon as they are read."""
    world.now_ns += 3_500_000_000
    assert world.lie(PATH, "silent", told=world.last_word(PATH)[1]) == []
    assert world.run(0.5) == []
    world.now_ns += 3_500_000_000
    world.silent.add(PATH)
    assert world.lie(PATH, "silent", told=world.last_word(PATH)[1]) == []
    world.hear()
    world.word(PATH, "silent")
    moved = world.act(world.core.tick(world.now_ns))
    assert [command.node for command in moved] == ["node0"]


def word(at_ns: int, downs: int, *, carrier: bool, boot: str = "boot") -> PortState:
    """A port's report."""
    return PortState(
        node="n", nic="n.r", at_ns=at_ns, carrier=carrier, admin_up=True, carrier_down_count=downs, carrier_up_count=1,
        fault=boot,
    )  # fmt: skip


def test_what_is_told_of_a_port_again_changes_nothing():
    """After the bus was away, what happened meanwhile is told more than once, and always in order."""
    ports = PortReports()
    history = [word(10, 1, carrier=False), word(20, 1, carrier=True), word(30, 2, carrier=False)]
    for now_ns, each in enumerate(history, 100):
        ports.take(each, now_ns, now_ns)
    since = ports.get("n.r")
    for each in history[:2]:
        ports.take(each, 200, 200)
    assert ports.get("n.r") is since
    assert (since.good, since.bad_said_ns) == (False, 30)


def test_a_port_that_is_good_again_says_when_it_was_not():
    """A loss that nobody heard of, as the bus was away, is not denied by a word that came after the return."""
    ports, lost, back = PortReports(), word(20, 1, carrier=False), word(30, 1, carrier=True)
    changes = tuple(
        PortChange(at_ns=each.at_ns, carrier=each.carrier, admin_up=True, carrier_down_count=1, carrier_up_count=1)
        for each in (lost, back)
    )
    ports.take(word(10, 0, carrier=True), 10, 10)
    assert ports.get("n.r").bad_said_ns == 0
    ports.take(msgspec.structs.replace(word(40, 1, carrier=True), changes=changes), 40, 40)
    ports.take(msgspec.structs.replace(word(50, 1, carrier=True), changes=changes), 50, 50)
    port = ports.get("n.r")
    assert (port.good, port.since_ns, port.bad_said_ns) == (True, 40, 20)


@pytest.mark.parametrize(
    "news",
    [word(5, 3, carrier=False), word(5, 0, carrier=False, boot="other"), word(40, 2, carrier=False)],
    ids=["the clock was set back", "another boot", "later"],
)
def test_what_is_new_of_a_port_counts(news):
    """Whatever the clock says."""
    ports = PortReports()
    ports.take(word(30, 2, carrier=True), 100, 100)
    ports.take(news, 101, 101)
    assert not ports.get("n.r").good


@pytest.mark.parametrize(
    ("known", "late"),
    [
        (word(30, 0, carrier=True), word(20, (1 << 32) - 1, carrier=False)),
        (
            msgspec.structs.replace(word(30, 0, carrier=True), index=4),
            msgspec.structs.replace(word(20, 7, carrier=False), index=3),
        ),
    ],
    ids=["before the counter began again at 0", "before the device was made anew"],
)
def test_what_was_said_of_a_port_before_its_counters_began_anew_is_old(known, late):
    """It comes late, and its counters are the higher ones."""
    ports = PortReports()
    ports.take(known, 100, 100)
    ports.take(late, 101, 101)
    assert ports.get("n.r").good


def test_a_port_that_only_says_what_is_older_is_believed_in_the_end():
    """The word before was dated into the future."""
    ports = PortReports()
    ports.take(word(1_000 * SECOND, 2, carrier=True), 10 * SECOND, 10 * SECOND)
    ports.take(word(11 * SECOND, 2, carrier=False), 11 * SECOND, 11 * SECOND)
    assert ports.get("n.r").good
    ports.take(word(16 * SECOND, 2, carrier=False), 16 * SECOND, 16 * SECOND)
    assert not ports.get("n.r").good
