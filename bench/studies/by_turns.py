"""Two checkouts by turns: what the same benches say of this one, and of one from before.

Each turn runs every bench in both, one after the other; which is first changes from turn to turn. Each checkout runs
by its own environment, as `make .venv/.dev` and `make .venv/.train` make it. A figure's ratio is taken turn by turn,
so that a machine whose speed drifts counts on both sides.

    git worktree add ../before COMMIT && make -C ../before .venv/.dev .venv/.train
    make bench NAME=by-turns ARGS="--before ../before --turns 3 --json FILE"
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.document import Document
from bench.table import show
from foliot_lab.measure.machine import CpuTimes, commit

Figures = Iterator[tuple[str, float]]
Read = Callable[[Mapping[str, Any]], Figures]

_HERE = Path(__file__).parents[2]
_ROLES = ("probe", "agent", "sync", "detector", "remediator", "gateway")
_SIDES = ("before", "after")
_NOT_THEIRS = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_LONGEST_S = 1_800.0
_STARTS = 5
"""Starts of each service in a turn."""
_START = """
import importlib, resource, time
began = time.perf_counter()
importlib.import_module("foliot_{role}.service")
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


class Trial(msgspec.Struct, frozen=True):
    """One bench with its settings, and how its figures are read."""

    bench: str
    arguments: str
    read: Read


class Row(msgspec.Struct, kw_only=True):
    """A figure of both, a value a turn."""

    bench: str
    figure: str
    before: list[float]
    after: list[float]
    before_median: float
    after_median: float
    ratio: float | None
    """Median of the turns' ratios, after by before; None: before is 0 in some turn."""
    ratio_least: float | None
    ratio_most: float | None


def _of_road(document: Mapping[str, Any]) -> Figures:
    for row in document["rows"]:
        fault = f"{row['fault']}, agents {'not armed' if row['armed'] == 'off' else 'armed'}"
        yield f"{fault}: missed", row["missed"]
        yield f"{fault}: p50, ms", row["p50_ms"]
        yield f"{fault}: p99, ms", row["p99_ms"]


def _of_quiet(document: Mapping[str, Any]) -> Figures:
    for row in document["summary"]:
        yield f"{row['what']}: false events and commands", row["events_false"] + row["commands_false"]
    for row in document["silences_summary"]:
        yield f"{row['what']}: silences missed", row["detect_missed"]
        if row["moved_p50_ms"] is not None:
            yield f"{row['what']}: silence moved, p50, ms", row["moved_p50_ms"]


def _of_failover(document: Mapping[str, Any]) -> Figures:
    for row in document["rows"]:
        yield f"{row['variant']}: 180 steps, s", row["total_s"]
        yield f"{row['variant']}: longest step, ms", row["worst_step_ms"]
        yield f"{row['variant']}: steps lost", row["lost_steps"]
        if row["move_ms"] is not None:
            yield f"{row['variant']}: moved, ms", row["move_ms"]


def _of_fleet(document: Mapping[str, Any]) -> Figures:
    [row] = document["rows"]
    for key, figure in {
        "events_per_s": "events a second", "p50_ms": "event to command, p50, ms", "p99_ms": "the same, p99, ms",
    }.items():  # fmt: skip
        yield figure, row[key]


def _of_chaos(document: Mapping[str, Any]) -> Figures:
    rounds = document["rounds"]
    yield "rounds not healed", sum(not each["healed"] for each in rounds)
    yield "commands lost or done twice", sum(each["lost"] + each["done_twice"] for each in rounds)
    recovered = [each["recovery_s"] for each in rounds if each["recovery_s"] is not None]
    yield "recovery, median, s", statistics.median(recovered)


def _of_probe_cost(document: Mapping[str, Any]) -> Figures:
    for row in document["rows"]:
        yield f"{row['nics']} NICs, pace {row['pace']}: of a core, %", 100 * row["core"]
        yield f"{row['nics']} NICs, pace {row['pace']}: of a probe, µs", row["us_per_probe"]


_TRIALS = (
    Trial("fleet", "--nodes 2000 --rate 50 --seconds 60 --anyway", _of_fleet),
    Trial("road", "--rows carrier silent --armed off --count 40", _of_road),
    Trial("quiet", "--where lab --only nothing hog-one --trials 6 --silences 6 --anyway", _of_quiet),
    Trial("chaos", "--rounds 10", _of_chaos),
    Trial("failover", "--reps 1 --reps-without 0 --reps-peers 0 --variants '30 s link failure'", _of_failover),
    Trial("probe-cost", "--nics 1 2 --seconds 15 --repetitions 1 --anyway", _of_probe_cost),
)


