"""Contention in a real lab: is it named, is it cured, and what do jobs get of that, in trials drawn from seeds.

    # forty collisions of two or three flows, and sixty trials that are clean or seem like one: some two hours
    make bench NAME=contention ARGS="--json FILE"
    # a piece of it; pieces put together
    make bench NAME=contention ARGS="--first 50 --trials 50 --json two.json"
    make bench NAME=contention ARGS="--merge one.json two.json --json all.json"
    # one trial once more
    make bench NAME=contention ARGS="--only incast --first 16 --trials 1"
    # two all-to-all and two rings, by all policies
    make bench NAME=contention \
        ARGS="--only jobs --policy foliot hash rehash best-of-two planned spray --trials 5 --json jobs.json"
    # routers that do not answer; a job that matters more; a link that is lost meanwhile
    make bench NAME=contention ARGS="--only collision --silent --trials 20 --json silent.json"
    make bench NAME=contention ARGS="--only priority link-lost --trials 20 --json hard.json"

Each trial is a lab of its own. Its case and its seed determine it, as far as a machine repeats itself. The file is
written anew after each. Scenarios, reports and logs stay in the folder. docs/performance.md explains the columns.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from bench import place
from bench.contention import runs
from bench.contention.draw import CASES, POLICIES, SIZES, case_of, sizes_of
from bench.contention.goals import by_policy, by_verdict, goals, left_out
from bench.contention.rows import Row
from bench.document import Document
from bench.series import Series, add_options
from bench.table import cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COLUMNS = (
    "workload", "policy", "seed", "hosts", "expected", "verdict", "named_link_right", "detected_s", "cure_s",
    "share_of_solo", "slowest_share", "step_ms", "moves", "moves_after", "idle_cpu",
)  # fmt: skip
_WIDTHS = (13, 11, 5, 5, 17, 17, 5, 6, 6, 6, 7, 7, 5, 5, 5)
_HEADINGS = ("", "", "", "", "", "", "link", "found", "cured", "solo", "slowest", "step", "", "after", "idle")
"""What stands above a column, where its name is too long."""


def main() -> int:
    """Parses the command line, runs, prints the rows and what they come to."""
    parser = _parser()
    arguments = parser.parse_args()
    series = Series(arguments, Row, _sums, _tell)
    if arguments.merge:
        series.merge()
        _tell_left_out(series.rows)
        return 0
    for case in arguments.only or CASES[:1]:
        if not {*sizes_of(case)} & {*arguments.hosts}:
            parser.error(f"{case} needs {' or '.join(map(str, sizes_of(case)))} hosts")
    if not place.permits():
        return place.CANNOT
    document = Document("contention", arguments)
    print(_line([heading or name for heading, name in zip(_HEADINGS, _COLUMNS, strict=True)]))
    if not series.run(document, _trials(arguments)):
        return 1
    _tell_left_out(series.rows)
    return place.CANNOT if series.rows and all(row.left_out == "not carried" for row in series.rows) else 0


def _trials(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """The row of each run; those of a trial under several policies follow each other."""
    deadline_s = time.monotonic() + arguments.within_s
    options = runs.Options(
        folder=arguments.folder, sizes=arguments.hosts, after_s=arguments.after_s, silent=arguments.silent,
        improve=arguments.improve, again=arguments.again, speed=arguments.speed,
    )  # fmt: skip
    options.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.first, arguments.first + arguments.trials):
        if time.monotonic() > deadline_s:
            sys.stderr.write(f"out of time: go on with --first {seed}\n")
            return
        for policy in arguments.policy:
            yield [runs.run(case_of(seed, arguments.only), seed, policy, options)]


def _sums(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "by_verdict": by_verdict(rows),
        "by_policy": by_policy(rows),
        "goals": goals(rows),
        "left_out": left_out(rows),
    }


def _tell_left_out(rows: Sequence[Row]) -> None:
    for why, count in left_out(rows).items():
        print(f"{count} rows left out: {why}")


def _tell(rows: Sequence[Row]) -> None:
    for row in rows:
        print(_told(row), flush=True)


def _told(row: Row) -> str:
    """The line of a row, and below it what is not as it should be."""
    notes = [f"left out: {row.left_out}"] if row.left_out else []
    if not row.right and not row.left_out:
        notes.append(
            f"wrong: {row.place or 'nothing'} named; {row.false_events} false events, {row.false_moves} false moves"
        )
    if row.tries > 1:
        notes.append(f"taken {row.tries} times")
    notes += row.reasons
    return "\n    ".join([_line([getattr(row, name) for name in _COLUMNS]), *notes])


def _line(cells: Sequence[object]) -> str:
    return " ".join(f"{cell(each):>{width}}" for each, width in zip(cells, _WIDTHS, strict=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.contention", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--trials", type=int, default=100, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: %(default)s)")
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=[],
        help="cases, by turns (default: of five trials two collisions, and three lookalikes by turns)",
    )  # fmt: skip
    parser.add_argument(
        "--policy", nargs="+", choices=POLICIES, default=["foliot"], help="each trial under each (default: foliot)"
    )
    parser.add_argument(
        "--improve", choices=("act", "advise"), default="act",
        help="remediator.improve, where the policy is foliot (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--hosts", nargs="+", type=int, choices=SIZES, default=list(SIZES), help="(default: both)")
    parser.add_argument(
        "--after-s", type=float, default=60.0, help="how long moves count after a cure (default: %(default)g)"
    )
    parser.add_argument("--silent", action="store_true", help="routers do not answer ([fabric] icmp = false)")
    parser.add_argument(
        "--again", type=int, default=1,
        help="take a trial again so often, at most, if the machine was busy or no report came (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--within-s", type=float, default=math.inf, help="begin no trial later than this (default: no limit)"
    )
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
