"""The two packet loops, numpy's and the compiled one, on the same drawn packets: they send and tell the same."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from draws import draws
from foliot.clock import HostClock
from foliot.clock.realtime_map import CrossTimestamp, RealtimeMap
from foliot.native import compiled
from foliot_probe.core.measure.sessions import DEPTH, Completed
from foliot_probe.core.packet import FULL_COUNTS, IDLE_US, KERNEL, MAGIC, ROW_BITS, USER, ProbePacket
from foliot_probe.io.udp_batch import Arrivals
from foliot_probe.numpy_loop import NumpyPacketLoop
from foliot_probe.packet_loop import Report, SilenceChanges
from patience import patience

MS = 1_000_000
TICK_NS = 40 * MS
PLACES, ROWS = 3, 16
SIZES = (0, 500, 576, 1_450, 9_216)
native = compiled("packet_loop")

needs_compiler = pytest.mark.skipif(native is None, reason="nothing was compiled")


class NoSocket:
    """A place has one as soon as it is named: nothing is sent by it."""

    def __init__(self):
        self._made = np.zeros(0)

    def fileno(self):
        """A descriptor that is none."""
        return 1 << 20

    def getsockopt(self, *_):
        """The size of a buffer."""
        return 1 << 18


def both(full_every=4):
    """A loop of either kind."""
    shape = {"tick_ns": TICK_NS, "full_every": full_every, "now_ns": 0}
    types = (SilenceChanges, Report, Completed)
    return (
        NumpyPacketLoop(PLACES, ROWS, HostClock("node0"), **shape),
        native.PacketLoop(PLACES, ROWS, seed=1, error=None, types=types, **shape),
    )


def same(told):
    """Whether both told the same, but for when."""
    left, right = told
    for name in left._fields:
        if name == "listened_ns":
            continue
        one, other = getattr(left, name), getattr(right, name)
        if isinstance(one, tuple):
            assert same((one, other))
        else:
            assert np.array_equal(one, other), (name, one, other)
    return True


def in_order(probes):
    """Probes by row and number."""
    return probes.take(np.lexsort((probes.sequence, probes.row)))


class Peer:
    """The other end of a stream, as a drawn one behaves: it loses, repeats, and is started anew."""

    def __init__(self, draw, row):
        self._draw = draw
        self.row, self.place = row, draw.randrange(PLACES)
        self.address = (10 << 24) + row + 1
        self.heard, self.heard_session = {}, 0
        self.start()

    def start(self):
        """Begins a new life."""
        self.session, self.sequence = self._draw.getrandbits(64), self._draw.choice((0, 5, 1 << 50))
        self.left, self.bytes, self.padded, self.before = {}, self._draw.choice(SIZES), 0, []

    def probe(self, now_ns):
        """The next one, and its length in bytes."""
        draw, sequence = self._draw, self.sequence
        self.sequence += draw.choice((1, 1, 1, 2, 5))
        probe = np.zeros(1, ProbePacket)
        full = self.bytes > 576 and draw.random() < 0.3
        self.padded += full
        probe["magic"], probe["kind"], probe["mesh_ms"] = MAGIC, draw.choice((KERNEL, USER)), draw.choice((0, 40, 320))
        said = 1 + self.padded % FULL_COUNTS if self.bytes else 0
        probe["use"] = said << 1 | (draw.random() < 0.7)
        probe["row"] = 3 | self.bytes << ROW_BITS
        probe["interval_us"] = draw.choice((40_000, 200_000, IDLE_US + 1))
        probe["session"], probe["sequence"] = self.session, sequence
        probe["transmit_ns"] = [self.left.get(sequence - 1 - back, 0) for back in range(4)]
        self.left[sequence] = now_ns - draw.randrange(1, 50_000)
        probe["peer_session"] = self.heard_session
        highest = max(self.heard, default=-1)
        probe["heard"] = highest
        probe["receive_ns"] = [self.heard.get(highest - back, 0) for back in range(8)]
        return probe, 1_422 if full else ProbePacket.itemsize

    def hear(self, probe, now_ns):
        """Takes one in."""
        if probe["session"] != self.heard_session:
            self.heard, self.heard_session = {}, int(probe["session"])
        self.heard[int(probe["sequence"])] = now_ns


def sent(loops, tick, seen):
    """What both send in a tick, by row and sequence, which is the same; order within a place is by chance."""
    found = []
    for loop in loops:
        row, probes, padding, begins = loop.compose(tick)
        probes = np.frombuffer(bytes(probes) if isinstance(probes, bytes) else probes.tobytes(), ProbePacket)
        order = np.lexsort((probes["sequence"], row))
        assert not len(row) or 0 <= begins < PLACES
        found.append((np.asarray(row)[order].tolist(), probes[order].tobytes(), np.asarray(padding)[order].tolist()))
        seen(row, probes, padding)
    assert found[0][0] == found[1][0]
    assert found[0] == found[1]
    return np.frombuffer(found[0][1], ProbePacket)


def check_order(place_of):
    """Checks that probes of a place are together, places in order, and padded ones and seconds behind."""

    def check(row, probes, padding):
        places = [place_of[each] for each in np.asarray(row).tolist()]
        assert places == sorted(places)
        first = {each: int(probes["sequence"][np.asarray(row) == each].min()) for each in set(np.asarray(row).tolist())}
        for place in set(places):
            ranks = [
                2 if zeros else int(sequence) - first[each]
                for each, sequence, zeros, at in zip(row, probes["sequence"], padding, places, strict=True)
                if at == place
            ]
            assert ranks == sorted(ranks)

    return check


@needs_compiler
@pytest.mark.parametrize("seed", draws(8))
def test_both_send_and_tell_the_same_of_drawn_packets(seed):
    """Peers that lose, repeat, stand still and start anew; strangers; packets without stamps; rates that change."""
    draw = random.Random(seed)
    loops = both(full_every=draw.choice((0, 3, 4)))
    peers = {row: Peer(draw, row) for row in draw.sample(range(ROWS), 6)}
    for place in range(PLACES):
        if draw.random() < 0.9:
            for loop in loops:
                loop.add_socket(place, NoSocket()) if loop is not loops[0] else open_place(loop, place)
    for row, peer in peers.items():
        begin(loops, row, peer, draw, tick=0)
    place_of = {row: peer.place for row, peer in peers.items()}
    shifts = watch(loops, draw)
    now_ns, stamped = 0, draw.random() < 0.8
    for tick in range(1, 120):
        now_ns += TICK_NS if draw.random() < 0.97 else draw.choice((1, 30)) * 10 * MS
        local_ns = 5_000_000_000 + now_ns
        change(loops, draw, tick, place_of, peers)
        restart(loops, draw, peers)
        probes = sent(loops, tick, check_order(place_of))
        depart(loops, draw, probes, peers, stamped=stamped, local_ns=local_ns, shifts=shifts)
        arrive(loops, draw, peers, stamped, local_ns=local_ns, now_ns=now_ns, shifts=shifts)
        for loop in loops:
            loop.judge(now_ns)
        assert loops[0].next_silence_ns() == loops[1].next_silence_ns()
        assert same([loop.take_changes() for loop in loops])
        assert np.array_equal(*(loop.take_met() for loop in loops))
        assert same([in_order(loop.stamps_of(np.array(sorted(place_of), np.intp))) for loop in loops])
        if draw.random() < 0.4:
            assert same([loop.take_report() for loop in loops])
            assert sorted(loops[0].take_missing_stamps()) == sorted(loops[1].take_missing_stamps())
            assert np.array_equal(*(loop.take_stamp_counts() for loop in loops))
            for what in ("peers_mesh_ms", "promised_us", "heard_last_ns", "kinds"):
                one, other = (getattr(loop, what)() for loop in loops)
                assert np.array_equal(one, other), what
            assert dict(loops[0].counts()) == loops[1].counts()
    assert loops[0].counts().get("foreign", 0) > 0


def open_place(loop, place):
    """As `add_socket`, of one that epoll would not take."""
    loop._sockets[place], loop._opened[place] = NoSocket(), True


def begin(loops, row, peer, draw, tick):
    """A stream begins."""
    session, first, every = draw.getrandbits(64) | 1, draw.choice((1, 1 << 50)), draw.choice((1, 2, 5))
    for loop in loops:
        loop.begin(row, peer.place, (peer.address, 7_946), session=session, first=first, every=every, tick=tick)


def watch(loops, draw):
    """Some places have NICs that stamp; by how much the clock of each is ahead, as the loops know it or do not."""
    for place in range(PLACES):
        if draw.random() < 0.7:
            for loop in loops:
                loop.watch_nic(place, None)
    shifts = [draw.choice((1 << 60, -7_000_000_000)) for _ in range(PLACES)]
    known = [each if draw.random() < 0.8 else 0 for each in shifts]
    for loop in loops:
        loop.set_shifts(np.array(known, np.int64))
    return shifts


def by_nic(draw, stamp_ns, shift_ns, side):
    """What a NIC says of a packet that the kernel has stamped so: right, nothing, or what cannot be."""
    gap_ns = draw.choice((0, 900, 40_000, 1_999_999, 2_000_001, -250_001, -249_999, 10**12))
    return 0 if draw.random() < 0.2 else stamp_ns + shift_ns + side * gap_ns


def restart(loops, draw, peers):
    """A stream begins anew now and then, by the other stamps."""
    if peers and draw.random() < 0.1:
        row, session, by_its_nic = draw.choice(sorted(peers)), draw.getrandbits(64) | 1, draw.random() < 0.7
        for loop in loops:
            loop.restart(row, session=session, first=7, by_nic=by_its_nic)


def change(loops, draw, tick, place_of, peers):
    """A rate, a size, a wish, or a peer that goes or comes."""
    chance = draw.random()
    row = draw.choice(sorted(peers)) if peers else None
    if chance < 0.15 and row is not None:
        every, coded, in_use = draw.choice((1, 2, 5, 700)), draw.choice((0, 1, 4)), draw.random() < 0.7
        for loop in loops:
            loop.change_rate(row, every, tick - 1, in_use=in_use, coded_every=coded)
    elif chance < 0.25:
        sizes = np.array([draw.choice(SIZES) for _ in range(ROWS)], np.int64)
        wishes = np.array([draw.choice((0, 40, 320)) for _ in range(ROWS)], np.int64)
        for loop in loops:
            loop.set_sizes(sizes)
            loop.set_wishes(wishes)
    elif chance < 0.27 and row is not None:
        peers.pop(row)
        for loop in loops:
            loop.end(row)
            loop.forget_wishes(np.array([row]))
    elif chance < 0.32:
        free = sorted(set(range(ROWS)) - set(peers))
        if free:
            row = draw.choice(free)
            peers[row] = Peer(draw, row)
            place_of[row] = peers[row].place
            begin(loops, row, peers[row], draw, tick)


def depart(loops, draw, probes, peers, *, stamped, local_ns, shifts):
    """The kernel hands back some of what left, with stamps; some of it comes to the peers."""
    kept = [each for each in probes if draw.random() < 0.95 and stamped]
    if kept:
        left = np.array(kept, ProbePacket)
        rows = (left["row"] & ((1 << ROW_BITS) - 1)).astype(int)
        places = np.array([peers[row].place if row in peers else 0 for row in rows], np.intp)
        stamps_ns = np.array([local_ns + 10 * number for number in range(len(left))], np.int64)
        nics_ns = np.array(
            [by_nic(draw, at_ns, shifts[place], 1) for at_ns, place in zip(stamps_ns.tolist(), places, strict=True)]
        )
        told = np.flatnonzero(nics_ns)
        for loop in loops:
            loop.take_departures(places, left, stamps_ns)
            loop.take_nic_departures(places[told], left[told], nics_ns[told])
    for each in probes:
        row = int(each["row"]) & ((1 << ROW_BITS) - 1)
        if row in peers and draw.random() < 0.9:
            peers[row].hear(each, local_ns + 20_000)


def arrive(loops, draw, peers, stamped, *, local_ns, now_ns, shifts):
    """Packets of peers in any order of peers, of strangers, and broken ones."""
    came = []
    for peer in peers.values():
        if draw.random() < 0.02:
            peer.start()
        if peer.before and draw.random() < 0.1:  # one comes again, or was overtaken by a tick's probes
            came.append(peer.before.pop(draw.randrange(len(peer.before))))
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            probe, length = peer.probe(local_ns)
            if draw.random() < 0.05:  # lost
                continue
            came.append((peer.place, peer.address, probe, length))
            peer.before.append(came[-1])
            if draw.random() < 0.02:  # a peer's, broken
                broken = probe.copy()
                broken.view(np.uint8)[draw.randrange(ProbePacket.itemsize)] ^= 0xFF
                came.append((peer.place, 1, broken, length))
    draw.shuffle(came[: len(came) // 2])
    if draw.random() < 0.2:
        came.append((0, 77, np.zeros(1, ProbePacket), 3))
    if not came:
        return
    place, address, probes, lengths = zip(*came, strict=True)
    arrived = Arrivals(
        np.array(place, np.intp),
        np.array(address, np.uint32),
        np.concatenate(probes),
        np.array(lengths, np.uint32),
        None,
    )
    stamps_ns = [local_ns - draw.randrange(20 * MS) if stamped and draw.random() < 0.95 else 0 for _ in came]
    nics_ns = [by_nic(draw, at_ns, shifts[at], -1) if at_ns else 0 for at_ns, at in zip(stamps_ns, place, strict=True)]
    for loop in loops:
        loop.take_arrivals(arrived, np.array(stamps_ns, np.int64), local_ns, now_ns, np.array(nics_ns, np.int64))


@needs_compiler
@pytest.mark.parametrize("at_once", [1, 5 * DEPTH])
def test_both_count_more_probes_than_a_stream_remembers(at_once):
    """Where two reports lie further apart than a stream's memory reaches, or its reader was away; twins count once."""
    draw = random.Random(7)
    loops = both()
    peer = Peer(draw, 1)
    begin(loops, 1, peer, draw, tick=0)
    came = [probe for _ in range(5 * DEPTH) for probe in [peer.probe(0)[0]] * draw.choice((1, 1, 2))]
    for first in range(0, len(came), at_once):
        probes = np.concatenate(came[first : first + at_once])
        count = len(probes)
        arrived = Arrivals(
            np.full(count, peer.place),
            np.full(count, peer.address, np.uint32),
            probes,
            np.full(count, 144, np.uint32),
            None,
        )
        for loop in loops:
            loop.take_arrivals(arrived, np.full(count, MS), MS, MS)
    told = [loop.take_report() for loop in loops]
    assert same(told)
    assert told[0].received[1] == 5 * DEPTH
    assert same([loop.take_report() for loop in loops])


