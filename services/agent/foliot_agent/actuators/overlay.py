"""The actuator of the overlay.

Routes choose the device that carries a destination, and one rule chooses the tables of a rail. A connection notices
nothing: its addresses stay, only the device under it changes. Messages of a loss are encoded when it is armed for.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import structlog

from foliot_agent.actuators.base import ActuatorError
from foliot_agent.core import overlay_layout, route_requests
from foliot_agent.core.routing_table import RoutingTable, destination_of
from foliot_agent.kernel.devices import Devices
from foliot_agent.kernel.overlay_routes import routes_present, rules_present
from foliot_schemas import Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_agent.core.route_requests import Request
    from foliot_agent.core.routing_table import Destination
    from foliot_agent.kernel.route_socket import RouteKernel
    from foliot_schemas import Node

    Change = tuple[dict[Destination, Placement], Placement]
    """A placement, and which of the routing's own it is to be among."""

log = structlog.get_logger()

_TCP_USEC_TS = 1 << 4
"""RTAX_FEATURE_TCP_USEC_TS (linux/rtnetlink.h, Linux 6.7)."""


class OverlayActuator:
    """Moves traffic to service addresses: single destinations by a route each, all of a rail by one rule.

    Every method leaves `routing` as it is in force, also when it raises `ActuatorError`. Of several routes, each is
    put or removed whatever becomes of the others, and the error tells of the first that was refused.

    Parameters:
        netlink: an `AsyncIPRoute`, which is only read.
        kernel: a `foliot_agent.kernel.route_socket.RouteSocket`, which makes all changes.
    """

    def __init__(
        self, netlink: Any, kernel: RouteKernel, layout: overlay_layout.Layout, devices: Devices | None = None
    ) -> None:
        self.routing = RoutingTable()
        self._netlink = netlink
        self._kernel = kernel
        self._layout = layout
        self._devices = devices or Devices()
        self._peers: dict[str, Node] = {}
        self._found: dict[tuple[int, str], str] = {}
        self._features = _TCP_USEC_TS if layout.tcp_usec_ts else 0
        """What every route has besides its way."""
        away_rules = {rail: overlay_layout.away_rule(layout, rail) for rail in layout.rails}
        self._away = {rail: route_requests.put_rule(rule) for rail, rule in away_rules.items()}
        self._back = {rail: route_requests.remove_rule(rule) for rail, rule in away_rules.items()}
        self._detours: dict[Destination, Request] = {}
        """What a loss will ask for: each destination's backup as its way in force, encoded when that was armed."""

    async def adopt(self) -> None:
        """Finds what an earlier run left in force, and makes sure of the rules that are always there."""
        present = await rules_present(self._netlink)
        for rule in overlay_layout.rules(self._layout):
            if rule not in present:
                await self._rule(route_requests.put_rule(rule))
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
                await self._put([(self.routing.placements, chosen)])
            except ActuatorError as error:
                if self._has_device(chosen):
                    raise
                # The NIC is out. When it is back, the device is made anew, and `renew` puts the route.
                log.info("route_waits_for_device", reason=str(error))
                self.routing.placements[destination] = chosen
            backup = self._adopted(peer, rail, overlay_layout.BACKUP_TABLE) or self.routing.backups.get(destination)
            if backup is not None:
                await self._put([(self.routing.backups, backup)])

    async def dismiss(self, peer: Node) -> None:
        """Removes the routes to a peer."""
        for kept in (self.routing.placements, self.routing.backups):
            await self._remove(kept, [each for each in kept if each[0] == peer.name])
        self._peers.pop(peer.name, None)
        self.routing.forget(peer.name)

    async def place(self, *placements: Placement, ahead: bool = False) -> None:
        """Makes these the ways in force, or `ahead`, on a rail that is away, lays them ready for its coming back."""
        routing, changes = self.routing, []
        for placement in placements:
            destination = destination_of(placement)
            if routing.placements.get(destination) != placement:
                changes.append((routing.placements, placement))
            by_backup = not ahead and placement.rail in routing.away and destination in routing.backups
            if by_backup and routing.backups[destination] != placement:
                changes.append((routing.backups, placement))
        await self._put(changes)

    async def arm(self, *backups: Placement) -> None:
        """Makes these the backups of their destinations."""
        kept = self.routing.backups
        await self._put([(kept, backup) for backup in backups if kept.get(destination_of(backup)) != backup])

    async def disarm(self, *destinations: Destination) -> None:
        """Takes away the backups of destinations, but for those whose rail is away: they are in use."""
        kept, away = self.routing.backups, self.routing.away
        await self._remove(kept, [each for each in destinations if each in kept and each[1] not in away])

    async def away(self, rail: str) -> bool:
        """Sends a rail's traffic by its backups; False: it went there already. `back` undoes it."""
        if rail in self.routing.away:
            return False
        await self._rule(self._away[rail])
        self.routing.away.add(rail)
        return True

    async def back(self, rail: str) -> bool:
        """Sends a rail's traffic by its placements; False: it went there already. `away` undoes it."""
        if rail not in self.routing.away:
            return False
        await self._rule(self._back[rail])
        self.routing.away.discard(rail)
        return True

    async def renew(self, destination: Destination) -> None:
        """Puts the routes of a destination once more, as a device was lost with all on it, and made again."""
        self._detours.pop(destination, None)  # it names the device that was lost
        for kept in (self.routing.placements, self.routing.backups):
            if destination in kept and self._has_device(kept[destination]):
                await self._put([(kept, kept[destination])])

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

    async def _put(self, changes: Sequence[Change]) -> None:
        asked, requests, refused = [], [], []
        for kept, placement in changes:
            try:
                requests.append(self._request(kept, placement))
                asked.append((kept, placement))
            except OSError as error:
                refused.append(f"{self._described(placement)}: {error}")
        codes = await self._carried_out(requests)
        for (kept, placement), request, code in zip(asked, requests, codes, strict=True):
            if code:
                refused.append(f"{self._described(placement)}: {os.strerror(code)}")
                continue
            destination = destination_of(placement)
            kept[destination] = placement
            if kept is self.routing.backups:
                route = self._route(self.routing.placements, placement)
                self._detours[destination] = route_requests.put_route(route, request.device, self._features)
        _raise_first(refused)

    def _request(self, kept: dict[Destination, Placement], placement: Placement) -> Request:
        destination = destination_of(placement)
        if kept is self.routing.placements and self.routing.backups.get(destination) == placement:
            return self._detours.get(destination) or self._encoded(kept, placement)
        return self._encoded(kept, placement)

    def _encoded(self, kept: dict[Destination, Placement], placement: Placement) -> Request:
        route = self._route(kept, placement)
        return route_requests.put_route(route, self._devices.index(route.device), self._features)

    def _route(self, kept: dict[Destination, Placement], placement: Placement) -> overlay_layout.Route:
        return overlay_layout.route(self._layout, self._peers[placement.peer], placement, self._table(kept))

    def _described(self, placement: Placement) -> str:
        route = self._route(self.routing.placements, placement)
        return f"route to {route.destination} by {route.device}"

    async def _carried_out(self, requests: Sequence[Request]) -> list[int]:
        codes = await self._kernel.change(requests)
        unknowing = [index for index, code in enumerate(codes) if code == errno.EINVAL and requests[index].features]
        if not unknowing:
            return codes
        again = await self._kernel.change([route_requests.plain(requests[index]) for index in unknowing])
        for index, code in zip(unknowing, again, strict=True):
            codes[index] = code
        if self._features and 0 in again:
            # The same route is taken without it, so the kernel does not know it.
            log.warning("tcp_usec_ts_unknown", hint="agent.tcp_usec_ts needs Linux 6.7; traffic goes on without it")
            self._features = 0
            self._detours.clear()
        return codes

    async def _remove(self, kept: dict[Destination, Placement], destinations: Sequence[Destination]) -> None:
        routes = [self._route(kept, kept[destination]) for destination in destinations]
        codes, refused = await self._carried_out([route_requests.remove_route(route) for route in routes]), []
        for destination, route, code in zip(destinations, routes, codes, strict=True):
            if code not in {0, errno.ESRCH}:  # gone with its device
                refused.append(f"route to {route.destination} stays: {os.strerror(code)}")
                continue
            del kept[destination]
            if kept is self.routing.backups:
                self._detours.pop(destination, None)
        _raise_first(refused)

    async def _rule(self, request: Request) -> None:
        [code] = await self._carried_out([request])
        if code not in {0, errno.EEXIST if request.verb == "put" else errno.ENOENT}:
            rule = request.what
            assert isinstance(rule, overlay_layout.Rule)
            raise ActuatorError(f"rule {rule.priority} to {rule.prefix}: {os.strerror(code)}")


def _raise_first(refused: Sequence[str]) -> None:
    if refused:
        raise ActuatorError(refused[0] + (f"; and {len(refused) - 1} more" if len(refused) > 1 else ""))
