"""What the plan says is what the agent does, and no more: both are held against the kernel's own word."""

from __future__ import annotations

import json
from pathlib import Path

import forked
import msgspec
import pytest
from pyroute2 import AsyncIPRoute

from foliot.node.addressing import describe
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.kernel.dry_run import DryRun
from foliot_agent.kernel.overlay_devices import Overlay
from foliot_agent.kernel.route_socket import RouteSocket
from foliot_schemas import NodePaths, Placement
from foliot_schemas.subjects import INVENTORY, PATHS

pytestmark = [pytest.mark.net, pytest.mark.nats]


async def planned(host, *arguments: str) -> list[dict]:
    """What ``foliot agent plan`` prints inside a host, run without any privilege."""
    asked = ("agent", "plan", "--config", str(host.config), "--json", *arguments)
    with host.entered():
        status, said = await forked.run("foliot.cli", *asked, privileged=False)
    assert status == 0, said
    return json.loads(said)


def sysctls(host) -> dict[str, str]:
    """Every setting of every device."""
    with host.entered():
        return {
            str(path): path.read_text().strip()
            for family in ("ipv4", "ipv6")
            for key in ("rp_filter", "disable_ipv6", "forwarding", "accept_local", "arp_ignore")
            for path in Path(f"/proc/sys/net/{family}/conf").glob(f"*/{key}")
        }


def kernel(host) -> dict[str, dict]:
    """What the kernel has, by kind and name, in the words of the plan."""

    def said(*lines: str, options: tuple[str, ...] = ()) -> list[dict]:
        return json.loads(host.ip(*lines, options=("-json", *options)))

    links = {}
    for link in said("link show", options=("-details",)):
        information = link.get("linkinfo", {})
        data = information.get("info_data", {})
        links[link["ifname"]] = {
            "type": information.get("info_kind"),
            "state": "up" if "UP" in link["flags"] else "down",
            "mtu": link["mtu"],
            "address": link["address"],
            "id": data.get("id"),
            "local": data.get("local"),
            "dev": data.get("link"),
            "srcport": data.get("port_range", {}).get("low"),
            "dstport": data.get("port"),
            "tos": {"0x1": "inherit"}.get(
                data.get("tos"), data.get("tos")
            ),  # some versions of iproute2 write the number
        }
    return {
        "link": links,
        "address": {
            f"{each['local']}/{each['prefixlen']}": {"dev": link["ifname"]}
            for link in said("addr show")
            for each in link["addr_info"]
        },
        "rule": {
            f"to {rule['dst']}/{rule['dstlen']}": {"priority": rule["priority"], "lookup": int(rule["table"])}
            for rule in said("rule show")
            if "dst" in rule
        },
        "route": {
            f"{route['dst']} {route.get('table', 'main')}": {
                "table": int(route["table"]), "via": route["gateway"], "dev": route["dev"], "src": route["prefsrc"]
            }
            for route in said("route show table all")
            if route.get("protocol") != "kernel"
        },
        "neighbour": {
            f"{each['dst']} {each['dev']}": {"lladdr": each["lladdr"], "dev": each["dev"]}
            for each in said("neigh show nud permanent")
            if each["dev"] != "lo"
        },
        "forwarding": {
            f"{each['mac']} {each['ifname']}": {"dst": each["dst"], "dev": each["ifname"]}
            for each in json.loads(host.bridge("fdb show"))
            if "dst" in each
        },
        "sysctl": sysctls(host),
    }  # fmt: skip


def done(before: dict[str, dict], plan: list[dict]) -> dict[str, dict]:
    """What the kernel should have once the plan is done; what the plan leaves open is left out."""
    after = {kind: dict(things) for kind, things in before.items()}
    for change in plan:
        kind, name, detail = change["kind"], change["name"], change["detail"]
        if kind == "sysctl":
            after[kind][name] = str(detail["to"])
            continue
        key = {"route": f"{name} {detail.get('table')}"}.get(kind, name)
        key = f"{name} {detail['dev']}" if kind in {"neighbour", "forwarding"} else key
        assert (key in after[kind]) == (change["verb"] == "change"), change
        after[kind][key] = {**after[kind].get(key, {}), **{k: v for k, v in detail.items() if k != "peer"}}
    return after


def assert_same(planned_state: dict[str, dict], real: dict[str, dict]) -> None:
    """Same things of every kind; of each, all that the plan says of it."""
    for kind in ("link", "address", "rule", "route", "neighbour", "forwarding"):
        assert set(planned_state[kind]) == set(real[kind]), kind
        for name, detail in planned_state[kind].items():
            assert {key: real[kind][name][key] for key in detail} == detail, (kind, name)
    # A new device's settings which the plan does not name are the kernel's defaults; all others must be as they were.
    for path, value in planned_state["sysctl"].items():
        assert real["sysctl"][path] == value, path


