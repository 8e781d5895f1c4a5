"""The map: the links of each path, how many share one, the routers between, and what of it is not known."""

import itertools
import time

import pytest
from told_fabric import RAIL, ToldFabric, nic

from foliot_gateway.state.cardinality_limit import MOST_STRANGERS
from foliot_gateway.state.fleet import Fleet
from foliot_gateway.state.path_map import MapQuery, collected
from foliot_gateway.state.router_finder import RouterFinder
from foliot_schemas import Event, HopBatch


def told(fabric, *hosts):
    """A fleet that hosts have told of the routers of their paths; all of them if none is named."""
    fleet = Fleet(time.time_ns)
    for host in hosts or range(fabric.hosts):
        fleet.fold_hops(fabric.hops(host, at_ns=100 + host))
    return fleet


def read(fleet, **asked):
    """The map as an answer has it."""
    return collected([entry for entry in fleet.map(MapQuery(**asked)) if entry is not None])


def paths(fleet, **asked):
    """The links of the paths that are asked for."""
    return {path.path: path.links for path in read(fleet, **asked).paths}


def below(found):
    """The NICs of each leaf."""
    return sorted(router.nics for router in found.routers if router.role == "leaf")


def test_a_path_has_its_links_and_each_link_says_how_many_cross_it():
    """And when its source told of it."""
    found = read(told(ToldFabric()))
    path = next(each for each in found.paths if each.path == "node0.rail0>node3.rail0#0")
    crossing = {link.link: link.paths for link in found.links}

    assert path.links == ("node0.rail0/out", "10.1.0.3", "10.1.1.2", "node3.rail0/in")
    assert (path.source, path.destination, path.rail, path.entropy) == ("node0.rail0", "node3.rail0", RAIL, 0)
    assert (path.known, path.told_ns) == (True, 100)
    assert len(found.paths) == 24
    assert crossing == {
        link: sum(link in each.links for each in found.paths)
        for link in {link for each in found.paths for link in each.links}
    }


def test_routers_are_found_by_the_links_that_paths_put_together():
    """Leaves with the NICs below them, spines between, and which of them a link joins."""
    found = read(told(ToldFabric(hosts=6, below=2, spines=2, entropies=4)))
    routers = {router.router: router for router in found.routers}
    ends = {link.link: (link.source, link.destination) for link in found.links}

    assert below(found) == [(nic(0), nic(1)), (nic(2), nic(3)), (nic(4), nic(5))]
    spines = {router.router: router.addresses for router in found.routers if router.role == "spine"}
    ports = [tuple(f"10.1.{leaf}.{2 * spine + 1}" for leaf in range(3)) for spine in range(2)]
    assert spines == {each[0]: each for each in ports}
    assert routers["10.0.0.0"].addresses == ("10.0.0.0", "10.0.0.2", "10.1.0.0", "10.1.0.2")
    assert {router.rails for router in found.routers} == {(RAIL,)}
    assert ends["node0.rail0/out"] == ("node0.rail0", "10.0.0.0")
    assert ends["10.1.2.3"] == ("10.0.2.8", "10.1.0.3")
    assert ends["10.1.2.2"] == ("10.1.0.3", "10.0.2.8")
    assert ends["node5.rail0/in"] == ("10.0.2.8", "node5.rail0")


@pytest.mark.parametrize(("leaves", "apart", "spines"), [(2, 1, 2), (3, 1, 2), (3, 64, 2), (2, 64, 4)])
def test_a_spine_is_one_router_if_anything_says_so(leaves, apart, spines):
    """Its ports to two leaves are entered in either direction alone: only their cables' addresses join them.

    Of three leaves, a third is reached from both.
    """
    found = read(told(ToldFabric(hosts=2 * leaves, entropies=4, apart=apart)))

    assert sum(router.role == "spine" for router in found.routers) == spines
    assert len(below(found)) == leaves