class Checkout:
    """A tree with its environment."""

    def __init__(self, folder: Path, results: Path) -> None:
        self.folder, self._results = folder, results
        results.mkdir(parents=True)

    def run(self, trial: Trial, turn: int) -> dict[str, float]:
        """The figures of a bench.

        Raises:
            RuntimeError: it failed, or wrote no document.
        """
        file = self._results / f"{trial.bench}-{turn}.json"
        arguments = f"{trial.arguments} --json {file}"
        command = ["make", "-s", "-C", str(self.folder), "bench", f"NAME={trial.bench}", f"ARGS={arguments}"]
        log = self._results / f"{trial.bench}-{turn}.log"
        with log.open("wb") as said:
            done = subprocess.run(
                command, stdout=said, stderr=said, timeout=_LONGEST_S, check=False, env=_environment()
            )
        if not file.exists():
            raise RuntimeError(f"{trial.bench} ended with {done.returncode}, see {log}")
        return dict(trial.read(json.loads(file.read_text())))

    def starts(self) -> dict[str, float]:
        """What it takes to import each service: the least of some starts in seconds, and their memory in MB."""
        found = {}
        for role in _ROLES:
            command = [str(self.folder / ".venv/bin/python"), "-c", _START.format(role=role)]
            seconds, memory = [], []
            for _ in range(_STARTS):
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
                took, held = map(float, done.stdout.split())
                seconds.append(took)
                memory.append(held)
            found[f"{role}: imports, s"] = min(seconds)
            found[f"{role}: memory after them, MB"] = statistics.median(memory)
        return found


def _environment() -> dict[str, str]:
    """This process's, without what would give one checkout the other's packages, or keep it from compiling its own."""
    return {key: value for key, value in os.environ.items() if key not in _NOT_THEIRS}


def compare(bench: str, before: list[dict[str, float]], after: list[dict[str, float]]) -> list[Row]:
    """A row for each figure that all turns of both have, in the order of the last turn."""
    rows = []
    for figure in after[-1] if after else ():
        if not all(figure in turn for turn in (*before, *after)):
            continue
        old, new = [[turn[figure] for turn in turns] for turns in (before, after)]
        ratios = [late / early for early, late in zip(old, new, strict=True) if early]
        known = len(ratios) == len(old)
        rows.append(
            Row(
                bench=bench,
                figure=figure,
                before=old,
                after=new,
                before_median=statistics.median(old),
                after_median=statistics.median(new),
                ratio=statistics.median(ratios) if known else None,
                ratio_least=min(ratios) if known else None,
                ratio_most=max(ratios) if known else None,
            )
        )
    return rows


def main() -> int:
    """Runs all turns, prints the figures, and writes them."""
    arguments = _parser().parse_args()
    trials = [trial for trial in _TRIALS if trial.bench in arguments.only]
    document = Document("by-turns", arguments, before=commit(arguments.before))
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="foliot-by-turns-"))
    places = (arguments.before.resolve(), _HERE)
    sides = [Checkout(place, folder / name) for place, name in zip(places, _SIDES, strict=True)]
    found: dict[str, tuple[list[dict[str, float]], ...]] = {name: ([], []) for name in arguments.only}
    idle = []
    for turn in range(arguments.turns):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        if "start" in found:
            for side in order:
                found["start"][side].append(sides[side].starts())
        for trial in trials:
            for side in order:
                began, began_s = CpuTimes.read(), time.monotonic()
                found[trial.bench][side].append(sides[side].run(trial, turn))
                share, took_s = began.idle_share(CpuTimes.read()), time.monotonic() - began_s
                idle.append({"bench": trial.bench, "turn": turn, "of": _SIDES[side], "idle_cpu": round(share, 3)})
                sys.stderr.write(f"{trial.bench}, turn {turn}: {took_s:.0f} s, {share:.0%} idle\n")
    rows = [row for name, (before, after) in found.items() for row in compare(name, before, after)]
    show([msgspec.to_builtins(row) for row in rows])
    if arguments.json:
        document.write(arguments.json, rows, idle=idle)
    return 0


def _parser() -> argparse.ArgumentParser:
    names = ["start", *(trial.bench for trial in _TRIALS)]
    parser = argparse.ArgumentParser(prog="bench.by-turns", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--before", type=Path, required=True, help="the checkout from before")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="(default: all)")
    parser.add_argument("--folder", type=Path, help="keep what the benches wrote here")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
