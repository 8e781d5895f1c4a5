"""The JSON document of a bench: its name, time, code, settings, versions and machine, then its results.

Every bench that writes JSON uses a `Document`. Figures without all of that cannot be compared with others.
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
"""The keys with which every document begins."""
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_ANSWER_S = 10.0


class Document:
    """The document of a bench that begins now. Shares of processor time are those from here until `head`.

    Parameters:
        name: the name of the bench.
        arguments: its command line, which is its settings; paths are left out, because they are this machine's alone.
        programs: versions of programs that it measures or runs beside Foliot, see `program`.
        more: further settings, such as those of the services that it starts.
    """

    def __init__(
        self, name: str, arguments: argparse.Namespace, programs: Mapping[str, str | None] | None = None, **more: Any
    ) -> None:
        self._name = name
        given = {key: value for key, value in vars(arguments).items() if not _is_path(value)}
        # `json` is no setting, even if there is no file to write to.
        self._settings = {key: _plain(value) for key, value in given.items() if key != "json"} | more
        self._versions = versions() | dict(programs or {})
        # Now, and not at the end: a later commit is not the code that runs.
        self._commit = commit(Path(__file__).parent)
        self._work_s = fixed_work_s()
        self._began = CpuTimes.read()

    def head(self) -> dict[str, Any]:
        """The head of the document, if the bench ends now."""
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
                # Before and after, to show a machine that changed its speed meanwhile.
                "fixed_work_s": [self._work_s, fixed_work_s()],
            },
        }

    def write(self, file: Path, rows: Sequence[msgspec.Struct], **more: Any) -> None:
        """Writes rows, after the other parts, as the document of a bench that ends now."""
        keep(file, self.head(), [msgspec.to_builtins(row) for row in rows], **more)


def keep(file: Path, head: Mapping[str, Any], rows: Sequence[Any], **more: Any) -> None:
    """Writes a document, with each row, and each object of another list, on a line.

    Raises:
        ValueError: the head lacks a key of `HEAD`, or another part has such a key.
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
    """A value as JSON, below a key of the document."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return "[\n" + ",\n".join(f"    {json.dumps(each, allow_nan=False)}" for each in value) + "\n  ]"
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")


def joined(heads: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The head of a document that joins others. A value that all share stands alone; otherwise it is a list."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for head in heads for key in head):
        values = [head.get(key) for head in heads]
        found[key] = values[0] if all(value == values[0] for value in values) else values
    return found


def joined_head(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The head of a document that joins others, of which some may lack keys of `HEAD`."""
    return joined([{key: each.get(key) for key in HEAD} for each in documents])


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
    """A value as JSON permits it: JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else msgspec.to_builtins(value)
