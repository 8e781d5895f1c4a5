"""Clocks that run at known rates with a time scale that follows them: thousands of windows in a second."""

from __future__ import annotations

import numpy as np

from foliot_schemas.observation import StampBatch, StampRow
from foliot_sync.core.timescale.steering import Timescale
from foliot_sync.core.timescale.time_map import Seen
from foliot_sync.core.track.kalman import ClockTracks
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND
WINDOW_S = 2.0
_SETTLED_S = 4.0
"""No clock but the first is called synchronised before."""


class Steered:
    """Measured against the first clock, to some noise.

    `utc` is what hosts that have UTC take it for, less the truth, and what they say they may be off by; the others'
    CLOCK_REALTIME is off by milliseconds.
    """

    def __init__(self, rates_ppb, seed=1, **settings):
        self.rates_ppb = np.array(rates_ppb, np.float64)
        self.random = np.random.default_rng(seed)
        self.time_map = Timescale(SyncSettings(**settings))
        self.names = [f"node{number}" for number in range(len(rates_ppb))]
        self.synchronised = np.ones(len(rates_ppb), bool)
        self.utc = {}
        self.true_s = 0.0
        self.boot_ns = self.random.integers(10**12, 10**15, len(rates_ppb))

    def local_ns(self):
        """What the clocks show."""
        return self.boot_ns + np.rint(self.true_s * (SECOND + self.rates_ppb)).astype(np.int64)

    def measured_ns(self):
        """What they are measured in: the time by the first."""
        return int(EPOCH + self.local_ns()[0] - self.boot_ns[0])

    def host(self, number):
        """A host's CLOCK_REALTIME, what it says that this may be off UTC by, and its kernel's other words."""
        off_ns, error_ns = self.utc.get(number, (1e6 * (number - 1), -1))
        return EPOCH + round(self.true_s * SECOND + off_ns), error_ns, {}

    def window(self):
        """Two seconds pass."""
        self.true_s += WINDOW_S
        count, local_ns, measured_ns = len(self.names), self.local_ns(), self.measured_ns()
        noise_ns = np.rint(self.random.normal(0, 20, count)).astype(np.int64)
        noise_ns[0] = 0
        drift_ppb = ((1 + self.rates_ppb[0] / SECOND) / (1 + self.rates_ppb / SECOND) - 1) * SECOND
        zero, windows = np.zeros(count), np.full(count, 9)
        tracks = ClockTracks.unknown(count, 0.0)._replace(
            as_of_ns=local_ns, offset_ns=measured_ns - local_ns + noise_ns, drift_ppb=drift_ppb, p00=zero, p11=zero,
            hard_ns=zero, measured_ns=local_ns, windows=windows,
        )  # fmt: skip
        for number, name in enumerate(self.names):
            wall_ns, error_ns, word = self.host(number)
            self.time_map.realtime.hear(
                StampBatch.of(
                    np.empty(0, StampRow), node=name, since_ns=0, until_ns=int(local_ns[number]),
                    epoch_ns=wall_ns - int(local_ns[number]), streams=(), utc_error_ns=error_ns, **word,
                )
            )  # fmt: skip
        synchronised = self.synchronised.copy()
        if self.true_s < _SETTLED_S:
            synchronised[1:] = False
        seen = Seen(self.names, tracks, np.full(count, 50.0), np.ones(count, bool), synchronised, 0)
        self.time_map.follow(seen, measured_ns, WINDOW_S)

    def run(self, windows):
        """Many; by how much the common time was ahead of true time after each."""
        ahead = []
        for _ in range(windows):
            self.window()
            ahead.append(self.ahead_ns())
        return np.array(ahead)

    def ahead_ns(self):
        """By how much the common time is ahead of true time."""
        return self.time_map.time_map.of(self.measured_ns()) - EPOCH - round(self.true_s * SECOND)

    def pace_ppb(self):
        """By how much it runs faster than true time."""
        own, steered = self.rates_ppb[0], self.time_map.time_map.rate_ppb
        return float(own + steered + own * steered / SECOND)
