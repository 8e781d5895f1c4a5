"""The load of fabric links, by the kernel's counters: what counts as full, and that the counters are read right."""

import socket

import numpy as np
import pytest

from foliot_lab.fabric.link_shaping import Shape, reshape
from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.measure.link_load import Lane, LinkLoads, full_times
from foliot_lab.scenario.spec import FabricSpec
from patience import patience

SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=2)
MS = 1_000_000
RATE = 12_500_000
"""Bytes a second."""
PORT = 9_000


def samples(*shares, queued=1500, rate=RATE):
    """A sample every 100 ms, with the share of the rate that was carried before each."""
    at_ns = np.arange(1 + len(shares)) * 100 * MS
    sent = np.concatenate(([0], np.cumsum(np.array(shares) * rate / 10)))
    return np.column_stack((at_ns, sent, np.full(len(at_ns), queued), np.full(len(at_ns), rate))).astype(np.int64)


def test_a_link_is_full_that_carries_its_rate_for_half_a_second():
    """With the short pauses of steps in it; not one that was full for less."""
    assert list(full_times(samples(0, *[1.0] * 8, 0, 0, 0, 0, 0))) == [(100 * MS, 900 * MS)]
    assert list(full_times(samples(0, 1, 1, 1, 1, 0.2, 0, 0))) == []
    assert list(full_times(samples(1, 1, 0.6, 1, 1, 1))) == [(0, 600 * MS)]
    assert list(full_times(samples(1))) == []


def test_a_short_pause_of_a_full_link_is_none():
    """One of half a second and more ends a time."""
    busy = [1.0] * 10
    assert len(list(full_times(samples(*busy, 0.5, 0.5, *busy)))) == 1
    assert len(list(full_times(samples(*busy, *[0.0] * 8, *busy)))) == 2


def test_a_link_without_a_queue_is_not_full():
    """What carries all that comes is held up elsewhere, as at a NIC of the same rate."""
    assert list(full_times(samples(*[1.0] * 10, queued=0))) == []


def test_few_late_samples_find_no_queue_where_there_is_none():
    """A link behind one of the same rate carries all of it. One of two late samples may find a packet there."""
    late = samples(*[1.0] * 30, queued=0)[::5]
    late[3, 2] = 3_000
    assert list(full_times(late)) == []
    late[:, 2] = 3_000
    assert list(full_times(late)) == [(0, 3000 * MS)]


def test_a_link_is_full_by_its_own_rate():
    """That of now, which a fault may have lowered."""
    slow = samples(*[0.5] * 10)
    assert list(full_times(slow)) == []
    slow[:, 3] = RATE // 2
    assert list(full_times(slow)) == [(0, 1000 * MS)]


@pytest.mark.net
def test_the_counters_are_those_of_each_link_and_direction(fabric):
    """Bytes of a datagram with its headers on both links of its way, each in its direction, and on no other."""
    clock = iter(range(1_000_000))
    loads = LinkLoads(fabric, lambda: next(clock))
    assert set(loads.lanes) == {Lane(trunk.name, way) for trunk in fabric.plan.trunks for way in ("up", "down")}
    ends = {}
    for host in ("node0", "node3"):
        ends[host] = make_socket(fabric.host(host), socket.AF_INET, socket.SOCK_DGRAM)
        ends[host].settimeout(patience(60))
        ends[host].bind((fabric.plan.underlay(host, "rail0"), PORT))
    spine = fabric.spine("node0", "node3", "rail0", PORT, PORT).removeprefix("rail0.")

    def send():
        ends["node0"].sendto(bytes(1000), ends["node3"].getsockname())
        ends["node3"].recv(2000)

    send()  # Routers ask for their neighbours' addresses now, not later.
    loads.look()
    send()
    loads.look()
    for end in ends.values():
        end.close()
    before, after = loads._samples
    grown = {lane: int(count) for lane, count in zip(loads.lanes, (after - before)[1], strict=True) if count}
    assert grown == {
        Lane(f"rail0.leaf0-{spine}", "up"): 1000 + 8 + 20 + 14,
        Lane(f"rail0.leaf1-{spine}", "down"): 1000 + 8 + 20 + 14,
    }
    assert set((after[3] * 8).tolist()) == {200_000_000}
    assert (after[0] > before[0]).all()


@pytest.mark.net
def test_a_lowered_rate_is_the_links_own(fabric):
    """As the kernel says it."""
    trunk = fabric.plan.links["rail0.leaf1-spine1"]
    fabric.netlink(trunk.near).request(reshape(trunk.near.index, Shape(rate_mbps=50, queue_packets=200)))
    loads = LinkLoads(fabric, lambda: 1)
    loads.look()
    rates = dict(zip(loads.lanes, (loads._samples[0][3] * 8e-6).tolist(), strict=True))
    assert rates.pop(Lane("rail0.leaf1-spine1", "up")) == pytest.approx(50)
    assert set(rates.values()) == {200.0}
