"""Descriptions of fields, read from the source: the string below each field. Python does not keep them at run time."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys


def of_struct(kind: type) -> dict[str, str]:
    """The fields of a struct that are described, and their descriptions, as Markdown.

    Raises:
        OSError: the source is not there.
    """
    for node in _tree(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return _below(node.body)
    raise OSError(f"{kind.__name__} is not at the top of {kind.__module__}")


def of_constant(module: str, name: str) -> str:
    """The description of a module's constant, as Markdown; empty if it has none.

    Raises:
        OSError: the source is not there.
    """
    return _below(_tree(module).body).get(name, "")


def markdown(docstring: str) -> str:
    """A docstring without its indentation, its line ends inside of a paragraph and its double backticks."""
    paragraphs = inspect.cleandoc(docstring).replace("``", "`").split("\n\n")
    return "\n\n".join(re.sub(r"\n(?!- )", " ", paragraph) for paragraph in paragraphs)


def _below(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, following in itertools.pairwise(body):
        target = _target(statement)
        text = following.value if isinstance(following, ast.Expr) else None
        if target and isinstance(text, ast.Constant) and isinstance(text.value, str):
            found[target] = markdown(text.value)
    return found


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))
