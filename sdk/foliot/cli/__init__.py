"""The command ``foliot``: each subcommand is a module with ``register(subparsers)``.

Other distributions add theirs by the entry-point group ``foliot.commands``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys

import foliot.cli.clock
import foliot.cli.decode
import foliot.cli.keys
import foliot.cli.trace
import foliot.cli.up
import foliot.cli.watch


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and runs the subcommand; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="foliot", description="Clocks, paths and ranks of a GPU cluster, kept in step."
    )
    subparsers = parser.add_subparsers(required=True, metavar="command")
    commands = (foliot.cli.up, foliot.cli.watch, foliot.cli.trace, foliot.cli.clock, foliot.cli.decode, foliot.cli.keys)
    for module in commands:
        module.register(subparsers)
    for entry_point in importlib.metadata.entry_points(group="foliot.commands"):
        entry_point.load()(subparsers)
    parsed = parser.parse_args(arguments)
    try:
        status: int = parsed.func(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has had enough; the interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
