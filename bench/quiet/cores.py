"""Trials in virtual time, on the services' own cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.quiet.rows import Row, SilenceRow
from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.trials import Lives, quiet, silence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def trials(first: int, count: int, kinds: Sequence[str] = KINDS) -> Iterator[Row]:
    """So many trials without a path fault, from this seed on; of several kinds, each in turn."""
    lives = Lives()
    for seed in range(first, first + count):
        trial = quiet(lives, seed, kinds[seed % len(kinds)])
        yield Row(
            what=trial.what, where="cores", seed=seed, idle_cpu=None, events_false=trial.events_false,
            commands_false=trial.commands_false, moves_false=trial.moves_false, detail=trial.detail, told=trial.told,
        )  # fmt: skip


def silent_trials(first: int, count: int, kinds: Sequence[str] = KINDS) -> Iterator[SilenceRow]:
    """As many with a path that drops everything."""
    lives = Lives()
    for seed in range(first, first + count):
        trial = silence(lives, seed, kinds[seed % len(kinds)])
        yield SilenceRow(
            what=trial.what, where="cores", seed=seed, idle_cpu=None, events_false=trial.events_false,
            commands_false=trial.commands_false, moves_false=trial.moves_false, detail=trial.detail, told=trial.told,
            fault=trial.fault, detect_ms=trial.detect_ms, moved_ms=trial.moved_ms,
        )  # fmt: skip