async def test_the_plan_is_what_the_agent_does(fleet, bus):
    """With two peers in the inventory and armed backups, on a bare host; afterwards there is nothing left to do."""
    host = fleet.hosts[0]
    backups = tuple(Placement(peer=peer, rail="rail0", via="rail1", entropy=1) for peer in ("node1", "node2"))
    await bus.put(PATHS, "node0", NodePaths(node="node0", lease_revision=1, backups=backups))
    for peer in fleet.hosts[1:]:
        await peer.start()
    for peer in fleet.hosts[1:]:
        await peer.ready()
    before = kernel(host)
    plan = await planned(host)
    assert kernel(host) == before
    assert {change["kind"] for change in plan} == {
        "link", "address", "sysctl", "rule", "route", "neighbour", "forwarding"
    }  # fmt: skip
    await host.start()
    await host.ready()
    await fleet.until(lambda: host.routes(7100) == len(backups), "backups are armed")
    assert_same(done(before, plan), kernel(host))
    assert await planned(host) == []


async def test_the_plan_leaves_out_whom_the_agent_would_never_join(fleet, bus):
    """A node that has peers of its own, which this one is none of."""
    for host in fleet.hosts[1:]:
        peers = ("node2",) if host is fleet.hosts[1] else ()
        await bus.put(INVENTORY, host.settings.name, describe(msgspec.structs.replace(host.settings, peers=peers)))
    addresses = {change["name"] for change in await planned(fleet.hosts[0]) if change["kind"] == "route"}
    assert addresses == {"10.200.0.3", "10.201.0.3"}


class Counted:
    """An `AsyncIPRoute` whose dumps are counted."""

    def __init__(self, netlink) -> None:
        self._netlink = netlink
        self.dumps = 0

    def __getattr__(self, kind):
        """As the real one's."""

        async def call(verb, **what):
            self.dumps += verb == "dump"
            return await getattr(self._netlink, kind)(verb, **what)

        return call


async def test_a_plan_reads_the_kernel_s_tables_once_however_many_nodes_there_are(namespace, settings_of):
    """Each holds entries for every node: read for every entry, a fleet of a thousand takes minutes."""
    layout, dumps = Layout.of(settings_of(0)), []
    peers = [describe(settings_of(index)) for index in range(1, 9)]
    async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
        overlay, actuator = Overlay(netlink, layout), OverlayActuator(netlink, kernel, layout)
        await overlay.build()
        await actuator.adopt()
        for peer in peers:
            await overlay.join(peer)
            await actuator.welcome(peer)
        for count in (1, 8):
            counted = Counted(netlink)
            dry_run = DryRun(counted)
            overlay, actuator = Overlay(dry_run, layout, dry_run), OverlayActuator(dry_run, dry_run, layout, dry_run)
            for peer in peers[:count]:
                await overlay.join(peer)
                await actuator.welcome(peer)
            assert dry_run.changes == []
            dumps.append(counted.dumps)
    assert dumps[0] == dumps[1]


async def test_without_the_bus_the_plan_is_the_host_s_own_part(fleet):
    """Devices, addresses and rules, but nothing of any peer."""
    plan = await planned(fleet.hosts[0], "--no-bus")
    assert {change["kind"] for change in plan} == {"link", "address", "sysctl", "rule"}
    assert {change["verb"] for change in plan} == {"add", "change"}


@pytest.mark.usefixtures("bus")
async def test_a_wrong_device_is_planned_to_be_remade(fleet):
    """Somebody replaced a device of ours, took an address and set another down: the plan names just what is wrong."""
    host = fleet.hosts[0]
    await host.start()
    await host.ready()
    await host.stop()
    host.ip(
        "link set foliot0 mtu 1400", "link del fo1e1", "addr del 100.64.0.1/16 dev fo0e0", "link set fo0e1 mtu 1300"
    )
    plan = await planned(host)
    said = [(change["verb"], change["kind"], change["name"]) for change in plan if change["kind"] != "sysctl"]
    assert said == [
        ("add", "address", "100.64.0.1/16"),
        ("change", "link", "fo0e1"),
        ("add", "link", "fo1e1"),
        ("change", "link", "fo1e1"),
        ("add", "address", "100.73.0.1/16"),
    ]


@pytest.mark.usefixtures("bus")
async def test_an_agent_with_another_s_index_changes_nothing_and_says_whose_it_is(fleet):
    """It ends with the status for wrong configuration, which its unit does not restart."""
    first, second = fleet.hosts[:2]
    await first.start()
    await first.ready()
    second.config.write_text(second.config.read_text().replace("index = 1", "index = 0"))
    before = kernel(second)
    await second.start()
    assert await second.ended() == 78
    assert "index 0 is taken by node 'node0'" in second.log
    assert kernel(second) == before
