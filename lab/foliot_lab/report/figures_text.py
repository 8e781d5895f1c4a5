"""Numbers as words for the text of a verdict."""

from __future__ import annotations

_WORTH_SAYING = 2
"""The ratio of a time to its promise from which on the text states it."""


def time_of(ms: float) -> str:
    """A time, in ms below a second and else in seconds."""
    return f"{ms:.1f} ms" if ms < 1_000 else f"{ms * 1e-3:.1f} s"


def miss(was_ms: float, promised_ms: float, how: str) -> str:
    """The amount by which a time misses its promise."""
    times = f", {was_ms / promised_ms:.0f} times what was promised" if was_ms >= _WORTH_SAYING * promised_ms else ""
    return f"promised within {time_of(promised_ms)}: {time_of(was_ms - promised_ms)} {how}{times}"


def count_of(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
