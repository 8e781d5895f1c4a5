"""What stands at the head of every bench's JSON: which bench, when, and on what."""

from __future__ import annotations

import datetime as dt
import os
import platform
from typing import Any


def heading(bench: str) -> dict[str, Any]:
    """Of a bench that ends now, on this machine."""
    return {
        "bench": bench,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
    }
