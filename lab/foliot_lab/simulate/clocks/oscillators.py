"""Simulated clocks whose course is known exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SECOND_NS = 1_000_000_000
STEP_NS = 100_000_000
"""The time for which a clock's rate stays constant."""
_KEPT_NS = 8 * SECOND_NS
_BEFORE_NS = 4 * SECOND_NS


class Crystal(msgspec.Struct, frozen=True, kw_only=True):
    """The spread and steadiness of clocks. Each value is uniform between plus and minus."""

    offset_ms: float = 20.0
    drift_ppb: float = 30_000.0
    """Huygens (NSDI '18) saw 30 ppm at most."""
    wander_ppb: float = 1.0
    """Random walk of the rate, per square root of a second. It is an Allan deviation of 6e-10 at 1 s and 6e-9 at 100
    s. Those are values of a server's quartz at a steady temperature."""
    swing_ppb: float = 50.0
    """Amplitude of the rate with the temperature: up and down once in `swing_s`, each clock at a phase of its own."""
    swing_s: float = 600.0


class Oscillators:
    """Clocks by number. Their courses are made as time goes on; only the last seconds are kept.

    Parameters:
        count: the number of clocks.
        crystal: their spread and steadiness.
        random: the random source.
        heat: by how many ppb the temperature makes each clock faster at these times (in s), a row a clock; None: not at
            all.
    """

    def __init__(
        self,
        count: int,
        crystal: Crystal,
        random: np.random.Generator,
        heat: Callable[[Floats], Floats] | None = None,
    ) -> None:
        self._crystal, self._random, self._heat = crystal, random, heat
        self._rate_ppb = random.uniform(-crystal.drift_ppb, crystal.drift_ppb, count)
        self._phase = random.uniform(0, 2 * np.pi, count)
        # CLOCK_MONOTONIC_RAW counts from the boot of each host: anything up to months.
        self.boot_ns: NDArray[np.int64] = random.integers(10, 10_000_000, count) * SECOND_NS
        self._first_ns = -_BEFORE_NS
        self._gained_ns = random.uniform(-crystal.offset_ms, crystal.offset_ms, (count, 1)) * 1e6

    def run_to(self, true_ns: int) -> None:
        """Makes the courses up to a time, and discards the part long before it."""
        steps = max(0, 1 + (true_ns - self._end_ns) // STEP_NS)
        step_s = STEP_NS / SECOND_NS
        shocks = self._random.normal(0, self._crystal.wander_ppb * step_s**0.5, (len(self._rate_ppb), steps))
        walk = self._rate_ppb[:, None] + shocks.cumsum(axis=1)
        at_s = (self._end_ns + STEP_NS * np.arange(steps)) / SECOND_NS
        turns = 2 * np.pi * at_s / self._crystal.swing_s
        swing = self._crystal.swing_ppb * np.sin(turns + self._phase[:, None])
        if self._heat is not None:
            swing += self._heat(at_s)
        gained_ns = self._gained_ns[:, -1:] + ((walk + swing) * step_s).cumsum(axis=1)
        if steps:
            self._rate_ppb = walk[:, -1]
        self._gained_ns = np.concatenate((self._gained_ns, gained_ns), axis=1)
        stale = max(0, (true_ns - _KEPT_NS - self._first_ns) // STEP_NS)
        self._gained_ns = self._gained_ns[:, stale:]
        self._first_ns += stale * STEP_NS

    def step(self, clock: int, true_ns: int, by_ns: float) -> None:
        """Sets a clock forward at a true time, within one `STEP_NS`.

        The courses must not have been read past that time.
        """
        self.run_to(true_ns + STEP_NS)
        self._gained_ns[clock, -(-(true_ns - self._first_ns) // STEP_NS) :] += by_ns

    def local_ns(self, clock: NDArray[np.intp], true_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The clocks' local times at true times, which lie within the last seconds before the end of the courses."""
        since_ns = true_ns - self._first_ns
        place = since_ns // STEP_NS
        share = (since_ns - place * STEP_NS) / STEP_NS
        before, after = self._gained_ns[clock, place], self._gained_ns[clock, place + 1]
        gained: NDArray[np.int64] = np.rint(before + share * (after - before)).astype(np.int64)
        return true_ns + gained + self.boot_ns[clock]

    def __len__(self) -> int:
        """The number of clocks."""
        return len(self.boot_ns)

    @property
    def _end_ns(self) -> int:
        return self._first_ns + STEP_NS * (int(self._gained_ns.shape[1]) - 1)
