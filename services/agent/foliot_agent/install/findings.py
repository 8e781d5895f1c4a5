"""Findings about a host, in words that a person can act on."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "note", "warn", "stop"]
"""``note``: worth knowing; ``warn``: works, but worse than it could; ``stop``: cannot become a node like this."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    level: Level
    about: str
    said: str
    to_do: str = ""
    """What would make it better; empty: nothing need be done."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.level:<5}{self.about:<12}{self.said}" + (f"; {self.to_do}" if self.to_do else "")


def ok(about: str, said: str) -> Finding:
    """As it should be."""
    return Finding(level="ok", about=about, said=said)


def note(about: str, said: str, to_do: str = "") -> Finding:
    """Worth knowing."""
    return Finding(level="note", about=about, said=said, to_do=to_do)


def warn(about: str, said: str, to_do: str = "") -> Finding:
    """Worse than it could be."""
    return Finding(level="warn", about=about, said=said, to_do=to_do)


def stop(about: str, said: str, to_do: str = "") -> Finding:
    """In the way."""
    return Finding(level="stop", about=about, said=said, to_do=to_do)
