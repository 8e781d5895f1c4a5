"""Runs a scenario, or the first of several that this machine carries, as ``foliot lab run`` and ``foliot lab demo`` do."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import sys
from pathlib import Path  # noqa: TC003 - msgspec reads annotations at run time
from typing import TYPE_CHECKING

import msgspec
import structlog

from foliot.runtime.extensions import extend
from foliot.settings import SettingsError
from foliot_lab.exit_statuses import EX_IMPOSSIBLE, EX_USAGE, EX_WRONG
from foliot_lab.fabric import capabilities
from foliot_lab.loopback import Loopback
from foliot_lab.measure.budget import CARRIED, COMFORTABLE, CannotCarryError, Now, affordable
from foliot_lab.measure.quota import QuotaError, limited
from foliot_lab.run import Options, run
from foliot_lab.scenario.spec import trains
from foliot_lab.services.deployment import extensions
from foliot_lab.services.job_placement import PlacementError
from foliot_lab.services.readiness import NotReadyError
from foliot_lab.workload.train import ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.measure.quota import Group
    from foliot_lab.scenario.spec import Scenario


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    folder: Path
    report: Path | None
    port: int
    speed: float
    """Share of all processors that the lab may use."""
    stay: bool
    """Go on running after the sequence, until interrupted."""
    forced: bool
    """The user has forced the start or chosen the size of the fabric, whatever the machine is like."""
    is_demo: bool


def launch(scenarios: Sequence[Scenario], wish: Wish) -> int:
    """Runs the first scenario of these that the machine carries; the exit status."""
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
        with limited(wish.speed) as group:
            return _within(scenarios, wish, group)
    except (QuotaError, CannotCarryError) as error:
        sys.stderr.write(f"{error}\n")
        return EX_IMPOSSIBLE


def _within(scenarios: Sequence[Scenario], wish: Wish, group: Group | None) -> int:
    """Runs like `launch`, within the quota that has been set."""
    missing = capabilities.missing()
    if missing:
        sys.stderr.write("\n".join(["This machine cannot carry the lab:", *missing, ""]))
        sys.stderr.flush()
        return _go_without_links(wish) if wish.is_demo else EX_IMPOSSIBLE
    scenario, now = _chosen(scenarios, wish)
    capabilities.enter()
    with _own_folder(wish.folder) as folder, _listener(wish.port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"the API will be at {address}/api/v1/", flush=True)  # long before the lab says more
        options = Options(
            folder=folder,
            report=wish.report,
            stay=wish.stay,
            address=address,
            group=group,
            now=now,
            forced=wish.forced,
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


def _chosen(scenarios: Sequence[Scenario], wish: Wish) -> tuple[Scenario, Now]:
    """The first of these scenarios that the machine carries, which it announces, and the machine as it was seen.

    Raises:
        CannotCarryError: none of them.
    """
    if wish.forced:
        scenario, now = scenarios[0], Now.glance(wish.speed)
        if problem := now.lacks(scenario, COMFORTABLE if wish.is_demo else CARRIED):
            print(f"{problem} It goes on all the same.")
        return scenario, now
    # The smallest one is better than none.
    choices = [(each, COMFORTABLE) for each in scenarios[:-1]] + [(scenarios[-1], CARRIED)]
    scenario, now = affordable(choices, wish.speed, sys.stdout.write)
    if wish.is_demo:
        left = ", ".join(f"{each.fabric.hosts} hosts {max(0.0, now.left_by(each)):.0%}" for each in scenarios)
        print(
            f"the machine is {now.idle_cpu:.0%} idle; with {left} of what it may use would be left:"
            f" it takes {scenario.fabric.hosts}, the most that leave {COMFORTABLE.left:.0%}, or else the fewest "
            "(--hosts overrules)"
        )
    return scenario, now


def _go_without_links(wish: Wish) -> int:
    """Shows the part that works without links. It is never a success, because it proves nothing about moves."""
    print(
        "Without links of its own it shows what it can: the services on loopback addresses, with the emulated actuator."
    )
    with _own_folder(wish.folder) as folder, _listener(wish.port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"watch it in a browser: {address}/ (API: {address}/api/v1/)")
        loopback = Loopback(folder, listener, sys.stdout)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_show(loopback, stay=wish.stay))
    return EX_IMPOSSIBLE


async def _show(loopback: Loopback, *, stay: bool) -> None:
    try:
        await loopback.show()
        if stay:
            print("\nIt goes on until you interrupt it (Ctrl-C).", flush=True)
            await asyncio.Event().wait()
    finally:
        await loopback.close()


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
