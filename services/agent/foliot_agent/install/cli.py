"""The arguments of ``foliot agent`` and ``foliot node``. Their code is imported when they are called."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import functools
import importlib
import os
from pathlib import Path

from foliot_agent.install import console

CONFIG = "/etc/foliot/foliot.toml"
"""Where ``foliot node join`` writes the settings, and the units read them."""


def register_agent(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``foliot agent``."""
    agent = subparsers.add_parser("agent", help="show what the agent of this node would change")
    commands = agent.add_subparsers(required=True, metavar="command")
    plan = commands.add_parser("plan", help="print every change that the agent would make on this host, and make none")
    plan.add_argument(
        "--config", default=os.environ.get("FOLIOT_CONFIG", CONFIG), help="settings file (default: %(default)s)"
    )
    plan.add_argument("--no-bus", action="store_true", help="plan without the bus, as if there were no other node")
    plan.add_argument("--json", action="store_true", help="print JSON")
    plan.set_defaults(func=functools.partial(_run, "foliot_agent.install.plan_command"))


def register_node(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``foliot node``."""
    node = subparsers.add_parser("node", help="make this host a node of a fleet, or take it out again")
    commands = node.add_subparsers(required=True, metavar="command")
    join = commands.add_parser("join", help="check this host, write its settings, install and start probe and agent")
    join.add_argument("bus", help="URL of NATS, such as nats://host:4222")
    join.add_argument("--name", default="", help="name of the node (default: as before, else the host's name)")
    join.add_argument(
        "--index", type=int, help="number of the node in the fleet (default: as before, else the lowest that is free)"
    )
    join.add_argument(
        "--rail",
        action="append",
        default=[],
        metavar="RAIL=DEVICE",
        help="a backend NIC, such as rail0=eth2; repeat it for each",
    )
    join.add_argument(
        "--telemetry", default="", metavar="URL", help="receiver of the spans, such as http://gateway:8470"
    )
    join.add_argument(
        "--armed", choices=("off", "bus-away", "always"), help="whether the agent moves traffic by itself; needs a key"
    )
    join.add_argument("--key-file", type=Path, help="file with the key that the fleet's agents share")
    join.add_argument("--dry-run", action="store_true", help="check and say what would be done, and do nothing")
    join.add_argument("--no-start", action="store_true", help="install, but start nothing")
    join.set_defaults(func=functools.partial(_run, "foliot_agent.install.join"))
    leave = commands.add_parser("leave", help="undo all that join and the agent did on this host and on the bus")
    leave.add_argument("--name", default="", help="forget this node, whose host is gone, and touch nothing on this one")
    leave.add_argument("--bus", default="", help="URL of NATS (default: as the settings say)")
    leave.add_argument("--dry-run", action="store_true", help="say what would be undone, and do nothing")
    leave.add_argument(
        "--kernel",
        action="store_true",
        help="with --root: take away also what the agent made in this network namespace",
    )
    leave.set_defaults(func=functools.partial(_run, "foliot_agent.install.leave"))
    for parser in (join, leave):
        parser.add_argument(
            "--credentials", default="", help="credentials for the bus: the file or directory that `foliot keys` made"
        )
        parser.add_argument("--ca", default="", help="certificate that vouches for the bus's server")
        parser.add_argument(
            "--root", type=Path, default=Path("/"), help="directory that all files are below (default: %(default)s)"
        )


def _run(module: str, arguments: argparse.Namespace) -> int:
    """Imports and runs the module's `run`: no other command shall wait a third of a second for pyroute2."""
    try:
        return int(importlib.import_module(module).run(arguments))
    finally:
        console.end()
