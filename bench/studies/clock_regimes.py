"""The clock's chain on good and bad stamps: NICs' and kernels', quick machines and slow ones, with queues and without.

Simulated recordings of two clocks (`bench.clock_replay.regimes`), whose truth is known, are replayed as recorded ones
are. A minimum filter and a model of chrony have the same stamps. An exchange of chrony's is a probe and the next one
back, since nobody answers a probe here. With --variants, parts of the chain are what they were before noise was
measured, one at a time, so that each one's share shows. Files of recordings may be given too.

    make bench NAME=clock-regimes ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.clock_replay.recording import BadRecordingError, read
from bench.clock_replay.regimes import REGIMES, simulate
from bench.clock_replay.rows import CHRONY, FOLIOT, MIDDLE, MINIMUM, NOW, replay
from bench.clock_sim import Tool
from bench.document import Document
from bench.studies.clock_ablation import TOOLS as PARTS
from foliot_probe.core.packet import KINDS
from foliot_sync.settings import SyncSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bench.clock_replay.recording import Recording
    from bench.clock_replay.regimes import Regime
    from bench.clock_replay.rows import Row
    from foliot_schemas.observation import StampKind
    from foliot_sync.core.fit.delay_floor import DelayFloors
    from foliot_sync.core.fit.delay_tails import DelayTails
    from foliot_sync.core.track import kalman

    Floats = NDArray[np.float64]

_WINDOW_NS = 2_000_000_000
_NEVER_WORSE, _WHERE_ANYTHING_QUEUES, _BOUND_TIMES = 1.1, 0.5, 4.0
"""Goals: the most that the error may be as a share of a minimum filter's, everywhere and under load. The bound as a
multiple of the p99."""


def _as_seen(first: Floats, second: Floats, _usual: Floats) -> tuple[Floats, Floats]:
    """A few gaps are enough to tell the two directions apart."""
    return first, second


def _unlifted(_tails: DelayTails, rows: NDArray[np.int64], *_: object) -> Floats:
    """The least point of a direction counts, and those next to it tell nothing."""
    return np.zeros((len(rows), 2))


def _as_deep(_tails: DelayTails, rows: NDArray[np.int64], *_: object) -> Floats:
    """The least point counts in each direction, however many others came near it."""
    return np.zeros((len(rows), 2))


def _unknown(_tails: DelayTails, rows: NDArray[np.int64]) -> Floats:
    """Nothing is remembered of which direction is usually the later one."""
    return np.zeros(len(rows))


def _learns_nothing(tracks: kalman.ClockTracks, _measured: kalman.Measurement) -> kalman.ClockTracks:
    """Noise is what the fits state, and clocks wander as any may."""
    return tracks


def _assumed(_floors: DelayFloors, rows: NDArray[np.int64]) -> Floats:
    """No stream's windows show its noise; all stamps of a kind have the same."""
    return np.full(len(rows), np.nan)


VARIANTS = (
    Tool("foliot, pairs always", None, {"foliot_probe.core.measure.stamp_window._SIEVED": np.ones(len(KINDS), np.bool_)}),
    Tool("foliot, direction as seen", None, {"foliot_sync.core.fit.pair_estimate.credible": _as_seen}),
    Tool("foliot, least point alone", None, {"foliot_sync.core.fit.delay_tails.DelayTails.lift": _unlifted}),
    Tool("foliot, depths unequal", None, {"foliot_sync.core.fit.delay_tails.DelayTails.deeper": _as_deep}),
    Tool("foliot, direction forgotten", None, {"foliot_sync.core.fit.delay_tails.DelayTails.apart": _unknown}),
    Tool("foliot, drifts as stated", None, {"foliot_sync.core.track.kalman._OVERSTATED": np.inf}),
    Tool("foliot, noise assumed", None, {"foliot_sync.core.fit.delay_floor.DelayFloors.noise_ns": _assumed}),
    Tool("foliot, noise unlimited", None, {"foliot_sync.core.fit.point_clouds.NOISE_RANGES_NS": dict.fromkeys(KINDS, (1.0, 1e5))}),
    Tool("foliot, nothing learnt", None, {"foliot_sync.core.track.kalman.learnt": _learns_nothing}),
    *(part for part in PARTS
      if part.name in {"foliot, minimum filter", "foliot, no direction", "foliot, no remembered floor"}),
)  # fmt: skip


