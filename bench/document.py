"""Every bench's JSON: which bench, when, and on what; then what it measured."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def heading(bench: str) -> dict[str, Any]:
    """Of a bench that ends now, on this machine."""
    return {
        "bench": bench,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
    }


def write(file: Path, bench: str, rows: Sequence[msgspec.Struct], **more: Any) -> None:
    """Writes the rows of a bench that ends now, after whatever else there is to say."""
    document = {**heading(bench), **more, "rows": [msgspec.to_builtins(row) for row in rows]}
    file.write_text(json.dumps(document, indent=2) + "\n")
