"""Replaced ranks as text, for the terminal and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas.orders import OrderError, ReplaceRank, verb_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.report.replacement_report import ReplacementReport
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
    """A sentence for each rank that a command gives to a spare."""
    order = order_of(command)
    if order is None:
        return
    when = f" when step {order.at_step} is done" if order.at_step else ""
    for change in order.changes:
        would = "would go" if command.advice else "goes"
        yield f"rank {change.rank} of {order.job} {would} from {change.node} to {change.to_node}{when}: {order.cause}"


def told(row: ReplacementReport) -> str:
    """The line of a replacement under the verdict."""
    if row.to is None:
        return f"replacement: rank {row.rank} of {row.job} keeps its place: {row.refused}"
    words = [f"replacement: rank {row.rank} of {row.job} from {row.from_} to {row.to} ({row.cause})"]
    if row.first_step_ns is None:
        words.append("no step was done with it" if row.refused is None else row.refused)
    else:
        words.append(f"the first step {(row.first_step_ns - row.decided_ns) * 1e-9:.1f} s after the order")
    words.append(f"the job stood for {row.stall_ms * 1e-3:.1f} s, {row.lost_steps} steps were done again")
    if row.state_mb is not None:
        words.append(f"{row.state_mb:.1f} MB of state from rank {row.state_from}")
    return "; ".join(words)
