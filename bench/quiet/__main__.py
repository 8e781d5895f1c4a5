"""Doing no harm: disturbances that are no path's fault, the false events and moves under them, and true silences.

    # all of it, a quarter of an hour
    make bench NAME=quiet ARGS="--json FILE"
    # in virtual time alone
    make bench NAME=quiet ARGS="--where cores --trials 1000 --silences 1000 --holes 500 --json FILE"
    # a piece of the lab's part
    make bench NAME=quiet ARGS="--where lab --first 50 --trials 50 --silences 0 --json two.json"
    # in the lab, on half of the machine
    make bench NAME=quiet ARGS="--where lab --speed 0.5 --json half.json"
    # pieces put together
    make bench NAME=quiet ARGS="--merge one.json two.json --json all.json"
    # one trial once more
    make bench NAME=quiet ARGS="--where cores --first 53 --trials 1 --silences 0 --only hog-all"
    # its false events, and why
    make bench NAME=quiet ARGS="--retell 53 --only hog-all"

Its seed and its kind of disturbance determine every trial, so that any can be repeated by itself. In the lab that holds
as far as a machine repeats itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import place
from bench.document import Document, joined_head, keep
from bench.quiet import cores, disturbances, lab
from bench.quiet.rows import Row, SilenceRow, silences, summary
from bench.table import show
from foliot_lab.services.readiness import NotReadyError
from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.trials import Lives, retold, retold_silence

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY = 100
_COUNTS = {"cores": (1_000, 1_000), "lab": (100, 50)}
"""Default numbers of trials and of silences."""


class Taken(msgspec.Struct):
    """The results of the trials so far."""

    rows: list[Row] = []
    silent: list[SilenceRow] = []
    holes: list[SilenceRow] = []

    def take(self, row: Row, among: list[Any]) -> None:
        """Keeps a row, and prints it if it is not as it should be."""
        among.append(row)
        if row.events_false or row.commands_false or (isinstance(row, SilenceRow) and row.moved_ms is None):
            sys.stderr.write(f"{_told(row)}\n")
        if len(among) % _EVERY == 0:
            sys.stderr.write(f"{len(self.rows)} trials, {len(self.silent)} silences, {len(self.holes)} holes\n")


def main() -> int:
    """Parses the command line, runs, prints the false events and the tables."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.speed < 1 and "lab" not in arguments.where:
        parser.error("--speed is of the lab alone: virtual time passes as quickly on any machine")
    if arguments.retell is not None:
        for kind in arguments.only:
            tell = retold_silence if arguments.silent else retold
            sys.stdout.writelines(f"{line}\n" for line in tell(Lives(), arguments.retell, kind))
        return 0
    if arguments.merge:
        documents = [json.loads(file.read_text()) for file in arguments.merge]
        parts = [part for each in documents for part in each["parts"]]
        _finish(_merged(documents), arguments, joined_head(documents), parts)
        return 0
    # The lab first, so that its refusal comes before the wait for the cores.
    carries = None if arguments.anyway else lab.scenario(arguments.hosts)
    if "lab" in arguments.where and not place.enter(carries=carries, speed=arguments.speed):
        return place.CANNOT
    document, taken = Document("quiet", arguments), Taken()
    try:
        if "lab" in arguments.where:
            asyncio.run(_in_lab(arguments, taken))
        if "cores" in arguments.where:
            _on_cores(arguments, taken)
    except NotReadyError as error:  # It has begun, so this is no lack of the machine's
        sys.stderr.write(f"{error}\n")
        return 1
    _finish(taken, arguments, document.head(), [_part(arguments, taken)])
    return 0


def _on_cores(arguments: argparse.Namespace, taken: Taken) -> None:
    trials, silent = _counts("cores", arguments)
    lives = Lives()  # of all trials: the fleets of most seeds are the same
    for row in cores.trials(lives, arguments.first, trials, arguments.only):
        taken.take(row, taken.rows)
    for row in cores.silent_trials(lives, arguments.first, silent, arguments.only):
        taken.take(row, taken.silent)
    for row in cores.hole_trials(lives, arguments.first, arguments.holes, arguments.only):
        taken.take(row, taken.holes)


