"""The command ``foliot``: each subcommand is a module with ``register(subparsers)``.

Other distributions add theirs by entry points of the group ``foliot.commands``. Only the called subcommand's module is
imported.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys

_GROUP = "foliot.commands"
_COMMANDS = ("up", "watch", "trace", "why", "map", "job", "drain", "analyse", "clock", "decode", "keys")
"""This distribution's subcommands, in the order of the help."""


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs the subcommand; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parsed = parser(arguments[0] if arguments else "").parse_args(arguments)
    try:
        status: int = parsed.func(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone; the interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of one subcommand or, for another word such as `--help`, of all subcommands."""
    made = argparse.ArgumentParser(prog="foliot", description="Clocks, paths and ranks of a GPU cluster, kept in step.")
    subparsers = made.add_subparsers(required=True, metavar="command")
    for entry_point in _wanted(command):
        entry_point.load()(subparsers)
    return made


def _wanted(command: str) -> list[importlib.metadata.EntryPoint]:
    """The entry point of a subcommand or, for another word such as `--help`, those of all."""
    own = [importlib.metadata.EntryPoint(name, f"foliot.cli.{name}:register", _GROUP) for name in _COMMANDS]
    known = own if command in _COMMANDS else [*own, *importlib.metadata.entry_points(group=_GROUP)]
    return [each for each in known if each.name == command] or known
