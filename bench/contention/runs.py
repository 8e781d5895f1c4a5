"""Runs a trial in a lab of its own, by the command ``foliot lab run``, and makes its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bench import lab_command
from bench.contention.draw import draw, under
from bench.contention.rows import Found, row_of, row_without_report
from foliot_lab.exit_statuses import EX_IMPOSSIBLE, EX_USAGE

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from bench.contention.draw import Improve, Policy, Trial
    from bench.contention.rows import LeftOut, Row

_UNPLACED = "The fabric's hash leads no two flows"
"""What the lab says if no entropies lead the flows over one link; see `PlacementError` of its placement."""
_FABRICS = 20
"""So many are tried for a trial, at most. With two flows, eight entropies each and four spines, nearly all will do."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of all trials."""

    folder: Path
    """For scenarios, reports and logs, which stay."""
    sizes: Collection[int]
    after_s: float
    silent: bool
    improve: Improve
    again: int
    """How often a trial is taken again, at most, because the machine was busy or there was no report."""
    speed: float


def run(case: str, seed: int, policy: Policy, options: Options) -> Row:
    """The row of a trial, of the first of its runs that tells something; else of the last."""
    fabric, tries = 0, 1
    while True:
        trial = draw(case, seed, options.sizes, after_s=options.after_s, silent=options.silent, fabric=fabric)
        row = _once(under(trial, policy, options.improve), policy, options, tries)
        if row.left_out == "unplaced" and fabric < _FABRICS:
            fabric += 1
        elif row.left_out not in {"busy", "no report"} or tries > options.again:
            return row
        else:
            tries += 1


def _once(trial: Trial, policy: Policy, options: Options, tries: int) -> Row:
    """The row of one run."""
    files = options.folder / f"{trial.case}-{trial.seed}-{policy}"
    ended = lab_command.run(trial.scenario, files, options.folder / "lab", "--speed", options.speed)
    if ended.report is not None:
        return row_of(trial, policy, msgspec.json.decode(ended.report, type=Found), tries)
    said = ended.log.read_text()
    why: LeftOut = "not carried" if ended.status == EX_IMPOSSIBLE else "no report"
    if ended.status == EX_USAGE and _UNPLACED in said:
        why = "unplaced"
    return row_without_report(trial, policy, why, said, tries)
