"""Silent and lossy paths: what is left for what, and what is taken back."""

from __future__ import annotations

import msgspec
import pytest

from foliot_schemas import Placement

SECOND = 1_000_000_000
HOME = Placement(peer="node3", rail="rail0", via="rail0", entropy=0)
"""The primary way to node3 in these worlds."""
SILENT = "node0.rail0>node3.rail0#0"
"""Its path."""
BETWEEN = {f"node0.rail0>node3.rail0#{entropy}" for entropy in range(4)}


def test_a_silent_path_moves_its_own_direction_only(world):
    """The node at the path's beginning is told, and nobody else; the way back and all other peers stay."""
    world.silent.add("node0.rail0>node3.rail0#0")
    world.run(0.2)
    (command,) = world.path_event("node0.rail0>node3.rail0#0", "silent")
    assert command.node == "node0"
    (placement,) = command.placements
    assert (placement.peer, placement.rail) == ("node3", "rail0")
    assert placement != HOME


def test_a_silent_path_is_left_for_another_entropy_that_was_heard_since(world):
    """A way on the same rail that was heard after the silence began does not share its fate, and comes first."""
    world.silent.add("node0.rail0>node3.rail0#0")
    world.run(0.2)
    (command,) = world.path_event("node0.rail0>node3.rail0#0", "silent")
    assert command.placements[0].via == "rail0"


def test_the_home_that_traffic_has_left_is_told_until_it_is_back(world):
    """The probe goes on with it, as nothing else shows when it is good again."""
    path = "node0.rail0>node3.rail0#0"
    assert world.paths("node0").homes == ()
    world.silent.add(path)
    world.run(0.2)
    world.path_event(path, "silent")
    world.run(1.0)
    assert world.paths("node0").homes == (HOME,)
    assert world.paths("node3").homes == ()
    world.silent.clear()
    world.path_event(path, "speaking")
    world.run(8.0)
    assert world.paths("node0").homes == ()


def test_of_64_entropies_the_only_one_that_is_heard_is_taken(make_world):
    """The rest of the rail between the two nodes is silent."""
    world = make_world(entropies=64)
    world.silent |= {f"node0.rail0>node3.rail0#{entropy}" for entropy in range(63)}
    world.run(0.2)
    (command,) = world.path_event("node0.rail0>node3.rail0#0", "silent")
    assert command.placements == (Placement(peer="node3", rail="rail0", via="rail0", entropy=63),)


def test_a_silent_path_is_not_left_for_one_that_may_share_its_fate(world):
    """Ways of the same rail that were healthy but unheard since the silence began are worth less than another rail."""
    between = {f"node0.rail0>node3.rail0#{entropy}" for entropy in range(4)}
    world.silent |= between
    world.run(0.2)
    (command,) = world.path_event("node0.rail0>node3.rail0#0", "silent")
    assert command.placements[0].via == "rail1"


def test_what_went_to_another_rail_comes_back_to_its_own_by_a_path_that_is_heard(world):
    """Once, a second later, and not to the path that is silent; nor does the way back or any other pair."""
    silent = "node0.rail0>node3.rail0#0"
    between = {f"node0.rail0>node3.rail0#{entropy}" for entropy in range(4)}
    world.silent |= between
    world.run(0.2)
    (away,) = world.path_event(silent, "silent")
    assert away.placements[0].via == "rail1"

    world.silent = {silent}
    (nearer,) = world.run(5.0)
    assert (nearer.verb, nearer.node, nearer.fault) == ("reroute", "node0", away.fault)
    (placement,) = nearer.placements
    assert (placement.rail, placement.via) == ("rail0", "rail0")
    assert placement.entropy != 0

    world.silent.clear()
    world.path_event(silent, "speaking")
    (home,) = world.run(8.0)
    assert (home.verb, home.placements) == ("restore", (HOME,))


@pytest.fixture
def away(world):
    """A world in which four paths take the same links: three idled when these fell silent, and nobody misses them."""
    world.idle |= BETWEEN - {SILENT}
    world.run(10.0)
    world.silent |= BETWEEN
    world.run(0.2)
    (command,) = world.path_event(SILENT, "silent")
    assert command.placements[0].via == "rail1"
    assert world.run(5.0) == []
    return world


def test_paths_that_idled_are_no_way_back_before_the_one_that_stood_for_them(away):
    """They are heard as soon as it is, and nobody has called them silent; but they have proven themselves no longer."""
    away.silent.clear()
    away.idle.clear()
    assert away.run(1.5) == []
    away.path_event(SILENT, "speaking")
    (home,) = away.run(8.0)
    assert (home.verb, home.placements) == ("restore", (HOME,))


