"""Engines in real network namespaces: kernel stamps, tunnels, failing sends, stalls."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import structlog

from foliot import native
from foliot.clock import HostClock
from foliot_probe import engine as engine_module
from foliot_probe.core.packet import KERNEL, USER, ProbePacket
from foliot_probe.core.sockaddr import sockaddr
from foliot_probe.core.stream_table import StreamKey
from foliot_probe.engine import Engine
from foliot_probe.io import udp_batch
from foliot_probe.io.tcp_clock import MonotonicOffset
from foliot_probe.io.timestamp_check import PATIENCE
from foliot_probe.packet_loop import SilenceChanges
from foliot_probe.reports import Reporter
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState, Node, Witness
from foliot_schemas.delay_buckets import bucket_of
from patience import patience

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("packets")]

SETTINGS = ProbeSettings()
TICK_NS = SETTINGS.tick_ms * 1_000_000
PORT = 7946
READINGS_NS = 200
"""By so much two packet loops may be apart that turn one kernel's stamps into local time, each by its own readings."""


def quiet(changes):
    """Whether nobody fell silent or spoke again."""
    return all(not len(rows) for change in changes for rows in (change.fell, change.again))


@pytest.mark.parametrize("network", ["10.99.0", "10.98.0"], ids=["wire", "tunnel"])
def test_every_probe_is_stamped_at_both_ends(tunnel, network):
    """Kernel stamps, complete in both directions, also through a tunnel.

    No delay is negative by more than the two ends' readings of the kernel's clocks err.
    """
    pair = tunnel.engines(network)
    for _ in range(40):
        assert quiet(pair.tick())
    told, other = (end.packets.take_report() for end in pair.ends)
    assert told.sent[0] > 40
    for done, count, begun, full in (
        (told.outgoing, told.sent[0], pair.begun[0], other.full_received[0]),
        (told.incoming, other.sent[0], pair.begun[1], told.full_received[0]),
    ):
        number = sorted((done.sequence - begun).tolist())
        # The first few may wait for a neighbour's answer; stamps of the last still travel.
        assert number[0] < 20
        padded = set(range(number[0], count - 4)) - set(number)  # they take longer, which is not for clocks
        assert full - 3 <= len(padded) <= full
        assert (done.receive_ns - done.transmit_ns > -READINGS_NS).all()
        assert (done.receive_ns - done.transmit_ns < 1_000_000_000).all()
    assert pair.ends[0].packets.kinds()[0] == pair.ends[1].packets.kinds()[0] == KERNEL
    assert other.received[0] == other.proven[0] > 30
    assert other.full_received[0] == other.full_proven[0] >= 8
    assert other.full_bytes[0] == {"10.99.0": 1_500, "10.98.0": 1_450}[network]
    assert not pair.ends[0].packets.counts()
    pair.close()


def test_a_link_that_passes_only_small_packets_shows_by_those_of_full_size(switched):
    """All small probes arrive, none of full size, the listener knows how many were lost, and says so; nobody is silent.

    Then they arrive again.
    """
    pair = switched.engines("10.99.0")
    listener = pair.ends[1]
    reporter = Reporter(listener, HostClock("host"), SETTINGS, pair.now_ns)
    for _ in range(12):
        assert quiet(pair.tick())
    assert report(reporter, pair)["full_received"] > 0

    switched.narrow(1_000)
    pair.tick()
    report(reporter, pair)
    for _ in range(24):
        assert quiet(pair.tick())
    said = report(reporter, pair)
    assert (said["full_sent"], said["full_received"], said["full_bytes"]) == (6, 0, 1_500)
    assert said["received"] == said["sent"] - 6

    switched.narrow(1_500)
    pair.tick()
    report(reporter, pair)
    for _ in range(24):
        pair.tick()
    said = report(reporter, pair)
    assert said["full_sent"] == said["full_received"] == 6
    assert not listener.packets.counts()
    pair.close()


