"""An extension: packets that a job has marked (SO_MARK) go another way than the rest.

A class of traffic, its actuator, and a remedy that moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from foliot_schemas import Confirmation, Event, Outcome, Placement, Reroute, Restore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from foliot_agent.control.action_handlers import NodeView
    from foliot_agent.kernel.dry_run import Change
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_schemas import Node

TRAFFIC = "marked-packets"
MARK = "23"
"""The key of what the remedy moves: the mark, as a number."""
_FIRST_TABLE, _PRIORITY, _HIGHEST_MARK = 6_000, 6_000, 255
_ONLINK = 4
_ORDERS = {"admin-down": Reroute, "admin-up": Restore}


# -- in the agent -----------------------------------------------------------------------------------------------------


class MarkedPackets:
    """See `foliot_agent.actuators.base.Actuator`: a rule and a table for a mark, with a route for each destination."""

    traffic = TRAFFIC

    def __init__(self, view: NodeView) -> None:
        self._layout, self._peers, self._clock = view.layout, view.peers, view.clock
        self._placed: dict[tuple[str, str, str], Placement] = {}

    async def __aenter__(self) -> Self:
        """Opens a socket. What an earlier run placed is put again, as orders come."""
        from pyroute2 import AsyncIPRoute  # noqa: PLC0415

        self._netlink = await AsyncIPRoute().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes it."""
        await self._netlink.__aexit__(None, None, None)

    async def join(self, peer: Node) -> None:
        """Nothing is put before it is asked for."""

    async def leave(self, peer: Node) -> None:
        """Its routes lead nowhere, and harm nobody."""

    def check(self, placement: Placement) -> str:
        """A known peer, rails that both have, and a mark."""
        if placement.peer not in self._peers:
            return f"{placement.peer} is not in the inventory"
        if not placement.key.isdecimal() or not 0 < int(placement.key) <= _HIGHEST_MARK:
            return f"{placement.key} is no mark from 1 to {_HIGHEST_MARK}"
        shared = set(self._layout.rails) & {nic.rail for nic in self._peers[placement.peer].nics}
        return "" if {placement.rail, placement.via} <= shared else "both need a NIC on both rails"

    def present(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """What was placed for the same marks and destinations."""
        found = (self._placed.get((each.key, each.peer, each.rail)) for each in placements)
        return tuple(each for each in found if each is not None)

    async def set_placements(self, placements: Iterable[Placement]) -> None:
        """A rule that sends the mark to its table, and a route there."""
        from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

        from foliot_agent.actuators.base import ActuatorError  # noqa: PLC0415

        for placement in placements:
            route, table = self._route(placement), _FIRST_TABLE + int(placement.key)
            try:
                (link,) = await self._netlink.link("get", ifname=route.device)
                if not [rule async for rule in await self._netlink.rule("dump", table=table)]:
                    await self._netlink.rule("add", priority=_PRIORITY, fwmark=int(placement.key), table=table)
                await self._netlink.route(
                    "replace", dst=route.destination, dst_len=32, table=table, gateway=route.gateway, oif=link["index"],
                    prefsrc=route.source, flags=_ONLINK,
                )  # fmt: skip
            except (NetlinkError, OSError) as error:
                raise ActuatorError(f"mark {placement.key} by {route.device}: {error}") from error
            self._placed[placement.key, placement.peer, placement.rail] = placement

    async def confirm(self, placements: Iterable[Placement]) -> list[Confirmation]:
        """Those of which the kernel, asked for a marked packet's way, names the device."""
        found = []
        for placement in placements:
            route = self._route(placement)
            (way,) = await self._netlink.route("get", dst=route.destination, mark=int(placement.key))
            (link,) = await self._netlink.link("get", index=way.get_attr("RTA_OIF"))
            if link.get_attr("IFLA_IFNAME") == route.device:
                at_ns = self._clock.now_ns()
                found.append(Confirmation(peer=placement.peer, rail=placement.rail, at_ns=at_ns, round_trip_ns=0))
        return found

    async def rehearse(self) -> tuple[Change, ...]:
        """Entering it changes nothing."""
        return ()

    def _route(self, placement: Placement) -> Any:
        from foliot_agent.core import overlay_layout  # noqa: PLC0415

        return overlay_layout.route(self._layout, self._peers[placement.peer], placement, _FIRST_TABLE)


async def _marks(netlink: Any) -> list[int]:
    """Those that have a rule."""
    tables = {rule.get_attr("FRA_TABLE") async for rule in await netlink.rule("dump")}
    return [mark for mark in range(1, _HIGHEST_MARK + 1) if _FIRST_TABLE + mark in tables]


async def _remove() -> None:
    """Takes away every mark's rule and table."""
    from pyroute2 import AsyncIPRoute  # noqa: PLC0415

    async with AsyncIPRoute() as netlink:
        for mark in await _marks(netlink):
            await netlink.rule("del", priority=_PRIORITY, fwmark=mark, table=_FIRST_TABLE + mark)
            await netlink.flush_routes(table=_FIRST_TABLE + mark)


async def _rehearse_removal() -> tuple[Change, ...]:
    """The rules that `_remove` takes away; their tables go with them."""
    from pyroute2 import AsyncIPRoute  # noqa: PLC0415

    from foliot_agent.kernel.dry_run import Change  # noqa: PLC0415

    async with AsyncIPRoute() as netlink:
        rules = {mark: {"priority": _PRIORITY, "lookup": _FIRST_TABLE + mark} for mark in await _marks(netlink)}
    return tuple(
        Change(verb="remove", kind="rule", name=f"fwmark {mark}", detail=detail) for mark, detail in rules.items()
    )


# -- in the remediator ------------------------------------------------------------------------------------------------


class MovesMarks:
    """Takes a node's marked packets off a NIC that an administrator sets down, and back; verbs are those of losses."""

    name = TRAFFIC
    priority = 1
    kinds = ()

    def __init__(self, view: FleetView) -> None:
        from foliot_remediator.core.actions.guards import Budget  # noqa: PLC0415

        self.budget = Budget(per_minute=60, nodes_at_once=view.settings.nodes_at_once // 2)
        self._view = view

    def hold(self, now_ns: int) -> None:
        """Nothing to be judged."""

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:
        """Takes what is said of ports."""
        inventory = self._view.inventory
        if not isinstance(seen, Event) or seen.who not in inventory.nics or seen.state not in _ORDERS:
            return []
        node, rail = inventory.nics[seen.who]
        via = rail if seen.state == "admin-up" else next(each for each in inventory.rails(node) if each != rail)
        placements = tuple(
            Placement(peer=peer, rail=rail, via=via, entropy=0, key=MARK) for peer in inventory.peers(node, rail)
        )
        order = _ORDERS[seen.state](traffic=TRAFFIC, placements=placements)
        return self._view.ask(self.name, seen, {node: order}, now_ns)

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Whoever did not answer is asked again."""
        return self._view.ask_again(overdue, now_ns)

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """A refusal is said."""
        return self._view.take_back(sent, outcome, now_ns)

    def forget(self, nics: Collection[str]) -> None:
        """Nothing is kept."""

    def forget_node(self, node: str) -> None:
        """Nothing is kept."""


def extend(service: str) -> None:
    """The agent gets the actuator, the remediator what asks for it."""
    if service == "agent":
        from foliot_agent.control import actuator_kinds  # noqa: PLC0415

        kind = actuator_kinds.ActuatorKind("marked-packets", MarkedPackets, TRAFFIC, _remove, _rehearse_removal)
        actuator_kinds.register(kind)
    if service == "remediator":
        from foliot_remediator.core.actions import remedy  # noqa: PLC0415

        remedy.register(TRAFFIC, MovesMarks)
