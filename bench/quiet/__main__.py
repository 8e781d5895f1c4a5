"""Doing no harm: disturbances that no path is to blame for, and what is said and moved because of them; and true silences under the same.

    make bench NAME=quiet ARGS="--trials 1000 --silences 1000 --json FILE"
    make bench NAME=quiet ARGS="--trials 1 --first 36 --only hog-all"     # one of them once more

Every trial follows from its seed and the kind of disturbance, so that any can be had again by itself.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.document import Document
from bench.quiet import cores
from bench.quiet.rows import Row, SilenceRow, silences, summary
from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.trials import Lives, retold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_EVERY = 100


def main() -> int:
    """Parses the command line, runs, prints what was false and two tables."""
    arguments = _parser().parse_args()
    if arguments.retell is not None:
        for kind in arguments.only:
            sys.stdout.writelines(f"{line}\n" for line in retold(Lives(), arguments.retell, kind))
        return 0
    document = Document("quiet", arguments)
    rows = _taken("trials", cores.trials(arguments.first, arguments.trials, arguments.only))
    silent = _taken("silences", cores.silent_trials(arguments.first, arguments.silences, arguments.only))
    quiet_table, silent_table = summary(rows), silences(silent)
    _show(quiet_table)
    _show(silent_table)
    if arguments.json:
        document.write(
            arguments.json, rows, silences=[msgspec.to_builtins(row) for row in silent], summary=quiet_table,
            silences_summary=silent_table,
        )  # fmt: skip
    return 0


def _taken(what: str, trials: Iterable[Row]) -> list[Any]:
    rows = []
    for row in trials:
        rows.append(row)
        if row.events_false or row.commands_false or (isinstance(row, SilenceRow) and row.moved_ms is None):
            sys.stderr.write(f"{what}: {_told(row)}\n")
        if len(rows) % _EVERY == 0:
            sys.stderr.write(f"{what}: {len(rows)}\n")
    return rows


def _told(row: Row) -> str:
    words = [f"{row.what} seed {row.seed} ({row.detail}): {row.events_false} events, {row.commands_false} commands"]
    if isinstance(row, SilenceRow):
        words.append(f"{row.fault} found after {row.detect_ms} ms, left after {row.moved_ms} ms")
    return "; ".join([*words, *row.told])


def _show(table: Sequence[dict[str, Any]]) -> None:
    if not table:
        return
    print("  ".join(f"{name:>{max(len(name), 9)}}" for name in table[0]))
    for row in table:
        print("  ".join(f"{'-' if value is None else value:>{max(len(name), 9)}}" for name, value in row.items()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.quiet", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=1_000, help="without a path fault (default: %(default)s)")
    parser.add_argument("--silences", type=int, default=0, help="with one (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: %(default)s)")
    parser.add_argument(
        "--retell",
        type=int,
        metavar="SEED",
        help="why the trial of this seed had false events: what the detector was told",
    )
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="kinds (default: all)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
