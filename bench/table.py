"""Tables of a bench on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def cell(value: object) -> str:
    """A value in few letters; ``-``: there is none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show(table: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows that have the same columns, below an empty line; nothing, if there are none."""
    if not table:
        return
    cells = [list(table[0]), *([cell(value) for value in row.values()] for row in table)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print()
    for row in cells:
        print("  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)).rstrip())