@pytest.mark.parametrize("queue", ["blackhole", "tbf rate 1kbit burst 10 limit 10"], ids=["unsaid", "said"])
def test_probes_that_the_own_queue_drops_are_told_apart_from_lost_ones(wire, queue):
    """When later ones have left; whether or not the kernel says of a packet that its queue had no room for it."""
    pair = wire.engines("10.99.0")
    sender, _ = pair.ends
    reporter = Reporter(sender, HostClock("host"), SETTINGS, pair.now_ns)

    def unsent(ticks):
        for _ in range(ticks):
            pair.tick()
        (batch,) = reporter.delays(pair.now_ns)
        (row,) = batch.rows()[batch.rows()["witness"] == Witness.SOURCE]
        return int(row["unsent"]), int(row["sent"])

    unsent(12)
    assert unsent(6)[0] == 0
    with wire.inside(wire.namespaces[0]):
        subprocess.run(("tc", "qdisc", "add", "dev", "wire0", "root", *queue.split()), check=True)
    nothing, dropped = unsent(6)
    assert (nothing, dict(sender.packets.counts())) == (0, {})
    with wire.inside(wire.namespaces[0]):
        subprocess.run(("tc", "qdisc", "del", "dev", "wire0", "root"), check=True)
    assert unsent(6)[0] == dropped > 5
    assert unsent(6)[0] == 0
    pair.close()


def test_stamps_say_how_the_clock_of_tcp_stands_to_that_of_the_probes(pair):
    """Where the host tells that; else nothing is known of it."""
    reporter = Reporter(pair.ends[0], HostClock("a"), SETTINGS, pair.now_ns)
    told = []
    for _ in range(2):
        for _ in range(30):
            pair.tick()
        assert list(reporter.delays(pair.now_ns))
        told += [(batch.monotonic_ns, batch.monotonic_ppb) for batch in reporter.stamps() if batch]
        reporter.tcp_clock = lambda: MonotonicOffset(7, 8.0)
    assert (told[0], told[-1]) == ((0, 0.0), (7, 8.0))


def report(reporter, pair):
    """What the listener says of the path to it."""
    (batch,) = reporter.delays(pair.now_ns)
    (row,) = batch.rows()[batch.rows()["witness"] == Witness.DESTINATION]
    return {name: int(row[name]) for name in row.dtype.names}


def test_a_smaller_device_of_its_own_is_no_hole(pair, wire):
    """What is too large for it is not sent, others are, and from then on full size is what it carries, both ways.

    And what it did before when it is large again.
    """
    for _ in range(12):
        pair.tick()
    with wire.inside(wire.namespaces[0]):
        wire.ip("link", "set", "wire0", "mtu", "1000")
    for end in pair.ends:
        end.packets.take_report()
    for _ in range(12):
        pair.tick(0)
    assert pair.ends[0].packets.counts()["unsent"] == 1
    pair.tick(1)
    told = pair.ends[1].packets.take_report()
    assert told.received[0] >= 11
    assert told.proven[0] - told.received[0] == 1
    for _ in range(12):
        pair.tick()
    for end in pair.ends:
        told = end.packets.take_report()
        assert told.full_bytes[0] == 1_000
        assert 0 < told.full_received[0] <= told.full_proven[0] <= told.full_received[0] + 1
    with wire.inside(wire.namespaces[0]):
        wire.ip("link", "set", "wire0", "mtu", "1500")
    pair.ends[0].measure_sizes()
    for _ in range(4):
        pair.tick()
    assert [end.packets.take_report().full_bytes[0] for end in pair.ends] == [1_500, 1_500]
    assert pair.ends[0].packets.counts()["unsent"] == 1


