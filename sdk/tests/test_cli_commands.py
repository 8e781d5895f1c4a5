"""The command `foliot` as a whole: which subcommands there are, and what is imported for one."""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys

import pytest

from foliot.cli import main

LISTED = """
import sys
from foliot.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*(name for name in sys.modules if name.startswith("foliot.cli.") or name in {"numpy", "nats", "opentelemetry"}), file=sys.stderr)
"""


def test_each_name_that_a_distribution_declares_is_the_subcommand_it_adds():
    """Else the subcommand would be unknown."""
    declared = importlib.metadata.entry_points(group="foliot.commands")
    assert {each.name for each in declared} >= {"agent", "node", "lab"}
    for each in declared:
        subparsers = argparse.ArgumentParser().add_subparsers()
        each.load()(subparsers)
        assert list(subparsers.choices) == [each.name]


def test_help_and_a_wrong_word_name_all_subcommands(capsys):
    """Of all distributions."""
    for arguments in (["--help"], ["nonsense"]):
        with pytest.raises(SystemExit):
            main(arguments)
        said = "".join(capsys.readouterr())
        assert all(
            name in said for name in ("up", "watch", "trace", "map", "clock", "decode", "keys", "agent", "node", "lab")
        )


@pytest.mark.parametrize("command", ["node", "agent"])
def test_what_a_subcommand_does_not_need_is_not_imported(command):
    """A host's first look at what `foliot node` takes waits for no library of the bus."""
    done = subprocess.run([sys.executable, "-c", LISTED, command, "--help"], capture_output=True, text=True, check=True)
    assert f"foliot {command}" in done.stdout
    assert done.stderr.split() == []
