"""Lost ranks of a real training job: what each costs with Foliot, and what ten cost with it, torchrun and torchft.

    # two runs of ten failures with each tool, then single faults in ten labs: some ninety minutes
    make bench NAME=ranks ARGS="--json FILE"
    # single faults alone
    make bench NAME=ranks ARGS="--tools --labs 10 --json FILE"
    # ten failures alone; torchft is not installed with anything else: pip install torchft==0.2.0
    make bench NAME=ranks ARGS="--labs 0 --reps 2 --json FILE"
    # and failures for as long as a job runs
    make bench NAME=ranks ARGS="--labs 0 --reps 2 --lasting --json FILE"

All runs have one job, with one seed. The run of the tool `none` loses no rank: the losses of all others are held
against its own. The file is written anew after each run. Scenarios, reports, records and logs stay in the folder.
docs/performance.md explains the columns.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np

from bench import lab_command, place
from bench.document import Document
from bench.ranks import undisturbed
from bench.ranks.account import first_difference
from bench.ranks.draw import CASES, GRADIENT_MB, RANKS, draw
from bench.ranks.failures import Outcome, Tool, Trial
from bench.ranks.rows import Found, Losses, Row, by_case, goals, row_of, rows_of
from bench.series import Series, add_options
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.machine import package
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.ranks import missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

TOOLS: tuple[Tool, ...] = get_args(Tool)
_RATIO = 4.4
"""Checkpoint intervals from a failure to the next, as in the published test of TorchPass."""
_LINK_MBPS = 200.0
_STEP_S = 0.25
"""Where no run without a loss tells a step's length."""


class Undisturbed(msgspec.Struct, frozen=True, kw_only=True):
    """The run that lost no rank."""

    step_s: float = _STEP_S
    losses: list[float] = []
    """Of each step."""


