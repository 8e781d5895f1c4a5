"""The interface of a verb: how the agent carries out an order, makes sure that it took, and undoes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog

from foliot_schemas import Confirmation, Order, Outcome, OutcomeStatus
from foliot_schemas.bounds import fitting
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from foliot.clock import Clock
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.overlay_layout import Layout
    from foliot_schemas import Command, Node

log = structlog.get_logger()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an order."""

    status: OutcomeStatus
    done: Order
    """The state in force now, as an order of the same verb."""
    undo: Order | None = None
    """The order that makes it as it was before; None: nothing was changed."""
    reason: str = ""
    """Why it failed."""
    changed_ns: int = 0
    """When the change had been made, reference time; 0: nothing was changed."""
    details: Any = None
    """The data that its handler needs to confirm it."""


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what was done took effect."""

    expected: int = 0
    confirmations: tuple[Confirmation, ...] = ()
    at_ns: int = 0
    """When all that was expected had been seen, reference time; 0: it was not."""
    reason: str = ""
    """Why the order has failed, as what was not seen shows; empty: it has not."""


class ActionHandler(Protocol):
    """Carries out one verb, or several. The caller has seen to fence, deadline, policy, advice and repetition."""

    @property
    def verbs(self) -> Collection[str]:
        """The verbs whose commands it is given."""

    def check(self, order: Any, command: Command) -> str:
        """The objection to it on this node, in words; empty: none."""

    async def apply(self, order: Any) -> Result:
        """Does what is not done yet. The same order twice is `already` the second time."""

    async def confirm(self, result: Result, fault: str) -> Confirmed:
        """Makes sure that it took effect, in another way than by what did it."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The view of the node from which handlers and actuators are made."""

    layout: Layout
    peers: Mapping[str, Node]
    """Kept up to date."""
    clock: Clock
    restart_cache: RestartCache


_makers: dict[str, Callable[[NodeView], ActionHandler]] = {}


def register(name: str, make: Callable[[NodeView], ActionHandler]) -> None:
    """Adds a handler to those that are there, from the next start of an agent on.

    Raises:
        ValueError: there is another of this name.
    """
    if _makers.setdefault(name, make) is not make:
        raise ValueError(f"there is a handler named {name} already")


def registered(view: NodeView) -> list[ActionHandler]:
    """The handlers that were registered, made for this node."""
    return [make(view) for make in _makers.values()]


def outcome_of(result: Result, confirmed: Confirmed, *, command: str, node: str, **fields: Any) -> Outcome:
    """The outcome of a result; `fields` are the cause, the fault, when it began, and whether the node was armed."""
    status: OutcomeStatus = "failed" if confirmed.reason else result.status
    reason = result.reason or confirmed.reason
    log.info("outcome_made", command=command, status=status, reason=reason, confirmed=confirmed.at_ns > 0)
    return Outcome.of(
        result.done, result.undo, id=fitting(f"{command}/outcome/{node}"), command=command,
        verb=verb_of(result.done), node=node,
        status=status, reason=reason, moved_ns=result.changed_ns, confirmed_ns=confirmed.at_ns,
        expected=confirmed.expected, confirmations=confirmed.confirmations, **fields,
    )  # fmt: skip