def test_a_size_that_the_kernel_refuses_is_given_up(pair, monkeypatch):
    """Where the device's MTU is not what counts, probes stay small; others go on."""
    for _ in range(8):
        pair.tick()
    monkeypatch.setattr(engine_module, "interface_mtus", lambda _: {"10.99.0.1": 1_600})
    pair.ends[0].measure_sizes()
    pair.ends[1]._mtu[:] = 1_600
    pair.ends[1]._set_sizes()
    for _ in range(24):
        pair.tick()
    told = pair.ends[0].packets.take_report()
    assert pair.ends[0].packets.counts()["unsent"] == 1
    assert told.full_bytes[0] == 0
    assert told.sent[0] > 24


def test_a_peer_that_takes_no_padded_probes_gets_none(pair, monkeypatch):
    """As of an earlier version, which says 0."""
    monkeypatch.setattr(pair.ends[1], "_settings", ProbeSettings(full_every=0))
    pair.ends[1].measure_sizes()
    for _ in range(3):
        pair.tick()
    for end in pair.ends:
        end.packets.take_report()
    for _ in range(12):
        pair.tick()
    told, heard = (end.packets.take_report() for end in pair.ends)
    assert told.full_bytes[0] == 0
    assert (heard.received[0] > 10, heard.full_received[0]) == (True, 0)


def test_either_end_says_which_probe_was_the_last(pair):
    """The sender of those that the kernel has handed back, the listener of those that it has read.

    The numbers are of the same probes.
    """
    for _ in range(10):
        pair.tick()
    sender, listener = pair.ends
    told = sender.packets.take_report()
    left, heard = told.left_sequence[0], listener.packets.take_report().heard_sequence[0]
    assert left - pair.begun[0] >= 9
    assert abs(left - heard) <= 2  # a coded pair may be on its way
    sender.speak(pair.ticks + 1)
    said = sender.packets.take_report()
    assert said.left_sequence[0] == left  # what was just sent is said when the kernel has said so
    assert 0 < said.left_ns[0] <= sender._clock.local_ns()

    sender.drop_peer("b")
    sender.set_peer(pair.nodes[1])
    assert sender.packets.take_report().left_sequence[0] == 0
    for _ in range(3):
        pair.tick()
    assert sender.packets.take_report().left_sequence[0] > left  # also of another life of the stream


def test_what_was_read_is_dated_before_the_reading(pair):
    """A tick that stalls after its reading says nothing of the time in between: what came then is not heard yet."""
    listener = pair.ends[1]
    before_ns = listener._clock.local_ns()
    pair.tick()
    between_ns = listener._clock.local_ns()
    pair.ends[0].speak(pair.ticks + 1)
    assert before_ns < listener.packets.take_report().listened_ns < between_ns


def test_failing_sends_do_not_shift_the_stamps_of_others(pair, wire):
    """Sends that the kernel refuses are counted, and every stamp is still that of its own probe."""
    stranger = wire.record("c", "192.0.2.1")
    pair.ends[0].set_peer(stranger)
    pair.ends[0].demand.set_in_use(frozenset(pair.ends[0].table.rows))
    for _ in range(30):
        pair.tick()
    assert pair.ends[0].packets.counts()["unsent"] >= 30
    forth = pair.ends[0].packets.take_report().outgoing
    assert len(forth.row) > 30
    delay_ns = forth.receive_ns - forth.transmit_ns
    assert (delay_ns > 0).all()
    gaps_ns = np.diff(forth.transmit_ns[np.argsort(forth.sequence)])
    assert (gaps_ns > 0).all()
    assert delay_ns.max() < 1_000_000_000


def test_peers_without_a_route_keep_no_probe_from_others(pair, wire):
    """However many they are: those that have one are sent all that is due."""
    sender, listener = pair.ends
    strangers = [f"10.99.0.{100 + number}" for number in range(16)]
    with wire.inside(wire.namespaces[0]):
        for address in strangers:
            wire.ip("route", "add", "unreachable", address)
    for address in strangers:
        sender.set_peer(wire.record(address.replace(".", "-"), address))
    sender.demand.set_in_use(frozenset(sender.table.rows))
    for end in pair.ends:
        end.packets.take_report()
    for _ in range(30):
        assert quiet(pair.tick())
    assert sender.packets.counts()["unsent"] >= 16 * 30
    assert sender.packets.take_report().sent[0] >= 30
    heard = listener.packets.take_report()
    assert heard.received[0] == heard.proven[0] >= 30


