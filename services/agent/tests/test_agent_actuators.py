"""The contract of the actuator, with a kernel and without; with one, it is held against the kernel's own word."""

from __future__ import annotations

import errno
import re
import socket

import msgspec
import pytest
from pyroute2 import AsyncIPRoute
from structlog.testing import capture_logs

from foliot.node.addressing import describe
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.kernel import route_restorer
from foliot_agent.kernel.dry_run import DryRun
from foliot_agent.kernel.overlay_devices import Overlay, OverlayError, remove
from foliot_agent.kernel.route_restorer import RouteRestorer
from foliot_agent.kernel.route_socket import RouteSocket
from foliot_lab.services.emulated_actuator import NoKernel
from foliot_schemas import Placement

_RAILS = ("rail0", "rail1")


def placed(peer: str = "node1", rail: str = "rail0", via: str = "rail0", entropy: int = 0) -> Placement:
    """A placement."""
    return Placement(peer=peer, rail=rail, via=via, entropy=entropy)


_BACKUPS = tuple(placed(peer, via="rail1", entropy=1) for peer in ("node1", "node2"))


def set_up(ip) -> tuple[str, ...]:
    """What was set up, by the kernel's word. It notes later, in its own time, whether a new device has a carrier."""
    links = re.sub(r",LOWER_UP|NO-CARRIER,| state \w+", "", ip("link"))
    return links, ip("route show table all", options=("-4",)), ip("rule"), ip("neigh")


class Bench:
    """An actuator with two peers at home, and the means to see what it really did."""

    def __init__(self, layout, peers, ip) -> None:
        self.layout, self.peers, self._ip = layout, peers, ip
        self.actuator = OverlayActuator(None, NoKernel(), layout, NoKernel())
        self._is_real = False

    async def build(self, netlink, kernel) -> None:
        """Makes it the real thing."""
        overlay = Overlay(netlink, self.layout)
        await overlay.build()
        self.actuator, self._is_real = OverlayActuator(netlink, kernel, self.layout), True
        await self.actuator.adopt()
        for peer in self.peers:
            await overlay.join(peer)

    async def arm(self) -> None:
        """Arms both peers."""
        for backup in _BACKUPS:
            await self.actuator.arm(backup)

    def way(self, peer: str, rail: str = "rail0") -> Placement:
        """What the actuator says is in force; the kernel, where there is one, must say the same."""
        said = self.actuator.routing.way((peer, rail))
        if self._is_real:
            record = next(each for each in self.peers if each.name == peer)
            found = self._ip(f"route get {record.nic(rail).service_address}")
            assert (
                f"via {record.nic(said.via).path_addresses[said.entropy]} dev fo{said.via[-1]}e{said.entropy} " in found
            )
            assert f"src {self.layout.node.nic(rail).service_address} " in found
        return said


@pytest.fixture(params=["emulated", pytest.param("overlay", marks=pytest.mark.net)])
async def bench(request, settings_of, ip_here):
    """With and without a kernel."""
    made = Bench(Layout.of(settings_of(0)), [describe(settings_of(index)) for index in (1, 2)], ip_here)
    if request.param == "emulated":
        for peer in made.peers:
            await made.actuator.welcome(peer)
        yield made
        return
    request.getfixturevalue("namespace")
    async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
        await made.build(netlink, kernel)
        for peer in made.peers:
            await made.actuator.welcome(peer)
        yield made


async def test_traffic_begins_at_home(bench):
    """Over each service address's own rail, first entropy."""
    for peer in ("node1", "node2"):
        for rail in _RAILS:
            assert bench.way(peer, rail) == placed(peer, rail, rail)


async def test_a_placement_moves_one_destination_and_the_one_before_moves_it_back(bench):
    """The other destinations stay where they are."""
    await bench.actuator.place(placed(via="rail1", entropy=1))
    assert bench.way("node1") == placed(via="rail1", entropy=1)
    assert bench.way("node2") == placed("node2")
    await bench.actuator.place(placed())
    assert bench.way("node1") == placed()


