"""``foliot node join``: looks, says what it found and what it will do, and then does it. Doing it again changes nothing."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from foliot.bus import Bus
from foliot.claims import ClaimError, claim, host_id, keys
from foliot.nics import Held, settle
from foliot.node import describe
from foliot.retry import BUS_ERRORS
from foliot.service import set_up_logs
from foliot.settings import NodeSettings, SettingsError
from foliot.visit import Visit
from foliot_agent.host import arming, nics, place, survey, units
from foliot_agent.host.files import Files
from foliot_agent.host.place import PlaceError
from foliot_agent.host.settingsfile import PATH, SettingsFile, asked_of_bus
from foliot_schemas.subjects import CLAIMS

if TYPE_CHECKING:
    import argparse

    from foliot.settings import BusSettings
    from foliot_agent.host.survey import FleetSeen

_BUS_S = 20.0
"""For all of the claiming."""


def run(arguments: argparse.Namespace) -> int:
    """Joins; returns the exit status."""
    set_up_logs("error")
    try:
        return asyncio.run(_join(arguments))
    except (PlaceError, SettingsError, units.UnitError) as error:
        sys.stderr.write(f"{error}\n")
    except PermissionError as error:
        may_not = "read; run as root" if arguments.dry_run else "written; run as root, or look with --dry-run first"
        sys.stderr.write(f"{error.filename or error}: may not be {may_not}\n")
    except BUS_ERRORS as error:
        where, why = getattr(error, "filename", None), getattr(error, "strerror", None)
        sys.stderr.write(
            f"{where or arguments.bus}: {why or str(error) or 'no answer'}; put it right, and join again\n"
        )
    return 1


async def _join(arguments: argparse.Namespace) -> int:
    if not arguments.root.is_dir():
        raise PlaceError(f"--root {arguments.root}: is no folder; make it first")
    files = Files(arguments.root)
    files.check_record()
    settings = SettingsFile(files.read(PATH), asked_of_bus(arguments))
    states = await nics.nics()
    held = [Held(state.device, address) for state in states.values() for address in state.addresses]
    before = settle(settings.node, held) if settings.node else None
    fleet = await survey.look_at_bus(settings.bus)
    rails = place.parse_rails(arguments.rail) or {nic.rail: nic.device for nic in (before.nics if before else ())}
    if not rails:
        frontend = await nics.way_to(urlsplit(settings.bus.url.partition(",")[0]).hostname or "")
        devices = place.candidates(states, frontend)
        likely = " ".join(f"--rail rail{number}={device}" for number, device in enumerate(devices))
        raise PlaceError(f"say which NICs are rails; on this host these could be: {likely or 'none has an address'}")
    name = arguments.name or (before.name if before else socket.gethostname().partition(".")[0])
    index = _index(arguments, before, fleet, name)
    numbers = place.rail_numbers(rails, fleet.others(name), before or _anybody())
    node = place.node_settings(name, index, rails=rails, numbers=numbers, states=states, before=before)
    describe(node)
    found = (*fleet.findings(needed=not arguments.no_start), *await survey.findings(node, states, fleet))
    found = (*found, *survey.place_findings(name, keys(node), fleet), *survey.start_findings(wanted=_starts(arguments)))
    for each in found:
        print(each)  # noqa: T201 - a command prints
    if any(each.level == "stop" for each in found):
        sys.stderr.write("nothing was changed: see what is said after `stop`\n")
        return 1
    _want(files, settings, node, arguments)
    if not arguments.dry_run:
        # Who cannot become a node takes no place from one who can.
        files.check()
        if fleet.answers:
            node = await _claimed(settings.bus, node, fleet, is_free=arguments.index is None)
            files.want(PATH, settings.text(node, telemetry=arguments.telemetry))
    return _finish(files, settings, node, arguments)


def _index(arguments: argparse.Namespace, before: NodeSettings | None, fleet: FleetSeen, name: str) -> int:
    if arguments.index is not None:
        return int(arguments.index)
    if before is not None and before.name == name:
        return before.index
    said, to_do = fleet.trouble
    if said:
        raise PlaceError(f"{said}; {to_do}; without it, give an index that no other node has: --no-start --index")
    return place.free_index(name, fleet.nodes, fleet.claims, _anybody())


def _anybody() -> NodeSettings:
    """The default prefixes."""
    return NodeSettings(name="", index=0, nics=())


async def _claimed(bus_settings: BusSettings, node: NodeSettings, fleet: FleetSeen, *, is_free: bool) -> NodeSettings:
    """The node with its index and addresses claimed; if another was quicker and the index is ours to choose, the next one.

    Raises:
        ClaimError: another node has what was asked for.
        PlaceError: the bus did not answer, or its credentials are not a node's.
    """
    try:
        async with asyncio.timeout(_BUS_S), Visit(bus_settings) as visit:
            bus = await Bus.connect(bus_settings, "agent", makes=not bus_settings.credentials)
            try:
                node = await _claimed_at_last(bus, visit, node, fleet, is_free=is_free)
            finally:
                await bus.close()
            for key, held in (await visit.present(CLAIMS)).items():
                if held.node == node.name and held.host in {"", host_id()} and key not in keys(node):
                    await visit.delete(CLAIMS, key)
    except BUS_ERRORS as error:
        raise PlaceError(
            f"no place could be claimed for {node.name} at {bus_settings.url} ({str(error) or 'no answer'}): see whether it "
            "is up, and whether the credentials are an agent's of this name. Nothing was changed on this host; join again"
        ) from error
    return node


async def _claimed_at_last(
    bus: Bus, visit: Visit, node: NodeSettings, fleet: FleetSeen, *, is_free: bool
) -> NodeSettings:
    skip = 0
    while True:
        try:
            await claim(bus, node, host_id())
        except ClaimError:
            claims = await visit.present(CLAIMS)
            index = place.free_index(node.name, fleet.nodes, claims, node, skip)
            if not is_free or index == node.index:
                raise
            # Many nodes that join at once would all try the same next one.
            skip = skip * 2 + 1
            node = msgspec.structs.replace(node, index=index)
        else:
            return node


def _want(files: Files, settings: SettingsFile, node: NodeSettings, arguments: argparse.Namespace) -> None:
    files.want(PATH, settings.text(node, telemetry=arguments.telemetry))
    arming.want(files, settings.agent_key, arguments)
    units.want(files, settings.bus)


def _starts(arguments: argparse.Namespace) -> bool:
    """Whether services are to be started; a dry run looks whether they could be."""
    return not arguments.no_start and units.is_host(arguments.root)


def _finish(files: Files, settings: SettingsFile, node: NodeSettings, arguments: argparse.Namespace) -> int:
    would = "would " if arguments.dry_run else ""
    missing = files.missing() if arguments.dry_run else files.put()
    say = sys.stdout.write
    for path in missing:
        say(f"{would}write {files.root / path}\n")
    for line in settings.changes(node, telemetry=arguments.telemetry) if missing else ():
        say(f"      {line}\n")
    say("" if missing else "the files are as they shall be\n")
    if _starts(arguments) and not arguments.dry_run:
        try:
            units.start(again=bool(missing))
        except units.UnitError as error:
            sys.stderr.write(f"{error}\n{units.last_words()}\n")
            return 1
        say(f"{' and '.join(units.UNITS)} run\n")
    elif not arguments.dry_run:
        say("nothing was started; `systemctl daemon-reload` and `systemctl start foliot-agent foliot-probe` do\n")
    say(f"{node.name} {would or 'is '}{'be ' if would else ''}node {node.index} of the fleet at {settings.bus.url}\n")
    return 0
