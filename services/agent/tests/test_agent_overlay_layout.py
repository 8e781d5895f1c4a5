"""The plan: which kernel objects follow from the inventory."""

from __future__ import annotations

import msgspec
import pytest

from foliot.node.addressing import describe
from foliot.settings import NicSettings
from foliot_agent.core import overlay_layout
from foliot_schemas import Placement


@pytest.fixture
def layout(settings_of):
    """Node 0's."""
    return overlay_layout.Layout.of(settings_of(0))


@pytest.fixture
def peer(settings_of):
    """Node 1's record."""
    return describe(settings_of(1))


def test_every_entropy_of_every_rail_has_a_device_of_its_own(layout):
    """Names, VNIs and MACs differ, and each pins its own UDP source port on its own NIC."""
    devices = overlay_layout.devices(layout)
    assert [device.name for device in devices] == ["fo0e0", "fo0e1", "fo1e0", "fo1e1"]
    assert len({device.vni for device in devices}) == len({device.mac for device in devices}) == 4
    assert all(device.vni in overlay_layout.OUR_VNIS for device in devices)
    assert [(device.underlay, device.source_port) for device in devices[1:3]] == [("rail0", 49201), ("rail1", 49200)]


def test_64_entropies_of_eight_rails_have_devices(settings_of):
    """Names fit into 15 characters. Devices, VNIs and MACs are apart, and a leaving node finds each by its VNI."""
    nics = tuple(NicSettings(rail=f"rail{rail}", number=rail, device=f"eth{rail}") for rail in range(8))
    settings = msgspec.structs.replace(settings_of(0), nics=nics, entropies=tuple(range(49_200, 49_264)))
    devices = overlay_layout.devices(overlay_layout.Layout.of(settings))
    assert all(len({getattr(each, key) for each in devices}) == 512 for key in ("name", "vni", "mac", "address"))
    assert max(len(each.name) for each in devices) <= 15
    assert all(each.vni in overlay_layout.OUR_VNIS and each.prefix_length == 19 for each in devices)


def test_a_mac_is_local_unicast_and_says_the_address():
    """The lowest bits of the first byte are 10; the last four bytes are the path address."""
    assert overlay_layout.mac_of("100.64.1.2") == "02:f0:64:40:01:02"


def test_what_one_node_forwards_to_is_what_the_other_made(layout, peer, settings_of):
    """The entries of a peer name that peer's own devices and NICs."""
    theirs = {device.mac: device for device in overlay_layout.devices(overlay_layout.Layout.of(settings_of(1)))}
    entries = overlay_layout.entries(layout, peer)
    for entry in entries:
        assert (theirs[entry.mac].name, theirs[entry.mac].local) == (entry.device, entry.remote)
    assert {(each.mac, each.address) for each in entries} == {(each.mac, each.address) for each in theirs.values()}


def test_a_moved_destination_keeps_its_addresses(layout, peer):
    """Over another rail only gateway and device change; destination, source and table are those of its own rail."""
    moved = Placement(peer="node1", rail="rail0", via="rail1", entropy=1)
    route = overlay_layout.route(layout, peer, moved, overlay_layout.IN_FORCE_TABLE)
    assert (route.destination, route.source, route.table) == ("10.200.0.2", "10.200.0.1", 7000)
    assert (route.device, route.gateway) == ("fo1e1", peer.nic("rail1").path_addresses[1])
    assert overlay_layout.placements_by_route(layout, peer)[route.destination, route.gateway] == moved


def test_a_peer_without_a_rail_gets_no_entries_for_it(layout, peer):
    """Only rails that both have are used."""
    short = type(peer)(name="node1", nics=peer.nics[1:], agent_port=1)
    assert {entry.device for entry in overlay_layout.entries(layout, short)} == {"fo1e0", "fo1e1"}
    assert overlay_layout.shared_rails(layout, short) == ("rail1",)


def test_the_rule_of_a_lost_rail_comes_before_the_one_that_is_always_there(layout):
    """The kernel asks rules in the order of their priorities."""
    away, always = overlay_layout.away_rule(layout, "rail1"), overlay_layout.rules(layout)[1]
    assert away.priority < always.priority
    assert (away.prefix, away.table, always.table) == (always.prefix, 7101, 7001)
