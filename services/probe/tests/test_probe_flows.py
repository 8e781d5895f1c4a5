"""Flows: what the kernel says of real connections, and what the probe makes of it."""

from __future__ import annotations

import contextlib
import socket
import time

import numpy as np
import pytest

from foliot_probe.core.measure.ack_delays import Ends
from foliot_probe.core.measure.flow_meter import FlowMeter
from foliot_probe.io.tcp_sockets import ConnectionRow, TcpSockets
from foliot_schemas import Nic, Node
from patience import patience

SECOND = 1_000_000_000


@pytest.fixture
def connect():
    """Makes a connection between two addresses of loopback; returns both ends."""
    with contextlib.ExitStack() as opened:

        def make(local, remote, family=socket.AF_INET):
            server = opened.enter_context(socket.create_server((remote, 0)))
            sender = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            mapped = "::ffff:" if family == socket.AF_INET6 else ""
            sender.bind((mapped + local, 0))
            sender.connect((mapped + remote, server.getsockname()[1]))
            receiver = opened.enter_context(server.accept()[0])
            sender.settimeout(patience(10))
            receiver.settimeout(patience(10))
            return sender, receiver

        yield make


def transfer(sender, receiver, count):
    """Sends so many bytes, reads them, and waits until the kernel knows that they arrived."""
    sender.sendall(bytes(count))
    left = count
    while left:
        left -= len(receiver.recv(left))


