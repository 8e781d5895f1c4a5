"""Starts a bench by its name: ``python -m bench NAME ...``. A study has a name like any other bench.

make bench NAME=road ARGS="--json FILE"
"""

from __future__ import annotations

import importlib.util
import pkgutil
import runpy
import sys
from pathlib import Path

import bench
from bench import studies


def main() -> int | None:
    """Runs the bench that the first argument names. Without a known name, prints the names that exist."""
    name = sys.argv[1].replace("-", "_") if len(sys.argv) > 1 else ""
    for package in (bench, studies):
        module = f"{package.__name__}.{name}"
        if name and importlib.util.find_spec(module.rpartition(".")[0]) and importlib.util.find_spec(module):
            del sys.argv[1]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return None
    sys.stderr.write(f"there is no bench {name or 'without a name'}; there are {', '.join(_benches())}\n")
    return 2


def _benches() -> list[str]:
    """Names of all benches. The first lines of their documentation say how to start them."""
    found = []
    for package in (bench, studies):
        for each in pkgutil.iter_modules(package.__path__):
            spec = importlib.util.find_spec(f"{package.__name__}.{each.name}" + (".__main__" if each.ispkg else ""))
            name = each.name.replace("_", "-")
            if spec and spec.origin and f"make bench NAME={name}" in Path(spec.origin).read_text(encoding="utf-8"):
                found.append(name)
    return sorted(found)


if __name__ == "__main__":
    raise SystemExit(main())
