"""``foliot node join``: surveys the host, shows the plan, and carries it out. A second run changes nothing."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from foliot.bus.client import Bus
from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.node.addressing import describe
from foliot.node.identity_claims import ClaimError, claim, host_id, keys
from foliot.node.nic_discovery import Held, settle
from foliot.runtime.service import set_up_logs
from foliot.settings import SettingsError
from foliot_agent.install import addressing, armed_setup, checks, nics, survey, systemd_units
from foliot_agent.install.addressing import ANYBODY, PlaceError
from foliot_agent.install.console import complain, say
from foliot_agent.install.findings import note, stop
from foliot_agent.install.settingsfile import SETTINGS, SettingsFile, asked_of_bus, check_telemetry
from foliot_agent.install.tracked_files import Files
from foliot_schemas.claim import index_key
from foliot_schemas.subjects import CLAIMS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from foliot.settings import BusSettings, NodeSettings
    from foliot_agent.install.findings import Finding
    from foliot_agent.install.nics import NicState
    from foliot_agent.install.survey import FleetSeen

_BUS_S = 20.0
"""Limit for all of the claiming."""
_INDEX, _NICS = "node.index", "node.nics"


class _Meant(msgspec.Struct, frozen=True, kw_only=True):
    """The place that this host shall have."""

    node: NodeSettings
    open_yet: dict[str, str] = {}
    """Settings that nobody can tell yet, with words for what they will be; the node has something in their place."""
    found: tuple[Finding, ...] = ()
    variables: tuple[str, ...] = ()
    """Changes of the agent's variables, a line each."""

    def keys(self) -> dict[str, str]:
        """The claims that it asks for, as `foliot.node.identity_claims.keys`."""
        unknown = {index_key(self.node.index)} if _INDEX in self.open_yet else set()
        return {key: what for key, what in keys(self.node).items() if key not in unknown}


def run(arguments: argparse.Namespace) -> int:
    """Joins; returns the exit status."""
    set_up_logs("error")
    try:
        return asyncio.run(_join(arguments))
    except (PlaceError, SettingsError, systemd_units.UnitError) as error:
        complain(f"{error}\n")
    except PermissionError as error:
        may_not = "read; run as root" if arguments.dry_run else "written; run as root, or look with --dry-run first"
        complain(f"{error.filename or error}: may not be {may_not}\n")
    except OSError as error:  # not of the bus: where it is asked, it is said of it
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}; put it right, and join again\n")
    return 1


async def _join(arguments: argparse.Namespace) -> int:
    if not arguments.root.is_dir():
        raise PlaceError(f"--root {arguments.root}: is no folder; make it first")
    check_telemetry(arguments.telemetry)
    files = Files(arguments.root)
    files.check_record()
    settings = SettingsFile(files.read(SETTINGS), asked_of_bus(arguments), arguments.telemetry)
    states = await nics.nics()
    fleet = await survey.look_at_bus(settings.bus)
    meant = await _meant(arguments, settings, states, fleet)
    files.want(SETTINGS, settings.text(meant.node))
    systemd_units.want(files, settings.bus, nic_clocks=settings.nic_stamps)
    obstacles, variables = armed_setup.want(files, settings.agent_key, arguments)
    meant = msgspec.structs.replace(meant, variables=variables)
    found = (
        *fleet.findings(without=_without_bus(arguments, meant)), *meant.found,
        *await survey.findings(meant.node, states, fleet),
        *survey.place_findings(meant.node.name, meant.keys(), fleet), *obstacles,
        *survey.start_findings(wanted=_starts(arguments)),
    )  # fmt: skip
    for each in found:
        say(f"{each}\n")
    if any(each.level == "stop" for each in found):
        say("what would be done, were it not for what is said after `stop`:\n")
        _tell(files, settings, meant, arguments)
        complain("nothing was changed: see what is said after `stop`\n")
        return 1
    if arguments.dry_run:
        _tell(files, settings, meant, arguments)
        return 0
    # A host that cannot become a node takes no place from one that can.
    files.check()
    if fleet.answers:
        node = await _claimed(settings.bus, meant.node, fleet, is_free=arguments.index is None)
        meant = msgspec.structs.replace(meant, node=node)
        files.want(SETTINGS, settings.text(node))
    return _do(files, settings, meant, arguments)


async def _meant(
    arguments: argparse.Namespace, settings: SettingsFile, states: Mapping[str, NicState], fleet: FleetSeen
) -> _Meant:
    """The place that was asked for, over what was there before."""
    held = [Held(state.device, address) for state in states.values() for address in state.addresses]
    before = settle(settings.node, held) if settings.node else None
    rails = addressing.parse_rails(arguments.rail) or {nic.rail: nic.device for nic in (before.nics if before else ())}
    name = arguments.name or (before.name if before else socket.gethostname().partition(".")[0])
    index = _index(arguments, before, fleet, name)
    numbers = addressing.rail_numbers(rails, fleet.others(name), before or ANYBODY)
    wrong = {rail: why for rail, device in rails.items() if (why := checks.rail(rail, device, states))}
    sound = {rail: device for rail, device in rails.items() if rail not in wrong}
    node = addressing.node_settings(name, index or 0, rails=sound, numbers=numbers, states=states, before=before)
    describe(node)
    open_yet = {_INDEX: "the lowest that no other node has, which the bus knows"} if index is None else {}
    if wrong or not rails:
        open_yet[_NICS] = "those that --rail gives" + (f", once {' and '.join(wrong)} can be had" if wrong else "")
    found = tuple(wrong.values()) if rails else _rails_to_give(states, await nics.way_to(_host(settings.bus.url)))
    return _Meant(node=node, open_yet=open_yet, found=found)


