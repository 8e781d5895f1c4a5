"""The manners in which a group's connections are ended."""

from __future__ import annotations

from typing import Literal, get_args

RANKS = 4
Manner = Literal["at-once", "reading-first", "when-nothing-moves"]
MANNERS: tuple[Manner, ...] = get_args(Manner)