async def _in_lab(arguments: argparse.Namespace, taken: Taken) -> None:
    """Runs trials and silences in turn, so that both are done in the time allowed."""
    trials, silent = _counts("lab", arguments)
    deadline_s = time.monotonic() + arguments.within_s
    kinds = [kind for kind in arguments.only if kind in disturbances.KINDS]
    async with lab.Trials.ready(arguments.hosts, arguments.folder) as bench:
        for number in range(max(trials, silent)):
            seed = arguments.first + number
            if time.monotonic() > deadline_s:
                sys.stderr.write(f"out of time: go on with --first {seed}\n")
                break
            if number < trials:
                taken.take(await bench.quiet(seed, kinds), taken.rows)
            if number < silent:
                taken.take(await bench.silence(seed, kinds), taken.silent)


def _counts(where: str, arguments: argparse.Namespace) -> tuple[int, int]:
    trials, silent = _COUNTS[where]
    return (
        trials if arguments.trials is None else arguments.trials,
        silent if arguments.silences is None else arguments.silences,
    )


def _part(arguments: argparse.Namespace, taken: Taken) -> dict[str, Any]:
    """The settings of a piece."""
    return {
        "where": arguments.where, "first": arguments.first, "hosts": arguments.hosts, "speed": arguments.speed,
        "kinds": arguments.only, "anyway": arguments.anyway,
        "trials": len(taken.rows), "silences": len(taken.silent), "holes": len(taken.holes),
    }  # fmt: skip


def _merged(documents: Sequence[dict[str, Any]]) -> Taken:
    return Taken(
        rows=[msgspec.convert(row, Row) for each in documents for row in each["rows"]],
        silent=[msgspec.convert(row, SilenceRow) for each in documents for row in each["silences"]],
        holes=[msgspec.convert(row, SilenceRow) for each in documents for row in each.get("holes", ())],
    )


def _finish(taken: Taken, arguments: argparse.Namespace, head: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    quiet_table, silent_table, hole_table = summary(taken.rows), silences(taken.silent), silences(taken.holes)
    for table in (quiet_table, silent_table, hole_table):
        show(table)
    if arguments.json:
        keep(
            arguments.json, head, msgspec.to_builtins(taken.rows), parts=parts, summary=quiet_table,
            silences_summary=silent_table,
            holes_summary=hole_table, silences=msgspec.to_builtins(taken.silent),
            holes=msgspec.to_builtins(taken.holes),
        )  # fmt: skip


def _told(row: Row) -> str:
    words = [
        (
            f"{row.where}: {row.what} seed {row.seed} ({row.detail}): {row.events_false} events, "
            f"{row.commands_false} commands"
        )
    ]
    if isinstance(row, SilenceRow):
        words.append(f"{row.fault} found after {row.detect_ms} ms, left after {row.moved_ms} ms")
    return "; ".join([*words, *row.told])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.quiet", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--where", nargs="+", choices=tuple(_COUNTS), default=list(_COUNTS), help="(default: both)")
    parser.add_argument(
        "--trials",
        type=int,
        help=f"without a path fault (default: {_COUNTS['cores'][0]} on the cores, {_COUNTS['lab'][0]} in the lab)",
    )
    parser.add_argument(
        "--silences", type=int, help=f"with one (default: {_COUNTS['cores'][1]} and {_COUNTS['lab'][1]})"
    )
    parser.add_argument(
        "--holes",
        type=int,
        default=0,
        help="with paths that pass no packet of full size, on the cores alone (default: 0)",
    )
    parser.add_argument("--first", type=int, default=0, help="seed of the first (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="kinds (default: all)")
    parser.add_argument(
        "--retell",
        type=int,
        metavar="SEED",
        help="why a trial on the cores had false events: what the detector had been told",
    )
    parser.add_argument("--silent", action="store_true", help="retell the silence of this seed instead")
    parser.add_argument("--hosts", type=int, default=4, help="of the lab (default: %(default)s)")
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="in the lab also where the machine is too busy for it: no harm is to be done then, either",
    )
    parser.add_argument(
        "--within-s", type=float, default=math.inf, help="begin no trial in the lab later than this (default: no limit)"
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-quiet"))
    place.add_speed(parser)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: put these files together")
    return parser


if __name__ == "__main__":
    sys.exit(main())