def read(*addresses, until=lambda rows: True):
    """The connections by these addresses, as soon as they are as wanted."""
    sockets, deadline_s = TcpSockets(addresses), time.monotonic() + patience(10)
    while not until(rows := sockets.read()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert until(rows)
    return rows


def number(address):
    """An address as the rows have it."""
    return int.from_bytes(socket.inet_aton(address), "big")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv4 by a socket of IPv6"])
def test_the_kernel_tells_how_many_bytes_arrived(connect, family):
    """Of the sender's end, with a measured round-trip time."""
    transfer(*connect("127.0.16.1", "127.0.16.2", family), 70_000)
    (row,) = read("127.0.16.1", until=lambda rows: rows["acked_bytes"][0] >= 70_000)
    assert row["acked_bytes"] <= 70_001  # the kernel counts the beginning of a connection
    assert (int(row["local"]), int(row["remote"])) == (number("127.0.16.1"), number("127.0.16.2"))
    assert 0 < row["least_rtt_us"] <= row["rtt_us"]
    assert row["retransmitted"] == 0


def test_other_connections_are_left_out(connect):
    """Three addresses of four; each is asked for in another place of the filter."""
    kept = {f"127.0.16.{last}" for last in (1, 2, 3)}
    for local in (*kept, "127.0.16.4"):
        connect(local, "127.0.16.9")
    rows = read(*sorted(kept))
    assert {int(row["local"]) for row in rows} == {number(address) for address in kept}
    assert len(read("127.0.16.4")) == 1
    assert len(read("127.0.16.5")) == 0


def test_a_receiver_that_does_not_read_shows(connect):
    """The sender waits for its window."""
    sender, _ = connect("127.0.16.1", "127.0.16.2")
    sender.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.send(bytes(65_536))
    (row,) = read("127.0.16.1", until=lambda rows: rows["receiver_limited_us"][0] > 20_000)
    assert row["receiver_limited_us"] <= row["busy_us"]


def node(name, *hosts):
    """A node with a NIC for each service address."""
    return Node(
        name=name,
        nics=tuple(
            Nic(
                name=f"{name}.rail{rail}", rail=f"rail{rail}", device=f"rail{rail}", address="10.0.0.1", clock=name,
                service_address=address, path_addresses=(), entropies=(),
            )
            for rail, address in enumerate(hosts)
        ),
    )  # fmt: skip


@pytest.fixture
def meter():
    """Of a node with two rails that knows one peer."""
    made = FlowMeter(node("a", "10.0.0.1", "10.0.1.1"))
    made.set_peer("b", node("b", "10.0.0.2", "10.0.1.2"))
    return made


def connections(*rows):
    """Rows of connections: cookie, local, remote, acked bytes, segments again, busy, limited (2), round trips (2)."""
    return np.array(
        [(cookie, number(local), number(remote), *rest) for cookie, local, remote, *rest in rows], ConnectionRow
    )


def test_a_flow_is_the_growth_of_all_its_connections(meter):
    """Bytes are summed up; times are those of the connection that was busy for longest."""
    first = connections(
        (1, "10.0.0.1", "10.0.0.2", 1_000, 5, 100, 10, 1, 50, 40), (2, "10.0.0.1", "10.0.0.2", 0, 0, 0, 0, 0, 60, 30)
    )
    assert meter.read(first, SECOND) is None
    found = meter.read(
        connections(
            (2, "10.0.0.1", "10.0.0.2", 500, 1, 400, 30, 20, 70, 30),
            (1, "10.0.0.1", "10.0.0.2", 4_000, 7, 350, 300, 1, 55, 40),
        ),
        SECOND + SECOND // 2,
    )
    assert found.span_ns == SECOND // 2
    assert found.flows == ("a.rail0>b.rail0",)
    assert found.rows.tolist() == [(0, 2, 3, 3_500, 400_000, 30_000, 20_000, 70_000, 30_000, 500, 0)]


def test_a_new_connection_counts_from_its_beginning_and_one_that_ended_no_more(meter):
    """Another socket has another cookie, whatever its ports."""
    meter.read(connections((1, "10.0.0.1", "10.0.0.2", 9_000, 0, 100, 0, 0, 50, 40)), SECOND)
    found = meter.read(connections((2, "10.0.0.1", "10.0.0.2", 700, 0, 20, 0, 0, 50, 40)), 2 * SECOND)
    assert found.rows["acked_bytes"].tolist() == [700]
    assert meter.read(connections(), 3 * SECOND).flows == ()


def test_flows_have_the_names_of_both_ends(meter):
    """Also between rails; a connection with a stranger is nobody's flow, and one without traffic is left out."""
    pairs = [("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.1.2"), ("10.0.1.1", "10.0.1.2"), ("10.0.0.1", "10.9.9.9")]
    meter.read(connections(), SECOND)
    found = meter.read(
        connections(
            *((cookie, *ends, 100 * cookie, 0, 10, 0, 0, 50, 40) for cookie, ends in enumerate(pairs, 1)),
            (9, "10.0.1.1", "10.0.0.2", 0, 0, 0, 0, 0, 50, 40),
        ),
        2 * SECOND,
    )
    told = dict(zip(found.flows, found.rows["acked_bytes"].tolist(), strict=True))
    assert told == {"a.rail0>b.rail0": 100, "a.rail0>b.rail1": 200, "a.rail1>b.rail1": 300}
    assert found.rows["flow"].tolist() == [0, 1, 2]


def test_a_flow_that_gets_nothing_through_is_told(meter):
    """It is busy, and no byte is acknowledged: that is what a dead path looks like from the sender."""
    meter.read(connections((1, "10.0.0.1", "10.0.0.2", 50, 0, 0, 0, 0, 50, 40)), SECOND)
    found = meter.read(connections((1, "10.0.0.1", "10.0.0.2", 50, 3, 1_000_000, 0, 0, 50, 40)), 2 * SECOND)
    assert found.rows[["acked_bytes", "retransmitted", "busy_ns"]].tolist() == [(0, 3, SECOND)]


def test_a_peer_that_is_gone_has_no_flows(meter):
    """Its addresses may become another's."""
    meter.read(connections(), SECOND)
    meter.set_peer("b", None)
    assert meter.read(connections((1, "10.0.0.1", "10.0.0.2", 50, 0, 9, 0, 0, 50, 40)), 2 * SECOND).flows == ()


def test_flows_between_nics_are_those_by_their_own_addresses():
    """The same names; what goes by service addresses is not among them, nor what has one at one end alone."""
    made = FlowMeter(node("a", "10.0.0.1"), lambda nic: nic.service_address.replace("10.", "11."))
    made.set_peer("b", node("b", "10.0.0.2"))
    pairs = [("11.0.0.1", "11.0.0.2"), ("10.0.0.1", "10.0.0.2"), ("11.0.0.1", "10.0.0.2")]
    made.read(connections(), SECOND)
    rows = connections(*((cookie, *ends, 100 * cookie, 0, 10, 0, 0, 50, 40) for cookie, ends in enumerate(pairs, 1)))
    found = made.read(rows, 2 * SECOND)
    assert (found.flows, found.rows["acked_bytes"].tolist()) == (("a.rail0>b.rail0",), [100])


def test_a_flow_has_the_delay_of_its_own_packets_where_it_is_known(meter):
    """By the addresses of both ends. One of whom no connection is there is left out, as is a stranger."""
    ends = [("10.0.0.1", "10.0.0.2"), ("10.0.1.1", "10.0.1.2")]
    meter.read(connections(), SECOND)
    rows = connections(*((cookie, *each, 100, 0, 10, 0, 0, 50, 40) for cookie, each in enumerate(ends, 1)))
    told = {Ends(number(local), number(remote)): delay_ns for local, remote, delay_ns in (
        (*ends[1], 7_000), ("10.0.0.1", "10.0.1.2", 8_000), ("10.0.0.1", "10.9.9.9", 9_000),
    )}  # fmt: skip
    found = meter.read(rows, 2 * SECOND, told)
    assert dict(zip(found.flows, found.rows["in_band_ns"].tolist(), strict=True)) == {
        "a.rail0>b.rail0": 0, "a.rail1>b.rail1": 7_000,
    }  # fmt: skip
