"""The supply of backups: only what is healthy, written only on change."""

from __future__ import annotations

from foliot_remediator.settings import PlacementRule


def test_every_service_address_has_a_backup_on_another_rail(world):
    """And its way in force beside it."""
    for name in world.names:
        paths = world.paths(name)
        assert len(paths.placements) == len(paths.backups) == 6
        assert all(backup.via != backup.rail for backup in paths.backups)
        assert {(way.peer, way.rail) for way in paths.placements} == {(way.peer, way.rail) for way in paths.backups}


def test_one_rail_has_no_backups(make_world):
    """There is nowhere to go when its NIC is lost."""
    assert make_world(rails=1).paths("node0").backups == ()


def test_nothing_is_written_without_a_change(world):
    """Each node once, however often it is looked through."""
    before = {name: len(written) for name, written in world.supplies.items()}
    world.run(20.0)
    assert {name: len(written) for name, written in world.supplies.items()} == before


def test_a_value_says_when_it_was_decided(world):
    """After the command whose change it has: the node tells by it which of the two is newer."""
    command = world.flap("node3.rail1", "down")[0]
    world.run(1.0)
    assert world.paths(command.node).decided_ns > command.issued_ns


def test_a_backup_that_is_not_heard_any_more_is_replaced(world):
    """By one that is; the others stay as they are."""
    before = world.paths("node0").backups
    lost = world.backup("node0", "node3", "rail0")
    world.silent.add(f"node0.rail1>node3.rail1#{lost.entropy}")
    world.run(4.0)
    after = world.paths("node0").backups
    assert world.backup("node0", "node3", "rail0").entropy != lost.entropy
    assert len(set(before) - set(after)) == 1


def test_backups_survive_a_silence_of_the_bus(world):
    """That nobody reports anything says nothing of any path: an outage of the bus is when backups are needed."""
    before = {name: world.paths(name) for name in world.names}
    world.deaf |= set(world.names)
    world.run(10.0)
    world.deaf.clear()
    world.run(0.1)
    assert {name: world.paths(name) for name in world.names} == before


def test_a_backup_whose_nic_is_lost_is_taken_away(world):
    """Nobody may flee to a NIC that is down."""
    world.flap("node3.rail1", "down")
    world.run(1.0)
    assert world.backup("node0", "node3", "rail0") is None
    assert world.backup("node0", "node1", "rail0") is not None


def test_a_command_is_there_before_its_change_is_written(world):
    """A storm of changes is one write, a tenth of a second after the first of them."""
    before = len(world.supplies["node0"])
    for entropy in range(4):
        path = f"node0.rail1>node3.rail1#{entropy}"
        world.silent.add(path)
        world.path_event(path, "silent")
        for _ in range(2):
            world.act(world.core.tick(world.now_ns))
            world.now_ns += 10_000_000
    assert len(world.supplies["node0"]) == before
    world.run(0.3)
    assert len(world.supplies["node0"]) == before + 1


def test_pairs_are_spread_over_entropies_and_agree_on_both_ends(make_world):
    """By a hash of the unordered pair: both directions of a pair take the same path, and not all pairs the same."""
    world = make_world(nodes=8, primary="hash")
    entropies = {}
    for name in world.names:
        for way in world.paths(name).placements:
            assert way.via == way.rail
            entropies[name, way.peer, way.rail] = way.entropy
    assert all(entropies[peer, name, rail] == entropy for (name, peer, rail), entropy in entropies.items())
    assert set(entropies.values()) == {0, 1, 2, 3}


def test_placements_of_the_settings_are_primary(make_world):
    """What an operator chose stands, and is what a restore goes back to."""
    rule = {"node": "node0", "peer": "node3", "rail": "rail0", "via": "rail0", "entropy": 2}
    world = make_world(placements=(PlacementRule(**rule),))
    routing = {(way.peer, way.rail): way.entropy for way in world.paths("node0").placements}
    assert routing["node3", "rail0"] == 2
    assert routing["node2", "rail0"] == 0
    world.flap("node3.rail0", "down")
    world.run(0.5)
    world.flap("node3.rail0", "up")
    (command,) = [command for command in world.run(6.0) if command.node == "node0"]
    assert command.placements[0].entropy == 2


def test_a_node_that_has_left_is_forgotten(world):
    """Its peers' keys name it no more, and its NIC's loss moves nothing."""
    world.flap("node3.rail0", "down")
    world.run(1.0)
    world.names.remove("node3")
    world.see(type(world.core.inventory.nodes["node3"])(name="node3", nics=()))
    world.run(1.0)
    assert {way.peer for way in world.paths("node0").placements} == {"node1", "node2"}
    assert not world.core.routing.away
    assert world.run(3.0) == []
