"""``foliot agent plan``: the changes that the agent would make on this host, found by a dry run of its code."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.node.addressing import describe
from foliot.node.link_monitor import node_settings
from foliot.runtime.extensions import extend
from foliot.runtime.service import node_clock
from foliot.settings import BusSettings, SettingsError, load
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.control.action_handlers import NodeView
from foliot_agent.control.actuator_kinds import backend, others
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.install.console import complain, say
from foliot_agent.kernel.nic_stamping import NicStamping, undo
from foliot_agent.kernel.overlay_devices import OverlayError
from foliot_agent.settings import AgentSettings
from foliot_schemas.subjects import INVENTORY, PATHS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from foliot.settings import NodeSettings
    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Node, NodePaths


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan; returns the exit status."""
    os.environ["FOLIOT_CONFIG"] = arguments.config
    try:
        extend("agent")
        node, settings = asyncio.run(node_settings()), load(AgentSettings, "agent")
        peers, paths = ((), None) if arguments.no_bus else asyncio.run(_fleet(load(BusSettings, "bus"), describe(node)))
        changes = asyncio.run(rehearse(node, settings, peers, paths))
    except (SettingsError, OverlayError, ActuatorError) as error:
        complain(f"{error}\n")
        return 1
    if arguments.json:
        say(msgspec.json.format(msgspec.json.encode(changes)).decode() + "\n")
        return 0
    say("".join(f"{change}\n" for change in changes))
    known = ", ".join(peer.name for peer in peers) or "none"
    complain(f"{len(changes)} changes on {node.name}; other nodes: {known}\n")
    return 0


async def rehearse(
    node: NodeSettings, settings: AgentSettings, peers: Iterable[Node], paths: NodePaths | None
) -> tuple[Change, ...]:
    """The changes that a start of the agent would make in this network namespace, as it is now, by all its actuators.

    Raises:
        OverlayError: a NIC is not there.
        ActuatorError: a route or rule could not be.
        SettingsError: there is no such actuator; those of extensions are there once these are loaded.
    """
    clock = node_clock(node.name)
    layout, cache = Layout.of(node, tcp_usec_ts=settings.tcp_usec_ts), RestartCache("", node.name, "")
    view = NodeView(layout=layout, peers={}, clock=clock, restart_cache=cache)
    changes = await backend(settings.actuator, view).rehearse(peers, paths, clock, act=settings.policy == "act")
    for actuator in others(view):
        changes += await actuator.rehearse()
    if settings.nic_stamps == "off":
        return changes + (undo(settings.memory, dry=True) if settings.memory else ())
    return changes + NicStamping(settings.memory, [nic.device for nic in node.nics]).rehearse()


async def _fleet(settings: BusSettings, own: Node) -> tuple[tuple[Node, ...], NodePaths | None]:
    """The peers that the agent would join, and what the node was told."""
    try:
        async with OneShot(settings) as bus:
            nodes = await bus.present(INVENTORY)
            peers = tuple(nodes[key] for key in sorted(nodes) if nodes[key].talks_to(own))
            return peers, await bus.get(PATHS, own.name)
    except BUS_ERRORS as error:
        complain(f"the bus at {settings.url} does not answer ({in_words(error)}): planned without other nodes\n")
        return (), None
