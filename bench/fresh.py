"""Settings under which each fault of a bench finds the same state as the first one."""

from __future__ import annotations

FRESH: dict[str, bool | int | float | str | list[bool | int | float | str]] = {
    # Penalties are gone, and trust is back, before the next fault. Budgets are for clusters.
    "detector.half_life_s": 0.02,
    "detector.calm_s": 0.1,
    "remediator.probation_s": 0.15,
    "remediator.forget_s": 0.1,
    "remediator.review_s": 0.25,
    "remediator.nics_away_share": 1.0,
    "remediator.moves_per_minute": 1_000_000,
}