async def test_a_rail_goes_away_by_its_backups_and_comes_back(bench):
    """All destinations of the rail that have a backup move; those of other rails stay; twice is the same as once."""
    await bench.actuator.arm(_BACKUPS[0])
    assert await bench.actuator.away("rail0")
    assert not await bench.actuator.away("rail0")
    assert bench.way("node1") == _BACKUPS[0]
    assert bench.way("node2") == placed("node2")
    assert bench.way("node1", "rail1") == placed("node1", "rail1", "rail1")
    assert await bench.actuator.back("rail0")
    assert not await bench.actuator.back("rail0")
    assert bench.way("node1") == placed()


async def test_a_placement_on_a_rail_that_is_away_is_in_force_at_once(bench):
    """A command means the way that packets take, whichever table that needs."""
    await bench.arm()
    await bench.actuator.away("rail0")
    await bench.actuator.place(placed(via="rail1"))
    assert bench.way("node1") == placed(via="rail1")


async def test_a_placement_laid_ahead_waits_for_the_rail_to_come_back(bench):
    """The backup goes on until then, and stays the backup after."""
    await bench.arm()
    await bench.actuator.away("rail0")
    await bench.actuator.place(placed(entropy=1), ahead=True)
    assert bench.way("node1") == _BACKUPS[0]
    await bench.actuator.back("rail0")
    assert bench.way("node1") == placed(entropy=1)
    assert bench.actuator.routing.backups["node1", "rail0"] == _BACKUPS[0]


async def test_a_backup_in_use_is_not_taken_away(bench):
    """A backup that is no longer wanted goes only when its rail does not live by it."""
    destinations = [("node1", "rail0"), ("node2", "rail0")]
    await bench.arm()
    await bench.actuator.away("rail0")
    for destination in destinations:
        await bench.actuator.disarm(destination)
    assert bench.way("node1") == _BACKUPS[0]
    await bench.actuator.back("rail0")
    for destination in destinations:
        await bench.actuator.disarm(destination)
    assert bench.actuator.routing.backups == {}
    assert bench.way("node1") == placed()


async def test_a_dismissed_peer_leaves_nothing(bench):
    """Neither placements nor backups."""
    await bench.arm()
    await bench.actuator.dismiss(bench.peers[0])
    assert bench.actuator.routing.way(("node1", "rail0")) is None
    assert bench.way("node2") == placed("node2")