@needs_compiler
def test_a_peer_that_was_met_and_went_is_not_met_in_the_next_stream_of_its_row():
    """That one has not been heard, so no other may idle for it."""
    draw = random.Random(7)
    loops = both()
    peer = Peer(draw, 1)
    begin(loops, 1, peer, draw, tick=0)
    arrived = Arrivals(
        np.array([peer.place]), np.array([peer.address], np.uint32), peer.probe(0)[0], np.array([144]), None
    )
    for loop in loops:
        loop.take_arrivals(arrived, np.array([MS]), MS, MS)
        loop.end(1)
    begin(loops, 1, Peer(draw, 1), draw, tick=1)
    assert [loop.take_met().tolist() for loop in loops] == [[], []]


@needs_compiler
@pytest.mark.parametrize("seed", draws(8))
def test_both_take_any_bytes_alike(seed):
    """What is broken in one field is nobody's, or is taken in the same way, and breaks nothing."""
    draw = random.Random(seed)
    loops = both()
    peer = Peer(draw, 1)
    begin(loops, 1, peer, draw, tick=0)
    for step in range(60):
        probe, length = peer.probe(step * TICK_NS)
        where = draw.randrange(0, ProbePacket.itemsize, 8)
        value = draw.choice((0, 1, (1 << 62) - 1, 1 << 62, 1 << 63, (1 << 64) - 1, draw.getrandbits(64)))
        probe.view(np.uint8)[where : where + 8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
        length = draw.choice((length, 0, 143, 9_216, 9_217))
        now_ns = (step + 1) * TICK_NS
        arrived = Arrivals(
            np.array([peer.place]), np.array([peer.address], np.uint32), probe, np.array([length], np.uint32), None
        )
        for loop in loops:
            loop.take_arrivals(arrived, np.array([now_ns]), now_ns, now_ns)
            loop.judge(now_ns)
        sent(loops, step, lambda *_: None)
        assert same([loop.take_report() for loop in loops])
        assert same([loop.take_changes() for loop in loops])
        assert dict(loops[0].counts()) == loops[1].counts()


_ASKS = """
from foliot.native import compiled
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.packet_loop import Report, SilenceChanges

def completed(*columns):
    loop.counts()
    return Completed(*columns)

loop = compiled("packet_loop").PacketLoop(
    1, 1, tick_ns=1, full_every=0, now_ns=0, seed=1, error=None, types=(SilenceChanges, Report, completed)
)
loop.take_report()
"""


@needs_compiler
def test_what_a_report_takes_in_python_keeps_no_packet_waiting():
    """Its parts are made after the loop has been let go: others may have Python's lock for long meanwhile."""
    subprocess.run([sys.executable, "-c", _ASKS], timeout=patience(30.0), check=True)


@needs_compiler
@pytest.mark.parametrize("seed", draws(8))
def test_both_take_floods_and_lies_alike(seed):
    """Many packets of a peer at a time: of two lives, repeated, far apart, with stamps that contradict each other."""
    draw = random.Random(seed)
    loops = both()
    peers = [Peer(draw, row) for row in (1, 2, 3)]
    for peer in peers:
        begin(loops, peer.row, peer, draw, tick=0)
    lives, lowest = (7, draw.getrandbits(64)), draw.choice((0, 1_000, 1 << 50, (1 << 62) - 300))
    share = draw.choice((0.5, 1.0))
    for step in range(25):
        count, now_ns = draw.choice((1, 3, 40)), (step + 1) * TICK_NS
        came = [draw.choice(peers) for _ in range(count)]
        probes = np.concatenate([lie(draw, lives[draw.random() > share], lowest, step) for _ in came])
        arrived = Arrivals(
            np.array([each.place for each in came]),
            np.array([each.address for each in came], np.uint32),
            probes,
            np.array([draw.choice((144, 1_422)) for _ in came], np.uint32),
            None,
        )
        stamps_ns = np.array([draw.choice((0, 1 + each, step * 1_000 + each)) for each in range(count)])
        for loop in loops:
            loop.take_arrivals(arrived, stamps_ns, now_ns, now_ns)
            loop.judge(now_ns)
        sent(loops, step, lambda *_: None)
        assert same([loop.take_report() for loop in loops])
        assert same([loop.take_changes() for loop in loops])
        assert np.array_equal(*(loop.take_met() for loop in loops))


def lie(draw, session, lowest, step):
    """A sound probe of any content."""
    probe = np.zeros(1, ProbePacket)
    probe["magic"], probe["kind"], probe["use"] = MAGIC, draw.randrange(3), draw.randrange(256)
    probe["mesh_ms"], probe["row"] = draw.choice((0, 1, 65_535)), draw.getrandbits(32)
    probe["interval_us"] = draw.choice((1, 40_000, IDLE_US, IDLE_US + 1, (1 << 32) - 1))
    probe["session"] = session
    probe["sequence"] = min(lowest + draw.choice((step, step, step + 1, draw.randrange(260))), (1 << 62) - 1)
    probe["transmit_ns"] = [draw.choice((0, 5, -7, (1 << 62) - 1, 1 - (1 << 62))) for _ in range(4)]
    probe["peer_session"], probe["heard"] = draw.choice((0, 1)), draw.choice((-1, 0, 1, 2, (1 << 62) - 2))
    return probe


@needs_compiler
@pytest.mark.parametrize("seed", draws(8))
def test_both_turn_stamps_into_local_time_alike(seed, monkeypatch):
    """A clock that is slewed and stepped; to the nanosecond, as floats of another order may round the other way."""
    draw = random.Random(seed)
    raw_ns, realtime_ns = 10**15, 1_700_000_000 * 10**9
    monkeypatch.setattr(RealtimeMap, "reading", lambda _: CrossTimestamp(raw_ns, realtime_ns))
    ruler = compiled("host_clock").RealtimeMap(raw_ns, realtime_ns)
    loops, rate, steps = (RealtimeMap(), ruler), 0.0, 0
    for _ in range(40):
        rate = draw.choice((rate, draw.uniform(-5e-4, 5e-4)))
        span_ns = draw.choice((1 * MS, 40 * MS, 41 * MS, 700 * MS))
        raw_ns += span_ns
        realtime_ns += round(span_ns * (1 + rate)) + draw.choice((0,) * 9 + (10**9, -(10**9), 300 * MS, -300 * MS))
        for each in loops:
            each.add(CrossTimestamp(raw_ns, realtime_ns))
        steps += loops[0].stepped
        stamps_ns = np.array([realtime_ns - draw.randrange(900 * MS) for _ in range(8)], np.int64)
        one, other = (each.mapped(stamps_ns) for each in loops)
        assert np.abs(one - other).max() <= 1
    assert steps
