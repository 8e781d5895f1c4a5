"""The CPU cost of reading the time by `foliot.clock.reader.Reader.now`, from a page that a writer has filled.

The bench is one process, and counts its own processor time. Any machine carries it, so it checks nothing before it
begins.

make bench NAME=clock-read ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench.document import Document
from foliot.clock.reader import Reader
from foliot.clock.writer import PageWriter
from foliot_schemas import ClockState

if TYPE_CHECKING:
    from collections.abc import Callable

_HOLDS_NS = 600_000_000_000
_FIRSTS = 101
"""Readers whose first call is timed: each looks up the page and maps it."""


class Row(msgspec.Struct, kw_only=True):
    """One kind of call; microseconds of CPU for each."""

    call: str
    runs: int
    calls: int
    """Calls in a run."""
    median_us: float
    least_us: float
    most_us: float


def measure(path: str, runs: int, calls: int) -> list[Row]:
    """Measures all kinds of call on the page at a path."""
    writer = PageWriter(path, "node0")
    local_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    state = ClockState(
        clock="node0", reference="node0", offset_ns=5_000, drift_ppb=1_000.0, hard_bound_ns=900, bound_ns=100,
        growth_ppb=50.0,
        as_of_ns=local_ns, void_after_ns=local_ns + _HOLDS_NS, status="synchronised",
    )  # fmt: skip
    writer.write(state, local_ns)
    try:
        reader = Reader(path)
        return [
            _row("now()", runs, calls, reader.now),
            _row("now(hard=True)", runs, calls, lambda: reader.now(hard=True)),
            _row("the first now() of a reader", _FIRSTS, 1, lambda: Reader(path).now()),
        ]
    finally:
        writer.close()


def _row(call: str, runs: int, calls: int, does: Callable[[], object]) -> Row:
    taken_us = []
    for _ in range(runs):
        began_ns = time.process_time_ns()
        for _ in range(calls):
            does()
        taken_us.append((time.process_time_ns() - began_ns) * 1e-3 / calls)
    return Row(
        call=call, runs=runs, calls=calls, median_us=round(statistics.median(taken_us), 3),
        least_us=round(min(taken_us), 3), most_us=round(max(taken_us), 3),
    )  # fmt: skip


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(
        prog="bench.clock_read", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--runs", type=int, default=21, help="(default: %(default)s)")
    parser.add_argument("--calls", type=int, default=100_000, help="in a run (default: %(default)s)")
    arguments = parser.parse_args()
    document = Document("clock-read", arguments)
    with tempfile.TemporaryDirectory(prefix="foliot-bench-clock-read-") as folder:
        rows = measure(f"{folder}/clock", arguments.runs, arguments.calls)
    for row in rows:
        print(
            f"{row.call:<28} {row.median_us:>9.3f} us of CPU "
            f"({row.least_us:.3f} to {row.most_us:.3f}; {row.runs} runs of {row.calls:,})"
        )
    if arguments.json:
        document.write(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
