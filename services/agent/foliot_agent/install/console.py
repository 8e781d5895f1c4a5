"""Prints findings and actions on standard output and errors on standard error, in order.

A reader may have had enough (``| head -3``). That is no error, and no action is left half done for it: the rest is said
to nobody.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


def say(text: str) -> None:
    """Tells what was found or done."""
    with _whether_read_or_not(sys.stdout):
        sys.stdout.write(text)


def complain(text: str) -> None:
    """Prints an error after all that was said before: it flushes standard output first, as both may go to one place."""
    end()
    with _whether_read_or_not(sys.stderr):
        sys.stderr.write(text)


def end() -> None:
    """Writes what still waits to be written; the interpreter would complain at its end where nobody reads."""
    with _whether_read_or_not(sys.stdout):
        sys.stdout.flush()


@contextlib.contextmanager
def _whether_read_or_not(stream: TextIO) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
