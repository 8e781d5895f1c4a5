"""Modules import one another in one direction, also where only a type is meant."""

from __future__ import annotations

import graphlib
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]


def test_no_imports_form_a_circle():
    """Across all packages; those below ``TYPE_CHECKING`` and inside of functions count too."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*settings["root_packages"], cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    graphlib.TopologicalSorter(imports).prepare()
