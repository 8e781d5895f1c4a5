"""The CPU cost of the probe's inner loops, compiled and in Python.

Probes of some streams are drawn: a window of two seconds, and a report of a tenth of a second. Each path takes turns in
a process of its own, so that both meet the same moments of the machine. A process counts its own processor time.

make bench NAME=native ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
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
from foliot_probe.core.measure.hull_pruning import prune
from foliot_probe.core.measure.near_floor import near_floor
from foliot_probe.core.measure.one_way_delay import References, count_rows, digest, one_way_ns
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange
from foliot_probe.core.measure.stamp_window import LAYERS, StampWindow
from foliot_probe.core.packet import KERNEL
from foliot_probe.core.rate.delay_density import densities
from foliot_probe.core.stream_table import StreamEnds, StreamKey
from foliot_schemas import ClockState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """One call with so many streams, by one path; microseconds of CPU for each."""

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


def measured(streams: int, probes: int) -> list[Taken]:
    """What each call takes in this process, by whichever path it has."""
    found = []
    for call, does in calls(streams, probes):
        does()
        began_s = time.perf_counter()
        does()
        times = max(3, int(_CALL_S / max(time.perf_counter() - began_s, 1e-6)))
        began_ns = time.process_time_ns()
        for _ in range(times):
            does()
        found.append(Taken(call, streams, (time.process_time_ns() - began_ns) * 1e-3 / times))
    return found


def by_turns(streams: list[int], probes: int, runs: int) -> list[Row]:
    """Measures both paths in turns, each in a new process."""
    taken: dict[tuple[str, int, Way], list[float]] = {}
    for _ in range(runs):
        for count in streams:
            for path in PATHS:
                for each in _in_a_process(path, count, probes):
                    taken.setdefault((each.call, each.streams, path), []).append(each.us)
    return [
        Row(
            call=call, path=path, streams=count, runs=runs, median_us=round(statistics.median(all_us), 2),
            least_us=round(min(all_us), 2), most_us=round(max(all_us), 2),
        )
        for (call, count, path), all_us in sorted(taken.items(), key=lambda item: item[0][1])
    ]  # fmt: skip


def _in_a_process(path: Way, streams: int, probes: int) -> list[Taken]:
    environment = {**os.environ, "FOLIOT_NATIVE": "on" if path == "native" else "off"}
    command = [sys.executable, "-m", "bench.native", "--once", "--streams", str(streams), "--probes", str(probes)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=list[Taken])


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(prog="bench.native", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 64], help="(default: %(default)s)")
    parser.add_argument("--probes", type=int, default=100, help="of a stream in a window (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=11, help="of each path (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        sys.stdout.buffer.write(msgspec.json.encode(measured(arguments.streams[0], arguments.probes)))
        return 0
    if why := native.why_python():
        sys.stderr.write(f"nothing to compare: {why}\n")
        return 1
    document = Document("native", arguments)
    rows = by_turns(arguments.streams, arguments.probes, arguments.runs)
    show([msgspec.to_builtins(row) for row in rows])
    if arguments.json:
        document.write(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
