"""The map of a node's paths: real sockets, real routers, and the messages that tell of it."""

from __future__ import annotations

import socket
import time
from ipaddress import IPv4Address

import msgspec
import numpy as np
import pytest

from foliot_probe.core.stream_table import StreamTable
from foliot_probe.path_map import PathMap
from foliot_probe.settings import ProbeSettings
from foliot_schemas import HopBatch, HopRow, Nic, Node
from patience import patience

SECOND = 1_000_000_000


def node(name, address, ports=(49_200, 49_201), device="net1"):
    """A node with a NIC and an entropy for each port."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device=device, address=address, clock=name, service_address="10.97.0.1",
        path_addresses=tuple(f"10.98.{number}.1" for number in range(len(ports))), entropies=ports,
    )  # fmt: skip
    return Node(name=name, nics=(nic,), probe_port=7946)


class Mapped:
    """A node's table and map, in the namespace of the first host of a line."""

    def __init__(self, line, own, host=0):
        self.table = StreamTable(own)
        self.map = PathMap(self.table, ProbeSettings(trace_hz=1_000.0))
        self._line, self._host = line, host
        self.told = []
        self.routes = {}
        """By row, as they were told last."""

    def meet(self, peer):
        """A peer's record comes."""
        ended, begun = self.table.set_peer(peer)
        self.map.end(ended)
        self.map.begin(begun, time.monotonic_ns())

    def run(self, until, seconds=10):
        """Steps until it is so."""
        deadline_s = time.monotonic() + patience(seconds)
        with self._line.inside(self._line.namespaces[self._host]):
            while not until() and time.monotonic() < deadline_s:
                self.map.step(time.monotonic_ns())
                self.told += self.map.batches(time.monotonic_ns(), 1)
                self.routes |= self.map.take_routes(time.monotonic_ns())
                time.sleep(0.01)

    def known(self):
        """What was told, by path: routers in their order."""
        found = {}
        for batch in self.told:
            for number, path in enumerate(batch.paths):
                rows = batch.rows()[batch.rows()["path"] == number]
                found[path] = {int(row["hop"]): str(IPv4Address(int(row["address"]))) for row in rows}
        return found


@pytest.fixture
def mapped(line):
    """Of a node with two ways."""
    made = Mapped(line, node("a", "10.96.1.2"))
    yield made
    made.map.close()


BOTH = {1: "10.96.1.1", 2: "10.96.2.2"}


def test_the_routers_of_every_way_are_told(mapped):
    """As soon as they are found, and whole."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.run(lambda: len(mapped.known()) == 2)
    assert mapped.known() == {"a.rail0>b.rail0#0": BOTH, "a.rail0>b.rail0#1": BOTH}


def test_a_peer_that_has_moved_is_asked_for_anew(mapped):
    """Its NIC has another address, behind the first router; the old way's answers are nobody's."""
    mapped.meet(node("b", "10.96.3.2", ports=(49_200,)))
    mapped.run(mapped.known)
    mapped.told.clear()
    mapped.meet(node("b", "10.96.2.2", ports=(49_200,)))
    mapped.run(mapped.known)
    assert mapped.known() == {"a.rail0>b.rail0#0": {1: "10.96.1.1"}}


def test_everything_is_told_again_in_a_while(mapped):
    """Who came later, or missed it, has it within half a minute; news waits for no more than a second."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.run(lambda: len(mapped.known()) == 2)
    now_ns = time.monotonic_ns()
    assert list(mapped.map.batches(now_ns, 1)) == []
    (again,) = mapped.map.batches(now_ns + 31 * SECOND, 2)
    assert set(again.paths) == set(mapped.known())
    assert again.at_ns == 2


def test_many_paths_are_told_in_messages_of_bounded_size(mapped):
    """A node with 800 paths."""
    for number in range(400):
        mapped.meet(node(f"p{number}", f"10.96.{100 + number // 250}.{1 + number % 250}"))
    for row in mapped.table.rows.values():
        mapped.map._tracer._hops[row] = (1, 2, 3)
    batches = list(mapped.map.batches(time.monotonic_ns() + 31 * SECOND, 1))
    assert sum(len(batch.paths) for batch in batches) == 800
    assert max(len(batch.rows()) for batch in batches) <= 1_024
    assert all(len(msgspec.msgpack.encode(batch)) < 1 << 17 for batch in batches)


