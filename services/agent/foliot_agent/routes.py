"""The actuator of the overlay: routes choose the device that carries a destination, one rule the tables of a rail.

A connection notices nothing: its addresses stay, only the device under it changes. Each message costs about 0.2 ms.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

import structlog
from pyroute2.netlink.exceptions import NetlinkError

from foliot_agent import plan
from foliot_agent.actuator import ActuatorError
from foliot_agent.devices import Devices
from foliot_agent.ways import Ways, destination_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_agent.ways import Destination
    from foliot_schemas import Node, Placement

log = structlog.get_logger()

_ONLINK = 4
"""RTNH_F_ONLINK of <linux/rtnetlink.h>: the gateway is reachable through the device, whatever other routes say."""


class OverlayActuator:
    """Moves real traffic.

    Parameters:
        netlink: an `AsyncIPRoute` of its own, so that no long dump stands before a move.
    """

    def __init__(self, netlink: Any, layout: plan.Layout, devices: Devices | None = None) -> None:
        self.ways = Ways()
        self._netlink = netlink
        self._layout = layout
        self._devices = devices or Devices()
        self._peers: dict[str, Node] = {}
        self._found: dict[tuple[int, str], str] = {}

    async def adopt(self) -> None:
        """Finds what an earlier run left in force, and makes sure of the rules that are always there."""
        present = await rules_present(self._netlink)
        for rule in plan.rules(self._layout):
            if rule not in present:
                await self._rule("add", rule)
        self.ways.away = {rail for rail in self._layout.rails if plan.away_rule(self._layout, rail) in present}
        for first_table in (plan.IN_FORCE_TABLE, plan.BACKUP_TABLE):
            for number in self._layout.numbers.values():
                for route in await routes_present(self._netlink, first_table + number):
                    self._found[route.table, route.destination] = route.gateway

    async def welcome(self, peer: Node) -> None:
        """See `Actuator`."""
        self._peers[peer.name] = peer
        self.ways.rails[peer.name] = plan.shared_rails(self._layout, peer)
        for placement in plan.home(self._layout, peer):
            destination = destination_of(placement)
            found = self._adopted(peer, placement.rail, plan.IN_FORCE_TABLE)
            chosen = found or self.ways.placements.get(destination) or placement
            try:
                await self._put(self.ways.placements, chosen)
            except ActuatorError as error:
                if self._has_device(chosen):
                    raise
                # The NIC is out. When it is back, the device is made anew, and `renew` puts the route.
                log.info("route_waits_for_device", reason=str(error))
                self.ways.placements[destination] = chosen
            backup = self._adopted(peer, placement.rail, plan.BACKUP_TABLE) or self.ways.backups.get(destination)
            if backup is not None:
                await self._put(self.ways.backups, backup)

    async def dismiss(self, peer: Node) -> None:
        """See `Actuator`."""
        for kept in (self.ways.placements, self.ways.backups):
            for destination in [each for each in kept if each[0] == peer.name]:
                await self._remove(kept, destination)
        self._peers.pop(peer.name, None)
        self.ways.forget(peer.name)

    async def set_placements(self, placements: Iterable[Placement], *, ahead: bool = False) -> tuple[Placement, ...]:
        """See `Actuator`."""
        before = []
        for placement in placements:
            destination = destination_of(placement)
            present = self.ways.way(destination)
            before.extend([present] if present is not None else [])
            if self.ways.placements.get(destination) != placement:
                await self._put(self.ways.placements, placement)
            by_backup = not ahead and placement.rail in self.ways.away and destination in self.ways.backups
            if by_backup and self.ways.backups[destination] != placement:
                await self._put(self.ways.backups, placement)
        return tuple(before)

    async def arm(self, backups: Iterable[Placement]) -> None:
        """See `Actuator`."""
        for backup in backups:
            if self.ways.backups.get(destination_of(backup)) != backup:
                await self._put(self.ways.backups, backup)

    async def disarm(self, destinations: Iterable[Destination]) -> None:
        """See `Actuator`."""
        for destination in destinations:
            if destination in self.ways.backups and destination[1] not in self.ways.away:
                await self._remove(self.ways.backups, destination)

    async def away(self, rail: str) -> bool:
        """See `Actuator`."""
        if rail in self.ways.away:
            return False
        await self._rule("add", plan.away_rule(self._layout, rail))
        self.ways.away.add(rail)
        return True

    async def back(self, rail: str) -> bool:
        """See `Actuator`."""
        if rail not in self.ways.away:
            return False
        await self._rule("del", plan.away_rule(self._layout, rail))
        self.ways.away.discard(rail)
        return True

    async def renew(self, destinations: Iterable[Destination]) -> None:
        """See `Actuator`."""
        for destination in destinations:
            for kept in (self.ways.placements, self.ways.backups):
                if destination in kept and self._has_device(kept[destination]):
                    await self._put(kept, kept[destination])

    def _has_device(self, placement: Placement) -> bool:
        try:
            self._devices.index(plan.device_name(self._layout.numbers[placement.via], placement.entropy))
        except OSError:
            return False
        return True

    def _adopted(self, peer: Node, rail: str, first_table: int) -> Placement | None:
        address = peer.nic(rail).service_address
        gateway = self._found.pop((first_table + self._layout.numbers[rail], address), None)
        return None if gateway is None else plan.placements_by_route(self._layout, peer).get((address, gateway))

    def _table(self, kept: dict[tuple[str, str], Placement]) -> int:
        return plan.IN_FORCE_TABLE if kept is self.ways.placements else plan.BACKUP_TABLE

    async def _put(self, kept: dict[tuple[str, str], Placement], placement: Placement) -> None:
        peer = self._peers[placement.peer]
        route = plan.route(self._layout, peer, placement, self._table(kept))
        try:
            await self._netlink.route(
                "replace", dst=route.destination, dst_len=32, table=route.table, gateway=route.gateway,
                oif=self._devices.index(route.device), prefsrc=route.source, flags=_ONLINK,
            )  # fmt: skip
        except (NetlinkError, OSError) as error:
            raise ActuatorError(f"route to {route.destination} by {route.device}: {error}") from error
        kept[destination_of(placement)] = placement

    async def _remove(self, kept: dict[tuple[str, str], Placement], destination: tuple[str, str]) -> None:
        peer = self._peers[destination[0]]
        route = plan.route(self._layout, peer, kept[destination], self._table(kept))
        try:
            await self._netlink.route("del", dst=route.destination, dst_len=32, table=route.table)
        except NetlinkError as error:
            if error.code != errno.ESRCH:  # gone with its device
                raise ActuatorError(f"route to {route.destination} stays: {error}") from error
        del kept[destination]

    async def _rule(self, verb: str, rule: plan.Rule) -> None:
        address, _, length = rule.prefix.partition("/")
        try:
            await self._netlink.rule(verb, priority=rule.priority, dst=address, dst_len=int(length), table=rule.table)
        except NetlinkError as error:
            if error.code != (errno.EEXIST if verb == "add" else errno.ENOENT):
                raise ActuatorError(f"rule {rule.priority} to {rule.prefix}: {error}") from error


async def rules_present(netlink: Any) -> tuple[plan.Rule, ...]:
    """The rules in the kernel that are of our form."""
    found = []
    async for message in await netlink.rule("dump", family=socket.AF_INET):
        priority, table, address = (message.get_attr(f"FRA_{name}") for name in ("PRIORITY", "TABLE", "DST"))
        if priority in {plan.AWAY_PRIORITY, plan.ALWAYS_PRIORITY} and table in our_tables() and address:
            found.append(plan.Rule(priority=priority, prefix=f"{address}/{message['dst_len']}", table=table))
    return tuple(found)


async def routes_present(netlink: Any, table: int) -> tuple[plan.Route, ...]:
    """The routes in one of our tables. With a filter of its own, pyroute2 leaves the choice to the kernel where the socket has `strict_check`."""

    def is_of_table(message: Any) -> bool:
        return bool(message.get_attr("RTA_TABLE") == table)

    try:
        return tuple(
            [
                plan.Route(
                    table=table,
                    destination=message.get_attr("RTA_DST"),
                    gateway=message.get_attr("RTA_GATEWAY") or "",
                    device="",
                    source=message.get_attr("RTA_PREFSRC") or "",
                )
                async for message in await netlink.route(
                    "dump", family=socket.AF_INET, table=table, dump_filter=is_of_table
                )
            ]
        )
    except NetlinkError as error:
        if error.code == errno.ENOENT:  # no route was ever in it
            return ()
        raise


def our_tables() -> frozenset[int]:
    """Every routing table that is ours."""
    return frozenset(
        first + number for first in (plan.IN_FORCE_TABLE, plan.BACKUP_TABLE) for number in range(plan.RAILS)
    )
