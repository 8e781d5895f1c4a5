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
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from bench import lab_command, place
from bench.document import Document
from bench.series import Series, add_options
from bench.stragglers.draw import CASES, draw
from bench.stragglers.rows import Found, Row, by_case, goals, rows_of
from foliot_lab.workload.train.ranks import missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main() -> int:
    """Parses the command line, runs, prints the rows and what they come to."""
    arguments = _parser().parse_args()
    series = Series(arguments, Row, _sums)
    if arguments.merge:
        series.merge()
        return 0
    if not place.permits(missing()):
        return place.CANNOT
    if not series.run(Document("stragglers", arguments), _labs(arguments)):
        return 1
    return 0 if series.rows else place.CANNOT


def _labs(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each lab that had a report."""
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.first, arguments.first + arguments.labs):
        lab = draw(seed, arguments.only, arguments.trials)
        ended = lab_command.run(
            lab.scenario, arguments.folder / str(seed), arguments.folder / "lab", "--speed", arguments.speed
        )
        if ended.report is None:
            print(f"lab {seed}: no report, status {ended.status}; see {ended.log}", flush=True)
            continue
        yield rows_of(lab, seed, msgspec.json.decode(ended.report, type=Found))


def _sums(rows: Sequence[Row]) -> dict[str, Any]:
    return {"by_case": by_case(rows), "goals": goals(rows)}


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
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
