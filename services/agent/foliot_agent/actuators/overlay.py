"""The actuator of the overlay.

Routes choose the device that carries a destination, and one rule chooses the tables of a rail. A connection notices
nothing: its addresses stay, only the device under it changes. Each message costs about 0.2 ms.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import structlog
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_ONLINK

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.core import overlay_layout
from foliot_agent.core.routing_table import RoutingTable, destination_of
from foliot_agent.kernel.devices import Devices
from foliot_agent.kernel.overlay_routes import routes_present, rules_present
from foliot_schemas import Placement

if TYPE_CHECKING:
    from foliot_agent.core.routing_table import Destination
    from foliot_schemas import Node

log = structlog.get_logger()

_TCP_USEC_TS = 1 << 4
"""RTAX_FEATURE_TCP_USEC_TS (linux/rtnetlink.h, Linux 6.7)."""


class OverlayActuator:
    """Moves traffic to service addresses: single destinations by a route each, all of a rail by one rule.

    Every method leaves `routing` as it is in force, also when it raises `ActuatorError`.

    Parameters:
        netlink: an `AsyncIPRoute` of its own, so that no long dump stands before a move.
    """

    def __init__(self, netlink: Any, layout: overlay_layout.Layout, devices: Devices | None = None) -> None:
        self.routing = RoutingTable()
        self._netlink = netlink
        self._layout = layout
        self._devices = devices or Devices()
        self._peers: dict[str, Node] = {}
        self._found: dict[tuple[int, str], str] = {}
        self._metrics: dict[str, Any] = {"metrics": {"features": _TCP_USEC_TS}} if layout.tcp_usec_ts else {}
        """What every route has besides its way."""

    async def adopt(self) -> None:
        """Finds what an earlier run left in force, and makes sure of the rules that are always there."""
        present = await rules_present(self._netlink)
        for rule in overlay_layout.rules(self._layout):
            if rule not in present:
                await self._rule("add", rule)
        self.routing.away = {
            rail for rail in self._layout.rails if overlay_layout.away_rule(self._layout, rail) in present
        }
        for first_table in (overlay_layout.IN_FORCE_TABLE, overlay_layout.BACKUP_TABLE):
            for number in self._layout.numbers.values():
                table = first_table + number
                for destination, gateway in await routes_present(self._netlink, table):
                    self._found[table, destination] = gateway

    async def welcome(self, peer: Node) -> None:
        """Puts the routes to a peer: those found in force, else home."""
        self._peers[peer.name] = peer
        self.routing.rails[peer.name] = overlay_layout.shared_rails(self._layout, peer)
        for rail in self.routing.rails[peer.name]:
            destination = peer.name, rail
            found = self._adopted(peer, rail, overlay_layout.IN_FORCE_TABLE)
            home = Placement(peer=peer.name, rail=rail, via=rail, entropy=0)
            chosen = found or self.routing.placements.get(destination) or home
            try:
                await self._put(self.routing.placements, chosen)
            except ActuatorError as error:
                if self._has_device(chosen):
                    raise
                # The NIC is out. When it is back, the device is made anew, and `renew` puts the route.
                log.info("route_waits_for_device", reason=str(error))
                self.routing.placements[destination] = chosen
            backup = self._adopted(peer, rail, overlay_layout.BACKUP_TABLE) or self.routing.backups.get(destination)
            if backup is not None:
                await self._put(self.routing.backups, backup)

    async def dismiss(self, peer: Node) -> None:
        """Removes the routes to a peer."""
        for kept in (self.routing.placements, self.routing.backups):
            for destination in [each for each in kept if each[0] == peer.name]:
                await self._remove(kept, destination)
        self._peers.pop(peer.name, None)
        self.routing.forget(peer.name)

    async def place(self, placement: Placement, *, ahead: bool = False) -> None:
        """Makes this the way in force, or `ahead`, on a rail that is away, lays it ready for its coming back."""
        destination = destination_of(placement)
        if self.routing.placements.get(destination) != placement:
            await self._put(self.routing.placements, placement)
        by_backup = not ahead and placement.rail in self.routing.away and destination in self.routing.backups
        if by_backup and self.routing.backups[destination] != placement:
            await self._put(self.routing.backups, placement)

    async def arm(self, backup: Placement) -> None:
        """Makes this the backup of its destination."""
        if self.routing.backups.get(destination_of(backup)) != backup:
            await self._put(self.routing.backups, backup)

    async def disarm(self, destination: Destination) -> None:
        """Takes away the backup of a destination, unless its rail is away: then it is in use."""
        if destination in self.routing.backups and destination[1] not in self.routing.away:
            await self._remove(self.routing.backups, destination)

    async def away(self, rail: str) -> bool:
        """Sends a rail's traffic by its backups; False: it went there already. `back` undoes it."""
        if rail in self.routing.away:
            return False
        await self._rule("add", overlay_layout.away_rule(self._layout, rail))
        self.routing.away.add(rail)
        return True

    async def back(self, rail: str) -> bool:
        """Sends a rail's traffic by its placements; False: it went there already. `away` undoes it."""
        if rail not in self.routing.away:
            return False
        await self._rule("del", overlay_layout.away_rule(self._layout, rail))
        self.routing.away.discard(rail)
        return True

    async def renew(self, destination: Destination) -> None:
        """Puts the routes of a destination once more, as a device was lost with all on it, and made again."""
        for kept in (self.routing.placements, self.routing.backups):
            if destination in kept and self._has_device(kept[destination]):
                await self._put(kept, kept[destination])

    def _has_device(self, placement: Placement) -> bool:
        return self._devices.has(overlay_layout.device_name(self._layout.numbers[placement.via], placement.entropy))

    def _adopted(self, peer: Node, rail: str, first_table: int) -> Placement | None:
        address = peer.nic(rail).service_address
        gateway = self._found.pop((first_table + self._layout.numbers[rail], address), None)
        return (
            None if gateway is None else overlay_layout.placements_by_route(self._layout, peer).get((address, gateway))
        )

    def _table(self, kept: dict[tuple[str, str], Placement]) -> int:
        return overlay_layout.IN_FORCE_TABLE if kept is self.routing.placements else overlay_layout.BACKUP_TABLE

    async def _put(self, kept: dict[tuple[str, str], Placement], placement: Placement) -> None:
        peer = self._peers[placement.peer]
        route = overlay_layout.route(self._layout, peer, placement, self._table(kept))
        try:
            await self._replace(route)
        except (NetlinkError, OSError) as error:
            raise ActuatorError(f"route to {route.destination} by {route.device}: {error}") from error
        kept[destination_of(placement)] = placement

    async def _replace(self, route: overlay_layout.Route) -> None:
        wanted = {
            "dst": route.destination, "dst_len": 32, "table": route.table, "gateway": route.gateway,
            # The gateway is reachable through the device, whatever other routes say.
            "oif": self._devices.index(route.device), "prefsrc": route.source, "flags": RTNH_F_ONLINK,
        }  # fmt: skip
        try:
            await self._netlink.route("replace", **wanted, **self._metrics)
        except NetlinkError as error:
            if error.code != errno.EINVAL or not self._metrics:
                raise
            await self._netlink.route("replace", **wanted)
            # The same route is taken without it, so the kernel does not know it.
            log.warning("tcp_usec_ts_unknown", hint="agent.tcp_usec_ts needs Linux 6.7; traffic goes on without it")
            self._metrics = {}

    async def _remove(self, kept: dict[tuple[str, str], Placement], destination: tuple[str, str]) -> None:
        peer = self._peers[destination[0]]
        route = overlay_layout.route(self._layout, peer, kept[destination], self._table(kept))
        try:
            await self._netlink.route("del", dst=route.destination, dst_len=32, table=route.table)
        except NetlinkError as error:
            if error.code != errno.ESRCH:  # gone with its device
                raise ActuatorError(f"route to {route.destination} stays: {error}") from error
        del kept[destination]

    async def _rule(self, verb: str, rule: overlay_layout.Rule) -> None:
        address, _, length = rule.prefix.partition("/")
        try:
            await self._netlink.rule(verb, priority=rule.priority, dst=address, dst_len=int(length), table=rule.table)
        except NetlinkError as error:
            if error.code != (errno.EEXIST if verb == "add" else errno.ENOENT):
                raise ActuatorError(f"rule {rule.priority} to {rule.prefix}: {error}") from error
