"""Commands of the remediator to nodes, and the nodes' answers.

They are few, may not be lost, and are safe to deliver twice.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from foliot_schemas import orders
from foliot_schemas.bounds import Count, Id, Name, Text, Time  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.event import Evidence  # noqa: TC001 - as above
from foliot_schemas.orders import Action, Order, Reroute, Restore, Verb
from foliot_schemas.placement import SERVICE_ADDRESSES, Placement, Rails

OutcomeStatus = Literal["done", "already", "advised", "refused", "failed"]

_FLAT = {"reroute": Reroute, "restore": Restore}
"""Verbs whose order of service addresses stands in the message's own fields. Older readers know these fields."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command.v1"):
    """An order to one node. Carrying it out twice does nothing more than once."""

    id: Id
    """Deterministic: the same decision taken twice has the same id, so the node carries it out once."""
    verb: Verb
    """`reroute`: away from trouble. `restore`: to the former way. More verbs will come; ignore those you do not
    know."""
    node: Name
    """Node that carries it out."""
    cause: Text
    """Id of the event that it answers."""
    issued_ns: Time
    """When it was decided, reference time."""
    deadline_ns: Time
    """Past this reference time the node refuses it."""
    lease_revision: Count
    """Revision of the remediator's lease; a node refuses one lower than the highest it has seen."""
    away: Rails = ()
    """Rails whose own NIC is lost. All their service traffic takes the armed backups, by one rule for each rail."""
    back: Rails = ()
    """Rails whose own NIC is to be used again."""
    placements: tuple[Placement, ...] = ()
    """Single destinations to be moved."""
    advice: bool = False
    """Published as advice: the node reports it and does nothing."""
    fault: Text = ""
    """Name of the fault that it answers; the trace id is derived from it."""
    action: Action = {}
    """The order, by the fields of its verb. Empty: it moves service addresses, as `away`, `back` and `placements`
    say."""
    evidence: Evidence = {}
    """Numbers behind the order, by name, with units in the names. A move off a contended link says which traffic of
    lower priorities loses for which of a higher one; empty: none does."""

    @classmethod
    def of(cls, order: Order, **fields: Any) -> Self:
        """The command that carries an order. `fields` are all other fields than the verb and the order's own."""
        return cls(verb=orders.verb_of(order), **_carried(order), **fields)

    def order(self) -> Order:
        """The order that the command carries.

        Raises:
            OrderError: this process does not know the verb, or the order is none of it.
        """
        return _order(self)

    def check(self) -> None:
        """Refuses a command that contradicts itself.

        Raises:
            ValueError: its action says another verb, is no plain map, or stands beside an order in the fields of
                before.
        """
        _check(self)


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that both directions flow: a datagram went to the peer's service address and came back."""

    peer: Name
    """Node that answered."""
    rail: Name
    """Rail of the service address."""
    at_ns: Time
    """Arrival of the answer, reference time."""
    round_trip_ns: Time
    """From sending to the answer."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome.v1"):
    """The result of a command, or of a node's own armed move."""

    id: Id
    """Deterministic, as a command's."""
    command: Id
    """The command's id; an armed move names itself after its fault."""
    verb: Verb
    """The command's."""
    node: Name
    """Node that reports it."""
    status: OutcomeStatus
    """`done`; `already`: it was so before; `advised`: it was advice, and the node did nothing; `refused` and
    `failed`: see `reason`."""
    armed: bool = False
    """The node acted by itself, before any command."""
    cause: Text = ""
    """Id of the event that the command answered."""
    reason: Text = ""
    """Why it was refused or failed, in words."""
    started_ns: Time = 0
    """When the node began, reference time."""
    moved_ns: Time = 0
    """When the kernel had acknowledged the new routes, reference time; 0 if it changed none."""
    confirmed_ns: Time = 0
    """When the last expected confirmation arrived, reference time: that of `confirmations`, if traffic was moved. 0:
    not all of them arrived."""
    expected: Count = 0
    """Pairs to be confirmed on the wire, or another number that the verb defines."""
    confirmations: tuple[Confirmation, ...] = ()
    """Pairs confirmed on the wire."""
    away: Rails = ()
    """Rails whose traffic took the armed backups."""
    back: Rails = ()
    """Rails whose own NIC is used again."""
    placements: tuple[Placement, ...] = ()
    """The placements in force now for the destinations concerned."""
    undo: tuple[Placement, ...] = ()
    """The placements in force before."""
    fault: Text = ""
    """Name of the fault that it belongs to; the trace id is derived from it."""
    action: Action = {}
    """The order that was carried out. Empty: `away`, `back` and `placements` say it."""
    undo_action: Action = {}
    """The order that undoes it. Empty: `undo` says it, or there is nothing to undo."""

    @classmethod
    def of(cls, order: Order, undo: Order | None, **fields: Any) -> Self:
        """The outcome of an order, with the order that undoes it.

        `fields` are all other fields than those of these two.
        """
        said = _carried(order)
        if "action" not in said:
            said["undo"] = undo.placements if isinstance(undo, Reroute | Restore) else ()
        elif undo is not None:
            said["undo_action"] = orders.write(undo)
        return cls(**said, **fields)

    def order(self) -> Order:
        """The order that was carried out.

        Raises:
            OrderError: this process does not know the verb, or the order is none of it.
        """
        return _order(self)

    def undo_order(self) -> Order | None:
        """The order that undoes it; None: nothing was done that can be undone.

        Raises:
            OrderError: this process does not know the verb, or the order is none of it.
        """
        if self.undo_action:
            return orders.read(self.undo_action)
        if self.action or not (self.away or self.back or self.undo):
            return None
        return Reroute(away=self.back, back=self.away, placements=self.undo)

    def check(self) -> None:
        """Refuses an outcome that contradicts itself.

        Raises:
            ValueError: as `Command.check`; the undo may be of another verb.
        """
        _check(self)
        if self.undo_action:
            orders.check_action(self.undo_action, str(self.undo_action.get("verb")))


def _carried(order: Order) -> dict[str, Any]:
    """The fields of a message that carry an order.

    The older fields carry it wherever they can, because some nodes may not know the newer ones yet.
    """
    if isinstance(order, Reroute | Restore) and order.traffic == SERVICE_ADDRESSES:
        return {"away": order.away, "back": order.back, "placements": order.placements}
    return {"action": orders.write(order)}


def _order(message: Command | Outcome) -> Order:
    kind = _FLAT.get(message.verb)
    if message.action or kind is None:
        return orders.read(message.action or {"verb": message.verb})
    return kind(away=message.away, back=message.back, placements=message.placements)


def _check(message: Command | Outcome) -> None:
    if not message.action:
        return
    if message.away or message.back or message.placements:
        raise ValueError("it has an action, and an order in its own fields as well")
    orders.check_action(message.action, message.verb)