def test_a_path_that_idled_is_the_way_back_after_a_probation_if_it_alone_is_heard(away):
    """It was thought to take the same links, and takes others by now."""
    woken = "node0.rail0>node3.rail0#2"
    away.silent.discard(woken)
    away.idle.discard(woken)
    assert away.run(4.8) == []
    (nearer,) = away.run(1.5)
    assert (nearer.verb, nearer.placements) == ("reroute", (msgspec.structs.replace(HOME, entropy=2),))


@pytest.mark.parametrize("probed", [1, 2, 3])
def test_a_silent_path_is_left_for_one_that_is_probed_all_the_time(make_world, probed):
    """The others idle, and are heard just now by the probe that they have each half minute."""
    world = make_world(rails=1)
    world.idle |= BETWEEN - {SILENT, f"node0.rail0>node3.rail0#{probed}"}
    world.run(10.0)
    world.silent.add(SILENT)
    world.run(0.1)
    world.idle.clear()
    world.run(0.1)
    (command,) = world.path_event(SILENT, "silent")
    assert command.placements[0].entropy == probed


def test_what_a_silent_nic_sent_to_another_rail_stays_there(world):
    """None of its paths is heard."""
    world.mute.add("node0.rail0")
    world.run(0.2)
    world.path_event("node0.rail0>node3.rail0#0", "silent")
    assert world.core.routing.way(("node0", "node3", "rail0")).via == "rail1"
    assert world.run(5.0) == []


def test_a_rail_that_loses_packets_is_not_come_back_to(world):
    """Its paths are heard, and share what makes them lose."""
    for peer in ("node0", "node1", "node2"):
        world.path_event(f"{peer}.rail0>node3.rail0#0", "lossy")
    assert world.core.routing.way(("node2", "node3", "rail0")).via == "rail1"
    world.run(5.0)
    assert world.core.routing.way(("node2", "node3", "rail0")).via == "rail1"


def test_moves_that_can_wait_leave_half_of_the_budget_to_others(make_world):
    """Two of four a minute are made; the two that can wait do, until the minute is over."""
    world = make_world(moves_per_minute=4)
    silent = {f"node0.rail0>{peer}.rail0#0" for peer in ("node1", "node3")}
    world.silent |= {f"{path[:-1]}{entropy}" for path in silent for entropy in range(4)}
    world.run(0.2)
    for path in sorted(silent):
        world.path_event(path, "silent")
    assert len(world.commands) == 2

    world.silent = silent
    assert world.let_pass(55.0) == []
    assert world.guards() == []
    assert {command.placements[0].via for command in world.run(10.0)} == {"rail0"}


def test_a_silent_path_that_nobody_uses_moves_nothing(world):
    """It is known to be down, and is armed for nobody any more."""
    armed = world.backup("node0", "node3", "rail0")
    path = f"node0.rail1>node3.rail1#{armed.entropy}"
    world.silent.add(path)
    assert world.path_event(path, "silent") == []
    world.run(1.0)
    assert world.backup("node0", "node3", "rail0") not in {None, armed}


def test_a_path_that_speaks_again_is_used_again_after_its_probation(world):
    """As a NIC is."""
    path = "node0.rail0>node3.rail0#0"
    world.silent.add(path)
    world.run(0.2)
    world.path_event(path, "silent")
    world.run(1.0)
    world.silent.clear()
    world.path_event(path, "speaking")
    assert world.run(4.8) == []
    (command,) = world.run(1.0)
    assert (command.verb, command.node, command.placements) == ("restore", "node0", (HOME,))


def test_where_paths_of_one_nic_are_lossy_the_other_rail_is_taken(world):
    """The rail's other paths are heard, which says nothing of what they lose."""
    world.path_event("node0.rail0>node3.rail0#0", "lossy")
    assert world.core.routing.way(("node0", "node3", "rail0")).via == "rail0"
    for peer in ("node1", "node2"):
        world.path_event(f"{peer}.rail0>node3.rail0#0", "lossy")
    assert world.core.routing.way(("node2", "node3", "rail0")).via == "rail1"


def test_a_lossy_path_is_left_for_a_clean_one(world):
    """Loss is a reason to leave when there is a way that is heard and not lossy itself."""
    world.path_event("node0.rail0>node3.rail0#1", "lossy")
    (command,) = world.path_event("node0.rail0>node3.rail0#0", "lossy")
    (placement,) = command.placements
    assert (placement.via, placement.entropy) == ("rail0", 2)
