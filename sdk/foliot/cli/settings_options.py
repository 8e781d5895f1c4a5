"""What subcommands are told of settings: the file, and where the bus is."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import os

import msgspec

from foliot.settings import BusSettings, load


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds ``--config``."""
    parser.add_argument(
        "--config", default=os.environ.get("FOLIOT_CONFIG", ""), help="settings file (default: $FOLIOT_CONFIG)"
    )


def take_config(arguments: argparse.Namespace) -> None:
    """Takes the file from the command line. Processes that are started later have it, too."""
    if arguments.config:
        os.environ["FOLIOT_CONFIG"] = arguments.config


def add_bus(parser: argparse.ArgumentParser, role: str) -> None:
    """Adds ``--credentials``, ``--ca``, ``--bus`` and ``--config``.

    Parameters:
        role: whose credentials they are.
    """
    parser.add_argument(
        "--credentials", metavar="FILE", help=f"credentials of a {role} (default: [bus] credentials of the settings)"
    )
    parser.add_argument("--ca", metavar="FILE", help="certificate that vouches for the server's (default: [bus] ca)")
    parser.add_argument("--bus", metavar="URL", help="address of NATS (default: [bus] url of the settings)")
    add_config(parser)


def bus_settings(arguments: argparse.Namespace) -> BusSettings:
    """The settings of the bus, as the command line overrides those of the file.

    Raises:
        SettingsError: those of the file are wrong.
    """
    take_config(arguments)
    said = {"url": arguments.bus, "credentials": arguments.credentials, "ca": arguments.ca}
    return msgspec.structs.replace(load(BusSettings, "bus"), **{key: value for key, value in said.items() if value})
