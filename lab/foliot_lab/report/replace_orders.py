"""Orders that give ranks of a job to spares: the order of a command, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas.orders import OrderError, ReplaceRank, verb_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_schemas import Command

REPLACE = verb_of(ReplaceRank)
"""The verb by which ranks are given to spares."""


def order_of(command: Command) -> ReplaceRank | None:
    """The order of a command that gives ranks to spares; None: it is another command, or cannot be read."""
    if command.verb != REPLACE:
        return None
    try:
        order = command.order()
    except OrderError:
        return None
    return order if isinstance(order, ReplaceRank) else None


def in_words(command: Command) -> Iterator[str]:
    """A sentence for each rank that a command gives to a spare, or one if all form their group anew."""
    order = order_of(command)
    if order is None:
        return
    when = f" when step {order.at_step} is done" if order.at_step else ""
    for change in order.changes:
        would = "would go" if command.advice else "goes"
        yield f"rank {change.rank} of {order.job} {would} from {change.node} to {change.to_node}{when}: {order.cause}"
    if not order.changes:
        yield f"the ranks of {order.job} {'would form' if command.advice else 'form'} their group anew: {order.cause}"
