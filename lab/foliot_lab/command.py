"""The command ``foliot lab``: run a scenario, run the demo, or look into a running lab.

A lab's own modules are imported where one is to run: `foliot lab exec` is called often, and needs none of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foliot_lab.demo import SIZES, demo
from foliot_lab.exec import execute
from foliot_lab.exit_statuses import EX_USAGE, EX_WRONG
from foliot_lab.fabric import capabilities
from foliot_lab.measure.quota import share
from foliot_lab.scenario.reading import ScenarioError, load_scenario
from foliot_lab.scenario.topology import GATEWAY_PORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.scenario.spec import Scenario

_FOLDER = Path("run/lab")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    lab = subparsers.add_parser("lab", help="build a fabric on this machine, with all services in it")
    commands = lab.add_subparsers(required=True, metavar="command")

    runs = commands.add_parser("run", help="run a scenario, write a report, exit 0 if every outcome was right")
    runs.add_argument("scenario", type=Path, help="TOML file, see docs/lab.md")
    runs.add_argument("--stay", action="store_true", help="go on running afterwards, until interrupted")
    runs.add_argument(
        "--force", action="store_true", help="begin also where the machine is too slow or too busy for it"
    )
    runs.set_defaults(func=_run)

    shows = commands.add_parser("demo", help="run the built-in scenario, and go on running until interrupted")
    shows.add_argument(
        "--once", action="store_true", help="end after the sequence; exit 0 only if every outcome was right"
    )
    shows.add_argument(
        "--hosts",
        type=int,
        choices=SIZES,
        help="hosts of the fabric, however fast the machine is (default: as many as leave 40 %% of it idle)",
    )
    shows.set_defaults(func=_demo)

    for parser in (runs, shows):
        parser.add_argument("--report", type=Path, help="write what was measured to this JSON file")
        parser.add_argument(
            "--folder",
            type=Path,
            default=_FOLDER,
            help="folder for settings, logs and NATS' store (default: %(default)s)",
        )
        parser.add_argument(
            "--port", type=int, default=GATEWAY_PORT, help="port of the API on this machine (default: %(default)s)"
        )
        parser.add_argument(
            "--speed", type=share, default=1.0, help="share of all processors that it may use (default: 1, all of it)"
        )

    inside = commands.add_parser("exec", help="run a command in a namespace of a running lab")
    inside.add_argument("place", help="a host, or control")
    inside.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- command")
    inside.add_argument("--folder", type=Path, default=_FOLDER, help="folder of the lab (default: %(default)s)")
    inside.set_defaults(func=_exec)


def _run(arguments: argparse.Namespace) -> int:
    try:
        scenario = load_scenario(arguments.scenario)
    except ScenarioError as error:
        sys.stderr.write(f"{error}\n")
        return EX_USAGE
    return _launched([scenario], arguments, stay=arguments.stay, forced=arguments.force)


def _demo(arguments: argparse.Namespace) -> int:
    sizes = SIZES if arguments.hosts is None else (arguments.hosts,)
    forced = arguments.hosts is not None
    return _launched([demo(hosts) for hosts in sizes], arguments, stay=not arguments.once, forced=forced, is_demo=True)


def _launched(
    scenarios: Sequence[Scenario], arguments: argparse.Namespace, *, stay: bool, forced: bool, is_demo: bool = False
) -> int:
    from foliot_lab.launch import Wish, launch  # noqa: PLC0415 - see above

    wish = Wish(
        folder=arguments.folder, report=arguments.report, port=arguments.port, speed=arguments.speed, stay=stay,
        forced=forced, is_demo=is_demo,
    )  # fmt: skip
    return launch(scenarios, wish)


def _exec(arguments: argparse.Namespace) -> int:
    capabilities.shed_threads()
    command = [word for number, word in enumerate(arguments.arguments) if number or word != "--"]
    try:
        execute(arguments.folder, arguments.place, command or [os.environ.get("SHELL", "/bin/sh")])
    except (LookupError, OSError) as error:
        sys.stderr.write(f"{error}\n")
    return EX_WRONG