def test_a_way_whose_port_another_has_is_not_known(mapped, line):
    """The others are, and nobody is blamed."""
    with line.inside(line.namespaces[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("10.96.1.2", 49_200))
        mapped.meet(node("b", "10.96.3.2"))
        mapped.run(lambda: len(mapped.known()) == 2)
        assert mapped.known() == {"a.rail0>b.rail0#0": {}, "a.rail0>b.rail0#1": BOTH}


# -- which paths are one ------------------------------------------------------------------------------------------------


def ways_back(*routers, allows_idle=True):
    """What the peer tells of the routers of its own paths, by entropy."""
    rows = [
        (entropy, hop, int(IPv4Address(address)))
        for entropy, addresses in enumerate(routers)
        for hop, address in enumerate(addresses, 1)
    ]
    paths = tuple(f"b.rail0>a.rail0#{entropy}" for entropy in range(len(routers)))
    return HopBatch.of(np.array(rows, HopRow), node="b", at_ns=1, paths=paths, allows_idle=allows_idle)


WHOLE = ("10.96.3.1", "10.96.2.1")


def test_paths_by_the_same_routers_are_one_as_soon_as_both_ends_have_told(mapped):
    """Not before: the last router may be silent. One in doubt is none until it has been asked again."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.run(lambda: len(mapped.known()) == 2)
    assert not any(mapped.routes.values())
    mapped.map.take(ways_back(WHOLE, WHOLE), time.monotonic_ns())
    mapped.run(lambda: len(mapped.routes) == 2)
    assert mapped.routes[0] == mapped.routes[1] != 0

    mapped.map.doubt([mapped.table.ends[1].key], time.monotonic_ns())
    before = dict(mapped.routes)
    assert dict(mapped.map.take_routes(time.monotonic_ns())) == {0: 0, 1: 0}
    mapped.routes.clear()
    mapped.run(lambda: len(mapped.routes) == 2)
    assert mapped.routes == before


def test_two_nodes_that_hear_each_other_know_their_routes(mapped, line):
    """By what each has found itself."""
    nodes = node("a", "10.96.1.2"), node("b", "10.96.3.2", device="net3")
    other = Mapped(line, nodes[1], host=3)
    for one, peer in ((mapped, nodes[1]), (other, nodes[0])):
        one.meet(peer)
        one.run(lambda one=one: len(one.known()) == 2)
    for one, peer in ((mapped, other), (other, mapped)):
        for batch in peer.told:
            one.map.take(batch, time.monotonic_ns())
        routes = dict(one.map.take_routes(time.monotonic_ns()))
        assert routes[0] == routes[1] != 0
    other.map.close()


def test_a_way_back_that_lacks_a_router_leaves_its_path_alone(mapped):
    """So do paths of strangers, and a peer that is gone."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.map.take(ways_back(WHOLE, WHOLE[:1], WHOLE), time.monotonic_ns())
    mapped.run(lambda: len(mapped.known()) == 2)
    mapped.routes |= mapped.map.take_routes(time.monotonic_ns())
    assert mapped.routes[0]
    assert not mapped.routes.get(1)
    ended = mapped.table.drop_peer("b")
    mapped.map.end(ended)
    assert mapped.map.take_routes(time.monotonic_ns()) == []
    mapped.map.take(ways_back(WHOLE, WHOLE), time.monotonic_ns())
    mapped.meet(node("b", "10.96.3.2"))
    assert mapped.map.take_routes(time.monotonic_ns()) == []


def test_nothing_idles_to_a_peer_of_an_earlier_version(mapped):
    """It would report as silent what is hardly probed. A node of this version says that it does not."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.map.take(ways_back(WHOLE, WHOLE, allows_idle=False), time.monotonic_ns())
    mapped.run(lambda: len(mapped.known()) == 2)
    assert mapped.map.take_routes(time.monotonic_ns()) == []
    assert not any(mapped.routes.values())
    assert all(batch.allows_idle for batch in mapped.told)
    mapped.map.take(ways_back(WHOLE, WHOLE), time.monotonic_ns())
    assert all(route for _, route in mapped.map.take_routes(time.monotonic_ns()))
    mapped.map.take(ways_back(WHOLE, WHOLE, allows_idle=False), time.monotonic_ns())
    assert dict(mapped.map.take_routes(time.monotonic_ns())) == {0: 0, 1: 0}


def test_a_peer_that_tells_no_more_is_noticed_without_a_sign(mapped):
    """Each path has its turn to be looked at, within ten seconds of steps."""
    mapped.meet(node("b", "10.96.3.2"))
    mapped.map.take(ways_back(WHOLE, WHOLE), time.monotonic_ns())
    mapped.run(lambda: all(map(mapped.routes.get, (0, 1))))
    later_ns = time.monotonic_ns() + 100 * SECOND
    assert dict(pair for _ in range(100) for pair in mapped.map.take_routes(later_ns)) == {0: 0, 1: 0}
