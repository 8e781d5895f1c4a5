"""A bench of three days of clocks: 129,600 windows in virtual time, through all of sync, in a world of known truth.

Oscillators warm and cool by day and night. Hosts sleep, start again and have their clocks set. Links go and return,
loads come and go, and a node's stamps are worse than it says. A leap second passes, and the leader of sync changes. All
of that is drawn from the seed. The stamps are made, filtered and pruned as in `bench.clock_sim`. They go through a
shard's fits and the leader, with the messages of the bus between them as bytes.

Each value that a host believes is held against the truth at four moments of each window. The file is written anew after
each hour, so that a run that is ended early leaves what it has found.

    make bench NAME=clock-days ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.clock_days.chain import Chain, changes
from bench.clock_days.judge import Judge
from bench.clock_days.rows import WINDOWS_PER_HOUR, Errors, Hour, kinds, verdicts
from bench.clock_days.upsets import WINDOW_S, draw
from bench.clock_days.world import World, said_ns
from bench.document import Document
from foliot_sync.settings import SyncSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.clock_days.rows import Row
    from bench.clock_days.upsets import Plan

_LEAST_HOSTS = 4


class Run:
    """A run, hour by hour.

    Parameters:
        plan: what befalls the fleet.
        arguments: of the command line.
    """

    def __init__(self, plan: Plan, arguments: argparse.Namespace) -> None:
        settings = SyncSettings(window_s=WINDOW_S, timescale=arguments.timescale)
        self._plan = plan
        self._windows = round(plan.seconds / WINDOW_S)
        self.world = World(plan, arguments.hosts, arguments.entropies, arguments.seed)
        self.chain, self.judge = Chain(settings), Judge(self.world, settings)
        self.errors = Errors(self._windows, arguments.hosts)

    def hours(self) -> Iterator[Row]:
        """Runs; a row after each hour."""
        hour = Hour(self.judge)
        for number in range(self._windows):
            began_s = time.process_time()
            self._window(number, hour)
            hour.cpu_s += time.process_time() - began_s
            if hour.windows == WINDOWS_PER_HOUR or number + 1 == self._windows:
                if number + 1 == self._windows:
                    self.judge.recoveries.close()
                yield hour.row(number // WINDOWS_PER_HOUR, self.errors.between(number + 1 - hour.windows, number + 1))
                hour = Hour(self.judge)

    def _window(self, number: int, hour: Hour) -> None:
        for change in changes(self._plan.upsets, number):
            self.chain.succeed(change)
        stamps = list(self.world.window(number))
        began_s = time.process_time()
        states = self.chain.window(stamps, said_ns(number))
        hour.chain_s += time.process_time() - began_s
        if states:
            self.world.fleet.told(states)
        judged = self.judge.window(number, said_ns(number), states)
        self.errors.take(number, judged)
        hour.take(judged, self.world.load)


def parser() -> argparse.ArgumentParser:
    """The parser of the bench's options."""
    made = argparse.ArgumentParser(prog="bench.clock_days", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    made.add_argument("--json", type=Path, help="write the document to this file, after each hour")
    made.add_argument("--hours", type=float, default=72.0, help="of virtual time (default: %(default)s)")
    made.add_argument("--hosts", type=int, default=5, help="each with a clock (default: %(default)s)")
    made.add_argument("--entropies", type=int, default=1, help="streams between two hosts (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the world, and of all upsets (default: %(default)s)")
    made.add_argument(
        "--timescale", choices=("tai", "utc"), default="tai", help="of the common time (default: %(default)s)"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line, runs, prints a table."""
    made = parser()
    arguments = made.parse_args(argv)
    if arguments.hosts < _LEAST_HOSTS:
        made.error(f"--hosts must be at least {_LEAST_HOSTS}: of fewer clocks none outvotes another")
    try:
        plan = draw(arguments.hours, arguments.hosts, arguments.seed)
    except ValueError as why:
        made.error(str(why))
    document, run, rows = Document("clock-days", arguments), Run(plan, arguments), []
    print(
        f"{'hour':>4} {'p50':>7} {'p99':>8} {'max':>10} {'outside':>8} {'hard':>5} {'off':>8} {'jump':>7} {'MB':>6} "
        f"{'ms/window':>9}"
    )
    for row in run.hours():
        rows.append(row)
        print(
            f"{row.hour:>4} {_shown(row.p50_ns):>7} {_shown(row.p99_ns):>8} {_shown(row.max_ns):>10} {row.outside:>8} "
            f"{row.outside_hard:>5}"
            f" {_shown(row.off_ns):>8} {row.jump_ns:>7.0f} {row.rss_mb:>6.0f} "
            f"{row.cpu_s_per_window * 1e3:>9.1f}", flush=True
        )  # fmt: skip
        if arguments.json:
            document.write(arguments.json, rows, **_findings(run, rows))
    for each in kinds(run.judge.recoveries.found):
        print(
            f"{each.kind:<22} {each.upsets:>3}; without a valid state: its host {each.own_s:g} s, others "
            f"{each.others_s:g} s;"
            f" promised {'-' if each.promised_s is None else f'{each.promised_s:g} s'}, longer {each.longer}"
        )
    for (bound, cause), count in sorted(run.judge.windows_outside.items()):
        print(f"outside of the {bound} bound: {count} windows of a clock, {cause}")
    for verdict in verdicts(run.judge, rows):
        print(f"{verdict.figure}: {verdict.measured:g}, goal {verdict.goal:g}, {'met' if verdict.met else 'missed'}")
    return 0


def _findings(run: Run, rows: Sequence[Row]) -> dict[str, Any]:
    """The findings that stand in the file beside a row for each hour."""
    judge = run.judge
    return {
        "verdicts": _plain(verdicts(judge, rows)),
        "values": judge.values,
        "values_outside": dict(judge.outside),
        "windows_outside": [
            {"bound": bound, "cause": cause, "windows": count}
            for (bound, cause), count in sorted(judge.windows_outside.items())
        ],
        "utc": {"windows": judge.utc_windows, "unknown": judge.utc_unknown, "outside": judge.utc_outside},
        "rejected": run.chain.rejected,
        "given_up": run.chain.given_up,
        "regimes": _plain(run.errors.regimes(sum(row.windows for row in rows))),
        "kinds": _plain(kinds(judge.recoveries.found)),
        "upsets": _plain(judge.recoveries.found),
        "outside": _plain(judge.lapses),
    }


def _plain(structs: Sequence[object]) -> object:
    return msgspec.to_builtins(structs)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


if __name__ == "__main__":
    sys.exit(main())
