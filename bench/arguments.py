"""Arguments that several benches have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_settings(parser: argparse.ArgumentParser, example: str) -> None:
    """Adds the option ``--set``: settings of what is measured, a list of names and numbers.

    Parameters:
        example: one of them.
    """
    parser.add_argument(
        "--set", nargs="+", type=_setting, default=[], metavar="NAME=NUMBER", help=f"of the services, as {example}"
    )


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else float(value)