def test_neighbours_that_do_not_answer_take_no_room_from_others(pair, wire):
    """What is sent to them waits in the kernel, in the send buffer of the socket of all. It never fills that."""
    sender, listener = pair.ends
    strangers = [f"10.99.0.{100 + number}" for number in range(32)]
    for address in strangers:
        sender.set_peer(wire.record(address.replace(".", "-"), address))
    sender.demand.set_in_use(frozenset(sender.table.rows))
    for end in pair.ends:
        end.packets.take_report()
    for _ in range(40):
        assert quiet(pair.tick())
    told, heard = sender.packets.take_report(), listener.packets.take_report()
    assert "unsent" not in sender.packets.counts()
    assert (told.sent[1 : 1 + len(strangers)] >= 4).all()
    assert heard.received[0] == heard.proven[0] >= 40


def test_a_dead_peer_is_silent_and_speaks_again(pair):
    """Said once each, at the deadline that the engine asked to be woken for."""
    for _ in range(5):
        pair.tick()
    pair.ends[0].listen(pair.now_ns)
    at_ns = pair.ends[0].packets.next_silence_ns()
    while pair.now_ns + TICK_NS < at_ns:
        assert quiet(pair.tick(0))
    assert quiet([pair.ends[0].listen(at_ns - 1)])
    assert pair.ends[0].listen(at_ns).fell.tolist() == [0]
    pair.now_ns = at_ns
    assert quiet(pair.tick(0))
    pair.tick(1)
    (changes,) = pair.tick(0)
    assert (changes.fell.tolist(), changes.again.tolist()) == ([], [0])


def test_what_is_said_is_dated_by_the_last_reading(pair, monkeypatch):
    """A report that leaves late, and the word of a silence, vouch for no time in which no socket was read."""
    listener = pair.ends[1]
    clock = HostClock("host")
    reporter = Reporter(listener, clock, SETTINGS, pair.now_ns)
    late_ns = 60_000_000_000
    told = listener.packets.take_report()
    told = told._replace(listened_ns=told.listened_ns - late_ns)
    packets = listener.packets
    late = SimpleNamespace(
        take_report=lambda: told, promised_us=packets.promised_us, heard_last_ns=packets.heard_last_ns,
        stamps_of=packets.stamps_of,
    )  # fmt: skip
    nobody, row = np.zeros(0, np.intp), np.array([0])
    fell = SilenceChanges(row, nobody, told.heard_last_ns[row], told.heard_sequence[row], told.listened_ns)
    with monkeypatch.context() as patched:
        patched.setattr(listener, "packets", late)
        (regular,) = reporter.delays(pair.now_ns)
        at_once = reporter.silence(fell)
    for batch in (regular, at_once):
        assert 0 < batch.at_ns <= clock.now_ns() - late_ns


def test_a_report_counts_every_delay_that_it_digests(pair):
    """Once both clocks are known; padded probes have none."""
    listener, clock = pair.ends[1], HostClock("host")
    reporter = Reporter(listener, clock, SETTINGS, pair.now_ns)
    (before,) = reporter.delays(pair.now_ns)
    assert before.delay_counts().tolist() == []
    local_ns = clock.local_ns()
    for name in ("a", "b"):
        reporter.set_clock(
            ClockState(
                clock=name, reference="a", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
                as_of_ns=local_ns, void_after_ns=local_ns + 600_000_000_000, status="synchronised",
            )
        )  # fmt: skip
    for _ in range(24):
        pair.tick()
    (batch,) = reporter.delays(pair.now_ns)
    (row,) = batch.rows()[batch.rows()["witness"] == Witness.DESTINATION]
    counts = batch.delay_counts()
    assert set(counts["path"]) == {row["path"]}
    assert 12 <= counts["probes"].sum() <= row["received"] - row["full_received"] + 1
    digested = bucket_of(np.array([row[name] for name in ("least_ns", "median_ns", "p99_ns")]))
    assert set(digested.tolist()) <= set(counts["bucket"].tolist())
    assert (counts["bucket"].min(), counts["bucket"].max()) == (digested[0], digested[-1])


