"""Trials in virtual time, on the services' own cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.quiet.rows import Row, SilenceRow
from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.trials import hole, quiet, silence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from foliot_lab.simulate.trials import Lives, Silence


def trials(lives: Lives, first: int, count: int, kinds: Sequence[str] = KINDS) -> Iterator[Row]:
    """So many trials without a path fault, from this seed on; each of several kinds in turn."""
    for seed in range(first, first + count):
        trial = quiet(lives, seed, kinds[seed % len(kinds)])
        yield Row(
            what=trial.what, where="cores", seed=seed, idle_cpu=None, events_false=trial.events_false,
            commands_false=trial.commands_false, moves_false=trial.moves_false, detail=trial.detail, told=trial.told,
        )  # fmt: skip


def silent_trials(lives: Lives, first: int, count: int, kinds: Sequence[str] = KINDS) -> Iterator[SilenceRow]:
    """So many trials with a path that drops everything."""
    return _broken(silence, lives, first, count, kinds)


def hole_trials(lives: Lives, first: int, count: int, kinds: Sequence[str] = KINDS) -> Iterator[SilenceRow]:
    """So many trials with a path that drops every packet of full size."""
    return _broken(hole, lives, first, count, kinds)


def _broken(
    trial_of: Callable[[Lives, int, str], Silence], lives: Lives, first: int, count: int, kinds: Sequence[str]
) -> Iterator[SilenceRow]:
    for seed in range(first, first + count):
        trial = trial_of(lives, seed, kinds[seed % len(kinds)])
        yield SilenceRow(
            what=trial.what, where="cores", seed=seed, idle_cpu=None, events_false=trial.events_false,
            commands_false=trial.commands_false, moves_false=trial.moves_false, detail=trial.detail, told=trial.told,
            fault=trial.fault, detect_ms=trial.detect_ms, moved_ms=trial.moved_ms,
        )  # fmt: skip
