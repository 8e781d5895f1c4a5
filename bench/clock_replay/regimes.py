"""Simulated recordings of two clocks, whose truth is known.

Stamps are NICs' and kernels', quick and slow, with queues of heavy tails and processors that sleep.

Kernels' stamps may be in coarse ticks, bursts may come together (incast), and a NIC may be longer one way.
Queues are exact: bursts arrive by chance, and each is served at the link's rate. A probe waits for the queue that it
finds (Lindley, 1952).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.clock_replay.recording import Direction, Recording, Truth
from foliot_lab.simulate.clocks.oscillators import SECOND_NS, Crystal, Oscillators
from foliot_schemas.observation import StampKind  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Times = NDArray[np.int64]

_FLOOR_NS = 2_000.0
_PAIR_GAP_NS = 10_000
_SLOT_S = 0.1
"""For so long a link keeps its load, and a machine its pace."""
_STEADINESS = 8.0
"""Of a link's load: the sum of the parameters of its beta distribution, as of the simulated fabric (`foliot_lab`)."""
_MOST_LOAD = 0.97
_MAP_NS = 20_000_000
"""Between two readings of CLOCK_REALTIME against CLOCK_MONOTONIC_RAW, which a probe makes in each tick."""
_OUTLIER_NS = 100.0
_MS = 1_000_000
_STEP_NS = 100 * _MS


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The time of both ends' machines from one stamp of a probe to the other, beside the wire: a gamma distribution."""

    shape: float
    """1: many probes at the floor. 2 and more: few, as where each of several steps is now and then slow."""
    mean_ns: float
    uneven: float = 0.3
    """Deviation of the logarithm of the mean from one tenth of a second to the next: other work comes and goes."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Cross traffic on the one narrow link of a direction."""

    share: float = 0.0
    gbps: float = 25.0
    burst_kb: float = 64.0
    pareto: float = 0.0
    """Index of the tail of bursts' lengths, at most 20 times the mean long; 0: exponential."""
    incast: int = 1
    """Bursts that come at the same moment, each from a sender of its own."""


class Regime(msgspec.Struct, frozen=True, kw_only=True):
    """Where two clocks are measured."""

    name: str
    kind: StampKind
    pairs_hz: float = 50.0
    """Coded pairs a second, each way."""
    noise_ns: float = 4.0
    """Of a stamp, standard deviation."""
    resolution_ns: int = 1
    """Stamps are whole multiples of this, rounded down."""
    outlier_share: float = 0.0
    """Of transmit stamps, wrong by up to 100 ns."""
    map_ns: float = 0.0
    """Of a reading of CLOCK_REALTIME against CLOCK_MONOTONIC_RAW, standard deviation; between two readings stamps are
    off in a straight line."""
    forth: Load = Load()
    back: Load = Load()
    longer_ns: float = 0.0
    """By how much a probe takes longer out of a's NIC than into it, for good."""
    told: bool = False
    """Whether sync is told of that."""
    work: tuple[Work, Work] | None = None
    """Forth and back."""
    asleep: float = 0.0
    """Of probes, how many find a processor asleep, which takes some microseconds to wake."""
    wake_ns: float = 3_000.0
    crystal: Crystal = Crystal()


