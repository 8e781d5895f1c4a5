"""A series of runs, one after the other: the rows so far, and what they come to at the end."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bench import place
from bench.document import joined_head, keep
from bench.table import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bench.document import Document

Row = TypeVar("Row", bound=msgspec.Struct)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds ``--folder``, ``--speed``, ``--json`` and ``--merge``."""
    folder = parser.prog.replace(".", "-")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), f"foliot-{folder}"))
    place.add_speed(parser)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--merge", type=Path, nargs="+", help="run nothing: put these files together")


def show_rows(rows: Sequence[msgspec.Struct]) -> None:
    """Prints rows as a table, see `bench.table.show`."""
    show([msgspec.to_builtins(row) for row in rows])
    sys.stdout.flush()


class Series(Generic[Row]):
    """The rows of a series. The file that the command line names is written anew after each run.

    Parameters:
        arguments: the command line, with the options of `add_options`.
        kind: of the rows.
        sums: what rows come to, by its keys in the document. Lists are shown as tables at the end.
        tell: prints the rows of a run.
    """

    def __init__(
        self, arguments: argparse.Namespace, kind: type[Row], sums: Callable[[Sequence[Row]], Mapping[str, Any]],
        tell: Callable[[Sequence[Row]], None] = show_rows,
    ) -> None:  # fmt: skip
        self.rows: list[Row] = []
        self._arguments = arguments
        self._kind, self._sums, self._tell = kind, sums, tell

    def merge(self) -> None:
        """Puts documents together."""
        documents = [json.loads(file.read_text()) for file in self._arguments.merge]
        self.rows = [msgspec.convert(row, self._kind) for each in documents for row in each["rows"]]
        self._write(joined_head(documents))
        self._sum_up()

    def run(self, document: Document, runs: Iterable[Sequence[Row]]) -> bool:
        """Takes the rows of each run as it ends, and sums them up; returns whether nobody interrupted it."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for made in filter(None, runs):
                self.rows += made
                self._tell(made)
                self._write(document.head())
        except KeyboardInterrupt:
            sys.stderr.write("interrupted\n")
            return False
        self._sum_up()
        return True

    def _write(self, head: Mapping[str, Any]) -> None:
        if self._arguments.json:
            keep(
                self._arguments.json, head, msgspec.to_builtins(self.rows),
                **msgspec.to_builtins(dict(self._sums(self.rows))),
            )  # fmt: skip

    def _sum_up(self) -> None:
        for table in self._sums(self.rows).values():
            if isinstance(table, list):
                show_rows(table)
