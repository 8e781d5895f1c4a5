"""``foliot node leave``: undoes join and agent, on this host and on the bus, and lists what it cannot undo now."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from pyroute2.netlink.exceptions import NetlinkError

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.node.identity_claims import host_id
from foliot.runtime.extensions import extend
from foliot.runtime.service import set_up_logs
from foliot.settings import BusSettings, SettingsError
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.control import actuator_kinds
from foliot_agent.install import systemd_units
from foliot_agent.install.console import complain, say
from foliot_agent.install.settingsfile import SETTINGS, SettingsFile, asked_of_bus
from foliot_agent.install.tracked_files import Files
from foliot_agent.kernel.nic_stamping import undo_all
from foliot_schemas.names import escape
from foliot_schemas.permissions import NODE_ROLES
from foliot_schemas.subjects import CLAIMS, CLOCKS, COMMAND, HOMES, INVENTORY, PATHS

if TYPE_CHECKING:
    import argparse

    from foliot_agent.kernel.dry_run import Change


def run(arguments: argparse.Namespace) -> int:
    """Leaves; returns the exit status, which is 1 if something is left to do."""
    set_up_logs("error")
    try:
        return asyncio.run(_leave(arguments))
    except (SettingsError, ActuatorError, systemd_units.UnitError) as error:
        complain(f"{error}\n")
    except NetlinkError as error:
        complain(f"the kernel's part stays: {error}; run as root\n")
    except PermissionError as error:
        complain(f"{error.filename or error}: may not be changed; run as root\n")
    return 1


async def _leave(arguments: argparse.Namespace) -> int:
    files = Files(arguments.root)
    settings = SettingsFile(files.read(SETTINGS), asked_of_bus(arguments))
    if arguments.name:
        return await forget(settings.bus, arguments.name, whoever=True, dry=arguments.dry_run)
    files.check_record()  # before anything is taken away
    would = "would " if arguments.dry_run else ""
    is_host = systemd_units.is_host(arguments.root)
    # Files of an image are no reason to cut off the host on which it is made.
    of_kernel = is_host or arguments.kernel
    if of_kernel:
        _load_extensions(files)
    runs = is_host and systemd_units.manager_runs() and systemd_units.are_known()
    if runs:
        say(f"{would}stop {' and '.join(systemd_units.UNITS)}\n")
        if not arguments.dry_run:
            systemd_units.end()
    changes = await _clear_kernel(would, dry=arguments.dry_run) if of_kernel else ()
    if runs and not arguments.dry_run:
        systemd_units.forget()
    left = await forget(settings.bus, settings.node.name, whoever=False, dry=arguments.dry_run) if settings.node else 0
    steps = files.steps_back()
    for step in steps:
        say(f"{would}{step}\n")
    if not (runs or changes or settings.node or steps):
        say("there is nothing to undo: nothing of a join or of an agent is here\n")
    if not arguments.dry_run:
        files.put_back()
        if is_host and systemd_units.manager_runs():
            systemd_units.reread()
    return left


def _load_extensions(files: Files) -> None:
    """Makes the actuators of extensions known, as the agent does: what they left goes too.

    Raises:
        SettingsError: one cannot be loaded.
    """
    if files.read(SETTINGS) is not None:
        os.environ["FOLIOT_CONFIG"] = str(files.root / SETTINGS)
    extend("agent")


async def _clear_kernel(would: str, *, dry: bool) -> tuple[Change, ...]:
    """Takes away what actuators left in this network namespace, and puts back NICs' stamps; returns it, said."""
    changes = (*await actuator_kinds.rehearse_removal(), *undo_all(dry=dry))
    for change in changes:
        say(f"{would}{change}\n")
    if not dry:
        await actuator_kinds.remove_all()
    return changes


async def forget(settings: BusSettings, name: str, *, whoever: bool, dry: bool) -> int:
    """Takes a node off the bus.

    Parameters:
        whoever: also if the name belongs to another host by now.
    """
    try:
        async with OneShot(settings) as visit:
            claims = {key: held for key, held in (await visit.present(CLAIMS)).items() if held.node == name}
            if not whoever and any(held.host not in {"", host_id()} for held in claims.values()):
                say(f"the bus is left alone: {name} is another host there\n")
                return 0
            record = await visit.get(INVENTORY, name)
            clocks = record.clocks if record is not None else {name}
            # The record first: a service that sees it go forgets the node, and writes nothing more for it.
            others = [(PATHS, name), (HOMES, name), *((CLOCKS, clock) for clock in sorted(clocks))]
            things = [(INVENTORY, name), *([] if visit.role in NODE_ROLES else others)]
            found = False
            for bucket, key in (*things, *((CLAIMS, key) for key in claims)):
                there = await visit.get(bucket, key) is not None if dry else await visit.delete(bucket, key)
                found = found or there
                if there:
                    say(f"{'would ' if dry else ''}remove {bucket.name}/{key} from the bus\n")
            if visit.role in NODE_ROLES:
                say(
                    "left on the bus: what other services wrote for it; with credentials of an administrator: "
                    f"{_rest(settings, name)}\n"
                )
                return 1
            durable = f"agent-{escape(name)}"
            if not dry and await visit.delete_consumer(COMMAND.stream, durable):
                say(f"remove consumer {durable} from the bus\n")
            elif not found:
                say(f"nothing of {name} is on the bus at {settings.url}\n")
    except BUS_ERRORS as error:
        away = f"the bus at {settings.url} does not answer ({in_words(error)})"
        complain(f"{away}. Left to do, from any host that reaches it, once it is back: {_rest(settings, name)}\n")
        return 1
    return 0


def _rest(settings: BusSettings, name: str) -> str:
    return f"foliot node leave --name {name} --bus {settings.url}" + (
        " --credentials FILE" if settings.credentials else ""
    )
