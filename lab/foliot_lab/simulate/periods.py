"""Periods of a repeated disturbance, drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator


def spells(
    chance: random.Random,
    until: float,
    lasting: tuple[float, float],
    pause: tuple[float, float],
    begin: Callable[[float], float] | None = None,
) -> Iterator[tuple[float, float]]:
    """The beginning of each period, counted from now, and its length; all in the unit of the arguments.

    Parameters:
        until: no period begins then or later.
        lasting: the shortest and the longest period.
        pause: the shortest and the longest pause between two; the first period begins within the longest.
        begin: shifts the earliest possible beginning of a period to the wanted one.
    """
    at = chance.uniform(0.0, pause[1])
    while (at := at if begin is None else begin(at)) < until:
        spell = chance.uniform(*lasting)
        yield at, spell
        at += spell + chance.uniform(*pause)