_NIC = {"kind": "hardware", "resolution_ns": 4, "outlier_share": 0.02, "pairs_hz": 100.0}
_QUICK = {"kind": "kernel", "noise_ns": 10.0, "map_ns": 5.0, "work": (Work(shape=2.0, mean_ns=40.0, uneven=0.1),) * 2}
_SLOW = {"kind": "kernel", "noise_ns": 20.0, "map_ns": 25.0, "work": (Work(shape=2.2, mean_ns=1_800.0),) * 2}
_ASYMMETRIC = {**_NIC, "longer_ns": 300.0}
_SETTLED = {"pairs_hz": 3.125}
"""The pace of a stream of a quiet network (`mesh_least_hz` of the probe). Those of the other regimes are of
several loaded streams."""
_ARM_TICK, _HYPER_V_TICK = {"resolution_ns": 40}, {"resolution_ns": 100}
"""Of a counter of 25 MHz, as Arm's generic timer may have (1 to 50 MHz, by Arm's guide). Of Hyper-V's reference time
(its functional specification)."""
_STEADY = Crystal(wander_ppb=0.1, swing_ppb=0.0)
REGIMES = tuple(
    msgspec.convert({**base, "name": name, **more}, Regime)
    for name, base, more in (
        ("NIC, idle", _NIC, {}),
        ("NIC, 60 %", _NIC, {"forth": Load(share=0.6), "back": Load(share=0.6)}),
        ("NIC, 80 %", _NIC, {"forth": Load(share=0.8), "back": Load(share=0.8)}),
        ("NIC, 80 %, Pareto", _NIC, {"forth": Load(share=0.8, pareto=1.5), "back": Load(share=0.8, pareto=1.5)}),
        ("NIC, 90 % one way", _NIC, {"forth": Load(share=0.9)}),
        ("NIC, incast", _NIC, {"forth": Load(share=0.6, incast=32)}),
        ("NIC, 3.125 a second", _NIC, _SETTLED),
        ("NIC, 300 ns longer one way", _ASYMMETRIC, {}),
        ("NIC, 300 ns longer, told", _ASYMMETRIC, {"told": True}),
        ("quick kernel, idle", _QUICK, {}),
        ("quick kernel, 3.125 a second", _QUICK, _SETTLED),
        ("quick kernel, ticks of 40 ns", _QUICK, _ARM_TICK),
        ("quick kernel, asleep", _QUICK, {"asleep": 0.9}),
        ("quick kernel, 1 Gb/s 60 %", _QUICK, {"forth": Load(share=0.6, gbps=1.0), "back": Load(share=0.6, gbps=1.0)}),
        ("quick kernel, 1 Gb/s Pareto", _QUICK,
         {"forth": Load(share=0.6, gbps=1.0, pareto=1.5), "back": Load(share=0.6, gbps=1.0, pareto=1.5)}),
        ("quick kernel, 1 Gb/s incast", _QUICK, {"forth": Load(share=0.6, gbps=1.0, incast=32)}),
        ("quick kernel, 80 % one way", _QUICK, {"forth": Load(share=0.8, gbps=1.0)}),
        ("slow kernel, idle", _SLOW, {}),
        ("slow kernel, 3.125 a second", _SLOW, _SETTLED),
        ("slow kernel, ticks of 100 ns", _SLOW, _HYPER_V_TICK),
        ("slow kernel, one clock", _SLOW,
         {"crystal": Crystal(drift_ppb=0.0, wander_ppb=0.0, swing_ppb=0.0), "map_ns": 0.0}),
        ("slow kernel, exact map", _SLOW, {"map_ns": 0.0}),
        ("slow kernel, steady clocks", _SLOW, {"crystal": _STEADY}),
        ("slow kernel, second is quick", _SLOW,
         {"work": (Work(shape=2.2, mean_ns=1_800.0), Work(shape=5.0, mean_ns=340.0))}),
        ("slow kernel, asleep", _SLOW, {"asleep": 0.9}),
        ("slow kernel, 1 Gb/s 60 %", _SLOW, {"forth": Load(share=0.6, gbps=1.0), "back": Load(share=0.6, gbps=1.0)}),
        ("slow kernel, 80 % one way", _SLOW, {"forth": Load(share=0.8, gbps=1.0)}),
    )
)  # fmt: skip


class _End(NamedTuple):
    """A host."""

    shown: Callable[[Times], Times]
    """Its clock at true times."""
    off_ns: Callable[[Times], Floats]
    """How far stamps made at true times are off, as readings of its two system clocks were."""


def simulate(regime: Regime, seconds: float, seed: int) -> Recording:
    """The stamps of a regime."""
    random = np.random.default_rng(seed)
    clocks = Oscillators(2, regime.crystal, random)
    clocks.boot_ns = np.full(2, 1_000 * SECOND_NS)
    local = _courses(clocks, seconds)
    ends = [_End(each, _mapped(regime.map_ns, seconds, random)) for each in local]
    found = [_direction(regime, number, seconds, ends, random) for number in (0, 1)]
    at_ns = np.arange(0, int((seconds + 6) * SECOND_NS), _STEP_NS, dtype=np.int64)
    shown = [each(at_ns) for each in local]
    truth = Truth("file", shown[0], (shown[1] - shown[0]).astype(np.float64))
    return Recording(regime.name, found[0], found[1], truth)