@pytest.mark.parametrize("bench", [pytest.param("overlay", marks=pytest.mark.net)], indirect=True)
class TestOverlay:
    """What only the real one can do."""

    async def test_building_again_changes_nothing_and_a_new_run_adopts(self, bench, ip_here):
        """Devices keep their indexes; ways that were moved, armed and away are found as they are."""
        await bench.arm()
        await bench.actuator.place(placed("node2", via="rail1"))
        await bench.actuator.away("rail0")
        before = set_up(ip_here)
        routing = bench.actuator.routing
        async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
            await bench.build(netlink, kernel)
            for peer in bench.peers:
                await bench.actuator.welcome(peer)
            assert set_up(ip_here) == before
            found = bench.actuator.routing
            assert (found.placements, found.backups, found.away) == (routing.placements, routing.backups, routing.away)

    async def test_a_wrong_device_is_remade_and_its_routes_renewed(self, bench, ip_here):
        """Somebody replaced a VXLAN device by another; a further device of ours that is not planned goes."""
        ip_here(
            "link del fo0e0",
            "link add fo0e0 type vxlan id 5 dstport 4789",
            "link add fo0e7 type vxlan id 700007 dstport 4789",
        )
        actuator = bench.actuator
        async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
            await bench.build(netlink, kernel)
        for destination in actuator.routing.placements:
            await actuator.renew(destination)
        bench.actuator = actuator
        assert bench.way("node1") == placed()
        details = ip_here("link show fo0e0", options=("-d",))
        assert "id 700000 local 10.0.0.1 dev rail0 srcport 49200 49201" in details
        assert "fo0e7" not in ip_here("link")

    async def test_outer_packets_have_the_class_of_those_inside(self, bench, ip_here):
        """A device of an earlier version is brought to it where it stands; a rehearsal says so and leaves it."""
        assert " tos inherit " in ip_here("link show fo0e0", options=("-d",))
        ip_here("link set fo0e0 type vxlan id 700000 tos 0")
        index = ip_here("link show fo0e0").partition(":")[0]
        async with AsyncIPRoute() as netlink:
            rehearsal = DryRun(netlink)
            await Overlay(rehearsal, bench.layout, rehearsal).build()
            assert [str(change) for change in rehearsal.changes] == ["change link       fo0e0  tos inherit"]
            assert " tos inherit " not in ip_here("link show fo0e0", options=("-d",))
            assert await Overlay(netlink, bench.layout).build() == frozenset()
        assert " tos inherit " in ip_here("link show fo0e0", options=("-d",))
        assert ip_here("link show fo0e0").partition(":")[0] == index

    async def test_an_address_of_another_length_is_made_anew(self, bench, ip_here):
        """The node had more entropies before, so its networks were smaller."""
        ip_here("addr del 100.64.0.1/16 dev fo0e0", "addr add 100.64.0.1/19 dev fo0e0")
        async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
            await bench.build(netlink, kernel)
        found = ip_here("addr show fo0e0")
        assert "100.64.0.1/16" in found
        assert "100.64.0.1/19" not in found

    async def test_uninstalling_takes_away_all_of_ours_and_nothing_else(self, bench, ip_here):
        """Also twice; a device of another's with a like name stays."""
        await bench.arm()
        await bench.actuator.away("rail0")
        ip_here("link add fo9e9 type vxlan id 5 dstport 4790", "rule add priority 6999 lookup 7")
        async with AsyncIPRoute() as netlink:
            await remove(netlink)
            await remove(netlink)
        devices = {line.split()[1].partition("@")[0].rstrip(":") for line in ip_here("link").splitlines()[::2]}
        assert devices == {"lo", "rail0", "rail1", "far0", "far1", "fo9e9"}
        assert [line.partition(":")[0] for line in ip_here("rule").splitlines()] == ["0", "6999", "32766", "32767"]
        assert "table 7" not in ip_here("route show table all")

    async def test_a_route_that_the_kernel_refuses_is_said_and_not_believed(self, bench, ip_here):
        """The error names route and device, and what is in force stays known."""
        ip_here("link del fo1e1")
        with pytest.raises(ActuatorError, match=r"route to 10\.200\.0\.2 by fo1e1"):
            await bench.actuator.place(placed(via="rail1", entropy=1))
        assert bench.way("node1") == placed()

    async def test_a_nic_that_is_not_there_is_named(self, bench, ip_here):
        """Building without it is refused in words."""
        ip_here("link del rail1")
        async with AsyncIPRoute() as netlink:
            with pytest.raises(OverlayError, match="there is no device 'rail1'"):
                await Overlay(netlink, bench.layout).build()


@pytest.mark.net
async def test_flushed_routes_come_back_as_they_were(namespace, ip_here):
    """With gateway, metric, source and table; a copy is never taken of a NIC that is down."""
    ip_here(
        "route add 10.9.0.0/16 via 10.0.0.9 dev rail0 metric 7 src 10.0.0.1",
        "route add 10.8.0.0/16 via 10.77.0.9 dev rail0 onlink table 100 mtu 1400",
        "route add 10.7.0.0/16 via 10.1.0.9 dev rail1",
    )
    before = sorted(ip_here("route show table all").splitlines())
    async with AsyncIPRoute(strict_check=True) as netlink:
        restorer = RouteRestorer(netlink)
        await restorer.remember("rail0")
        ip_here("link set rail0 down")
        await restorer.remember("rail0")
        assert "10.9.0.0/16" not in ip_here("route")
        ip_here("link set rail0 up")
        await restorer.put_back("rail0")
        await restorer.put_back("rail0")
    after = sorted(ip_here("route show table all").splitlines())
    assert [line for line in after if line.startswith("10.")] == [line for line in before if line.startswith("10.")]


