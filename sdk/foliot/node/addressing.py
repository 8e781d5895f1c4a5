"""Computes a node's inventory record: every address follows from the node's index and its rails' numbers.

An index, a rail's number or entropies that do not fit into the prefixes are a `SettingsError`.
"""

from __future__ import annotations

import ipaddress

from foliot.settings import NodeSettings, SettingsError
from foliot_schemas import Nic, Node
from foliot_schemas.inventory import MOST_ENTROPIES
from foliot_schemas.names import nic_name

_NETWORKS_PER_RAIL = 8
"""Networks of /16 in a rail's part of the path prefix: a /10 holds 64, for eight rails."""
_EIGHTHS = (0, 4, 2, 6, 1, 5, 3, 7)
"""In which eighth of its /16 the network of an entropy begins, by how many eights of entropies come before. Each half of
these is the other one's middles. So twice as many entropies leave room for half as many nodes, and an address never
depends on how many there are."""
_EIGHTH_BITS = 13


def describe(settings: NodeSettings) -> Node:
    """The record of this node."""
    numbers = [nic.number for nic in settings.nics]
    if len(set(numbers)) != len(numbers) or len({nic.rail for nic in settings.nics}) != len(numbers):
        raise SettingsError(f"node.nics: rails and their numbers must differ, got numbers {numbers}")
    nics = tuple(
        Nic(
            name=nic_name(settings.name, nic.rail),
            rail=nic.rail,
            device=nic.device,
            address=nic.address,
            clock=nic.clock or settings.name,
            service_address=_host(service_prefix(settings, nic.rail), settings.index),
            path_addresses=tuple(
                _host(path_prefix(settings, nic.rail, entropy), settings.index)
                for entropy in range(len(settings.entropies))
            ),
            entropies=settings.entropies,
        )
        for nic in settings.nics
    )
    return Node(
        name=settings.name,
        nics=nics,
        agent_port=settings.agent_port,
        probe_port=settings.probe_port,
        peers=settings.peers,
        nic_stamps=True,
    )


def service_prefix(settings: NodeSettings, rail: str) -> str:
    """The /16 that holds every node's service address on a rail."""
    return _carve(settings.service_prefix, _number(settings, rail), "node.service_prefix")


def path_prefix(settings: NodeSettings, rail: str, entropy: int) -> str:
    """The network that holds every node's path address on a rail and entropy; see `path_prefix_length`."""
    if not 0 <= entropy < MOST_ENTROPIES:
        raise SettingsError(f"node.entropies: at most {MOST_ENTROPIES}, got index {entropy}")
    eights, place = divmod(entropy, _NETWORKS_PER_RAIL)
    whole = _carve(settings.path_prefix, _number(settings, rail) * _NETWORKS_PER_RAIL + place, "node.path_prefix")
    base = int(ipaddress.IPv4Network(whole).network_address) + (_EIGHTHS[eights] << _EIGHTH_BITS)
    return f"{ipaddress.IPv4Address(base)}/{path_prefix_length(len(settings.entropies))}"


def path_prefix_length(entropies: int) -> int:
    """The length of the network of each of so many entropies: /16 of up to eight, /17 of 16, /18 of 32, /19 of 64."""
    return 16 + ((max(entropies, 1) - 1) // _NETWORKS_PER_RAIL).bit_length()


def place_of(prefix: str, address: str) -> tuple[int, int] | None:
    """The number of the /16 in a prefix and the node's index, from an address; None: it is not of this prefix."""
    network, host = ipaddress.IPv4Network(prefix), ipaddress.IPv4Address(address)
    if host not in network:
        return None
    number, place = divmod(int(host) - int(network.network_address), 1 << 16)
    return number, place - 1


def _number(settings: NodeSettings, rail: str) -> int:
    for nic in settings.nics:
        if nic.rail == rail:
            return nic.number
    raise SettingsError(f"node.nics: {settings.name} has no NIC on {rail}")


def _carve(prefix: str, number: int, key: str) -> str:
    try:
        network = ipaddress.IPv4Network(prefix)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error
    room = 1 << (16 - network.prefixlen) if network.prefixlen <= 16 else 0
    if not 0 <= number < room:
        raise SettingsError(f"{key}: {prefix} has room for {room} networks of /16, number {number} does not fit")
    base = int(network.network_address) + (number << 16)
    return f"{ipaddress.IPv4Address(base)}/16"


def _host(prefix: str, index: int) -> str:
    """Host `index` + 1 of a network: the first address stays free, the last is its broadcast address."""
    network = ipaddress.IPv4Network(prefix)
    most = network.num_addresses - 3
    if not 0 <= index <= most:
        raise SettingsError(f"node.index: must lie within 0 and {most} for a place in {prefix}, got {index}")
    return str(network.network_address + index + 1)
