"""How many cases a test of drawn ones draws: few in a usual run, and as many times as many as `FOLIOT_DRAWS` says."""

from __future__ import annotations

import os


def draws(usual: int) -> range:
    """The seeds."""
    return range(max(1, int(usual * float(os.environ.get("FOLIOT_DRAWS", "1")))))