def test_addresses_that_happen_to_be_a_pair_join_nothing():
    """They are of one cable only if an end of both is one router anyway."""
    finder = RouterFinder()
    for links in (("a.r/out", "10.0.0.2", "10.0.0.8", "b.r/in"), ("c.r/out", "10.0.0.3", "10.0.0.9", "d.r/in")):
        finder.join(links[0].removesuffix("/out"), links, 0)
    for _ in finder.pair():
        pass
    for _ in finder.name():
        pass

    assert len({finder.ends_of(link).destination for link in ("10.0.0.2", "10.0.0.3", "10.0.0.8", "10.0.0.9")}) == 4


def test_a_rail_with_one_leaf_has_no_link_between_routers():
    """Its only router is known by what it answers to each NIC."""
    found = read(told(ToldFabric(hosts=3, below=3)))

    assert below(found) == [(nic(0), nic(1), nic(2))]
    assert [(router.router, len(router.addresses)) for router in found.routers] == [("10.0.0.0", 3)]
    assert all(path.known for path in found.paths)


def test_a_link_into_a_silent_router_has_no_name():
    """The path is not known then, and its other links are."""
    found = read(told(ToldFabric(silent=("spine1",))))
    silent = {path.path: path for path in found.paths if not path.known}

    assert silent["node0.rail0>node3.rail0#0"].links == ("node0.rail0/out", "", "10.1.1.2", "node3.rail0/in")
    assert {path.links.count("") for path in silent.values()} == {1}
    assert {(link.source, link.destination) for link in found.links if link.link == "10.1.1.2"} == {("", "10.0.1.4")}
    assert below(found) == [(nic(0), nic(1)), (nic(2), nic(3))]
    assert [router.router for router in found.routers if router.role == "spine"] == ["10.1.0.1"]


def test_a_last_router_that_is_silent_is_missed_by_the_way_back():
    """Nothing in what was told of the path shows it: the packets after the last answer reach the host."""
    found = read(told(ToldFabric(silent=("leaf1",))))
    into = [path for path in found.paths if path.source in {nic(0), nic(1)} and path.destination in {nic(2), nic(3)}]

    assert {path.links[1:3].count("") for path in into} == {1}
    assert not any(path.known for path in into)
    assert found.paths
    assert all(len(router.nics) < 4 for router in found.routers)
    assert (nic(0), nic(1)) in below(found)
    assert {router.rails for router in found.routers} == {(RAIL,)}


def inferred(*paths, state="fabric-contention", at_ns=100, **more):
    """The detector's event about the link that these paths share."""
    link = f"inferred:{min(paths)}"
    return Event(
        id=f"f/{state}", kind="contention", who=link, state=state, at_ns=at_ns, since_ns=100,
        related={"links": (link,), "flows": tuple(path.partition("#")[0] for path in paths), "paths": paths}, **more,
    )  # fmt: skip


def test_a_link_that_delays_tell_of_is_marked_while_it_lasts():
    """Between routers that are silent: with its paths, which are not known for all that."""
    fabric = ToldFabric(silent=("leaf0", "leaf1", "spine0", "spine1"))
    fleet = told(fabric)
    for number in range(fabric.hosts):
        fleet.fold_node(f"node{number}", fabric.record(number))
    event = inferred("node0.rail0>node2.rail0#0", "node1.rail0>node3.rail0#1")
    fleet.fold_event(event)
    found = read(fleet, link=event.who)
    assert [(path.path, path.links, path.known) for path in found.paths] == [
        ("node0.rail0>node2.rail0#0", ("node0.rail0/out", event.who, "node2.rail0/in"), False),
        ("node1.rail0>node3.rail0#1", ("node1.rail0/out", event.who, "node3.rail0/in"), False),
    ]
    links = {link.link: (link.source, link.destination, link.paths, link.inferred) for link in found.links}
    assert links[event.who] == ("", "", 2, True)
    assert links["node0.rail0/out"] == ("node0.rail0", "", 1, False)
    assert found.routers == ()
    fleet.fold_event(inferred(*event.related["paths"], state="clear", at_ns=200, cause=event.id))
    fleet.fold_event(event)
    assert read(fleet, link=event.who).paths == ()
    assert not [link for link in read(fleet).links if link.inferred]


