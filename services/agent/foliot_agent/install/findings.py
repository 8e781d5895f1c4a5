"""Findings about a host, in words that a person can act on."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

Level = Literal["ok", "note", "warn", "stop"]
"""``note``: worth knowing; ``warn``: works, but worse than it could; ``stop``: cannot become a node like this."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    about: str
    said: str
    to_do: str = ""
    """The remedy; empty: nothing need be done."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.level:<5}{self.about:<12}{self.said}" + (f"; {self.to_do}" if self.to_do else "")


ok = functools.partial(Finding, "ok")
note = functools.partial(Finding, "note")
warn = functools.partial(Finding, "warn")
stop = functools.partial(Finding, "stop")
