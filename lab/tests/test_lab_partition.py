"""Partitions of the frontend: who does not hear whom, and what a scenario may ask for."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.fabric.partition import Partitions
from foliot_lab.faults.actions import prepare
from foliot_lab.scenario.fault_target import parse_where
from foliot_lab.scenario.spec import FabricSpec, FaultSpec
from foliot_lab.scenario.topology import plan
from foliot_lab.scenario.validation import problems_of
from foliot_lab.services import bus_servers, deployment

if TYPE_CHECKING:
    from foliot_lab.fabric.fabric import Fabric

SPEC = FabricSpec(hosts=2, rails=1, leaves=1, spines=1, bus_servers=3)
PATIENCE_S = 60.0


@pytest.fixture
def place(fabric):
    """Makes sockets at places, which go with the test."""
    made = []

    def make(name: str) -> Place:
        made.append(Place(fabric, name))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def partitions(fabric):
    """Of the frontend."""
    made = Partitions(fabric)
    yield made
    made.close()


class Place:
    """A socket at a place of the frontend."""

    def __init__(self, fabric: Fabric, name: str) -> None:
        self.address = fabric.plan.front(name), 4444
        self._socket = make_socket(fabric.namespace(name), socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind(self.address)

    def close(self) -> None:
        """Ends it."""
        self._socket.close()

    def send(self, other: Place, word: bytes) -> None:
        """To another place; never an error, whether it arrives or not."""
        self._socket.sendto(word, other.address)

    def next(self) -> bytes:
        """The next word that came."""
        return self._socket.recv(64)


def test_two_parted_places_lose_what_they_send_each_other_and_nothing_else(partitions, place):
    """Both ways, without a word of the kernel's to the sender; mended, they hear each other again."""
    one, other, third = (place(name) for name in ("node0", "detector", "nats1"))
    for here, peer in ((one, other), (other, one), (one, third), (third, one)):
        peer.send(here, b"hello")
        assert here.next() == b"hello"

    partitions.cut("node0", "detector")
    one.send(other, b"lost")
    other.send(one, b"lost")
    for here in (one, other):
        third.send(here, b"from the third")
        assert here.next() == b"from the third"

    partitions.mend("node0", "detector")
    one.send(other, b"again")
    other.send(one, b"again")
    assert (one.next(), other.next()) == (b"again", b"again")


def test_the_bus_stands_for_all_its_servers(fabric, partitions, place):
    """A host parted from the bus reaches no server, and every service still."""
    host, service = place("node1"), place("sync")
    servers = [place(name) for name in fabric.plan.bus_servers]
    partitions.cut("node1", "bus")
    for server in servers:
        host.send(server, b"lost")
        service.send(server, b"from a service")
        assert server.next() == b"from a service"
    host.send(service, b"hello")
    assert service.next() == b"hello"
    partitions.mend("node1", "bus")
    for server in servers:
        host.send(server, b"again")
        assert server.next() == b"again"


def test_a_cluster_is_told_to_everybody_and_keeps_three_copies():
    """One server keeps one."""
    cluster = deployment.Addresses(bus=bus_servers.address(plan(SPEC, 7)), gateway="")
    single = deployment.Addresses(bus=bus_servers.address(plan(FabricSpec(), 7)), gateway="")
    assert cluster.url == "nats://10.99.2.5:4222,nats://10.99.2.6:4222,nats://10.99.2.7:4222"
    assert (cluster.copies, single.copies) == (3, 1)


@pytest.mark.parametrize("where", ["node0|bus", "remediator|nats2", "nats0|nats1", "node0|node1", "sync|detector"])
def test_any_two_places_can_be_parted(where):
    """Hosts, services, bus servers, and the bus as a whole."""
    assert parse_where(where, SPEC).kind == "pair"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("node0|node0", "not two different places"),
        ("node0|bus|sync", "not two different places"),
        ("node0|rail0.leaf0-spine0", "only hosts, services, bus servers and the bus"),
        ("nats1|bus", "a bus server is part of the bus"),
        ("node7|bus", "there is no node7"),
        ("nats|sync", "there is no nats; the bus has nats0, nats1, nats2"),
    ],
)
def test_what_cannot_be_parted_is_refused(where, reason):
    """The message says why."""
    with pytest.raises(ValueError, match=reason.replace("|", r"\|")):
        parse_where(where, SPEC)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"kind": "partition", "where": "node0"}, "only to two places"),
        ({"kind": "stop", "where": "node0|bus"}, "cannot be done to two places"),
        ({"kind": "restart", "where": "nats1", "for_s": 3.0}, "restart has no for_s"),
    ],
)
def test_impossible_partitions_and_restarts_are_refused(keys, reason):
    """With what is wrong with them."""
    fault = FaultSpec(id="f1", at_s=0.0, **keys)
    assert any(reason in words for _, _, words in problems_of([fault], SPEC))


def test_partitions_and_restarts_are_done_and_undone():
    """A partition is mended; a restart ends by itself."""
    done = []

    class World:
        """Notes what is done to it."""

        def __getattr__(self, name):
            return lambda *arguments: done.append((name, *arguments))

    for kind, where in (("partition", "node0|bus"), ("restart", "detector")):
        action = prepare(FaultSpec(at_s=0.0, kind=kind, where=where, for_s=None), SPEC, None, World())
        action.inject()
        action.heal()
    assert done == [("part", "node0|bus"), ("join", "node0|bus"), ("terminate", "detector")]
