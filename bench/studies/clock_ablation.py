"""The value of each part of the clock's chain: the simulation of `bench.clock_sim`, with one part removed at a time.

All variants get the same stamps of the same probes. Each variant's states of the clocks go back to its own probes. The
table has the disagreement of two NICs, in the value used now.

A variant differs from the whole if the mean of the differences, window by window, is not 0 at a level of 99 %. Two of
the table's two hundred figures do so by chance.

    make bench NAME=clock-ablation ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from scipy.special import stdtrit

from bench import clock_sim
from bench.clock_sim import Tool
from bench.document import Document
from foliot_sync.core.fit import line_fit
from foliot_sync.core.fit.least_residual import LeastResidual
from foliot_sync.core.fit.queueing_split import Share, share
from foliot_sync.core.limits import RATE_LIMIT_PPB
from foliot_sync.core.solve.least_squares import Edges, Solution, solve
from foliot_sync.core.track import kalman

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bench.clock_sim import Judged
    from foliot_sync.core.fit.delay_floor import DelayFloors, Known
    from foliot_sync.core.fit.point_clouds import PointClouds
    from foliot_sync.core.lasting_misfit import LastingMisfits

    Floats = NDArray[np.float64]

_TOGETHER = 4
"""Windows whose differences count as one: the memory of a filter over windows makes neighbours alike."""
_LEVEL = 0.99


def _none_pure(_coded: object, row: NDArray[np.intp], *_: object, **__: object) -> NDArray[np.bool_]:
    """Takes no pair to be pure, so that the probe uses all probes, as it does in long queues."""
    return np.zeros(len(row), np.bool_)


def _least(residuals: Floats, *_: object, **__: object) -> LeastResidual:
    """Uses the quickest probe alone."""
    unknown = np.full(len(residuals), np.nan)
    return LeastResidual(residuals.min(axis=1), np.full(len(residuals), np.inf), unknown, unknown)


def _not_turned(_clouds: PointClouds, slope: Floats, _excess_ns: Floats) -> tuple[Floats, Floats]:
    """Returns the rates that were known; the window says nothing of them."""
    return slope.copy(), np.full(len(slope), RATE_LIMIT_PPB**2)


def _evenly(total: Floats, first: Floats, _second: Floats) -> Share:
    """Shares the lateness evenly, because nothing tells which of two was late."""
    return share(total, first, first)


def _even(late: Floats, half: Floats, _floors: Known, noise_ns: Floats, _usual: Floats) -> tuple[Floats, Floats]:
    """Takes neither direction to be late.

    An offset is then as uncertain as the neighbours of the two quickest probes make it.
    """
    return np.zeros(len(half)), (late[0::2] ** 2 + late[1::2] ** 2) / 4 + noise_ns**2


def _learns_nothing(_floors: DelayFloors, *_: object) -> None:
    """Keeps no window's widths for the next one."""


def _uncorrected(_lasting: LastingMisfits, key: NDArray[np.int64]) -> Floats:
    """Knows nothing of what streams and pairs are usually off by."""
    return np.zeros(len(key))


def _tree(edges: Edges, nodes: int, ground: int, _lasting: Floats | float = 0.0) -> Solution:
    """Solves each clock by the pairs of one way to the ground, the one with the least variance, and by no others."""
    ends = np.stack((np.minimum(edges.start, edges.end), np.maximum(edges.start, edges.end)))
    best_first = np.argsort(edges.variance, kind="stable")
    # Among parallel ones the best: a matrix would hold their sum.
    _, first = np.unique((ends[0] * nodes + ends[1])[best_first], return_index=True)
    best = best_first[first]
    low, high = ends[:, best]
    graph = coo_array((edges.variance[best], (low, high)), shape=(nodes, nodes)).tocsr()
    _, before = dijkstra(graph, directed=False, indices=ground, return_predecessors=True)
    chosen = best[(before[low] == high) | (before[high] == low)]
    accepted = np.isin(np.arange(len(edges.start)), chosen)
    found = solve(Edges(*(column[chosen] for column in edges)), nodes, ground)
    return found._replace(accepted=accepted, misfit=np.where(accepted, 0.0, np.nan))


def _forgetful(tracks: kalman.ClockTracks, measured: kalman.Measurement) -> kalman.ClockTracks:
    """Returns the newest window's values, and nothing of the others."""
    return kalman.restart(tracks, measured)._replace(windows=tracks.windows + 1)