class Cell(msgspec.Struct, kw_only=True):
    """A tool in all seeds of a regime. Errors in ns, without their signs but for the bias."""

    regime: str
    tool: str
    of: str
    windows: int
    silent: int
    mean_ns: float | None
    p50_ns: float | None
    p99_ns: float | None
    bias_ns: float | None
    median_bound_ns: float | None
    within_bound: float | None


def cells(regime: str, rows: Sequence[Row]) -> list[Cell]:
    """The summary of each tool."""
    found: list[Cell] = []
    for tool, of in dict.fromkeys((row.tool, row.of) for row in rows):
        mine = [row for row in rows if (row.tool, row.of) == (tool, of)]
        told = [row for row in mine if row.error_ns is not None]
        error = np.array([row.error_ns for row in told], np.float64)
        bounds = np.array([row.bound_ns for row in told if row.bound_ns is not None], np.float64)
        size = np.abs(error)
        found.append(
            Cell(
                regime=regime, tool=tool, of=of, windows=len(mine), silent=len(mine) - len(told),
                mean_ns=_rounded(size.mean()) if told else None, p50_ns=_rounded(np.median(size)) if told else None,
                p99_ns=_rounded(np.percentile(size, 99)) if told else None,
                bias_ns=_rounded(error.mean()) if told else None,
                median_bound_ns=_rounded(np.median(bounds)) if len(bounds) else None,
                within_bound=float((size <= bounds).mean()) if len(bounds) else None,
            )
        )  # fmt: skip
    return found


def _rounded(value: float | np.floating) -> float:
    return round(float(value), 1)


class Verdict(msgspec.Struct, kw_only=True):
    """A goal, and what was measured in one regime."""

    figure: str
    regime: str
    measured: float
    goal: float
    met: bool

    def line(self) -> str:
        """A row of what is printed."""
        met = "met" if self.met else "missed"
        return f"{self.figure}: {self.measured:g} at most, {self.regime} (goal: {self.goal:g}, {met})"


def verdicts(every: Sequence[Cell]) -> list[Verdict]:
    """Foliot against its goals, by the mean and the p99: of each the regime or recording that is furthest from it."""
    queued = {each.name: each.kind for each in REGIMES if each.forth.share or each.back.share}
    others = {(cell.regime, cell.of): cell for cell in every if cell.tool == MINIMUM}
    found: list[Verdict] = []
    for cell in (each for each in every if each.tool == FOLIOT):
        other = others[cell.regime, cell.of]
        for name, ours_ns, theirs_ns in (("mean", cell.mean_ns, other.mean_ns), ("p99", cell.p99_ns, other.p99_ns)):
            if ours_ns is None or not theirs_ns:
                continue
            figure, share = f"error over a minimum filter's, {cell.of}, {name}", ours_ns / theirs_ns
            found.append(_no_more(figure, cell, share, _NEVER_WORSE))
            if kind := queued.get(cell.regime):
                found.append(_no_more(f"{figure}, {kind}, queues", cell, share, _WHERE_ANYTHING_QUEUES))
        if cell.median_bound_ns is not None and cell.p99_ns:
            found.append(_no_more("bound over the p99", cell, cell.median_bound_ns / cell.p99_ns, _BOUND_TIMES))
    figures = dict.fromkeys(each.figure for each in found)
    return [
        max((each for each in found if each.figure == figure), key=lambda each: each.measured) for figure in figures
    ]


