"""Which streams are probed how often: in use, of the clocks' mesh, and all others; and that both ends do the same."""

from __future__ import annotations

import numpy as np
import pytest

from foliot.clock import HostClock
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.rate import demand
from foliot_probe.core.rate.adaptive_rate import CALM, Sight
from foliot_probe.core.rate.clock_neighbours import Pair
from foliot_probe.core.rate.delay_density import DelayDensity
from foliot_probe.core.rate.demand import CODED_EVERY, Demand, StreamRate
from foliot_probe.core.stream_table import StreamKey, StreamTable
from foliot_probe.engine import Engine
from foliot_probe.reports import Reporter
from foliot_probe.settings import ProbeSettings
from foliot_schemas import ClockState, Nic, Node

SETTINGS = ProbeSettings()
NOBODY = np.zeros(64, np.int64)
IN_USE, SWEEP, SLOWEST = 1, 5, 8
"""In ticks of 40 ms: 25 probes a second, 5, and 3.125."""


def node(name, number):
    """A node with two NICs of four entropies."""
    nics = tuple(
        Nic(
            name=f"{name}.rail{rail}", rail=f"rail{rail}", device="lo", address="10.0.0.1", clock=name, service_address="10.97.0.1",
            path_addresses=tuple(f"10.{rail}.{entropy}.{number}" for entropy in range(4)), entropies=(1, 2, 3, 4),
        )
        for rail in range(2)
    )  # fmt: skip
    return Node(name=name, nics=nics, probe_port=7946)


class Wanted:
    """What a node with so many peers wants of its streams."""

    def __init__(self, peers, **settings):
        self.table = StreamTable(node("a", 1))
        self.demand = Demand(self.table, ProbeSettings(**settings))
        self.now = {}
        for number in range(peers):
            self.table.set_peer(node(f"p{number}", number + 2))
            self.demand.grow(len(self.table))
        self.demand.peers_changed()

    def rates(self, tick=0, peers_ms=None):
        """By key, after the changes of a tick."""
        peers_ms = np.zeros(len(self.table), np.int64) if peers_ms is None else peers_ms
        self.now |= {each.row: each for each in self.demand.changes(tick, peers_ms)}
        return {key: self.now[row] for key, row in self.table.rows.items()}

    def calm(self, windows):
        """So many windows in which all is quiet."""
        rows = len(self.table)
        quiet = DelayDensity(np.ones(rows), np.ones(rows), np.ones(rows, np.bool_))
        for _ in range(windows):
            self.demand.judge(Sight(quiet, np.full(rows, 25.0), np.ones(rows, np.bool_), True))


def of(rate):
    """Ticks between two probes, rounds between two coded pairs, and whether the path is in use."""
    return rate.every, rate.coded_every, rate.in_use


def test_in_use_mesh_and_sweep_have_rates_of_their_own():
    """Four streams to a neighbour, over both rails, as often as coded pairs are wanted; the rest is swept.

    A path in use keeps its rate.
    """
    wanted = Wanted(1)
    wanted.demand.set_in_use(frozenset({StreamKey("p0", "rail0", 0)}))
    now = wanted.rates()
    assert of(now["p0", "rail0", 0]) == (IN_USE, 1, True)
    assert {key for key, rate in now.items() if of(rate) == (1, 1, False)} == {
        ("p0", "rail0", 1), ("p0", "rail1", 0), ("p0", "rail1", 1),
    }  # fmt: skip
    assert {of(rate) for key, rate in now.items() if key.entropy > 1} == {(SWEEP, 0, False)}


def test_in_a_quiet_network_the_mesh_is_swept_with_coded_pairs():
    """What is in use is probed as fast as ever, with a coded pair every fourth time as ever.

    No stream is probed less than the sweep has it.
    """
    wanted = Wanted(1)
    wanted.demand.set_in_use(frozenset({StreamKey("p0", "rail0", 0)}))
    wanted.rates()
    wanted.calm(100)
    now = wanted.rates(1)
    assert of(now["p0", "rail0", 0]) == (IN_USE, CODED_EVERY, True)
    assert of(now["p0", "rail1", 0]) == (SWEEP, 2, False)
    assert of(now["p0", "rail1", 3]) == (SWEEP, 0, False)
    wanted = Wanted(1, sweep_hz=0.5)
    wanted.rates()
    wanted.calm(100)
    assert of(wanted.rates(1)["p0", "rail1", 0]) == (SLOWEST, 1, False)


def test_what_is_not_of_the_mesh_is_as_it_was():
    """Of twenty peers ten or a few more are neighbours.

    A path in use to one that is none has its coded pairs as ever, and is not of the mesh.
    """
    wanted = Wanted(20)
    wanted.demand.set_in_use(frozenset(key for key in wanted.table.rows if key.entropy == 0))
    now = wanted.rates()
    meshed = {wanted.table.ends[row].key.peer for row in np.flatnonzero(wanted.demand.meshed)}
    assert 10 <= len(meshed) <= 13
    for key, rate in now.items():
        if key.peer not in meshed:
            assert of(rate) == ((IN_USE, CODED_EVERY, True) if key.entropy == 0 else (SWEEP, 0, False))


def test_the_wish_of_either_end_holds():
    """The faster of the two; a stream that only the peer counts to the mesh is of the mesh."""
    wanted = Wanted(1)
    wanted.calm(100)
    wanted.rates()
    wanted.calm(100)
    peers_ms = np.zeros(len(wanted.table), np.int64)
    own, other = wanted.table.rows["p0", "rail0", 0], wanted.table.rows["p0", "rail0", 3]
    peers_ms[[own, other]] = 80
    now = wanted.rates(1, peers_ms)
    assert of(now["p0", "rail0", 0]) == of(now["p0", "rail0", 3]) == (2, 1, False)
    assert wanted.demand.meshed[[own, other]].all()
    assert wanted.demand.wish_ms[other] == 0
    now = wanted.rates(2)
    assert of(now["p0", "rail0", 3]) == (SWEEP, 0, False)
    assert of(now["p0", "rail0", 0]) == (SWEEP, 2, False)


