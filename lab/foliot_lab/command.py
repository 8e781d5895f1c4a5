"""The command ``foliot lab``: run a scenario, run the demo, or look into a running lab."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot.runtime.extensions import extend
from foliot.settings import SettingsError
from foliot_lab.demo import SIZES, demo
from foliot_lab.exec import execute
from foliot_lab.fabric import capabilities
from foliot_lab.loopback import Loopback
from foliot_lab.measure.budget import CARRIED, COMFORTABLE, CannotCarryError, Now, affordable
from foliot_lab.measure.quota import QuotaError, limited, share
from foliot_lab.run import Options, run
from foliot_lab.scenario.reading import ScenarioError, load_scenario
from foliot_lab.scenario.spec import trains
from foliot_lab.services.deployment import GATEWAY_PORT, extensions
from foliot_lab.services.job_placement import PlacementError
from foliot_lab.services.readiness import NotReadyError
from foliot_lab.workload.train import ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.measure.quota import Group
    from foliot_lab.scenario.spec import Scenario

EX_WRONG, EX_USAGE, EX_IMPOSSIBLE = 1, 2, 77
"""Exit statuses: an outcome was wrong; the scenario cannot be read; this machine cannot do it (automake's
"skipped")."""
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
    return _go((scenario,), arguments, stay=arguments.stay)


def _demo(arguments: argparse.Namespace) -> int:
    sizes = SIZES if arguments.hosts is None else (arguments.hosts,)
    return _go([demo(hosts) for hosts in sizes], arguments, stay=not arguments.once)


def _go(scenarios: Sequence[Scenario], arguments: argparse.Namespace, *, stay: bool) -> int:
    """Runs the first scenario of these that the machine carries."""
    try:
        extend("cli", extensions(scenarios[0].services))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EX_USAGE
    if any(map(trains, scenarios)) and (no_torch := ranks.missing()):
        sys.stderr.write(f"{no_torch}\n")
        return EX_IMPOSSIBLE
    if not capabilities.is_privileged():
        capabilities.shed_threads()
    # Only errors of the lab's own connection and supervisor; the services write logs of their own.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    try:
        with limited(arguments.speed) as group:
            return _within(scenarios, arguments, group, stay=stay)
    except (QuotaError, CannotCarryError) as error:
        sys.stderr.write(f"{error}\n")
        return EX_IMPOSSIBLE


def _within(scenarios: Sequence[Scenario], arguments: argparse.Namespace, group: Group | None, *, stay: bool) -> int:
    """Runs like `_go`, within the quota that has been set."""
    missing = capabilities.missing()
    if missing:
        sys.stderr.write("\n".join(["This machine cannot carry the lab:", *missing, ""]))
        sys.stderr.flush()
        return _go_without_links(arguments, stay=stay) if arguments.func is _demo else EX_IMPOSSIBLE
    scenario, now = _chosen(scenarios, arguments)
    capabilities.enter()
    with _own_folder(arguments.folder) as folder, _listener(arguments.port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"the API will be at {address}/api/v1/")
        options = Options(
            folder=folder,
            report=arguments.report,
            stay=stay,
            address=address,
            group=group,
            now=now,
            forced=_is_forced(arguments),
        )
        try:
            right = asyncio.run(run(scenario, options, listener, sys.stdout))
        except NotReadyError as error:
            sys.stderr.write(f"{error}\n")
            return EX_WRONG
        except PlacementError as error:
            sys.stderr.write(f"{error}\n")
            return EX_USAGE
    return 0 if right else EX_WRONG


def _is_forced(arguments: argparse.Namespace) -> bool:
    """Whether the user has forced the start or chosen the size of the fabric, whatever the machine is like."""
    return arguments.force if arguments.func is _run else arguments.hosts is not None


def _chosen(scenarios: Sequence[Scenario], arguments: argparse.Namespace) -> tuple[Scenario, Now]:
    """The first of these scenarios that the machine carries, which it announces, and the machine as it was seen.

    Raises:
        CannotCarryError: none of them.
    """
    is_demo = arguments.func is _demo
    if _is_forced(arguments):
        scenario, now = scenarios[0], Now.glance(arguments.speed)
        if problem := now.lacks(scenario, COMFORTABLE if is_demo else CARRIED):
            print(f"{problem} It goes on all the same.")
        return scenario, now
    # The smallest one is better than none.
    choices = [(each, COMFORTABLE) for each in scenarios[:-1]] + [(scenarios[-1], CARRIED)]
    scenario, now = affordable(choices, arguments.speed, sys.stdout.write)
    if is_demo:
        left = ", ".join(f"{each.fabric.hosts} hosts {max(0.0, now.left_by(each)):.0%}" for each in scenarios)
        print(
            f"the machine is {now.idle_cpu:.0%} idle; with {left} of what it may use would be left:"
            f" it takes {scenario.fabric.hosts}, the most that leave {COMFORTABLE.left:.0%}, or else the fewest "
            "(--hosts overrules)"
        )
    return scenario, now


def _go_without_links(arguments: argparse.Namespace, *, stay: bool) -> int:
    """Shows the part that works without links. It is never a success, because it proves nothing about moves."""
    print(
        "Without links of its own it shows what it can: the services on loopback addresses, with the emulated actuator."
    )
    with _own_folder(arguments.folder) as folder, _listener(arguments.port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"watch it in a browser: {address}/ (API: {address}/api/v1/)")
        loopback = Loopback(folder, listener, sys.stdout)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_show(loopback, stay=stay))
    return EX_IMPOSSIBLE


async def _show(loopback: Loopback, *, stay: bool) -> None:
    try:
        await loopback.show()
        if stay:
            print("\nIt goes on until you interrupt it (Ctrl-C).", flush=True)
            await asyncio.Event().wait()
    finally:
        await loopback.close()


def _exec(arguments: argparse.Namespace) -> int:
    capabilities.shed_threads()
    command = [word for number, word in enumerate(arguments.arguments) if number or word != "--"]
    try:
        execute(arguments.folder, arguments.place, command or [os.environ.get("SHELL", "/bin/sh")])
    except (LookupError, OSError) as error:
        sys.stderr.write(f"{error}\n")
    return EX_WRONG


@contextlib.contextmanager
def _own_folder(wanted: Path) -> Iterator[Path]:
    """The folder or, while another lab runs in it, the next free one of its name."""
    for number in range(1, 100):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}{number}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield folder.absolute()
            return
    raise SystemExit(f"{wanted} and its like are all taken by running labs")


def _listener(port: int) -> socket.socket:
    """A listening socket of this machine's network, on another port if this one is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