class Bench:
    """The runs, one after the other."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._folder: Path = arguments.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._until_s: float = time.monotonic() + arguments.within_s
        self._whole = self._kept()

    def runs(self) -> Iterator[list[Row]]:
        """The rows of all runs that may begin in time."""
        arguments, tools = self._arguments, _installed(self._arguments.tools)
        for rep in range(arguments.first, arguments.first + arguments.reps):
            for tool in tools:
                if self._left_s() > 0:
                    yield self._failures(rep, tool)
        for seed in range(arguments.first, arguments.first + arguments.labs):
            if self._left_s() > 0:
                yield self._single(seed)

    def _failures(self, rep: int, tool: Tool) -> list[Row]:
        """Runs the job with many failures under a tool, or with none; no row: nothing came of it."""
        arguments = self._arguments
        trial = Trial(
            tool=tool, rep=rep, job_seed=arguments.job_seed, steps=arguments.steps,
            checkpoint_steps=arguments.checkpoint_steps, failures=self._failures_of(tool),
            each_s=_RATIO * arguments.checkpoint_steps * self._whole.step_s, within_s=min(arguments.run_s, self._left_s()),
        )  # fmt: skip
        asked, told, log = (self._folder / f"{tool}-{rep}.{ending}" for ending in ("trial", "json", "log"))
        told.unlink(missing_ok=True)
        asked.write_bytes(msgspec.json.encode(trial))
        folder = self._folder / f"{tool}-{rep}"
        command = (sys.executable, "-u", "-m", "bench.ranks.failures", asked, told, "--folder", folder)
        status = lab_command.finished(command, log)
        if not told.exists():
            print(f"{tool} {rep}: nothing came of it, status {status}; see {log}", flush=True)
            return []
        outcome = msgspec.json.decode(told.read_bytes(), type=Outcome)
        losses = np.array(json.loads(told.with_suffix(".losses").read_text()))
        if tool == "none" and outcome.account is not None:
            self._keep(Undisturbed(step_s=outcome.account.step_s, losses=losses.tolist()))
        return [row_of(outcome, self._held(losses))]

    def _single(self, seed: int) -> list[Row]:
        """Runs a lab with several single faults; no row: there was no report."""
        lab = draw(seed, self._arguments.only, self._arguments.faults, self._arguments.job_seed, self._arguments.rest_s)
        folder = self._folder / f"lab-{seed}"
        base_ns = LabTime.starting_now().base_ns
        options = ["--speed", self._arguments.speed, *(["--force"] if self._arguments.anyway else [])]
        ended = lab_command.run(lab.scenario, self._folder / str(seed), folder, *options)
        if ended.report is None:
            print(f"lab {seed}: no report, status {ended.status}; see {ended.log}", flush=True)
            return []
        found = msgspec.json.decode(ended.report, type=Found)
        records = (folder / lab.scenario.jobs[0].name).glob("*.jsonl")
        whole = merge({file.stem: read_lines(file, base_ns) for file in records}, RANKS)
        at_ns = [fault.injected_ns for fault in found.faults]
        steps_at = [int((whole.began_ns < each).sum()) for each in at_ns] + [len(whole.losses)]
        return rows_of(lab, seed, found, steps_at, self._held(whole.losses))

    def _failures_of(self, tool: Tool) -> int | None:
        if tool == "none":
            return 0
        return None if self._arguments.lasting else int(self._arguments.failures)

    def _left_s(self) -> float:
        return self._until_s - time.monotonic()

    def _kept(self) -> Undisturbed:
        """The run that lost no rank, of now or of before."""
        file = self._folder / f"undisturbed-{self._arguments.job_seed}.json"
        return msgspec.json.decode(file.read_bytes(), type=Undisturbed) if file.exists() else Undisturbed()

    def _keep(self, made: Undisturbed) -> None:
        if len(made.losses) > len(self._whole.losses):
            self._whole = made
            file = self._folder / f"undisturbed-{self._arguments.job_seed}.json"
            file.write_bytes(msgspec.json.encode(made))

    def _longer(self, steps: int) -> Undisturbed:
        """More steps that no rank was lost in, without a lab; half as many again as are needed now."""
        kept = self._kept()
        if len(kept.losses) >= steps or not self._arguments.longer:
            return kept
        made = undisturbed.losses(
            self._folder / "undisturbed", ranks=RANKS, gradient_mb=GRADIENT_MB, seed=self._arguments.job_seed,
            steps=steps * 3 // 2,
        )  # fmt: skip
        self._keep(msgspec.structs.replace(kept, losses=made.tolist()))
        return self._kept()

    def _held(self, losses: NDArray[np.float64]) -> Losses:
        if len(losses) > len(self._whole.losses):
            self._whole = self._longer(len(losses))
        whole = np.array(self._whole.losses)
        return Losses(known=min(len(losses), len(whole)), differs=first_difference(losses, whole))


def main() -> int:
    """Parses the command line, runs, prints the rows and what they come to."""
    arguments = _parser().parse_args()
    series = Series(arguments, Row, _sums)
    if arguments.merge:
        series.merge()
        return 0
    if not place.permits(missing()):
        return place.CANNOT
    if not series.run(Document("ranks", arguments, {"torchft": package("torchft")}), Bench(arguments).runs()):
        return 1
    return 0 if series.rows else place.CANNOT


def _installed(tools: Sequence[Tool]) -> list[Tool]:
    """The tools that are there; it says which is not."""
    if "torchft" not in tools or importlib.util.find_spec("torchft") is not None:
        return list(tools)
    sys.stderr.write("torchft is not installed, and left out: pip install torchft==0.2.0\n")
    return [tool for tool in tools if tool != "torchft"]


def _sums(rows: Sequence[Row]) -> dict[str, Any]:
    return {"by_case": by_case(rows), "goals": goals(rows, _LINK_MBPS)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.ranks", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--labs", type=int, default=10, help="with single faults (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=10, help="in each lab (default: %(default)s)")
    parser.add_argument(
        "--rest-s", type=float, default=8.0,
        help="from the end of a fault to the next, in which a process starts again (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=CASES, default=[], help="draw of these faults (default: all)")
    parser.add_argument("--reps", type=int, default=2, help="of many failures (default: %(default)s)")
    parser.add_argument("--tools", nargs="*", choices=TOOLS, default=[*TOOLS], help="for many failures (default: all)")
    parser.add_argument("--failures", type=int, default=10, help="in each run (default: %(default)s)")
    parser.add_argument(
        "--lasting", action="store_true", help="ranks fail at that pace for as long as the job runs, however often"
    )
    parser.add_argument(
        "--checkpoint-steps", type=int, default=20, help="steps from a checkpoint to the next (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=900, help="of a job with many failures (default: %(default)s)")
    parser.add_argument("--run-s", type=float, default=1200.0, help="give such a job up after so long")
    parser.add_argument("--first", type=int, default=0, help="seed of the first lab, and of failures")
    parser.add_argument("--job-seed", type=int, default=7, help="seed of the job's weights and data")
    parser.add_argument("--within-s", type=float, default=1e6, help="begin no run after so long")
    parser.add_argument("--anyway", action="store_true", help="even if the machine has no processors left for it")
    parser.add_argument(
        "--longer", action=argparse.BooleanOptionalAction, default=True,
        help="do more steps without a lost rank where losses are to be held against more than there are",
    )  # fmt: skip
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
