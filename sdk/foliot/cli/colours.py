"""Colours of the terminal; none where output goes elsewhere."""

from __future__ import annotations

import os
import sys

BOLD, DIM = 1, 2
RED, GREEN, YELLOW = 31, 32, 33


def wanted() -> bool:
    """Whether standard output is a terminal whose owner has not declined colours (no-color.org)."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(text: str, code: int, colour: bool) -> str:
    """The text in a colour, by its ANSI code; 0: as it is."""
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text
