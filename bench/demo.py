"""The demo again and again, by its own command: its verdicts, with or without a hog of one core beside it.

    make bench NAME=demo ARGS="--runs 10 --json FILE"
    make bench NAME=demo ARGS="--runs 3 --hosts 8 --hog --json FILE"    # forced, as `foliot lab demo --hosts 8` is

A run takes a minute and a half. The file is written anew after each, so that an interrupted series is not lost. The
reports and the words of all runs stay in the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bench import place
from bench.document import Document
from bench.lab_command import LAB, finished
from foliot_lab.demo import SIZES, demo
from foliot_lab.faults.actions import Hog

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMO = (*LAB, "demo", "--once")
"""The demo's own command."""


class Row(msgspec.Struct, kw_only=True):
    """One run. None: it ended without a report, and so without a verdict."""

    run: int
    hosts: int | None = None
    verdict: Literal["right", "wrong", "none"]
    reasons: tuple[str, ...]
    """The sentences of all outcomes that were not right; without a verdict, the last line that the demo printed."""
    events_false: int | None = None
    commands_false: int | None = None
    idle_cpu: float | None = None
    clocks_p99_ns: float | None = None
    """True error of the clocks' values used now. None also where too few windows were judged."""
    within_bound: float | None = None
    """Share of these values that lie within their statistical bound."""
    within_hard_bound: float | None = None


def row_of(run: int, report: dict[str, Any] | None, said: str = "") -> Row:
    """The row of a run.

    Parameters:
        report: its report, as JSON; None: there is none.
        said: everything that the demo printed.
    """
    if report is None:
        return Row(run=run, verdict="none", reasons=tuple(said.strip().splitlines()[-1:]))
    verdict, unexplained, clocks = report["verdict"], report["unexplained"], report["clocks"]
    return Row(
        run=run, hosts=report["scenario"]["fabric"]["hosts"], verdict="right" if verdict["right"] else "wrong",
        reasons=tuple(
            f"{each['fault']} {each['sentence']}".strip() for each in verdict["outcomes"] if not each["right"]
        ),
        events_false=unexplained["events"], commands_false=unexplained["commands"],
        idle_cpu=round(report["machine"]["idle_cpu"], 3),
        clocks_p99_ns=clocks["true_error_ns"]["p99"], within_bound=clocks["within_bound"],
        within_hard_bound=clocks["within_hard_bound"],
    )  # fmt: skip


def runs(arguments: argparse.Namespace) -> Iterator[Row]:
    """Runs the demo so many times, one after the other."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, arguments.runs + 1):
        report, log = (arguments.folder / f"run-{number}.{kind}" for kind in ("json", "log"))
        report.unlink(missing_ok=True)
        command = [*DEMO, "--report", report, "--folder", arguments.folder / "lab", "--speed", str(arguments.speed)]
        if arguments.hosts is not None:
            command += ["--hosts", str(arguments.hosts)]
        finished(command, log)
        yield row_of(number, json.loads(report.read_text()) if report.exists() else None, log.read_text())


@contextlib.contextmanager
def _hogged(*, hog: bool) -> Iterator[None]:
    """A process beside the demo that takes a whole core, for the length of the block."""
    beside = Hog(1.0, processors=1)
    try:
        if hog:
            beside.start()
        yield
    finally:
        beside.stop()


def _line(row: Row) -> str:
    p99_ns = None if row.clocks_p99_ns is None else round(row.clocks_p99_ns)
    cells = (row.run, row.hosts, row.verdict, row.events_false, row.commands_false, row.idle_cpu, p99_ns)
    return "".join(f"{'-' if cell is None else cell:>10}" for cell in cells) + "".join(
        f"\n    {reason}" for reason in row.reasons
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.demo", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--runs", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--hosts", type=int, choices=SIZES, help="force this size (default: what the demo chooses)")
    parser.add_argument("--hog", action="store_true", help="keep one core busy beside it")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-demo"))
    place.add_speed(parser)
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not place.permits():
        return place.CANNOT
    rows: list[Row] = []
    try:
        with _hogged(hog=arguments.hog):
            # A size that is asked for is run anywhere. Otherwise the demo needs the smallest one at least.
            if arguments.hosts is None and not place.can_carry(demo(min(SIZES)), arguments.speed):
                return place.CANNOT
            document = Document("demo", arguments)
            print(
                "".join(f"{name:>10}" for name in ("run", "hosts", "verdict", "events", "commands", "idle", "p99 ns"))
            )
            for row in runs(arguments):
                rows.append(row)
                print(_line(row), flush=True)
                if arguments.json:
                    document.write(arguments.json, rows)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 1
    print(f"{sum(row.verdict == 'right' for row in rows)} of {len(rows)} right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
