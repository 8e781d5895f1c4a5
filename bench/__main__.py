"""Starts a bench by its name: ``python -m bench NAME ...``. A study has a name like any other bench.

A name has ``-`` or ``.`` where its module has ``_``.

make bench NAME=road ARGS="--json FILE"
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import runpy
import sys
from pathlib import Path

import bench
from bench import studies

_NAME = re.compile(r"make bench NAME=([\w.-]+)")


def main() -> int | None:
    """Runs the bench that the first argument names. Without a known name, prints the names that exist."""
    name = _module(sys.argv[1]) if len(sys.argv) > 1 else ""
    for package in (bench, studies):
        module = f"{package.__name__}.{name}"
        if name and importlib.util.find_spec(module):
            del sys.argv[1]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return None
    sys.stderr.write(f"there is no bench {name or 'without a name'}; there are {', '.join(benches())}\n")
    return 2


def benches() -> list[str]:
    """Names of all benches. The first lines of their documentation say how to start them."""
    found = []
    for package in (bench, studies):
        for each in pkgutil.iter_modules(package.__path__):
            spec = importlib.util.find_spec(f"{package.__name__}.{each.name}" + (".__main__" if each.ispkg else ""))
            names = _NAME.findall(Path(spec.origin).read_text(encoding="utf-8")) if spec and spec.origin else []
            found += [name for name in names[:1] if _module(name) == each.name]
    return sorted(found)


def _module(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    raise SystemExit(main())
