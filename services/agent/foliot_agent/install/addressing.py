"""A node's place in the fleet: its index, its rails and their numbers. Pure."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import msgspec

from foliot.node.addressing import place_of
from foliot.settings import NicSettings, NodeSettings
from foliot_agent.core.overlay_layout import RAILS
from foliot_schemas.claim import index_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_agent.install.nics import NicState
    from foliot_schemas import Claim, Node

ANYBODY = NodeSettings(name="", index=0, nics=())
"""A node with the default prefixes and nothing of its own."""
_LIKE_NICS = {"", "veth", "vlan", "macvlan", "bond"}
_NAMED = 4
"""Devices to name of those that are left out for one reason; a host of many containers has hundreds."""
_DIGITS = re.compile(r"\D*(\d+)")


class PlaceError(ValueError):
    """No place can be made of what was given; the message says why and what to give."""


def parse_rails(given: Iterable[str]) -> dict[str, str]:
    """Rails and their devices, from ``rail0=eth2``.

    Raises:
        PlaceError: one is of another form, or named twice.
    """
    rails: dict[str, str] = {}
    for each in given:
        rail, equals, device = each.partition("=")
        if not rail or not equals or not device:
            raise PlaceError(f"--rail {each}: give a rail and its NIC, as --rail rail0=eth2")
        if rail in rails or device in rails.values():
            raise PlaceError(f"--rail {each}: the rail or the device was given already")
        rails[rail] = device
    return rails


def index_of(node: Node, settings: NodeSettings) -> int | None:
    """The index that a node's addresses say it has; None: they are not of these prefixes."""
    places = (place_of(settings.service_prefix, nic.service_address) for nic in node.nics)
    return next((place[1] for place in places if place is not None), None)


def free_index(
    name: str, nodes: Mapping[str, Node], claims: Mapping[str, Claim], settings: NodeSettings, skip: int = 0
) -> int:
    """The lowest index that no other node has, or the free one that comes after `skip` others."""
    own = [key for key, claim in claims.items() if claim.node == name and key.startswith("index-")]
    if own:
        return min(int(key.removeprefix("index-")) for key in own)
    taken = {index_of(node, settings) for node in nodes.values() if node.name != name}
    free = (index for index in itertools.count() if index not in taken and index_key(index) not in claims)
    return next(itertools.islice(free, skip, None))


def rail_numbers(rails: Iterable[str], nodes: Iterable[Node], settings: NodeSettings) -> dict[str, int]:
    """A number for every rail.

    It is the fleet's, where the fleet has the rail. Else it is the digits in the rail's name, if there is such a number
    and it is free. Else it is the lowest that is free.
    """
    known = {
        nic.rail: place[0]
        for node in nodes
        for nic in node.nics
        if (place := place_of(settings.service_prefix, nic.service_address)) is not None
    }
    numbers: dict[str, int] = {}
    for rail in rails:
        taken = {*known.values(), *numbers.values()}
        digits = _DIGITS.fullmatch(rail)
        wished = int(digits[1]) if digits else RAILS
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        numbers[rail] = known.get(rail, wished if wished < RAILS and wished not in taken else free)
    return numbers


def node_settings(
    name: str, index: int, *, rails: Mapping[str, str], numbers: Mapping[str, int], states: Mapping[str, NicState],
    before: NodeSettings | None,
) -> NodeSettings:  # fmt: skip
    """The ``[node]`` section. Keys that were set by hand, and are not asked for otherwise, stay.

    Parameters:
        rails: whose devices are there and have an address, see `foliot_agent.install.checks.rail`.
    """
    nics = []
    for rail, device in rails.items():
        state = states[device]
        known = next((nic for nic in before.nics if nic.rail == rail), None) if before else None
        stays = known is not None and known.device == device and known.address in state.addresses
        nics.append(
            NicSettings(
                rail=rail,
                number=numbers[rail],
                device=device,
                address=known.address if known is not None and stays else state.addresses[0],
                clock=known.clock if known is not None else "",
            )
        )
    if before is None:
        return NodeSettings(name=name, index=index, nics=tuple(nics))
    return msgspec.structs.replace(before, name=name, index=index, nics=tuple(nics))


def candidates(states: Mapping[str, NicState], frontend: str) -> tuple[str, ...]:
    """The devices that look like backend NICs.

    They are no bridge or tunnel, have an address, and are neither the way out nor that to the bus.
    """
    fitting = [state for state in states.values() if not _why_not(state, frontend)]
    return tuple(state.device for state in sorted(fitting, key=lambda state: (not state.rdma, state.device)))


def left_out(states: Mapping[str, NicState], frontend: str) -> str:
    """The devices that are no candidates, and why, in a few words each; empty: there are none."""
    by_reason: dict[str, list[str]] = {}
    for state in sorted(states.values(), key=lambda state: state.index):
        if reason := _why_not(state, frontend):
            by_reason.setdefault(reason, []).append(state.device)
    return "; ".join(
        ", ".join(devices[:_NAMED])
        + (f" and {more} more" if (more := len(devices) - _NAMED) > 0 else "")
        + f" ({reason})"
        for reason, devices in by_reason.items()
    )


def _why_not(state: NicState, frontend: str) -> str:
    """Why a device does not look like a backend NIC; empty: it does."""
    reasons = {
        f"{state.kind}, no NIC": state.kind not in _LIKE_NICS,
        "the default route leaves by it": state.is_default,
        "it leads to the bus": state.device == frontend,
        "no IPv4 address": not state.addresses,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)
