"""Slow and hung ranks of a real training job in the lab: who is named, when, and for which cause.

    # sixty trials, half with a slow rank, six a lab: some half hour
    make bench NAME=stragglers ARGS="--json FILE"
    # hangs alone
    make bench NAME=stragglers ARGS="--only hang stop mismatch --labs 6 --trials 4 --json hangs.json"

Each lab is a run of its own with several trials, one after the other; its seed determines them. The file is written
anew after each lab. Scenarios, reports and logs stay in the folder. docs/performance.md explains the columns.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import place
from bench.contention.scenario_text import scenario_text
from bench.document import HEAD, Document, joined, keep
from bench.lab_command import LAB, finished
from bench.stragglers.draw import CASES, draw
from bench.stragglers.rows import Found, Row, by_case, goals, rows_of
from bench.table import show
from foliot_lab.workload.train.ranks import missing

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> int:
    """Parses the command line, runs, prints the rows and what they come to."""
    arguments = _parser().parse_args()
    if arguments.merge:
        documents = [json.loads(file.read_text()) for file in arguments.merge]
        rows = [msgspec.convert(row, Row) for each in documents for row in each["rows"]]
        _write(rows, arguments, joined([{key: each.get(key) for key in HEAD} for each in documents]))
        _sum_up(rows)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not place.permits(*filter(None, [missing()])):
        return place.CANNOT
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    document, rows = Document("stragglers", arguments), list[Row]()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    try:
        for seed in range(arguments.first, arguments.first + arguments.labs):
            lab = draw(seed, arguments.only, arguments.trials)
            scenario, report, log = (arguments.folder / f"{seed}.{ending}" for ending in ("toml", "json", "log"))
            report.unlink(missing_ok=True)
            scenario.write_text(scenario_text(lab.scenario))
            options = ("--folder", arguments.folder / "lab", "--port", 0, "--speed", arguments.speed)
            status = finished((*LAB, "run", scenario, "--report", report, *options), log)
            if not report.exists():
                print(f"lab {seed}: no report, status {status}; see {log}", flush=True)
                continue
            made = rows_of(lab, seed, msgspec.json.decode(report.read_bytes(), type=Found))
            rows += made
            show([msgspec.to_builtins(row) for row in made])
            sys.stdout.flush()
            _write(rows, arguments, document.head())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 1
    _sum_up(rows)
    return 0 if rows else place.CANNOT


def _sum_up(rows: Sequence[Row]) -> None:
    for table in (by_case(rows), goals(rows)):
        show([msgspec.to_builtins(each) for each in table])


def _write(rows: Sequence[Row], arguments: argparse.Namespace, head: dict[str, object]) -> None:
    if arguments.json:
        keep(
            arguments.json, head, [msgspec.to_builtins(row) for row in rows],
            goals=msgspec.to_builtins(goals(rows)), by_case=msgspec.to_builtins(by_case(rows)),
        )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.stragglers", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--labs", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--trials", type=int, default=6, help="in each lab (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first lab (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=[],
        help="draw of these cases (default: slow ranks, and as many of what is like them)",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-stragglers"))
    place.add_speed(parser)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: put these files together")
    return parser


if __name__ == "__main__":
    sys.exit(main())