def test_a_path_whose_routers_answer_keeps_its_links():
    """Whatever an event has inferred of it; and an event of no path is none."""
    fleet = told(ToldFabric())
    path = "node0.rail0>node3.rail0#0"
    before = paths(fleet, path=path)
    fleet.fold_event(inferred(path, "node1.rail0>node2.rail0#0"))
    assert paths(fleet, path=path) == before
    with pytest.raises(ValueError, match="is not a path"):
        fleet.fold_event(inferred("nonsense"))


def test_leaves_that_are_all_silent_leave_no_path_known():
    """Both ways are as long then, and both lack a router."""
    found = read(told(ToldFabric(hosts=6, silent=("leaf0", "leaf1", "leaf2"))))

    assert not any(path.known for path in found.paths)
    assert not any(router.addresses for router in found.routers)
    assert below(found) == [(nic(0), nic(1)), (nic(2), nic(3)), (nic(4), nic(5))]


def test_nothing_is_said_of_routers_that_paths_seem_to_cross_twice():
    """With one address for all its ports a spine seems to be entered from one leaf, and all leaves seem to be it."""
    found = read(told(ToldFabric(hosts=6, loopback=True)))

    assert below(found) == []
    assert {link.source for link in found.links if link.link.startswith("10.2.6.")} == {""}
    assert {link.destination for link in found.links if link.link.startswith("10.2.5.")} == {""}


def test_without_any_answer_nothing_is_known():
    """The paths are there."""
    found = read(told(ToldFabric(silent=("leaf0", "leaf1", "spine0", "spine1"))))

    assert {(path.links, path.known) for path in found.paths} == {((), False)}
    assert (found.links, found.routers) == ((), ())


def test_a_way_back_that_nobody_told_leaves_a_path_unknown():
    """Until then, its last router may be missing."""
    fabric = ToldFabric()
    fleet = told(fabric, 0)
    early = read(fleet)
    assert not any(path.known for path in early.paths)
    assert [router.nics for router in early.routers if router.role == "leaf"] == [(nic(0),)]
    assert {router.router for router in early.routers if router.role == "spine"} == {"10.1.0.1", "10.1.0.3"}
    for host in range(1, 4):
        fleet.fold_hops(fabric.hops(host))
    assert all(path.known for path in read(fleet).paths)


def test_paths_of_the_inventory_are_there_before_anybody_told_of_them():
    """Once something else was heard of them."""
    fabric = ToldFabric(hosts=2)
    fleet = Fleet(time.time_ns)
    for host in range(2):
        fleet.fold_node(f"node{host}", fabric.record(host))
    fleet.fold_hops(fabric.hops(0, at_ns=7))
    fleet.fold_node("node0", None)
    assert paths(fleet) == {}
    fleet.fold_node("node0", fabric.record(0))

    assert {(path.links, path.known, path.told_ns) for path in read(fleet).paths} == {((), False, 0)}


def test_what_is_asked_for_is_all_that_is_told():
    """By either end as a node or a NIC, rail, path, link; each narrows the others down."""
    fabric = ToldFabric()
    fleet = told(fabric)
    every = paths(fleet)

    assert list(every) == sorted(fabric.paths())
    assert set(paths(fleet, source="node0")) == set(paths(fleet, source=nic(0))) == set(fabric.paths(0))
    assert set(paths(fleet, destination="node3")) == {path for path in every if ">node3." in path}
    assert list(paths(fleet, source="node0", destination=nic(3))) == [f"{nic(0)}>{nic(3)}#0", f"{nic(0)}>{nic(3)}#1"]
    assert paths(fleet, path=f"{nic(0)}>{nic(3)}#1") == {f"{nic(0)}>{nic(3)}#1": every[f"{nic(0)}>{nic(3)}#1"]}
    assert set(paths(fleet, link="10.1.0.3")) == {path for path, links in every.items() if "10.1.0.3" in links}
    assert set(paths(fleet, rail=RAIL)) == set(every)
    for nothing in ({"rail": "rail9"}, {"source": "nobody"}, {"path": "nonsense"}, {"link": ""} | {"path": "x>y#1"}):
        assert paths(fleet, **nothing) == {}
    found = read(fleet, source="node0", destination="node1")
    assert [link.link for link in found.links] == ["node0.rail0/out", "node1.rail0/in"]
    assert [(link.paths, router.nics) for link, router in zip(found.links, found.routers, strict=False)] == [
        (6, (nic(0), nic(1)))
    ]


