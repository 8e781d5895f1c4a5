"""An extension: NICs that are down say why in their alias, for whoever looks at the host.

One verb, from the remedy that asks for it to the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from foliot_schemas import Command, Event, Order, Outcome, orders

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_agent.control.action_handlers import ActionHandler, Confirmed, NodeView, Result
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.remedy import Seen

_DOWN = {"down", "admin-down"}


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark", tag_field="verb"):
    """Give a NIC of the node an alias."""

    rail: str
    alias: str
    """Empty: none."""


# -- in the remediator ------------------------------------------------------------------------------------------------


class Marks:
    """See `foliot_remediator.core.actions.remedy.Remedy`: marks what is lost, and undoes it when it is back."""

    name = "marks"
    priority = 1

    def __init__(self, view: FleetView) -> None:
        from foliot_remediator.core.actions.action_kinds import PlainKind  # noqa: PLC0415
        from foliot_remediator.core.actions.guards import Budget  # noqa: PLC0415

        self.kinds = (PlainKind("mark", view.settings.policies.get("mark", "off")),)
        self.budget = Budget(per_minute=60, nodes_at_once=view.settings.nodes_at_once // 2)
        self._view = view
        self._undo: dict[str, Order] = {}
        """Per NIC, what its node said would undo the mark."""

    def hold(self, now_ns: int) -> None:
        """Marks of before are left alone."""

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:
        """Takes what is said of ports."""
        if not isinstance(seen, Event) or seen.kind != "flap" or seen.who not in self._view.inventory.nics:
            return []
        node, rail = self._view.inventory.nics[seen.who]
        order = Mark(rail=rail, alias=seen.id) if seen.state in _DOWN else self._undo.pop(seen.who, None)
        return self._view.ask(self.name, seen, {node: order} if order else {}, now_ns)

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Whoever did not answer is asked again."""
        return self._view.ask_again(overdue, now_ns)

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """What was done can be undone by the node's own word."""
        undo = outcome.undo_order()
        if undo is not None and isinstance(sent.order, Mark) and sent.order.alias:
            self._undo[sent.who] = undo
        return self._view.take_back(sent, outcome, now_ns)

    def forget(self, nics: Collection[str]) -> None:
        """They are gone, and so are their aliases."""
        for nic in nics:
            self._undo.pop(nic, None)

    def forget_node(self, node: str) -> None:
        """Its NICs were forgotten."""


# -- in the agent -----------------------------------------------------------------------------------------------------


def _handler(view: NodeView) -> ActionHandler:
    from pyroute2 import AsyncIPRoute  # noqa: PLC0415
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    from foliot_agent.control.action_handlers import Confirmed, Result  # noqa: PLC0415

    async def present(netlink: Any, device: str) -> tuple[int, str]:
        """A device's index and alias."""
        (link,) = await netlink.link("get", ifname=device)
        return link["index"], link.get_attr("IFLA_IFALIAS") or ""

    class Marker:
        """Sets the alias by one netlink socket, and reads it by another."""

        verbs = ("mark",)

        def check(self, order: Mark, _command: Command) -> str:
            """The node has to have the NIC."""
            return "" if order.rail in view.layout.rails else f"the node has no NIC on {order.rail}"

        async def apply(self, order: Mark) -> Result:
            """Sets it, unless it is so already."""
            async with AsyncIPRoute() as netlink:
                try:
                    index, before = await present(netlink, view.layout.node.nic(order.rail).device)
                    if before == order.alias:
                        return Result(status="already", done=order)
                    await netlink.link("set", index=index, IFLA_IFALIAS=order.alias)
                except (NetlinkError, OSError) as error:
                    return Result(status="failed", reason=str(error), done=order)
            undo = Mark(rail=order.rail, alias=before)
            return Result(status="done", done=order, undo=undo, changed_ns=view.clock.now_ns())

        async def confirm(self, result: Result, _fault: str) -> Confirmed:
            """What the kernel says now."""
            order = result.done
            assert isinstance(order, Mark)
            async with AsyncIPRoute() as netlink:
                _, alias = await present(netlink, view.layout.node.nic(order.rail).device)
            return Confirmed(expected=1, at_ns=view.clock.now_ns() if alias == order.alias else 0)

    return Marker()


def extend(service: str) -> None:
    """Everybody reads the order; the remediator gives it, and the agent carries it out."""
    orders.register(Mark)
    if service == "remediator":
        from foliot_remediator.core.actions import remedy  # noqa: PLC0415

        remedy.register("marks", Marks)
    if service == "agent":
        from foliot_agent.control import action_handlers  # noqa: PLC0415

        action_handlers.register("mark", _handler)
