"""A goal of a bench."""

from __future__ import annotations

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """One goal, and what it was."""

    goal: str
    n: int
    was: str
    met: bool
