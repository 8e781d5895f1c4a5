"""The clocks' mesh: connected, nearly regular, and the same for both ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from draws import draws
from foliot_probe.core.rate.clock_neighbours import NEIGHBOURS, Pair, neighbours, streams
from foliot_probe.core.stream_table import StreamTable
from foliot_schemas import Nic, Node


def node(name, *, rails=("rail0",), clocks=None, entropies=2, peers=()):
    """A node with a NIC on each of these rails; all on one clock, or each on its own."""
    index = sum(ord(letter) for letter in name) % 200
    nics = tuple(
        Nic(
            name=f"{name}.{rail}", rail=rail, device=rail, address="10.0.0.1", clock=clocks[place] if clocks else name,
            service_address="10.97.0.1", entropies=tuple(range(1, entropies + 1)),
            path_addresses=tuple(f"10.{place}.{entropy}.{index}" for entropy in range(entropies)),
        )
        for place, rail in enumerate(rails)
    )  # fmt: skip
    return Node(name=name, nics=nics, probe_port=7946, peers=tuple(peers))


def fleet(count, friends=None):
    """So many nodes; friends says of a number whose peers it names, None: everybody's."""
    names = [f"node{number}" for number in range(count)]
    return [
        node(name, peers=[names[other] for other in friends[number]] if friends else ())
        for number, name in enumerate(names)
    ]


def mesh(nodes):
    """What all ends take, each by itself."""
    return {
        each.name: {pair.peer for pair in neighbours(each, [other for other in nodes if each.talks_to(other)])}
        for each in nodes
    }


def degrees_and_parts(taken):
    """Neighbours of each clock by either end's choice, and into how many parts the mesh falls."""
    number = {name: place for place, name in enumerate(taken)}
    edges = np.array([(number[one], number[other]) for one, others in taken.items() for other in others])
    joined = coo_array((np.ones(len(edges)), edges.T), shape=(len(number), len(number))).tocsr()
    both = (joined + joined.T) > 0
    return np.diff(both.tocsr().indptr), connected_components(both)[0]


@pytest.mark.parametrize("count", [2, 3, 8, 11])
def test_of_few_nodes_all_are_neighbours(count):
    """Up to ten peers."""
    taken = mesh(fleet(count))
    assert all(len(others) == count - 1 for others in taken.values())


@pytest.mark.parametrize("count", [12, 20, 50, 200])
def test_a_large_fleet_is_connected_and_nearly_regular(count):
    """Ten neighbours of one's own choice, and two or so by others'; none has many."""
    degrees, parts = degrees_and_parts(mesh(fleet(count)))
    assert parts == 1
    assert degrees.min() >= NEIGHBOURS
    assert degrees.mean() <= 1.25 * NEIGHBOURS
    assert degrees.max() <= 2.5 * NEIGHBOURS


def chained_cliques(seed):
    """Cliques that hang together by single pairs of nodes."""
    random = np.random.default_rng(seed)
    size, cliques = int(random.integers(15, 40)), int(random.integers(2, 4))
    friends = [
        {other for other in range(one // size * size, one // size * size + size) if other != one}
        for one in range(size * cliques)
    ]
    for clique in range(1, cliques):
        one, other = (int(random.integers(size)) + size * place for place in (clique - 1, clique))
        friends[one].add(other)
        friends[other].add(one)
    return fleet(size * cliques, [sorted(each) for each in friends])


def test_wherever_the_peers_are_connected_the_mesh_is(monkeypatch):
    """Also where a single pair of nodes joins two parts of the fleet, which the ten lightest alone mostly leave out."""
    fleets = [chained_cliques(seed) for seed in draws(10)]
    assert {degrees_and_parts(mesh(nodes))[1] for nodes in fleets} == {1}
    monkeypatch.setattr("foliot_probe.core.rate.clock_neighbours._tree", lambda *_: set())
    assert sum(degrees_and_parts(mesh(nodes))[1] > 1 for nodes in fleets) > len(fleets) // 5


def test_in_whatever_order_peers_became_known_the_choice_is_the_same():
    """Else a restart would change the mesh."""
    nodes = fleet(60)
    assert mesh(nodes) == mesh(nodes[::-1])


def test_a_node_that_joins_changes_the_mesh_next_to_it_only():
    """Everybody else measures whom it measured before."""
    before, after = mesh(fleet(100)), mesh(fleet(101))
    changed = [name for name, others in before.items() if others != after[name]]
    assert 0 < len(changed) < 30
    assert all(len(before[name] - after[name]) <= 1 for name in changed)


def test_nics_with_clocks_of_their_own_are_joined_along_their_rails():
    """A NIC meets those of its rail alone; each of a node's clocks gets its ten."""
    rails = ("rail0", "rail1")
    nodes = [node(f"n{number}", rails=rails, clocks=[f"n{number}-{rail}" for rail in rails]) for number in range(30)]
    pairs = neighbours(nodes[0], nodes[1:])
    for rail in rails:
        own = [pair for pair in pairs if pair.own == f"n0-{rail}"]
        assert len(own) >= NEIGHBOURS
        assert all(pair.peer.endswith(rail) for pair in own)
    assert len(pairs) == len([pair for pair in pairs if pair.own in {"n0-rail0", "n0-rail1"}])


def test_four_streams_over_as_many_nics_as_there_are_measure_a_pair_and_both_ends_take_the_same():
    """The first entropies of different rails, and whatever is in use."""
    rails = tuple(f"rail{number}" for number in range(6))
    first, second = node("a", rails=rails, entropies=3), node("b", rails=rails, entropies=3)
    taken = []
    for own, peer in ((first, second), (second, first)):
        table = StreamTable(own)
        table.set_peer(peer)
        ends = {row: each for row, each in enumerate(table.ends) if each is not None}
        (rows,) = streams(ends, frozenset({Pair(own.name, peer.name)}), frozenset()).values()
        keys = {ends[row].key for row in rows}
        taken.append({(key.rail, key.entropy) for key in keys})
        used = frozenset(key for key in table.rows if key.entropy == 2)
        (more,) = streams(ends, frozenset({Pair(own.name, peer.name)}), used).values()
        assert {ends[row].key for row in more} == keys | used
        assert streams(ends, frozenset(), used) == {}
    assert taken[0] == taken[1]
    assert len({rail for rail, _ in taken[0]}) == 4
    assert {entropy for _, entropy in taken[0]} == {0}
