"""Settings."""

from __future__ import annotations

import ipaddress
from ipaddress import ip_network
from typing import ClassVar

import msgspec
import pytest
import structlog

from foliot.node.addressing import describe, path_prefix, service_prefix
from foliot.settings import BusSettings, NicSettings, NodeSettings, SettingsError, load, read


def test_the_environment_wins_over_the_file(tmp_path, monkeypatch):
    """``FOLIOT_BUS__URL`` overrides ``url`` in ``[bus]``."""
    file = tmp_path / "foliot.toml"
    file.write_text('[bus]\nurl = "nats://file:1"\nreplicas = 3\n')
    monkeypatch.setenv("FOLIOT_CONFIG", str(file))
    monkeypatch.setenv("FOLIOT_BUS__URL", "nats://environment:2")

    assert load(BusSettings, "bus") == BusSettings(url="nats://environment:2", replicas=3)


def test_without_a_file_the_defaults_hold(monkeypatch):
    """A service starts without any configuration."""
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)

    assert load(BusSettings, "bus") == BusSettings()


@pytest.mark.parametrize(
    ("document", "environment", "said"),
    [
        ({"bus": {"url": 5}}, {}, r"bus\.url: expected `str`, got `int` \(from foliot\.toml\)"),
        ({"bus": {"ulr": "x"}}, {}, r"bus\.ulr: .*unknown field"),
        ({}, {"FOLIOT_BUS__REPLICAS": "many"}, r"bus\.replicas: .* \(from FOLIOT_BUS__REPLICAS\)"),
        ({"buss": {}}, {}, "no such section: buss; there are agent, bus"),
        ({"bus": 5}, {}, r"bus: expected a table \[bus\], got int"),
        ({"bus": {"replicas": float("nan")}}, {}, r"bus\.replicas: expected a finite number \(from foliot\.toml\)"),
        ({}, {"FOLIOT_BUS__REPLICAS": "inf"}, r"bus\.replicas: expected a finite number \(from FOLIOT_BUS__REPLICAS\)"),
        ({}, {"FOLIOT_BUS__REPLICAS": "9" * 5_000}, r"bus\.replicas: "),
    ],
)
def test_a_wrong_setting_is_named_with_where_it_came_from(document, environment, said):
    """Key, reason and source, in one line."""
    with pytest.raises(SettingsError, match=said):
        read(BusSettings, "bus", document, environment, source="foliot.toml")


def test_a_wrong_setting_in_a_list_is_named_by_its_place():
    """The second NIC's number, not just "a number"."""
    nics = [
        {"rail": "rail0", "number": 0, "device": "a", "address": "1.1.1.1"},
        {"rail": "rail1", "number": "x", "device": "b", "address": "1"},
    ]

    with pytest.raises(SettingsError, match=r"node\.nics\[1\]\.number: expected `int`"):
        read(NodeSettings, "node", {"node": {"name": "n", "index": 0, "nics": nics}}, {}, source="f")


class _Shorter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section that once had more keys."""

    removed: ClassVar[frozenset[str]] = frozenset({"settle_ms", "patience_s"})
    kept_s: float = 1.0


def test_removed_keys_are_warned_of_and_change_nothing():
    """From the file and from the environment, even with values that were never right."""
    document = {"probe": {"settle_ms": "soon", "kept_s": 2.0}}
    with structlog.testing.capture_logs() as logs:
        found = read(_Shorter, "probe", document, {"FOLIOT_PROBE__PATIENCE_S": "inf"}, source="foliot.toml")

    assert found == _Shorter(kept_s=2.0)
    assert [(said["log_level"], said["setting"], said["source"]) for said in logs] == [
        ("warning", "probe.patience_s", "FOLIOT_PROBE__PATIENCE_S"), ("warning", "probe.settle_ms", "foliot.toml"),
    ]  # fmt: skip


def test_what_was_never_a_key_is_refused_beside_removed_ones():
    """A misspelt key does not pass for a removed one."""
    with pytest.raises(SettingsError, match=r"probe\.settel_ms: .*unknown field"):
        read(_Shorter, "probe", {"probe": {"settle_ms": 1, "settel_ms": 1}}, {}, source="foliot.toml")


@pytest.mark.parametrize("content", [None, "[bus"])
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path, monkeypatch, content):
    """Missing or broken: no silent fallback to defaults."""
    file = tmp_path / "foliot.toml"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("FOLIOT_CONFIG", str(file))

    with pytest.raises(SettingsError, match=r"foliot\.toml: "):
        load(BusSettings, "bus")


NODE = NodeSettings(
    name="node3",
    index=3,
    nics=(
        NicSettings(rail="rail0", number=0, device="eth1", address="10.16.0.6"),
        NicSettings(rail="rail1", number=1, device="eth2", address="10.17.0.6", clock="ptp1"),
    ),
)


def test_a_nodes_addresses_follow_from_its_index():
    """Host index + 1 of each rail's /16, the same on every node that knows the index."""
    node = describe(NODE)

    assert [nic.service_address for nic in node.nics] == ["10.200.0.4", "10.201.0.4"]
    assert node.nic("rail1").path_addresses == ("100.72.0.4", "100.73.0.4", "100.74.0.4", "100.75.0.4")
    assert [nic.clock for nic in node.nics] == ["node3", "ptp1"]
    assert (service_prefix(NODE, "rail1"), path_prefix(NODE, "rail0", 3)) == ("10.201.0.0/16", "100.67.0.0/16")


