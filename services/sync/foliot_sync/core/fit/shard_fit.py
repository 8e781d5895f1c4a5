"""A shard's computations: from the batches of a window to estimates of its pairs of clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_schemas import HeardNode
from foliot_schemas.names import is_nic_clock
from foliot_sync.asymmetry import Asymmetries
from foliot_sync.core import arrays
from foliot_sync.core.arrays import take
from foliot_sync.core.clock_numbers import ClockNumbers
from foliot_sync.core.fit.delay_floor import DelayFloors
from foliot_sync.core.fit.delay_tails import DelayTails
from foliot_sync.core.fit.pair_estimate import PairEstimates, measure
from foliot_sync.core.fit.point_clouds import gather
from foliot_sync.core.fit.reassembly import Reassembly
from foliot_sync.core.lasting_misfit import LastingMisfits
from foliot_sync.core.limits import RATE_LIMIT_PPB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot_schemas.observation import StampBatch
    from foliot_sync.core.arrays import Ints, Mask
    from foliot_sync.core.fit.delay_tails import TailShapes
    from foliot_sync.core.fit.pair_estimate import Misfits, Widths
    from foliot_sync.core.fit.point_clouds import PointClouds
    from foliot_sync.core.fit.reassembly import Arrival
    from foliot_sync.settings import SyncSettings


NO_MATHEMATICS = (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError)
"""Errors of computations with numbers that fit into none."""


class Fits(NamedTuple):
    """The fits of one window of some nodes."""

    clocks: tuple[str, ...]
    """Names of the clocks that the pairs have, by number."""
    pairs: PairEstimates | None
    """None: no two clocks heard each other."""
    heard: tuple[HeardNode, ...]


def merged_pairs(parts: Iterable[Fits], numbers: ClockNumbers) -> PairEstimates | None:
    """The pairs of all parts, their clocks numbered by `numbers`; None if there are none."""
    found: list[PairEstimates] = []
    for part in parts:
        if part.pairs is not None:
            clock = np.fromiter(map(numbers.__getitem__, part.clocks), np.int64, len(part.clocks))
            ends = clock[part.pairs.initiator], clock[part.pairs.responder]
            found.append(part.pairs._replace(initiator=ends[0], responder=ends[1]))
    if not found:
        return None
    return arrays.joined(found)


class _Shown(NamedTuple):
    """What the streams of a window have shown, one row each."""

    stream: Ints
    trusted: Mask
    """Whether its clocks were as their last states had them."""
    widths: Widths
    shapes: TailShapes
    misfits: Misfits


class ShardFit:
    """Fits the pairs of the nodes whose batches it is given, one window after another."""

    def __init__(self, settings: SyncSettings) -> None:
        self._settings = settings
        self._reassembly = Reassembly(settings.window_ns)
        self._numbers = ClockNumbers()
        self._names: list[str] = []
        self._is_nic = np.zeros(0, dtype=bool)
        """The clocks that are in NICs, by number."""
        self._floors = DelayFloors()
        self._tails = DelayTails()
        self._asymmetries = Asymmetries(settings.asymmetry_ns)
        self._misfits = LastingMisfits()
        self._last: _Shown | None = None
        """Of the last window's streams that a straight line fitted, not yet learnt."""

    def add(self, batch: StampBatch, arrived_ns: int) -> bool:
        """Takes in a batch for the next `close`: see `Reassembly.add`."""
        return self._reassembly.add(batch, arrived_ns)

    def close(self, now_ns: int) -> Fits:
        """Fits the batches since the last call."""
        return self.fit(self.take(), now_ns)

    def take(self) -> list[Arrival]:
        """The batches since the last time."""
        return self._reassembly.take()

    def fit(self, arrivals: Sequence[Arrival], now_ns: int) -> Fits:
        """Fits batches that were taken; others may be added meanwhile."""
        clouds = gather([each.batch for each in arrivals], self._numbers.__getitem__, self._settings.tolerated_share)
        pairs: PairEstimates | None = None
        clocks: tuple[str, ...] = ()
        if clouds is not None:
            rows = self._floors.rows(self._remembered_by(clouds))
            # A probe knows how fast its clocks run as long as their last state has not been contradicted.
            trusted = (clouds.most_ppb - clouds.least_ppb < RATE_LIMIT_PPB)[clouds.pair]
            self._learn(rows[trusted])
            clouds = clouds.with_noise(self._floors.noise_ns(rows))
            pairs, widths, shapes, misfits = measure(
                clouds,
                rows,
                self._floors,
                self._tails,
                self._settings,
                longer_ns=self._asymmetries.of(clouds.paths),
                lasting_ns=self._misfits.of(rows),
            )
            self._last = take(_Shown(rows, trusted, widths, shapes, misfits), ~pairs.torn[clouds.pair])
            pairs, clocks = self._among(pairs)
        latest = {
            batch.node: HeardNode(
                node=batch.node,
                until_ns=batch.until_ns,
                since_ns=now_ns - arrived_ns,
                epoch_ns=batch.epoch_ns,
                utc_error_ns=batch.utc_error_ns,
                tai_offset_s=batch.tai_offset_s,
                leap_s=batch.leap_s,
                leap_utc_ns=batch.leap_utc_ns,
                monotonic_ns=batch.monotonic_ns,
                monotonic_ppb=batch.monotonic_ppb,
            )
            for batch, arrived_ns in arrivals
        }
        return Fits(clocks, pairs, tuple(latest.values()))

    def _remembered_by(self, clouds: PointClouds) -> Sequence[str]:
        """What each stream is remembered by: its path and, where a clock in a NIC stamps, its clocks.

        NICs' stamps leave out what the hosts take, so a path's floor by them is another one than by the kernels'.
        """
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
            self._is_nic = np.array([is_nic_clock(name) for name in self._names])
        by_nic = (self._is_nic[clouds.initiator] | self._is_nic[clouds.responder])[clouds.pair]
        if not by_nic.any():
            return clouds.paths
        keys = list(clouds.paths)
        for stream in np.flatnonzero(by_nic).tolist():
            pair = clouds.pair[stream]
            ends = self._names[clouds.initiator[pair]], self._names[clouds.responder[pair]]
            keys[stream] = " ".join((keys[stream], *ends))
        return keys

    def _among(self, pairs: PairEstimates) -> tuple[PairEstimates, tuple[str, ...]]:
        """The pairs with numbers for only their own clocks, and the names of those."""
        used, ends = np.unique(np.concatenate((pairs.initiator, pairs.responder)), return_inverse=True)
        initiator, responder = np.split(ends, 2)
        return pairs._replace(initiator=initiator, responder=responder), tuple([self._names[clock] for clock in used])

    def _learn(self, trusted: Ints) -> None:
        """Remembers what the last window's streams have shown.

        But not those of clocks that turned out to have been stepped or slewed in it. These are wrong.
        """
        if self._last is not None:
            sure = np.isin(self._last.stream, trusted) | ~self._last.trusted
            shown = take(self._last, sure)
            self._floors.learn(shown.stream, *shown.widths)
            self._tails.learn(shown.stream, shown.shapes)
            compared = take(shown, shown.misfits.compared)
            self._misfits.learn(compared.stream, compared.misfits.off, compared.misfits.variance)