@pytest.mark.net
async def test_the_kernel_is_asked_for_the_routes_of_one_nic_alone(namespace, ip_here, monkeypatch):
    """A large fleet has thousands of others, and reading them all every few seconds takes the loop's time."""
    ip_here(*(f"route add 10.9.0.{index}/32 via 10.1.0.9 dev rail1 table 7000" for index in range(50)))
    ip_here("route add 10.8.0.0/16 via 10.0.0.9 dev rail0")
    told = []
    monkeypatch.setattr(route_restorer, "_as_it_comes", lambda message: told.append(message) or True)
    async with AsyncIPRoute(strict_check=True) as netlink:
        restorer = RouteRestorer(netlink)
        await restorer.remember("rail0")
    assert [route["dst"] for route in restorer.kept["rail0"]] == ["10.8.0.0"]
    assert {message.get_attr("RTA_OIF") for message in told} == {socket.if_nametoindex("rail0")}


@pytest.mark.net
@pytest.mark.usefixtures("namespace")
async def test_each_of_64_entropies_has_its_device_and_peers_are_reached_by_it(settings_of, ip_here):
    """A peer's path address lies within one device's network alone, though those of eight entropies share a /16."""
    ports = tuple(range(49_200, 49_264))
    own = msgspec.structs.replace(settings_of(0), entropies=ports)
    peer = describe(msgspec.structs.replace(settings_of(1), index=8_189, entropies=ports))
    async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
        overlay = Overlay(netlink, Layout.of(own))
        await overlay.build()
        await overlay.join(peer)
        actuator = OverlayActuator(netlink, kernel, Layout.of(own))
        await actuator.adopt()
        await actuator.welcome(peer)
        for number, rail in enumerate(_RAILS):
            for entropy, address in enumerate(peer.nic(rail).path_addresses):
                assert f"{address} dev fo{number}e{entropy} " in ip_here(f"route get {address}")
        await actuator.place(placed(entropy=63))
        assert "dev fo0e63 " in ip_here(f"route get {peer.nic('rail0').service_address}")
        assert "srcport 49263 49264" in ip_here("link show fo0e63", options=("-d",))


@pytest.mark.net
@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("is_wanted", [True, False], ids=["wanted", "not wanted"])
async def test_routes_make_tcp_stamp_in_microseconds_where_that_is_wanted(settings_of, ip_here, is_wanted):
    """Those in force and the backups; a start with the other setting changes what is there."""
    peer = describe(settings_of(1))
    async with AsyncIPRoute(strict_check=True) as netlink, RouteSocket() as kernel:
        await Overlay(netlink, Layout.of(settings_of(0))).build()
        for wanted in (not is_wanted, is_wanted):
            actuator = OverlayActuator(netlink, kernel, Layout.of(settings_of(0), tcp_usec_ts=wanted))
            await actuator.adopt()
            await actuator.welcome(peer)
            await actuator.arm(_BACKUPS[0])
        address = peer.nic("rail0").service_address
        for table in (7000, 7100):
            routes = _features(await ip_routes(netlink, table))
            assert routes[address] == (16 if is_wanted else None)


class Unknowing(NoKernel):
    """One from before Linux 6.7."""

    def __init__(self) -> None:
        self.routes = []

    async def change(self, requests):
        """Refuses features that it does not know."""
        self.routes += [each.what.destination for each in requests if not each.features]
        return [errno.EINVAL if each.features else 0 for each in requests]


async def test_a_kernel_that_does_not_know_microseconds_gets_routes_without(settings_of):
    """It is said once, and traffic goes on."""
    kernel, peer = Unknowing(), describe(settings_of(1))
    actuator = OverlayActuator(None, kernel, Layout.of(settings_of(0), tcp_usec_ts=True), kernel)
    with capture_logs() as logs:
        await actuator.welcome(peer)
    assert kernel.routes == [nic.service_address for nic in peer.nics]
    assert [each["event"] for each in logs] == ["tcp_usec_ts_unknown"]


async def ip_routes(netlink, table):
    """The routes in one table, as the kernel tells them."""
    return [each async for each in await netlink.route("dump", family=socket.AF_INET, table=table)]


def _features(routes):
    """Features by destination; None: a route has none."""
    metrics = {each.get_attr("RTA_DST"): each.get_attr("RTA_METRICS") for each in routes}
    return {address: each and each.get_attr("RTAX_FEATURES") for address, each in metrics.items()}
