"""The interface of a verb. By it, the remediator weighs a kind of order and believes that it is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_remediator.core.actions.guards import Objection
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_remediator.settings import Policy
    from foliot_schemas import Command, Order, Verb


class ActionKind(Protocol):
    """One verb. Its orders are of one type, which `foliot_schemas.orders` has registered."""

    verb: Verb
    policy: Policy
    """``off`` says what is not done, ``advise`` publishes advice, ``act`` commands."""
    can_wait: bool
    """These orders can wait: half of the remedy's budget is left to the others."""

    def units(self, order: Any) -> int:
        """Units of the budget that an order takes; 0: it asks for nothing."""

    def within(self, order: Any, units: int) -> Order | None:
        """As much of an order as so many units are; None: nothing."""

    def object_to(self, orders: Mapping[str, Any], remedy: str) -> Objection | None:
        """The objection of a guard of this verb alone to these orders of a remedy, by node; None: it has none."""

    def lost(self, who: str) -> str:
        """The lost NIC that orders about `who` are for; the budget counts it by itself. Empty: none."""

    def apply(self, node: str, order: Any, cause: Cause) -> Order | None:
        """Takes an order to be in force on a node.

        Returns the order that undoes that; None if there is nothing to be believed.
        """

    def sent(self, command: Command, order: Any) -> None:
        """Notes that a command with this order is on its way."""


class PlainKind:
    """A verb whose orders cost one unit each, are whole or nothing, and change no belief."""

    can_wait = False

    def __init__(self, verb: Verb, policy: Policy) -> None:
        self.verb = verb
        self.policy: Policy = policy

    def units(self, _order: Order) -> int:
        """One."""
        return 1

    def within(self, order: Order, units: int) -> Order | None:
        """The whole order, or nothing."""
        return order if units > 0 else None

    def object_to(self, _orders: Mapping[str, Order], _remedy: str) -> Objection | None:
        """No guard of its own."""
        return None

    def lost(self, _who: str) -> str:
        """No lost NIC."""
        return ""

    def apply(self, _node: str, _order: Order, _cause: Cause) -> Order | None:
        """Nothing is believed."""
        return None

    def sent(self, command: Command, order: Order) -> None:
        """Nothing is kept."""
