"""The CPU cost of inner loops of probe and sync, compiled and in Python.

Probes of some streams are drawn: a window of two seconds, and a report of a tenth of a second. Sync gets the stamps of
a fleet with so many clocks, of ten neighbours each, as `clock-scale` plays it. Each path takes turns in
a process of its own, so that both meet the same moments of the machine. A process counts its own processor time.

make bench NAME=native ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from bench.document import Document
from bench.table import show
from foliot import native
from foliot_lab.simulate.clocks.large_fleet import LargeFleet
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_probe.core.measure.hull_pruning import prune
from foliot_probe.core.measure.near_floor import near_floor
from foliot_probe.core.measure.one_way_delay import References, count_rows, digest, one_way_ns
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange
from foliot_probe.core.measure.stamp_window import LAYERS, StampWindow
from foliot_probe.core.packet import KERNEL
from foliot_probe.core.rate.delay_density import densities
from foliot_probe.core.stream_table import StreamEnds, StreamKey
from foliot_schemas import ClockState, StampBatch, decode
from foliot_sync.core.clock_numbers import ClockNumbers
from foliot_sync.core.fit.delay_floor import DelayFloors
from foliot_sync.core.fit.delay_tails import DelayTails
from foliot_sync.core.fit.pair_estimate import measure
from foliot_sync.core.fit.point_clouds import gather
from foliot_sync.core.solve.hard_bounds import HardBounds, hard_bounds
from foliot_sync.core.solve.least_squares import Edges, solve
from foliot_sync.settings import SyncSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from foliot_sync.core.fit.point_clouds import PointClouds

Way = Literal["native", "python"]
PATHS: tuple[Way, ...] = ("native", "python")

_WINDOW_NS, _REPORT_NS = 2_000_000_000, 100_000_000
_REPORTS = 20
"""Of a window."""
_NOW_NS = 1_700_000_000_000_000_000
_RANGE = 2e-7
"""To either side, of a slope that sync has spoken of: the least that `slope_range` allows, and somewhat."""
_CALL_S = 0.05
"""A run calls so often that it takes about so long."""


class Row(msgspec.Struct, kw_only=True):
    """One call with so many streams of a probe or clocks of sync, by one path; microseconds of CPU for each."""

    call: str
    path: Way
    streams: int
    runs: int
    median_us: float
    least_us: float
    most_us: float


class Taken(msgspec.Struct):
    """What a call took in one run."""

    call: str
    streams: int
    us: float


def drawn(streams: int, probes: int, span_ns: int, seed: int) -> Completed:
    """Probes of so many streams in a span, so many each: a floor of 20 us, and queues above it."""
    random = np.random.default_rng(seed)
    row, sequence = np.repeat(np.arange(streams), probes), np.tile(np.arange(probes), streams)
    transmit_ns = _NOW_NS + sequence * (span_ns // probes) + random.integers(0, 1_000, len(row))
    delay_ns = 20_000 + random.exponential(9_000, len(row)).astype(np.int64)
    return Completed(row, sequence, transmit_ns, transmit_ns + delay_ns)


def _references(streams: int) -> References:
    found = References(streams)
    for row in range(streams):
        found.set(
            row,
            ClockState(
                clock="a", reference="b", offset_ns=5_000, drift_ppb=1_000.0, hard_bound_ns=900, bound_ns=100,
                growth_ppb=50.0, as_of_ns=_NOW_NS, void_after_ns=_NOW_NS + 10 * _WINDOW_NS, status="synchronised",
            ),
        )  # fmt: skip
    return found


def calls(streams: int, probes: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each call with its name.

    Parameters:
        probes: of each stream and direction in a window.
    """
    forth, back = (drawn(streams, probes, _WINDOW_NS, seed) for seed in (1, 2))
    tilt = SlopeRange(np.full(streams, -_RANGE), np.full(streams, _RANGE))
    own, peers = _references(streams), _references(streams)
    report = drawn(streams, max(1, probes // _REPORTS), _REPORT_NS, 3)
    known = one_way_ns(report, own, peers)
    rows, kinds = np.arange(streams), np.full(streams, KERNEL)
    ends = [
        StreamEnds(StreamKey(f"p{row}", "r", 0), f"n.r>p{row}.r#0", f"p{row}.r>n.r#0", "n", f"p{row}", initiator=True)
        for row in rows.tolist()
    ]
    wanted = np.ones(streams, np.bool_)
    yield "a report's delays", lambda: one_way_ns(report, own, peers)
    yield "their digest", lambda: digest(*known, streams)
    yield "their counts", lambda: count_rows(rows, *known, streams)
    yield "pruning, slopes unknown", lambda: prune(forth, back=False, tilt=SlopeRange.unknown(streams), layers=LAYERS)
    yield "pruning", lambda: prune(forth, back=False, tilt=tilt, layers=LAYERS)
    yield "probes near the floor", lambda: near_floor((forth, back), tilt)
    yield "densities", lambda: list(densities(([forth], [back]), wanted, own, peers))
    window = StampWindow(LAYERS)
    yield "a whole window", lambda: list(window.close(([forth], [back]), ends, kinds, tilt))


def sync_calls(clocks: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each call of sync with its name, for a window of so many clocks."""
    settings, played = SyncSettings(), LargeFleet(SyntheticFleet(clocks))
    batches = [decode(data, StampBatch) for _, data in played.batches(0, clocks)]
    numbers, floors, tails = ClockNumbers(), DelayFloors(), DelayTails()

    def gathered() -> PointClouds:
        clouds = gather(batches, numbers.__getitem__, settings.tolerated_share)
        assert clouds is not None
        return clouds

    clouds = gathered()
    rows = floors.rows(clouds.paths)
    pairs = measure(clouds, rows, floors, tails, settings)[0]
    edges = Edges(pairs.initiator, pairs.responder, pairs.offset_ns - pairs.offset_ns.mean(), pairs.variance)
    allowed = HardBounds(pairs.initiator, pairs.responder, pairs.lower_ns, pairs.upper_ns)
    yield "stamps put in order", gathered
    yield "pairs fitted", lambda: measure(clouds, rows, floors, tails, settings)
    yield "floors of streams", lambda: (floors.least(rows), floors.noise_ns(rows))
    yield "mesh solved", lambda: solve(edges, clocks, 0)
    yield "hard bounds", lambda: hard_bounds(allowed, clocks, 0)


def measured(each: Iterable[tuple[str, Callable[[], object]]], streams: int) -> list[Taken]:
    """What each call with so many streams or clocks takes in this process, by whichever path it has."""
    found = []
    for call, does in each:
        does()
        began_s = time.perf_counter()
        does()
        times = max(3, int(_CALL_S / max(time.perf_counter() - began_s, 1e-6)))
        began_ns = time.process_time_ns()
        for _ in range(times):
            does()
        found.append(Taken(call, streams, (time.process_time_ns() - began_ns) * 1e-3 / times))
    return found


def by_turns(jobs: list[list[str]], runs: int) -> list[Row]:
    """Measures both paths in turns, each in a new process.

    Parameters:
        jobs: the arguments that choose what a process measures.
    """
    taken: dict[tuple[str, int, Way], list[float]] = {}
    for _ in range(runs):
        for job in jobs:
            for path in PATHS:
                for each in _in_a_process(path, job):
                    taken.setdefault((each.call, each.streams, path), []).append(each.us)
    return [
        Row(
            call=call, path=path, streams=count, runs=runs, median_us=round(statistics.median(all_us), 2),
            least_us=round(min(all_us), 2), most_us=round(max(all_us), 2),
        )
        for (call, count, path), all_us in sorted(taken.items(), key=lambda item: item[0][1])
    ]  # fmt: skip


def _in_a_process(path: Way, job: list[str]) -> list[Taken]:
    environment = {**os.environ, "FOLIOT_NATIVE": "on" if path == "native" else "off"}
    command = [sys.executable, "-m", "bench.native", "--once", *job]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=list[Taken])


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(prog="bench.native", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--streams", type=int, nargs="*", default=[8, 64], help="(default: %(default)s)")
    parser.add_argument("--probes", type=int, default=100, help="of a stream in a window (default: %(default)s)")
    parser.add_argument("--clocks", type=int, nargs="*", default=[1_000], help="of sync's calls (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=11, help="of each path (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        found = [measured(calls(count, arguments.probes), count) for count in arguments.streams]
        found += [measured(sync_calls(count), count) for count in arguments.clocks]
        sys.stdout.buffer.write(msgspec.json.encode(list(itertools.chain(*found))))
        return 0
    if why := native.why_python():
        sys.stderr.write(f"nothing to compare: {why}\n")
        return 1
    document = Document("native", arguments)
    jobs = [["--clocks", "--streams", str(count), "--probes", str(arguments.probes)] for count in arguments.streams]
    jobs += [["--streams", "--clocks", str(count)] for count in arguments.clocks]
    rows = by_turns(jobs, arguments.runs)
    show([msgspec.to_builtins(row) for row in rows])
    if arguments.json:
        document.write(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