def test_a_stopped_listener_accuses_nobody(pair):
    """After ten seconds away it hears what waits, and gives the peer its full time again."""
    for _ in range(5):
        pair.tick()
    (changes,) = pair.tick(0, by_ns=10_000_000_000)
    assert quiet([changes])
    assert pair.ends[0].packets.next_silence_ns() == pair.now_ns + 3 * TICK_NS + 10_000_000


def test_what_waits_is_heard_before_anybody_is_judged(pair):
    """A late tick finds the probes that came meanwhile."""
    for _ in range(5):
        pair.tick()
    for _ in range(4):
        pair.tick(1, by_ns=20_000_000)
    assert quiet([pair.ends[0].listen(pair.now_ns + 85_000_000)])


def test_a_full_queue_excuses_the_peers(pair, wire, request):
    """Where the listener lost packets itself, their absence says nothing.

    Who was not heard through the same socket gets its full time again, and no more.
    """
    listener, third = pair.ends[0], wire.record("c", "10.99.0.3")
    with wire.inside(wire.namespaces[1]):
        wire.ip("addr", "add", "10.99.0.3/24", "dev", "wire0")
        other = Engine(third, HostClock("c"), SETTINGS, pair.now_ns)
        assert other.bind() == 0
    request.addfinalizer(other.close)
    listener.set_peer(third)
    other.set_peer(pair.nodes[0])
    other.demand.set_in_use(frozenset(other.table.rows))

    def speak():
        other.listen(pair.now_ns)
        other.speak(pair.ticks)
        assert select.select([listener._sockets[0]], [], [], patience(20))[0]

    for _ in range(5):
        speak()
        assert quiet(pair.tick())
    heard_ns = pair.now_ns
    listener._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(40):
        pair.tick(1, by_ns=1_000_000)
    speak()  # in vain: the queue is full
    assert quiet([listener.listen(pair.now_ns)])
    pair.tick(1, by_ns=1_000_000)
    assert quiet([listener.listen(pair.now_ns)])  # with this probe, the kernel tells of those that it dropped
    assert listener.packets.counts()["dropped"] > 0
    listener._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    patience_ns = 3 * TICK_NS + 10_000_000
    excused_ns = pair.now_ns
    while pair.now_ns + TICK_NS < excused_ns + patience_ns:
        assert quiet(pair.tick(1, 0))
    assert pair.now_ns > heard_ns + patience_ns
    pair.tick(1)
    (row,) = listener.listen(pair.now_ns).fell.tolist()
    assert listener.table.ends[row].key.peer == "c"