def _as_it_is(_tracks: kalman.ClockTracks, measured: kalman.Measurement, _sigmas: float) -> kalman.Measurement:
    """Distrusts no surprise, because there is no history to compare it with."""
    return measured


def _fixed(tracks: kalman.ClockTracks, _measured: kalman.Measurement) -> kalman.ClockTracks:
    """Returns the wander that any clock may have at first, and the noise that the fits state."""
    return tracks


_IN_PYTHON: Mapping[str, object] = {
    "foliot_sync.core.fit.line_fit._stand": line_fit.stand_by_numpy,
    "foliot_sync.core.fit.line_fit._turn": line_fit.turn_by_numpy,
}
"""Of what these have of others, compiled code has its own."""
WHOLE = Tool()
TOOLS = (
    WHOLE,
    Tool("foliot, minimum filter", None,
         {"foliot_sync.core.fit.line_fit.lowest": _least, "foliot_sync.core.fit.line_fit._turned": _not_turned,
          **_IN_PYTHON}),
    Tool("foliot, hard margin", None,
         {"foliot_sync.settings.SyncSettings.tolerated_share": 0.0,
          "foliot_sync.core.fit.least_residual._MOST_LEFT_OUT": 0, **_IN_PYTHON}),
    Tool("foliot, no coded pairs", None, {"foliot_probe.core.measure.coded_pairs.CodedPairs.sift": _none_pure}),
    Tool("foliot, no network effect", None, {"foliot_sync.core.solve.window_solution.solve": _tree}),
    Tool("foliot, no window filter", None,
         {"foliot_sync.core.track.kalman.update": _forgetful, "foliot_sync.core.track.kalman.tamed": _as_it_is}),
    Tool("foliot, no direction", None, {"foliot_sync.core.fit.pair_estimate.share": _evenly}),
    Tool("foliot, no lateness", None, {"foliot_sync.core.fit.pair_estimate._lateness": _even}),
    Tool("foliot, no remembered floor", None, {"foliot_sync.core.fit.delay_floor.DelayFloors.learn": _learns_nothing}),
    Tool("foliot, no learnt asymmetry", None, {"foliot_sync.core.lasting_misfit.LastingMisfits.of": _uncorrected}),
    Tool("foliot, no learnt wander", None, {"foliot_sync.core.track.kalman.learnt": _fixed}),
)  # fmt: skip


class Case(NamedTuple):
    """A row of the table."""

    name: str
    load: float
    ways: str = "both"
    settle: int | None = None
    """Windows before those that are judged, and those that are, where they differ from the default."""
    windows: int | None = None
    times: int = 1
    """The number of seeds: short runs are cheap."""
    else_set: Mapping[str, object] = {}
    """Options of the simulation that differ from the default."""


CASES = (
    Case("0 %", 0.0),
    Case("40 %", 0.4),
    Case("60 %", 0.6),
    Case("80 %", 0.8),
    Case("60 %, one way", 0.6, "one"),
    Case("80 %, one way", 0.8, "one"),
    Case("90 %, one way", 0.9, "one", times=2),
    Case("80 %, one way, 5 a second", 0.8, "one", else_set={"rate_hz": 5.0}),
    Case("80 %, one way, 1 Gb/s", 0.8, "one", else_set={"link_gbps": 1.0, "noise_ns": 50.0, "rate_hz": 5.0}),
    Case("60 %, the first 10 s", 0.6, "both", 0, 5, 2),
    Case("80 %, the first 10 s", 0.8, "both", 0, 5, 2),
)


class Cell(msgspec.Struct, kw_only=True):
    """All runs of a variant in a case, compared with the whole. Errors are those of a pair of NICs, absolute."""

    case: str
    tool: str
    mean_ns: float
    p99_ns: float
    mean_more_ns: float
    """The excess of the mean over the whole's."""
    mean_more_doubt_ns: float | None
    """Half the width of its 99 % interval, by Student's t; None: too few windows to tell."""
    p99_more_ns: float
    """The excess of the p99, as the mean over windows, of which each has a p99 of its own."""
    p99_more_doubt_ns: float | None

    @property
    def signs(self) -> tuple[str, str]:
        """Whether mean and p99 are more or less than the whole's, if they differ from them."""
        both = ((self.mean_more_ns, self.mean_more_doubt_ns), (self.p99_more_ns, self.p99_more_doubt_ns))
        mean, high = (" " if doubt is None or abs(more) <= doubt else "+" if more > 0 else "-" for more, doubt in both)
        return mean, high


