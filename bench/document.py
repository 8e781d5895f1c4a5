"""Every bench's JSON: which bench, when, of which code, under which settings, beside which versions and on what machine; then what it measured.

Whatever bench writes JSON has a `Document` do it: figures without all of that cannot be compared with others.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foliot_lab.measure.machine import CpuTimes, commit, fixed_work_s, versions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

HEAD = ("bench", "date", "commit", "settings", "versions", "machine")
"""What every document begins with."""
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_ANSWER_S = 10.0


class Document:
    """Of a bench that begins now: the shares of processor time are those from here until `head`.

    Parameters:
        name: of the bench.
        arguments: its command line, which is its settings, but for paths, which are this machine's alone.
        programs: versions of programs that it measures or runs beside Foliot, see `program`.
        more: further settings, as those of the services that it starts.
    """

    def __init__(
        self, name: str, arguments: argparse.Namespace, programs: Mapping[str, str | None] | None = None, **more: Any
    ) -> None:
        self._name = name
        given = {key: value for key, value in vars(arguments).items() if not _is_path(value)}
        # Without a file to write to there is nothing to say, but `json` is no setting all the same.
        self._settings = {key: _plain(value) for key, value in given.items() if key != "json"} | more
        self._versions = versions() | dict(programs or {})
        # Now, and not at the end: what is committed meanwhile is not what runs.
        self._commit = commit(Path(__file__).parent)
        self._work_s = fixed_work_s()
        self._began = CpuTimes.read()

    def head(self) -> dict[str, Any]:
        """Of a document of this bench, if it ends now."""
        now = CpuTimes.read()
        return {
            "bench": self._name,
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "commit": self._commit,
            "settings": self._settings,
            "versions": self._versions,
            "machine": {
                "cores": os.cpu_count(),
                "idle_cpu": round(self._began.idle_share(now), 3),
                "stolen_cpu": round(self._began.stolen_share(now), 3),
                # Before and after: a machine that changed its pace meanwhile shows.
                "fixed_work_s": [self._work_s, fixed_work_s()],
            },
        }

    def write(self, file: Path, rows: Sequence[msgspec.Struct], **more: Any) -> None:
        """Writes rows, after whatever else there is to say, as the document of a bench that ends now."""
        keep(file, self.head(), [msgspec.to_builtins(row) for row in rows], **more)


def keep(file: Path, head: Mapping[str, Any], rows: Sequence[Any], **more: Any) -> None:
    """Writes a document, each row, or whatever else stands in a list of objects, in a line.

    Raises:
        ValueError: the head lacks something of `HEAD`, or something else takes its place.
    """
    if lacking := [key for key in HEAD if key not in head]:
        raise ValueError(f"the head of {file} lacks {', '.join(lacking)}")
    if twice := sorted({*HEAD, "rows"} & set(more)):
        raise ValueError(f"{', '.join(twice)} of {file} would hide the head's, or the rows")
    document = {**head, **more, "rows": list(rows)}
    file.write_text(
        "{\n" + ",\n".join(f"  {json.dumps(key)}: {_laid_out(value)}" for key, value in document.items()) + "\n}\n"
    )


def _laid_out(value: Any) -> str:
    """As JSON, below a key of the document."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "[\n" + ",\n".join(f"    {json.dumps(each, allow_nan=False)}" for each in value) + "\n  ]"
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")


def joined(heads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The head of a document that is put together from others: what all say alike, and else a list of what each says."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for head in heads for key in head):
        values = [head.get(key) for head in heads]
        found[key] = values[0] if all(value == values[0] for value in values) else values
    return found


def program(*command: str | Path, environment: Mapping[str, str] | None = None) -> str | None:
    """The version that a program tells of itself; None: it tells none, or is not here."""
    try:
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, timeout=_ANSWER_S,
            env=None if environment is None else {**os.environ, **environment},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout + done.stderr)
    return None if found is None else found.group()


def _is_path(value: object) -> bool:
    return isinstance(value, Path) or (isinstance(value, list) and any(isinstance(each, Path) for each in value))


def _plain(value: Any) -> Any:
    """As JSON can have it: it knows no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else msgspec.to_builtins(value)