def test_foreign_datagrams_are_counted_and_ignored(pair, wire):
    """From strangers, or broken ones from a peer."""
    for _ in range(3):
        pair.tick()
    pair.ends[1]._sockets[0].sendto(b"\0" * 144, ("10.99.0.1", PORT))
    pair.ends[1]._sockets[0].sendto(b"", ("10.99.0.1", PORT))
    with wire.inside(wire.namespaces[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        wire.ip("link", "set", "lo", "up")
        stranger.sendto(b"x" * 900, ("10.99.0.1", PORT))
    for _ in range(5):
        assert quiet(pair.tick())
    assert pair.ends[0].packets.counts()["foreign"] == 3


def test_without_kernel_stamps_it_falls_back_and_says_so(wire):
    """Stamps from user space are complete as well, and the data names their kind at both ends."""
    pair = wire.engines("10.99.0")
    pair.ends[0]._sockets[0].setsockopt(socket.SOL_SOCKET, 37, 0)
    for _ in range(PATIENCE + 10):
        pair.tick()
    pair.ends[0].packets.take_report()
    for _ in range(10):
        pair.tick()
    assert pair.ends[0].packets.kinds()[0] == USER
    assert pair.ends[1].packets.kinds()[0] == USER
    told = pair.ends[0].packets.take_report()
    forth, back = told.outgoing, told.incoming
    assert len(forth.row) >= 10
    assert len(back.row) >= 10
    assert (forth.receive_ns > forth.transmit_ns).all()
    assert (back.receive_ns > back.transmit_ns).all()
    pair.close()


def test_sockets_are_opened_when_their_addresses_appear(wire):
    """The overlay may come later than the probe."""
    node = wire.record("a", "10.96.0.1")
    engine = Engine(node, HostClock("a"), SETTINGS, 0)
    engine.set_peer(wire.record("b", "10.96.0.2"))
    with wire.inside(wire.namespaces[0]):
        assert engine.bind() == 1
        for tick in range(10):
            engine.listen(tick * TICK_NS)
            engine.speak(tick)
        wire.ip("addr", "add", "10.96.0.1/24", "dev", "wire0")
        assert engine.bind() == 0
    for tick in range(10, 20):
        engine.listen(tick * TICK_NS)
        engine.speak(tick)
    assert engine.packets.take_report().sent[0] > 0
    engine.close()


def test_peers_come_and_go(pair):
    """A peer that left is neither probed nor judged; when it is back its stream begins anew."""
    for _ in range(5):
        pair.tick()
    assert pair.ends[0].drop_peer("b") == [0]
    assert pair.ends[0].packets.next_silence_ns() is None
    for _ in range(10):
        assert quiet(pair.tick(0))
    pair.ends[0].set_peer(pair.nodes[1])
    pair.ends[0].packets.take_report()
    for _ in range(10):
        pair.tick()
    assert len(pair.ends[0].packets.take_report().outgoing.row) > 0


def test_many_peers_make_the_tables_grow(pair, wire):
    """Streams that ran before go on while the tables are made larger, and those that come then run, too."""
    for number in range(80):
        pair.ends[0].set_peer(wire.record(f"p{number}", f"10.99.0.{number + 100}"))
    assert len(pair.ends[0].table) == 128
    for _ in range(10):
        pair.tick()
    assert (pair.ends[0].packets.take_report().outgoing.row == 0).any()
    pair.ends[0].drop_peer("b")
    pair.ends[0].set_peer(wire.record("p80", "10.99.0.180"))  # takes its row
    pair.ends[0].set_peer(pair.nodes[1])
    for _ in range(10):
        pair.tick()
    told = pair.ends[0].packets.take_report()
    (row,) = (row for key, row in pair.ends[0].table.rows.items() if key.peer == "b")
    assert row > 64
    assert (told.outgoing.row == row).any()
    assert told.received[row] > 0


def test_a_flood_waits_for_what_else_is_due(monkeypatch):
    """A socket that is never dry is left after so many, and read on the next time."""
    monkeypatch.setattr(udp_batch, "_AT_ONCE", 8)
    inbox, receiver = udp_batch.Inbox(4), udp_batch.open_socket("127.0.0.1", 0)
    with receiver, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        inbox.add(0, receiver)
        for _ in range(19):
            sender.sendto(b"x", receiver.getsockname())
        taken = [sum(len(each.arrivals.lengths) for each in inbox.read()) for _ in range(4)]
    assert taken == [8, 8, 3, 0]


def test_sockets_at_which_nothing_waits_cost_no_call(monkeypatch):
    """A node with 64 entropies has as many sockets for each NIC, of which few are busy."""
    called = []
    receive = udp_batch._recvmmsg
    monkeypatch.setattr(
        udp_batch, "_recvmmsg", lambda number, *rest: (called.append(number), receive(number, *rest))[1]
    )
    inbox = udp_batch.Inbox(4)
    sockets = [udp_batch.open_socket("127.0.0.1", 0) for _ in range(64)]
    with contextlib.ExitStack() as stack, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for place, opened in enumerate(sockets):
            stack.enter_context(opened)
            inbox.add(place, opened)
        sender.sendto(b"x", sockets[7].getsockname())
        assert [each.arrivals.place.tolist() for each in inbox.read()] == [[7]]
        assert called == [sockets[7].fileno()]


def test_each_packet_handed_back_has_its_own_stamp(tunnel):
    """Also where packets of one batch left behind headers of different lengths."""
    with tunnel.inside(tunnel.namespaces[0]):
        sender = udp_batch.open_socket("0.0.0.0", PORT)
    addresses = np.concatenate([sockaddr(f"10.{net}.0.2", PORT) for net in (99, 98)])
    inbox, outbox = udp_batch.Inbox(64), udp_batch.Outbox(8)
    inbox.add(0, sender)

    def exchange(first):
        probes = np.zeros(8, ProbePacket)
        probes["sequence"] = np.arange(first, first + 8)
        outbox.fill(probes, np.resize(addresses, 8), 0)
        assert outbox.send(sender, 0, 8) == (8, 0)
        found = {}
        while len(found) < 8:
            assert select.select([sender], [], [], patience(20))[0]
            for batch in inbox.read():
                left = batch.departures
                found |= dict(zip(left.probes["sequence"].tolist(), batch.stamp_ns[left.slot].tolist(), strict=True))
        return [found[number] for number in range(first, first + 8)]

    with sender:
        exchange(0)  # neighbours are found
        stamps_ns = exchange(8)
    assert stamps_ns[0] > 0
    assert sorted(stamps_ns) == stamps_ns
    assert len(set(stamps_ns)) == 8


def test_a_silent_path_is_told_with_what_its_sender_sent_on_others(wire):
    """By the kernel's stamps in probes of the other path, once both clocks are known; and not before."""
    nodes = []
    for number, name in enumerate(("a", "b"), 1):
        addresses = (f"10.99.0.{number}", f"10.99.0.{number + 10}")
        with wire.inside(wire.namespaces[number - 1]):
            wire.ip("addr", "add", f"{addresses[1]}/24", "dev", "wire0")
        record = wire.record(name, addresses[0])
        nic = msgspec.structs.replace(record.nics[0], path_addresses=addresses, entropies=(1, 2))
        nodes.append(msgspec.structs.replace(record, nics=(nic,)))
    clock, start_ns = HostClock("b"), time.monotonic_ns()
    ends = [Engine(node, clock, SETTINGS, start_ns) for node in nodes]
    for end, namespace, peer in zip(ends, wire.namespaces, reversed(nodes), strict=True):
        with wire.inside(namespace):
            assert end.bind() == 0
        end.set_peer(peer)
        end.demand.set_in_use(frozenset(end.table.rows))
    sender, listener = ends
    reporter = Reporter(listener, clock, SETTINGS, start_ns)
    reporter.begin(list(listener.table.rows.values()))
    changes = run_for_real(ends, start_ns, 5)
    sender.packets.end(sender.table.rows[StreamKey("b", "rail0", 0)])
    changes = run_for_real(ends, start_ns, 40)
    assert changes.fell.tolist() == [listener.table.rows[StreamKey("a", "rail0", 0)]]
    assert reporter.silence(changes).rows()["least_ns"].tolist() == [0]
    for name in ("a", "b"):
        state = synchronised(name, clock.local_ns())
        clock.update(state)
        reporter.set_clock(state)
    (row,) = reporter.silence(changes).rows()
    # The next tick is the first that shows it. The listener may have missed some of the stamps: they come with later probes.
    assert 0.75 * TICK_NS < row["least_ns"] <= 4 * TICK_NS
    for end in ends:
        end.close()


def synchronised(name, local_ns):
    """The state of a clock that is the reference's."""
    return ClockState(
        clock=name, reference="a", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
        as_of_ns=local_ns, void_after_ns=local_ns + 600_000_000_000, status="synchronised",
    )  # fmt: skip


def run_for_real(ends, start_ns, ticks):
    """Ticks as fast as the clock goes, until the second end finds a path silent, or for so many."""
    for _ in range(ticks):
        tick = 1 + (time.monotonic_ns() - start_ns) // TICK_NS
        time.sleep(max(0.0, (start_ns + tick * TICK_NS - time.monotonic_ns()) / 1e9))
        for end in ends:
            changes = end.listen(time.monotonic_ns())
            end.speak(tick)
        if len(changes.fell):
            return changes
    return changes


def policy(engine):
    """What the kernel schedules its thread of packets by."""
    return os.sched_getscheduler(engine._thread.native_id) & ~os.SCHED_RESET_ON_FORK


def may_be_realtime():
    """Whether a thread of this process may have real-time priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


@pytest.mark.parametrize("wanted", [True, False])
def test_the_thread_of_packets_has_real_time_priority_where_it_is_wanted(wanted):
    """Until it takes more of a processor than it may, and then no more."""
    if native.compiled("packet_loop") is None or not may_be_realtime():
        pytest.skip("nothing was compiled, or no real-time priority is permitted")
    engine = Engine(Node(name="a", nics=(), probe_port=1), HostClock("a"), ProbeSettings(realtime=wanted), 0)
    engine.start(time.monotonic_ns())
    try:
        give_up_s = time.monotonic() + patience(20)
        while wanted and policy(engine) != os.SCHED_FIFO:
            assert time.monotonic() < give_up_s
        engine.adjust(1)
        assert engine.packets.realtime() is wanted
        assert policy(engine) == (os.SCHED_FIFO if wanted else os.SCHED_OTHER)
    finally:
        engine.close()


def test_real_time_priority_is_given_back_by_a_thread_that_takes_too_much(monkeypatch):
    """Here more than nothing."""
    if native.compiled("packet_loop") is None or not may_be_realtime():
        pytest.skip("nothing was compiled, or no real-time priority is permitted")
    monkeypatch.setattr(engine_module, "_REALTIME_SHARE", 1e-12)
    engine = Engine(Node(name="a", nics=(), probe_port=1), HostClock("a"), ProbeSettings(), 0)
    engine.start(time.monotonic_ns())
    try:
        give_up_s = time.monotonic() + patience(20)
        while engine.packets.realtime() is not None:
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        assert policy(engine) == os.SCHED_OTHER
        with structlog.testing.capture_logs() as told:
            engine.adjust(1)
            engine.adjust(2)
        assert [each["event"] for each in told] == ["packet_loop_realtime_given_up"]
    finally:
        engine.close()


_DYING = """
import sys, time
from foliot.clock import HostClock
from foliot_probe.engine import Engine
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Node

class Dying:
    runs = True
    def run(self, start_ns, changed_fd, realtime_share):
        raise OSError("the kernel grants no timer")

engine = Engine(Node(name="a", nics=(), probe_port=1), HostClock("a"), ProbeSettings(), 0)
engine.packets = Dying()
engine.start(0)
time.sleep(60)
"""


def test_a_thread_of_packets_that_dies_takes_the_process_with_it():
    """Its supervisor starts it anew. A probe that sends nothing and looks alive would be taken for dead paths."""
    ended = subprocess.run((sys.executable, "-c", _DYING), check=False, capture_output=True, text=True)
    assert ended.returncode == os.EX_SOFTWARE
    assert "packet_loop_died" in ended.stdout + ended.stderr
