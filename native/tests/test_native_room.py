"""The room of compiled code: what it may import, and that its stubs say what it has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from foliot import native

PACKAGE = Path(__file__).parents[1] / "foliot_native"
SOURCES = sorted(PACKAGE.glob("*.pyx"))
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:cp)?def\s+(\w+)\(|^cdef class\s+(\w+)", re.MULTILINE)
ALLOWED = {"numpy", "libc", "cython", "cpython", "posix", "foliot_native"}


@pytest.mark.parametrize("source", [*SOURCES, *PACKAGE.glob("*.pxd")], ids=lambda path: path.name)
def test_compiled_code_knows_nothing_of_foliot(source):
    """It has numpy, C and itself: import-linter does not read Cython."""
    imported = {(one or other).partition(".")[0] for one, other in _IMPORT.findall(source.read_text())}
    assert imported - ALLOWED == set()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_stub_has_each_function_with_its_parameters(source):
    """Mypy sees the stubs alone."""
    text = source.read_text()
    public = {one or other for one, other in _FUNCTION.findall(text)}
    stub = ast.parse(source.with_suffix(".pyi").read_text())
    stated = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {name for name in stated if not name.startswith("_")} == {
        name for name in public if not name.startswith("_")
    }
    for name, node in stated.items():
        if isinstance(node, ast.FunctionDef):
            written = re.search(rf"^(?:cp)?def\s+{name}\(([^)]*)\)", text, re.MULTILINE)[1]
            names = [re.split(r"[=:]", each)[0].split()[-1] for each in written.split(",") if each.strip()]
            assert [each.arg for each in node.args.args] == names


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_what_is_installed_was_compiled_of_these_sources(source):
    """Of every source there is a module, and in a clone it is this clone's."""
    if native.why_python():
        pytest.skip(native.why_python())
    module = native.compiled(source.stem)
    assert module is not None
    assert Path(module.__file__).parent == PACKAGE