def test_each_of_64_entropies_has_a_network_of_its_own():
    """On eight rails: no two networks overlap, and none leaves the prefix."""
    nics = tuple(NicSettings(rail=f"rail{rail}", number=rail) for rail in range(8))
    node = msgspec.structs.replace(NODE, index=8_189, nics=nics, entropies=tuple(range(49_200, 49_264)))
    networks = [ip_network(path_prefix(node, nic.rail, entropy)) for nic in nics for entropy in range(64)]
    addresses = [address for nic in describe(node).nics for address in nic.path_addresses]

    assert list(ipaddress.collapse_addresses(networks)) == [ip_network(node.path_prefix)]
    assert sum(each.num_addresses for each in networks) == ip_network(node.path_prefix).num_addresses
    assert all(ipaddress.ip_address(each) in network for each, network in zip(addresses, networks, strict=True))


@pytest.mark.parametrize(("entropies", "length", "most"), [(8, 16, 65_533), (9, 17, 32_765), (32, 18, 16_381)])
def test_the_more_entropies_the_fewer_nodes(entropies, length, most):
    """Each eight of them more halve the room, once for each doubling."""
    node = msgspec.structs.replace(NODE, index=most, entropies=tuple(range(entropies)))

    assert {ip_network(path_prefix(node, "rail1", entropy)).prefixlen for entropy in range(entropies)} == {length}
    assert len(set(describe(node).nic("rail1").path_addresses)) == entropies
    with pytest.raises(SettingsError, match=rf"within 0 and {most} "):
        describe(msgspec.structs.replace(node, index=most + 1))


def test_an_address_does_not_depend_on_how_many_entropies_there_are():
    """Nodes with different numbers of them reach each other by those that both have."""
    few, many = (
        describe(msgspec.structs.replace(NODE, index=2_000, entropies=tuple(range(count)))).nic("rail1").path_addresses
        for count in (20, 64)
    )

    assert few == many[:20]


@pytest.mark.parametrize(
    "changes",
    [
        {"index": -1},
        {"index": 65_535},
        {"service_prefix": "10.200.0.0/16"},
        {"service_prefix": "nonsense"},
        {"entropies": tuple(range(65))},
        {"index": 8_190, "entropies": tuple(range(64))},
        {"nics": (NODE.nics[0], NODE.nics[0])},
    ],
)
def test_what_does_not_fit_into_the_prefixes_is_refused(changes):
    """An address outside its prefix would be another node's."""
    fields = {field: getattr(NODE, field) for field in NODE.__struct_fields__}

    with pytest.raises(SettingsError):
        describe(NodeSettings(**{**fields, **changes}))


@pytest.mark.parametrize(
    "content", [b"\xff", b"a = " + b"9" * 5_000, b"a = " + b"[" * 5_000], ids=["utf-8", "number", "depth"]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, content):
    """Whatever is wrong with it, it is one sentence and no traceback."""
    file = tmp_path / "foliot.toml"
    file.write_bytes(content)
    monkeypatch.setenv("FOLIOT_CONFIG", str(file))
    with pytest.raises(SettingsError, match="not TOML"):
        load(BusSettings, "bus")
