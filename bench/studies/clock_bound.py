"""The least error that the clock can have in each regime of kernels' stamps: a bound for any use of the same stamps.

It belongs to the best linear estimator that knows what no estimator is told: how delays are spread, and how restless
the clocks are. In a window, that one takes the ten lowest points of each direction, as many as a probe keeps. It weighs
them by their true covariances (Gauss and Markov; Lloyd, Biometrika 39, 1952). Over windows, it is the Gaussian process
that the simulated clocks are. It has no bias. A minimum filter has the same stamps, and its share of error is left.

    make bench NAME=clock-bound ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.clock_replay.chain import said_ns
from bench.clock_replay.recording import windows
from bench.clock_replay.regimes import REGIMES, simulate
from bench.clock_replay.rows import MIDDLE, NOW
from bench.clock_replay.tools import GuidedMinimumFilter
from bench.document import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.clock_replay.recording import Recording
    from bench.clock_replay.regimes import Regime
    from foliot_lab.simulate.clocks.oscillators import Crystal

    Floats = NDArray[np.float64]

_WINDOW_NS = 2_000_000_000
_LOWEST = 10
_VAGUE = 1e8
"""Prior variance of an offset in ns², and of a rate in ppb²: nothing is known of them."""
_MEAN_OF_NORMAL = float(np.sqrt(2 / np.pi))


class Cell(msgspec.Struct, kw_only=True):
    """A regime. Errors are means without their sign, in ns."""

    regime: str
    of: str
    windows: int
    minimum_ns: float
    """Of a minimum filter."""
    least_ns: float
    """Of the best linear estimator."""
    share: float
    """The second over the first."""
    window_ns: float
    """Standard deviation of the best estimate from one window alone."""


class _Seen(NamedTuple):
    """A recording: one row a window."""

    lowest: Floats
    """Lowest residuals above the true course, axes window, direction, rank."""
    wrong: Floats
    """Errors of the minimum filter, of the middle and of now."""


def _seen(recording: Recording) -> _Seen:
    truth = recording.truth
    assert truth is not None
    minimum = GuidedMinimumFilter(truth.at)
    lowest: list[list[Floats]] = []
    wrong: list[Floats] = []
    for window in windows(recording, _WINDOW_NS):
        forth = window.forth.delay_ns - truth.at(window.forth.transmit_ns)
        back = window.back.delay_ns + truth.at(window.back.receive_ns)
        said = minimum.window(window)
        middle_ns = (window.since_ns + window.until_ns) // 2
        moments = np.array([middle_ns, said_ns(window.until_ns, _WINDOW_NS) + _WINDOW_NS // 2])
        claims = [said.claim(int(at_ns)) for at_ns in moments]
        if min(len(forth), len(back)) >= _LOWEST and None not in claims:
            lowest.append([np.sort(each)[:_LOWEST] for each in (forth, back)])
            wrong.append(np.array([claim[0] for claim in claims if claim is not None]) - truth.at(moments))
    return _Seen(np.array(lowest), np.array(wrong))


def window_variance(lowest: Floats) -> float:
    """The variance of one window's best linear offset, of windows' lowest residuals (axes window, direction, rank)."""
    best: list[Floats] = []
    for direction in (0, 1):
        points = lowest[:, direction]
        weights = np.linalg.solve(np.cov(points.T), np.ones(points.shape[1]))
        best.append(points @ weights / weights.sum())
    return float(np.var((best[0] - best[1]) / 2, ddof=1))


def deviations(crystal: Crystal, variance: float, count: int, settle: int, ahead_s: float) -> Floats:
    """The deviations of two clocks' offset in a window's middle and `ahead_s` after it, in the mean of windows.

    Each is by all windows up to that one.

    Parameters:
        crystal: of either clock.
        variance: of a window's offset, in ns².
        count: windows.
        settle: windows before those that count.
        ahead_s: how long after the middle the value is used.
    """
    window_s = _WINDOW_NS / 1e9
    middle_s = window_s * (np.arange(count) + 0.5)
    at_s = np.concatenate((middle_s, middle_s + ahead_s))
    first, last = np.minimum(at_s[:, None], at_s), np.maximum(at_s[:, None], at_s)
    # An integrated random walk, of both clocks; the swing of both has any phase.
    covariance = 2 * crystal.wander_ppb**2 * (first**2 * last / 2 - first**3 / 6)
    turn = 2 * np.pi / crystal.swing_s
    swung = np.stack((np.sin(turn * at_s), -np.cos(turn * at_s))) / turn
    covariance += crystal.swing_ppb**2 * swung.T @ swung + _VAGUE * (1 + at_s[:, None] * at_s / 100)
    left: list[float] = []
    for number in range(settle, count):
        past = covariance[: number + 1, : number + 1] + variance * np.eye(number + 1)
        for place in (number, count + number):
            along = covariance[place, : number + 1]
            left.append(float(covariance[place, place] - along @ np.linalg.solve(past, along)))
    found: Floats = np.sqrt(np.reshape(left, (-1, 2)).mean(axis=0))
    return found


def cells(regime: Regime, seeds: Sequence[int], seconds: float, settle: int) -> list[Cell]:
    """The least errors that a regime allows, of a window's middle and of now."""
    every = [_seen(simulate(regime, seconds, seed)) for seed in seeds]
    variance = window_variance(np.concatenate([each.lowest for each in every]))
    count = max(len(each.wrong) for each in every)
    ahead_s = (said_ns(0, _WINDOW_NS) + _WINDOW_NS) / 1e9
    least = _MEAN_OF_NORMAL * deviations(regime.crystal, variance, count, settle, ahead_s)
    wrong = np.concatenate([each.wrong[settle:] for each in every])
    minimum = np.abs(wrong).mean(axis=0)
    return [
        Cell(
            regime=regime.name,
            of=of,
            windows=len(wrong),
            minimum_ns=round(float(minimum[place]), 1),
            least_ns=round(float(least[place]), 1),
            share=round(float(least[place] / minimum[place]), 2),
            window_ns=round(variance**0.5, 1),
        )
        for place, of in enumerate((MIDDLE, NOW))
    ]


def main() -> int:
    """Parses the command line, runs, prints a table."""
    made = argparse.ArgumentParser(prog="bench.clock_bound", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    made.add_argument("--json", type=Path, help="write the cells to this file")
    made.add_argument("--seeds", type=int, default=20, help="the first seeds (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=60.0, help="of each recording (default: %(default)s)")
    made.add_argument(
        "--settle", type=int, default=6, help="windows before those that are judged (default: %(default)s)"
    )
    made.add_argument("--only", nargs="+", help="regimes whose name has one of these words")
    arguments = made.parse_args()
    document = Document("clock-bound", arguments)
    every: list[Cell] = []
    print("mean error in ns: minimum filter, least possible, share; of one window alone: deviation in ns")
    for regime in REGIMES:
        if regime.kind == "kernel" and (not arguments.only or any(word in regime.name for word in arguments.only)):
            found = cells(regime, range(1, arguments.seeds + 1), arguments.seconds, arguments.settle)
            every += found
            shown = "".join(f"{each.of:>8} {each.minimum_ns:>6} {each.least_ns:>6} {each.share:>5}" for each in found)
            print(f"{regime.name:<30}{shown}   {found[0].window_ns:>6}", flush=True)
    if arguments.json:
        document.write(arguments.json, every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
