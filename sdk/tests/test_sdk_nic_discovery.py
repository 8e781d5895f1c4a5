"""NICs that are found by their address."""

from __future__ import annotations

import msgspec
import pytest

from foliot.node.nic_discovery import Held, settle
from foliot.settings import NicSettings, NodeSettings, SettingsError

HOST = (
    Held("lo", "127.0.0.1"),
    Held("eth0", "172.18.0.7"),
    Held("eth2", "10.16.0.6"),
    Held("eth1", "10.17.0.6"),
)


def node(*nics: NicSettings, **more: str) -> NodeSettings:
    """A node with these NICs."""
    return NodeSettings(name="node3", index=3, nics=nics, **more)


def nic(device: str = "", address: str = "", number: int = 0) -> NicSettings:
    """A NIC's settings."""
    return NicSettings(rail=f"rail{number}", number=number, device=device, address=address)


@pytest.mark.parametrize(
    "asked",
    [
        nic(address="10.16.0.0/16"),
        nic(address="10.16.0.6"),
        nic(device="eth2"),
        nic(device="eth2", address="10.16.0.0/24"),
        nic(device="eth2", address="10.16.0.6"),
    ],
)
def test_a_nic_is_found_by_what_is_said_of_it(asked):
    """By its address, by a prefix that holds it, or by its device."""
    assert settle(node(asked), HOST).nics == (nic(device="eth2", address="10.16.0.6"),)


def test_one_text_serves_every_node():
    """Each rail's subnet finds each node's own device, in whatever order the host made them."""
    asked = node(nic(address="10.16.0.0/16"), nic(address="10.17.0.0/16", number=1))

    assert [each.device for each in settle(asked, HOST).nics] == ["eth2", "eth1"]


def test_what_the_settings_say_in_full_is_taken_as_it_is():
    """Also where the host has no such device: it may come later."""
    said = node(nic(device="ib0", address="192.0.2.1"))

    assert settle(said, HOST) == said


def test_addresses_that_foliot_put_there_are_passed_over():
    """A prefix as wide as 10.0.0.0/8 holds the node's service address too, once its agent has run."""
    left = (Held("foliot0", "10.200.0.4"), Held("fo0e0", "100.64.0.4"), Held("eth2", "10.16.0.6"))

    assert settle(node(nic(address="10.0.0.0/8")), left).nics[0].device == "eth2"
    moved = node(nic(address="10.0.0.0/8"), service_prefix="10.16.0.0/13")
    assert settle(moved, left).nics[0].device == "foliot0"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (nic(), r"node\.nics\[1\]: rail0 needs a device, an address, or a prefix"),
        (nic(address="10.18.0.0/16"), r"there are 0 \(this host has .*10\.16\.0\.6 on eth2"),
        (nic(address="10.0.0.0/8"), r"there are 2 \(this host has 10\.16\.0\.6 on eth2, 10\.17\.0\.6 on eth1\)"),
        (nic(device="eth7"), r"exactly one address on eth7, and there are 0"),
        (nic(address="10.16.0.6/16"), r"node\.nics\[1\]: .* has host bits set"),
    ],
)
def test_a_nic_that_is_not_there_or_not_the_only_one_stops_the_start(asked, said):
    """Rather none than another rail's, and the message says what there is."""
    first = nic(device="eth0", address="172.18.0.7", number=1)

    with pytest.raises(SettingsError, match=said):
        settle(node(first, asked), HOST)


def test_settings_say_so_too():
    """``[[node.nics]]`` may leave out what the host is to be asked for."""
    said = msgspec.convert({"rail": "rail0", "number": 0, "address": "10.16.0.0/16"}, NicSettings)

    assert (said.device, said.address) == ("", "10.16.0.0/16")
