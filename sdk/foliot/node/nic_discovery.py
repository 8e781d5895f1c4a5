"""Finds the device and the address of a NIC where the settings leave them to the host.

A device's name differs from host to host, and in a container from start to start. A rail's subnet does not. With
``address = "10.16.0.0/16"`` and no device, one settings file serves all nodes.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot.settings import NicSettings, NodeSettings


class Held(msgspec.Struct, frozen=True):
    """An IPv4 address that a device of this host has."""

    device: str
    address: str


def is_settled(settings: NodeSettings) -> bool:
    """Whether the settings give every NIC a device and an address, so that the host need not be asked."""
    return all(nic.device and nic.address and "/" not in nic.address for nic in settings.nics)


def settle(settings: NodeSettings, held: Iterable[Held]) -> NodeSettings:
    """The same settings with every NIC's device and address.

    Parameters:
        held: all IPv4 addresses of the host. It passes over those that Foliot itself put there.

    Raises:
        SettingsError: a NIC's device or address is not there, or there are several to choose from.
    """
    if is_settled(settings):
        return settings
    ours = [_network(prefix, "node") for prefix in (settings.service_prefix, settings.path_prefix)]
    others = [each for each in held if not any(ipaddress.IPv4Address(each.address) in prefix for prefix in ours)]
    nics = tuple(_settle(nic, f"node.nics[{place}]", others) for place, nic in enumerate(settings.nics))
    return msgspec.structs.replace(settings, nics=nics)


def _settle(nic: NicSettings, key: str, held: Sequence[Held]) -> NicSettings:
    if not nic.device and not nic.address:
        raise SettingsError(f"{key}: {nic.rail} needs a device, an address, or a prefix that its address lies in")
    if nic.device and nic.address and "/" not in nic.address:
        return nic
    within = _network(nic.address or "0.0.0.0/0", key)
    found = [each for each in held if nic.device in {"", each.device} and ipaddress.IPv4Address(each.address) in within]
    if len(found) != 1:
        wanted = " ".join(filter(None, (nic.device and f"on {nic.device}", nic.address and f"within {nic.address}")))
        seen = ", ".join(f"{each.address} on {each.device}" for each in (found or held)) or "none"
        raise SettingsError(
            f"{key}: {nic.rail} needs exactly one address {wanted}, and there are {len(found)} (this host has {seen})"
        )
    return msgspec.structs.replace(nic, device=found[0].device, address=found[0].address)


def _network(prefix: str, key: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(prefix)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error
