"""Telling the person: what was found and done on standard output, what went wrong on standard error, in the order in which it was said."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Tells what was found or done."""
    sys.stdout.write(text)


def complain(text: str) -> None:
    """Tells what went wrong, after all that was said before: both may go to one place, and the one waits to be written where the other does not."""
    sys.stdout.flush()
    sys.stderr.write(text)