def _courses(clocks: Oscillators, seconds: float) -> list[Callable[[Times], Times]]:
    """The local time of each clock at true times."""
    at_ns = np.arange(0, int((seconds + 8) * SECOND_NS), _STEP_NS, dtype=np.int64)
    gained: list[list[Times]] = [[], []]
    for part in np.array_split(at_ns, len(at_ns) // 20 + 1):
        clocks.run_to(int(part[-1]) + SECOND_NS)
        for number in (0, 1):
            gained[number].append(clocks.local_ns(np.full(len(part), number), part) - part)
    columns = [np.concatenate(each) for each in gained]

    def course(column: Times) -> Callable[[Times], Times]:
        def shown(true_ns: Times) -> Times:
            more = np.interp(
                true_ns.astype(np.float64), at_ns.astype(np.float64), (column - column[0]).astype(np.float64)
            )
            found: Times = true_ns + column[0] + np.rint(more).astype(np.int64)
            return found

        return shown

    return [course(column) for column in columns]


def _mapped(noise_ns: float, seconds: float, random: np.random.Generator) -> Callable[[Times], Floats]:
    """By how much stamps made at true times are off, as readings of the two system clocks were."""
    at_ns = np.arange(0, int((seconds + 8) * SECOND_NS), _MAP_NS, dtype=np.float64)
    # Drawn without noise too: a regime that differs in nothing else then has the same queues.
    off = random.normal(0, 1, len(at_ns)) * noise_ns

    def wrong(true_ns: Times) -> Floats:
        found: Floats = np.interp(true_ns.astype(np.float64), at_ns, off)
        return found

    return wrong


def _direction(
    regime: Regime, number: int, seconds: float, ends: Sequence[_End], random: np.random.Generator
) -> Direction:
    count = int(seconds * regime.pairs_hz)
    first = (np.arange(count) + random.random(count)) / regime.pairs_hz * SECOND_NS
    first = np.sort(first)
    sent_ns = np.rint(np.concatenate((first, first + _PAIR_GAP_NS))).astype(np.int64)
    sent_ns.sort()
    load = (regime.forth, regime.back)[number]
    took = np.full(len(sent_ns), _FLOOR_NS + (regime.longer_ns, 0.0)[number]) + _waits(load, sent_ns, seconds, random)
    if regime.work is not None:
        work = regime.work[number]
        slots = np.exp(random.normal(0, work.uneven, int(seconds / _SLOT_S) + 2))
        pace = slots[(sent_ns / (_SLOT_S * SECOND_NS)).astype(np.int64)]
        took += random.gamma(work.shape, work.mean_ns / work.shape, len(sent_ns)) * pace
    woken = random.random(len(sent_ns)) < regime.asleep
    took += np.where(woken, random.exponential(regime.wake_ns, len(sent_ns)), 0.0)
    came_ns = sent_ns + np.rint(took).astype(np.int64)
    sender, receiver = ends[number], ends[1 - number]
    stamps = [
        _stamped(regime, at_ns, end, random, transmit=transmit)
        for at_ns, end, transmit in ((sent_ns, sender, True), (came_ns, receiver, False))
    ]
    return Direction(stamps[0], stamps[1])


def _stamped(regime: Regime, at_ns: Times, end: _End, random: np.random.Generator, *, transmit: bool) -> Times:
    wrong = random.normal(0, regime.noise_ns, len(at_ns)) + end.off_ns(at_ns)
    if transmit:
        chosen = random.random(len(at_ns)) < regime.outlier_share
        wrong += np.where(chosen, random.uniform(-_OUTLIER_NS, _OUTLIER_NS, len(at_ns)), 0.0)
    read: Times = end.shown(at_ns) + np.rint(wrong).astype(np.int64)
    return read // regime.resolution_ns * regime.resolution_ns


def _waits(load: Load, at_ns: Times, seconds: float, random: np.random.Generator) -> Floats:
    """The waiting times of probes that come at these times."""
    if not load.share:
        return np.zeros(len(at_ns))
    mean_ns = load.burst_kb * 8_000 / load.gbps
    slots = random.beta(load.share * _STEADINESS, (1 - load.share) * _STEADINESS, int(seconds / _SLOT_S) + 2)
    slots = np.minimum(slots, _MOST_LOAD)
    counts = random.poisson(slots * _SLOT_S * SECOND_NS / mean_ns / load.incast)
    begins = np.repeat(np.arange(len(slots)) * _SLOT_S * SECOND_NS, counts)
    came_ns = np.sort(begins + random.random(len(begins)) * _SLOT_S * SECOND_NS).repeat(load.incast)
    length = _bursts(load, len(came_ns), random) * mean_ns
    # Work that has come less time that has passed; what stands there is how far that is above its least so far.
    behind = length.cumsum()
    before = np.minimum.accumulate(np.minimum(behind - length - came_ns, 0.0))
    last = np.searchsorted(came_ns, at_ns) - 1
    stands: Floats = np.where(last >= 0, behind[last] - at_ns - before[last], 0.0)
    return np.where(stands > 0, stands, 0.0)


def _bursts(load: Load, count: int, random: np.random.Generator) -> Floats:
    """Lengths, 1 in the mean."""
    if not load.pareto:
        return random.exponential(1.0, count)
    drawn = np.minimum(1 + random.pareto(load.pareto, count), 60.0)
    lengths: Floats = drawn / drawn.mean()
    return lengths
