"""The map of a node's paths: real sockets, real routers, and the messages that tell of it."""

from __future__ import annotations

import socket
import time
from ipaddress import IPv4Address

import msgspec
import pytest

from foliot_probe.core.stream_table import StreamTable
from foliot_probe.path_map import PathMap
from foliot_schemas import Nic, Node
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

    def __init__(self, line, own):
        self.table = StreamTable(own)
        self.map = PathMap(self.table, 1_000.0)
        self._line = line
        self.told = []

    def meet(self, peer):
        """A peer's record comes."""
        ended, begun = self.table.set_peer(peer)
        self.map.end(ended)
        self.map.begin(begun, time.monotonic_ns())

    def run(self, until, seconds=10):
        """Steps until it is so."""
        deadline_s = time.monotonic() + patience(seconds)
        with self._line.inside(self._line.namespaces[0]):
            while not until() and time.monotonic() < deadline_s:
                self.map.step(time.monotonic_ns())
                self.told += self.map.batches(time.monotonic_ns(), 1)
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
    """A node with 2,000 paths."""
    for number in range(1_000):
        mapped.meet(node(f"p{number}", f"10.96.{100 + number // 250}.{1 + number % 250}"))
    for row in mapped.table.rows.values():
        mapped.map._tracer._hops[row] = (1, 2, 3)
    batches = list(mapped.map.batches(time.monotonic_ns() + 31 * SECOND, 1))
    assert sum(len(batch.paths) for batch in batches) == 2_000
    assert max(len(batch.rows()) for batch in batches) <= 1_024
    assert all(len(msgspec.msgpack.encode(batch)) < 1 << 17 for batch in batches)


def test_a_way_whose_port_another_has_is_not_known(mapped, line):
    """The others are, and nobody is blamed."""
    with line.inside(line.namespaces[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("10.96.1.2", 49_200))
        mapped.meet(node("b", "10.96.3.2"))
        mapped.run(lambda: len(mapped.known()) == 2)
        assert mapped.known() == {"a.rail0>b.rail0#0": {}, "a.rail0>b.rail0#1": BOTH}
