"""The table of rounds by victim."""

from __future__ import annotations

import statistics
from typing import Any


def rows(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per victim, and one of all. `recovery_s` has the median, the 95th percentile and the maximum."""
    victims = sorted({each["victim"] for each in rounds})
    return [_row(victim, [each for each in rounds if each["victim"] == victim]) for victim in victims] + [
        _row("all", rounds)
    ]


def _row(victim: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    taken_s = sorted(each["recovery_s"] for each in rounds if each["recovery_s"] is not None)
    return {
        "victim": victim,
        "rounds": len(rounds),
        "healed": sum(each["healed"] for each in rounds),
        "done_twice": sum(each["done_twice"] for each in rounds),
        "lost": sum(each["lost"] for each in rounds),
        "recovery_s": {
            "median": round(statistics.median(taken_s), 2),
            "p95": taken_s[min(int(0.95 * len(taken_s)), len(taken_s) - 1)],
            "most": taken_s[-1],
        }
        if taken_s
        else None,
    }