def compare(case: str, tool: str, runs: Sequence[Floats], whole: Sequence[Floats]) -> Cell:
    """The cell of a variant, by its errors and those of the whole: one array a run, one row a window."""
    every = np.concatenate([each.ravel() for each in runs])
    mean, mean_doubt = _more([each.mean(axis=1) for each in runs], [each.mean(axis=1) for each in whole])
    high, high_doubt = _more(*([np.percentile(each, 99, axis=1) for each in one] for one in (runs, whole)))
    return Cell(
        case=case, tool=tool, mean_ns=round(float(every.mean()), 2), p99_ns=round(float(np.percentile(every, 99)), 1),
        mean_more_ns=mean, mean_more_doubt_ns=mean_doubt, p99_more_ns=high, p99_more_doubt_ns=high_doubt,
    )  # fmt: skip


def _more(windows: Sequence[Floats], others: Sequence[Floats]) -> tuple[float, float | None]:
    """The mean excess of windows' figures over others', and its uncertainty."""
    together = []
    for mine, theirs in zip(windows, others, strict=True):
        parts = max(1, len(mine) // _TOGETHER)
        together += [part.mean() for part in np.array_split(mine - theirs, parts)]
    count, mean = len(together), round(float(np.mean(together)), 3)
    if count < 2:
        return mean, None
    steep = float(stdtrit(count - 1, (1 + _LEVEL) / 2))
    return mean, round(steep * float(np.std(together, ddof=1)) / count**0.5, 3)


def run(arguments: argparse.Namespace, case: Case, tools: Sequence[Tool]) -> list[list[Judged]]:
    """Per variant, the results of each seed, for pairs of NICs."""
    settle, windows = (
        more if less is None else less
        for less, more in ((case.settle, arguments.settle), (case.windows, arguments.windows))
    )
    mine = argparse.Namespace(**{**vars(arguments), **case.else_set, "settle": settle, "windows": windows})
    found: list[list[Judged]] = [[] for _ in tools]
    for seed in [seed + 1_000 * turn for turn in range(case.times) for seed in arguments.seeds]:
        judged = clock_sim.simulate(mine, arguments.nics[0], case.load, case.ways, seed, tools=tools)
        for runs, one in zip(found, (each for each in judged if each.row.of == "pair"), strict=True):
            one.row.bench = "clock-ablation"
            runs.append(one)
    return found


def _line(cells: Sequence[Cell]) -> str:
    """A line of the table: mean and p99, with a sign if they differ from the whole's."""
    said = []
    for cell in cells:
        mean, high = cell.signs
        said.append(f"{cell.mean_ns:>9.1f}{mean} /{cell.p99_ns:>6.0f}{high}")
    return f"{cells[0].case:<26}" + "".join(f"{each:>21}" for each in said)


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = clock_sim.parser()
    parser.prog, parser.description = "bench.clock_ablation", __doc__.split("\n", 1)[0] if __doc__ else None
    parser.set_defaults(nics=[40], seeds=[1, 2, 3], settle=16, windows=12, loads=None, ways=None)
    names = [tool.name.removeprefix("foliot, ") for tool in TOOLS[1:]]
    parser.add_argument("--variants", nargs="+", choices=names, default=names, help="beside the whole (default: all)")
    arguments = parser.parse_args()
    if arguments.loads or arguments.ways or len(arguments.nics) > 1:
        parser.error("the table has loads of its own, and one number of NICs: leave --loads and --ways out")
    document = Document("clock-ablation", arguments)
    tools = [WHOLE, *(tool for tool, name in zip(TOOLS[1:], names, strict=True) if name in arguments.variants)]
    print("pair of NICs, mean / p99 in ns; +, -: more or less than the whole's, not by chance")
    print(f"{'load':<26}" + "".join(f"{tool.name.removeprefix('foliot, '):>21}" for tool in tools))
    rows, cells = [], []
    for case in CASES:
        began_s = time.process_time()
        found = run(arguments, case, tools)
        whole = [each.wrong_ns for each in found[0]]
        line = [
            compare(case.name, tool.name, [each.wrong_ns for each in runs], whole)
            for tool, runs in zip(tools, found, strict=True)
        ]
        rows += [each.row for runs in found for each in runs]
        cells += line
        print(f"{_line(line)}  {time.process_time() - began_s:>5.0f} s of CPU", flush=True)
    if arguments.json:
        document.write(arguments.json, rows, cells=[msgspec.to_builtins(cell) for cell in cells])
    return 0


if __name__ == "__main__":
    sys.exit(main())