def _rails_to_give(states: Mapping[str, NicState], frontend: str) -> tuple[Finding, ...]:
    """Findings: no rails were given, which NICs could be some, and why others not."""
    likely = " ".join(
        f"--rail rail{number}={each}" for number, each in enumerate(addressing.candidates(states, frontend))
    )
    others = addressing.left_out(states, frontend)
    said = f"say which NICs are rails; on this host these could be: {likely or 'none'}"
    left_out = (
        (note("rails", f"left out: {others}", "one that is a rail all the same can be given with --rail"),)
        if others
        else ()
    )
    return (stop("rails", said, "" if likely else "give them as --rail rail0=eth2"), *left_out)


def _host(url: str) -> str:
    """The host of the bus's first server; empty: its address cannot be read."""
    try:
        return urlsplit(url.partition(",")[0]).hostname or ""
    except ValueError:
        return ""


def _index(arguments: argparse.Namespace, before: NodeSettings | None, fleet: FleetSeen, name: str) -> int | None:
    """The index asked for, else as before, else the lowest free one; None: only the bus knows, and it does not say."""
    if arguments.index is not None:
        return int(arguments.index)
    if before is not None and before.name == name:
        return before.index
    return addressing.free_index(name, fleet.nodes, fleet.claims, ANYBODY) if fleet.answers else None


def _without_bus(arguments: argparse.Namespace, meant: _Meant) -> str:
    """The arguments with which it could join without the bus; empty: it needs none."""
    missing = [] if arguments.no_start else ["--no-start"]
    missing += ["--index with one that no other node has"] if _INDEX in meant.open_yet else []
    return " and ".join(missing)


async def _claimed(bus_settings: BusSettings, node: NodeSettings, fleet: FleetSeen, *, is_free: bool) -> NodeSettings:
    """The node with its index and addresses claimed.

    If another was quicker and the index is ours to choose, it takes the next one.

    Raises:
        ClaimError: another node has what was asked for.
        PlaceError: the bus did not answer, or its credentials are not a node's.
    """
    try:
        async with asyncio.timeout(_BUS_S), OneShot(bus_settings) as visit:
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
            f"no place could be claimed for {node.name} at {bus_settings.url} ({in_words(error)}): see whether it "
            "is up, and whether the credentials are an agent's of this name. Nothing was changed on this host; "
            "join again"
        ) from error
    return node


async def _claimed_at_last(
    bus: Bus, visit: OneShot, node: NodeSettings, fleet: FleetSeen, *, is_free: bool
) -> NodeSettings:
    skip = 0
    while True:
        try:
            await claim(bus, node, host_id())
        except ClaimError:
            claims = await visit.present(CLAIMS)
            index = addressing.free_index(node.name, fleet.nodes, claims, node, skip)
            if not is_free or index == node.index:
                raise
            # Many nodes that join at once would all try the same next one.
            skip = skip * 2 + 1
            node = msgspec.structs.replace(node, index=index)
        else:
            return node


def _starts(arguments: argparse.Namespace) -> bool:
    """Whether services are to be started; a dry run looks whether they could be."""
    return not arguments.no_start and systemd_units.is_host(arguments.root)


def _tell(files: Files, settings: SettingsFile, meant: _Meant, arguments: argparse.Namespace) -> None:
    steps = files.steps()
    _tell_steps(steps, settings, meant, "would ")
    if _starts(arguments):
        say(f"would start {' and '.join(systemd_units.UNITS)}, {'anew if' if steps else 'unless'} they run\n")
    place = "a node" if _INDEX in meant.open_yet else f"node {meant.node.index}"
    say(f"{meant.node.name} would be {place} of the fleet at {settings.bus.url}\n")


def _tell_steps(steps: tuple[str, ...], settings: SettingsFile, meant: _Meant, would: str = "") -> None:
    if not steps:
        say("the files are as they shall be\n")
        return
    for step in steps:
        say(f"{would}{step}\n")
    for line in (*settings.changes(meant.node, meant.open_yet), *meant.variables):
        say(f"      {line}\n")


def _do(files: Files, settings: SettingsFile, meant: _Meant, arguments: argparse.Namespace) -> int:
    """Writes and starts; returns the exit status."""
    steps = files.steps()
    files.put()
    _tell_steps(steps, settings, meant)
    if _starts(arguments):
        try:
            systemd_units.start(again=bool(steps))
        except systemd_units.UnitError as error:
            complain(f"{error}\n{systemd_units.last_words()}\n")
            return 1
        say(f"{' and '.join(systemd_units.UNITS)} run\n")
    else:
        say("nothing was started; `systemctl daemon-reload` and `systemctl start foliot-agent foliot-probe` do\n")
    say(f"{meant.node.name} is node {meant.node.index} of the fleet at {settings.bus.url}\n")
    return 0