def test_a_reader_takes_all_paths_in_parts():
    """Each begins after the last path of the one before, whatever nodes' names look like."""
    fleet = told(ToldFabric())
    more = ToldFabric(hosts=2, entropies=3)
    for host, name in itertools.product(range(2), ("node1.x", "-")):
        batch = more.hops(host)
        names = tuple(path.replace("node", name) for path in batch.paths)
        fleet.fold_hops(HopBatch(node=f"{name}{host}", at_ns=1, paths=names, columns=batch.columns))
    whole = list(paths(fleet))
    found, after = [], ""
    while part := list(paths(fleet, limit=7, after=after)):
        found += part
        after = part[-1]

    assert found == whole
    assert len(whole) == 24 + 6 + 6


def test_a_node_that_left_is_forgotten_with_its_paths():
    """Those that end there, too; links that nobody crosses are gone."""
    fabric = ToldFabric()
    fleet = told(fabric)
    for host in range(4):
        fleet.fold_node(f"node{host}", fabric.record(host))
    fleet.fold_node("node3", None)
    found = read(fleet)

    assert not [path for path in found.paths if "node3" in path.path]
    assert {link.link: link.paths for link in found.links}["node2.rail0/out"] == 4
    assert fleet._paths.links.crossing("node3.rail0/in") == 0
    assert (nic(2),) in below(found)


def test_what_a_node_tells_anew_takes_the_place_of_what_it_told():
    """Counts and routers follow."""
    fabric = ToldFabric()
    fleet = told(fabric)
    before = read(fleet)
    fleet.fold_hops(ToldFabric(silent=("spine0", "spine1", "leaf0", "leaf1")).hops(0, at_ns=9))
    after = read(fleet)
    mine = [path for path in after.paths if path.source == nic(0)]

    assert {(path.links, path.told_ns) for path in mine} == {((), 9)}
    assert {link.link: link.paths for link in before.links}["node1.rail0/in"] == 6
    assert {link.link: link.paths for link in after.links}["node1.rail0/in"] == 4


def test_strangers_take_no_more_room_than_in_other_tables():
    """What the inventory does not know is kept up to a limit, however much is told."""
    fleet = Fleet(time.time_ns)
    fabric = ToldFabric(hosts=101, below=4, spines=4, entropies=32)
    for host in range(3):
        fleet.fold_hops(fabric.hops(host))

    assert len(paths(fleet)) == MOST_STRANGERS
    assert fleet._paths.links.crossing("node1.rail0/out") == MOST_STRANGERS - 3_200
    assert fleet._paths.links.crossing("node2.rail0/out") == 0


def test_routers_are_found_anew_only_after_a_change(monkeypatch):
    """And a reader that takes many parts does not wait for them again."""
    fleet = told(ToldFabric())
    fleet_map = fleet._map
    read(fleet)
    found = fleet_map._routers
    fleet.fold_hops(ToldFabric().hops(0))
    read(fleet, limit=3)
    assert fleet_map._routers is found

    fleet.fold_hops(ToldFabric(silent=("spine0",)).hops(0))
    read(fleet, after="node1.rail0>node0.rail0#0")
    assert fleet_map._routers is found
    read(fleet)
    assert fleet_map._routers is not found


@pytest.mark.parametrize("asked", [{}, {"link": "nobody's"}])
def test_the_reader_pauses_at_every_path(asked):
    """Also where nothing is found, and while it looks for routers."""
    fabric = ToldFabric()
    entries = list(told(fabric).map(MapQuery(**asked)))

    assert entries.count(None) >= 2 * len(fabric.paths())