def _no_more(figure: str, cell: Cell, measured: float, goal: float) -> Verdict:
    return Verdict(figure=figure, regime=cell.regime, measured=round(measured, 2), goal=goal, met=measured <= goal)


def _line(found: Sequence[Cell], tools: Sequence[tuple[str, str]]) -> str:
    """Of the table: mean and p99 of each tool."""
    by_tool = {(cell.tool, cell.of): cell for cell in found}
    shown = []
    for key in tools:
        cell = by_tool[key]
        shown.append("-" if cell.mean_ns is None else f"{cell.mean_ns:.1f} / {cell.p99_ns:.0f}")
    return f"{found[0].regime:<30}" + "".join(f"{each:>20}" for each in shown)


def told(tool: Tool, regime: Regime) -> Tool:
    """A tool whose sync knows a regime's asymmetry, where somebody has told it."""
    if not regime.told:
        return tool
    known = {"a.rail0": regime.longer_ns}
    return tool._replace(settings=msgspec.structs.replace(tool.settings or SyncSettings(), asymmetry_ns=known))


class _Case(NamedTuple):
    """A row of the table."""

    name: str
    kind: StampKind
    tools: Sequence[Tool]
    recordings: Sequence[Recording]


def _cases(arguments: argparse.Namespace, tools: Sequence[Tool]) -> Iterator[_Case]:
    for file in arguments.files:
        recording = read(file)
        yield _Case(recording.name, "kernel", tools, [recording])
    for regime in REGIMES:
        if not arguments.only or any(word in regime.name for word in arguments.only):
            recordings = [simulate(regime, arguments.seconds, seed) for seed in arguments.seeds]
            yield _Case(regime.name, regime.kind, [told(each, regime) for each in tools], recordings)


def main() -> int:
    """Parses the command line, runs, prints a table."""
    made = argparse.ArgumentParser(
        prog="bench.clock_regimes", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    made.add_argument("--json", type=Path, help="write the cells to this file")
    made.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="(default: %(default)s)")
    made.add_argument("--seconds", type=float, default=60.0, help="of each recording (default: %(default)s)")
    made.add_argument(
        "--settle", type=int, default=6, help="windows before those that are judged (default: %(default)s)"
    )
    made.add_argument("--only", nargs="+", help="regimes whose name has one of these words")
    made.add_argument("--variants", action="store_true", help="also the chain with one part as it was before")
    made.add_argument("--files", nargs="+", type=Path, default=[], help="recordings to judge besides")
    arguments = made.parse_args()
    document = Document("clock-regimes", arguments)
    variants = (Tool(), *(VARIANTS if arguments.variants else ()))
    tools = [
        (MINIMUM, MIDDLE),
        (MINIMUM, NOW),
        (CHRONY, NOW),
        (FOLIOT, MIDDLE),
        *((each.name, NOW) for each in variants),
    ]
    print(
        "mean / p99 of the error in ns; middle: of the window, which for clocks that run apart flatters the minimum "
        "filter; now: of the value used a window later"
    )
    print(f"{'regime':<30}" + "".join(f"{f'{tool}, {of}'.removeprefix('foliot, ')[:19]:>20}" for tool, of in tools))
    every: list[Cell] = []
    try:
        for case in _cases(arguments, variants):
            began_s = time.process_time()
            rows = [
                row
                for each in case.recordings
                for row in replay(each, _WINDOW_NS, case.kind, arguments.settle, case.tools)
            ]
            found = cells(case.name, rows)
            every += found
            print(f"{_line(found, tools)}  {time.process_time() - began_s:>5.0f} s of CPU", flush=True)
    except BadRecordingError as why:
        sys.stderr.write(f"{why}\n")
        return 2
    reached = verdicts(every)
    for each in reached:
        print(each.line())
    if arguments.json:
        document.write(arguments.json, every, verdicts=msgspec.to_builtins(reached))
    return 0


if __name__ == "__main__":
    sys.exit(main())
