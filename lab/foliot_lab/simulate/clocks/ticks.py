"""Simulated stamps of nodes that send in ticks, where the first packet of a tick takes longer: caches are cold for it.

The schedule and the order of sending are the probe's own. Packets leave one behind the other, and only the stream that
is asked for is stamped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot_lab.simulate.clocks.oscillators import SECOND_NS
from foliot_probe.core.rate.send_order import of_tick, send_order
from foliot_probe.core.rate.send_schedule import SendSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Times = NDArray[np.int64]

_TICK_NS = 40_000_000
"""As of a probe by default."""
_LATE_NS = 1_000_000
"""By up to this much, a tick begins late."""
_APART_NS = 5_000
"""Between two packets of a tick."""
_FLOOR_NS = 2_000
_FULL_EVERY = 4
"""As of a probe by default."""


class Probed(NamedTuple):
    """A stream of a node."""

    place: int
    """Its socket."""
    every: int = 1
    """Ticks between two probes; 1 in use, 5 in the sweep, by default."""
    coded_every: int = 4
    """Rounds between two coded pairs; 0: none, as of a stream that is not of the clocks' mesh."""


class Work(NamedTuple):
    """A packet's time in ns from one stamp to the other beside the wire: a least, and a gamma distribution above it."""

    least_ns: float
    shape: float
    mean_ns: float

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.float64]:
        """The times of some packets."""
        taken: NDArray[np.float64] = self.least_ns + random.gamma(self.shape, self.mean_ns / self.shape, count)
        return taken


class Machine(NamedTuple):
    """A host: the first packet of a tick, all later ones, and the noise of its stamps."""

    first: Work
    later: Work
    noise_ns: float


SLOW = Machine(Work(180.0, 2.2, 1_600.0), Work(90.0, 5.0, 300.0), 20.0)
"""As of the recorded virtual machine whose clock takes 400 ns to read, without load."""
QUICK = Machine(Work(60.0, 2.0, 40.0), Work(20.0, 2.0, 40.0), 10.0)
"""A guess: the caches of a machine that is several times quicker cost half as much."""


def stamps(
    streams: Sequence[Probed], machine: Machine, seconds: float, random: np.random.Generator
) -> tuple[Times, Times]:
    """Transmit and receive stamps of a node's first stream in the order of sending, by a clock that both ends share.

    Probes of full size are left out, as a probe does.
    """
    schedule, places = SendSchedule(len(streams), _FULL_EVERY), 1 + max(stream.place for stream in streams)
    for row, stream in enumerate(streams):
        schedule.begin(row, stream.every, 0)
        schedule.change(row, stream.every, 0, in_use=stream.every == 1, coded_every=stream.coded_every)
    place = np.array([stream.place for stream in streams], np.intp)
    left: list[float] = []
    is_first: list[bool] = []
    for tick in range(1, int(seconds * SECOND_NS / _TICK_NS)):
        due, coded, full = schedule.due(tick)
        if not len(due):
            continue
        probes = of_tick(due, coded, full, len(streams))
        socket = place[probes.row]
        order, begins = send_order(probes, socket, len(due), random)
        leaving = order[np.argsort((socket[order] - begins) % places, kind="stable")]
        began_ns = tick * _TICK_NS + random.random() * _LATE_NS
        for position in np.flatnonzero(((probes.row == 0) & ~probes.padded)[leaving]).tolist():
            left.append(began_ns + position * _APART_NS)
            is_first.append(position == 0)
    took_ns = np.where(is_first, machine.first.draw(len(left), random), machine.later.draw(len(left), random))
    sent_ns = np.array(left)
    noise_ns = random.normal(0, machine.noise_ns, (2, len(left)))
    received_ns = sent_ns + _FLOOR_NS + took_ns + noise_ns[1]
    return np.rint(sent_ns + noise_ns[0]).astype(np.int64), np.rint(received_ns).astype(np.int64)
