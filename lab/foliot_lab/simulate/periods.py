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
    """When each begins, counted from now, and for how long; in whatever unit all is given in.

    Parameters:
        until: none begins then or later.
        lasting: the shortest and the longest.
        pause: likewise from the end of one to the beginning of the next; the first one begins within the longest.
        begin: where one is to begin that could begin at a time.
    """
    at = chance.uniform(0.0, pause[1])
    while (at := at if begin is None else begin(at)) < until:
        spell = chance.uniform(*lasting)
        yield at, spell
        at += spell + chance.uniform(*pause)
