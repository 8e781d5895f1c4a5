"""Transfers that Gloo forgets as a group's connections end, by the manner in which they are ended.

    make bench NAME=broken-groups ARGS="--groups 600 --json FILE"

Four ranks train over loopback with DDP. In each group, one of them does no more step, and the others end their
connections, within 0.5 to 80 ms of one another, while they do steps or wait. The manners take turns. A transfer that is
not done 0.3 s later was forgotten: who waits for it waits for ever, unless its future is ended.
docs/decisions/076-broken-groups-are-left-by-their-sockets.md says what follows from it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import place
from bench.document import Document
from bench.figures import median, most
from bench.studies.broken_groups.manners import MANNERS, Manner
from bench.table import show
from foliot_lab.services.ports import keep
from foliot_lab.workload.train.ranks import missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PROCESS_GROUPS = 60
"""So many groups a process sees: each that was left keeps threads and files."""
_WITHIN_S = 900.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's way out of one group."""

    group: int
    """Its number, which draws when whose connections end."""
    manner: Manner
    rank: int
    busy: bool
    """Whether steps were done until about then. If not, all waited for the lost rank."""
    forgotten: int
    """Transfers that were not done 0.3 s after the rank's connections had ended."""
    ended_by_future: bool
    """Whether the program's thread waited for one, and went on when that was said to be done."""
    left_ms: float
    """From the rank's wish to leave until its step has failed."""


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The groups whose connections were ended in one manner."""

    manner: Manner
    groups: int
    forgotten: int
    """Groups in which a transfer of a rank was."""
    ended_by_future: int
    """Groups in which a rank waited for one."""
    left_p50_ms: float | None
    left_max_ms: float | None


def sums(rows: Sequence[Row]) -> list[Sum]:
    """A line for each manner."""
    return [
        Sum(
            manner=manner, groups=len({row.group for row in own}),
            forgotten=len({row.group for row in own if row.forgotten}),
            ended_by_future=len({row.group for row in own if row.ended_by_future}),
            left_p50_ms=median(row.left_ms for row in own), left_max_ms=most(row.left_ms for row in own),
        )
        for manner in MANNERS
        if (own := [row for row in rows if row.manner == manner])
    ]  # fmt: skip


def _run(first: int, groups: int) -> list[Row]:
    """What came of some groups, of one set of processes.

    Raises:
        RuntimeError: a rank failed.
    """
    with keep() as keeper:
        port = keeper.getsockname()[1]
        words = ["--port", str(port), "--first", str(first), "--groups", str(groups)]
        command = [sys.executable, "-m", "bench.studies.broken_groups.rank", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as ranks:
            try:
                told, _ = ranks.communicate(timeout=_WITHIN_S)
            finally:
                ranks.kill()
    if ranks.returncode:
        raise RuntimeError("a rank failed")
    return [msgspec.convert(json.loads(line), Row) for line in told.splitlines()]


def _runs(first: int, groups: int) -> Iterator[list[Row]]:
    while groups > 0:
        taken = min(groups, _PROCESS_GROUPS)
        yield _run(first, taken)
        first, groups = first + taken, groups - taken


def main() -> int:
    """Parses the command line, runs, prints."""
    parser = argparse.ArgumentParser(
        prog="bench.studies.broken_groups", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--groups", type=int, default=600, help="of all manners (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if why := missing():
        sys.stderr.write(f"{why}\n")
        return place.CANNOT
    document = Document("broken-groups", arguments)
    rows: list[Row] = []
    for made in _runs(arguments.first, arguments.groups):
        rows += made
        show(msgspec.to_builtins(sums(rows)))
        sys.stdout.flush()
    if arguments.json:
        document.write(arguments.json, rows, by_manner=msgspec.to_builtins(sums(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