def test_only_what_changes_is_said_and_neighbours_are_looked_for_once_a_second():
    """However many peers come at once."""
    wanted = Wanted(3)
    assert len(list(wanted.demand.changes(0, NOBODY))) == 24
    assert list(wanted.demand.changes(1, NOBODY)) == []
    wanted.table.set_peer(node("p9", 99))
    wanted.demand.peers_changed()
    row = wanted.table.rows["p9", "rail0", 0]
    assert StreamRate(row, SWEEP, 0, False) in list(wanted.demand.changes(2, NOBODY))
    assert list(wanted.demand.changes(24, NOBODY)) == []
    assert StreamRate(row, 1, 1, False) in list(wanted.demand.changes(25, NOBODY))


@pytest.mark.net
def test_what_one_end_counts_to_the_mesh_both_probe_for_it_and_nobody_is_accused(pair, monkeypatch):
    """The other follows its pace up and down.

    A path that nobody calls in use is never silent, and one in use keeps its patience.
    """
    one_sided = {"a": frozenset({Pair("a", "b")}), "b": frozenset()}
    monkeypatch.setattr(demand, "neighbours", lambda own, *_: one_sided[own.name])
    for end in pair.ends:
        end.demand.set_in_use(frozenset())
        end.demand.peers_changed()
    sent, coded = [[], []], []
    for tick in range(160):
        if tick == 60:
            for _ in range(100):
                calm = DelayDensity(np.ones(64), np.ones(64), np.ones(64, np.bool_))
                pair.ends[0].demand.judge(Sight(calm, np.full(64, 25.0), np.ones(64, np.bool_), True))
        for changes in pair.tick():
            assert not len(changes.fell)
        for each, end in zip(sent, pair.ends, strict=True):
            each.append(int(end.packets.take_report().sent[0]))
        coded.append(pair.ends[1].demand.meshed[0])
    assert pair.ends[1].demand.wish_ms[0] == 0
    assert all(coded[30:])
    for each in sent:
        assert sum(each[35:55]) == 45  # in every tick a pair, and in every fourth one of full size
        assert 22 <= sum(each[80:160]) <= 26  # every fifth tick, and of every two a pair
    assert all(end.packets.next_silence_ns() is None for end in pair.ends)
    for end in pair.ends:
        end.demand.set_in_use(frozenset(end.table.rows))
    for _ in range(10):
        pair.tick()
    pair.ends[0].listen(pair.now_ns)
    patience_ns = 3 * SETTINGS.tick_ms * 1_000_000 + 10_000_000
    assert 0 < pair.ends[0].packets.next_silence_ns() - pair.now_ns <= patience_ns


@pytest.mark.parametrize(("noise_ns", "pace_hz"), [(0.0, 3.125), (40.0, 25.0)])
def test_the_pace_follows_the_noise_that_sync_has_measured(noise_ns, pace_hz, monkeypatch):
    """Of least delays 60 ns apart over four streams, more tell more where stamps repeat to 40 ns.

    Until sync has measured, they are taken for noise.
    """
    monkeypatch.setenv("FOLIOT_NATIVE", "off")
    engine = Engine(node("a", 1), HostClock("a"), SETTINGS, 0)
    reporter = Reporter(engine, HostClock("a"), SETTINGS, 0)
    _, begun = engine.set_peer(node("b", 2))
    reporter.begin(begun)
    assert list(engine.demand.changes(100, engine.packets.peers_mesh_ms()))
    rows = np.flatnonzero(engine.demand.wish_ms)
    probes = Completed(
        np.repeat(rows, 50), np.arange(50 * len(rows)), np.zeros(50 * len(rows), np.int64), np.tile(60 * np.arange(50), len(rows))
    )  # fmt: skip
    take_report = engine.packets.take_report
    monkeypatch.setattr(engine.packets, "take_report", lambda: take_report()._replace(outgoing=probes, incoming=probes))
    for clock in "ab":
        state = ClockState(
            clock=clock, reference="a", offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0, as_of_ns=0, void_after_ns=1 << 62,
            status="synchronised", stamp_noise_ns=noise_ns,
        )  # fmt: skip
        reporter.set_clock(state)
    for _ in range(3 * CALM):
        assert list(reporter.delays(0))
        assert list(reporter.stamps())
    assert engine.demand.wish_ms[rows].tolist() == [round(1_000 / pace_hz)] * 4


@pytest.mark.net
def test_streams_outside_of_the_mesh_publish_no_stamps(pair, monkeypatch):
    """In use or not; as soon as either end counts them to it, they do."""
    neighbourly = {"a": frozenset(), "b": frozenset()}
    monkeypatch.setattr(demand, "neighbours", lambda own, *_: neighbourly[own.name])
    for end in pair.ends:
        end.demand.peers_changed()
    reporter = Reporter(pair.ends[0], HostClock("a"), SETTINGS, pair.now_ns)
    told = []
    for tick in range(120):
        if tick == 60:
            neighbourly["b"] = frozenset({Pair("b", "a")})
            pair.ends[1].demand.peers_changed()
        pair.tick()
        if tick % 10 == 9:
            assert list(reporter.delays(pair.now_ns))
            told.append([stream.path for batch in reporter.stamps() if batch for stream in batch.streams])
    assert told[3:6] == [[]] * 3
    assert told[-1] == ["a.rail0>b.rail0#0"]
