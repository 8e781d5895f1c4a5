"""Routers of a real network say whose packets they drop, without privilege of the asker."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from foliot_probe.io.hop_sockets import HopSocket
from patience import patience

PORT, OVERLAY = 49_200, 4_789
PEER = "10.96.3.2"


def number(address):
    """An address as answers have it."""
    return int.from_bytes(socket.inet_aton(address), "big")


@pytest.fixture
def asking(line):
    """A way's socket of the first host."""
    with line.inside(line.namespaces[0]):
        made = HopSocket("10.96.1.2", PORT, "net1")
    yield made
    made.close()


def answers(asking, count):
    """So many answers, as soon as they are there."""
    found, deadline_s = [], time.monotonic() + patience(10)
    while len(found) < count and time.monotonic() < deadline_s:
        found += asking.answers()
        time.sleep(0.005)
    return found


def test_each_router_answers_for_its_own_time_to_live(asking):
    """With its address on the side on which the packet came, and with what the packet said."""
    for ttl in (1, 2):
        asking.send(PEER, OVERLAY, ttl, 7_000 + ttl)
    found = sorted(answers(asking, 2), key=lambda answer: answer.token or 0)
    assert found == [(PEER, number("10.96.1.1"), 7_001), (PEER, number("10.96.2.2"), 7_002)]


def test_what_comes_through_is_answered_by_nobody(asking, line):
    """The far host has no process at that port: that is no hop, and hinders no later packet."""
    asking.send(PEER, OVERLAY, 3, 1)
    time.sleep(0.05)
    assert asking.answers() == []
    asking.send(PEER, OVERLAY, 1, 2)
    assert answers(asking, 1) == [(PEER, number("10.96.1.1"), 2)]


def test_many_packets_at_once_are_told_apart(asking):
    """By their tokens, the greatest as well."""
    tokens = [*range(40), (1 << 64) - 1]
    for token in tokens:
        asking.send(PEER, OVERLAY, 2, token)
    assert sorted(answer.token for answer in answers(asking, len(tokens))) == tokens


def test_an_unreachable_network_is_no_hop(asking):
    """Its router says so, and means no time to live."""
    asking.send("10.96.200.1", OVERLAY, 9, 3)
    time.sleep(0.05)
    assert asking.answers() == []


def test_a_port_that_another_has_cannot_be_had(asking, line):
    """The caller hears of it."""
    with (
        line.inside(line.namespaces[0]),
        pytest.raises(OSError, match="in use"),
        contextlib.closing(HopSocket("10.96.1.2", PORT)),
    ):
        pass
