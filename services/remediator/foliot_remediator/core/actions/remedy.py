"""The interface of a remedy: a trouble or a chance that it sees by itself, what it asks for, and what that may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from foliot_schemas import (
    DelayBatch,
    Drain,
    Event,
    FlowBatch,
    HopBatch,
    Job,
    MoveAnswer,
    MoveOrder,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    PortState,
    WorkerBatch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from foliot_remediator.core.actions.action_kinds import ActionKind
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Budget

Seen: TypeAlias = (
    Event
    | DelayBatch
    | Drain
    | FlowBatch
    | HopBatch
    | Job
    | MoveAnswer
    | MoveOrder
    | Outcome
    | Node
    | NodeHomes
    | NodePaths
    | PortState
    | WorkerBatch
)


class Remedy(Protocol):
    """One sort of trouble or chance, with a plan, a policy and a budget of its own."""

    name: str
    priority: int
    """The order of remedies, with each message and each tick: the lower number goes first. Of two with the same
    number, the name decides. A whole number from 1 on: losses have 0."""
    budget: Budget
    hears_traffic: bool
    """Whether it asks what traffic there is. Flows, routers and jobs are told only where a remedy does. One that does
    not say does not ask."""

    @property
    def kinds(self) -> Collection[ActionKind]:
        """Verbs that it brings. It may use those of other remedies."""

    def hold(self, now_ns: int) -> None:
        """Notes that this process took the lease. One that stands by is told all, and publishes nothing."""

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:
        """Takes a message that `FleetView` has taken already.

        Parameters:
            news: NICs and paths about which a port's or a receiver's own report says something.
        """

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Takes the passing of time.

        Parameters:
            overdue: its commands that will not be answered any more; none while the lease is another's.
        """

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Takes a node's answer to a command of this remedy."""

    def forget(self, nics: Collection[str]) -> None:
        """Forgets NICs that have left the fleet for good."""

    def forget_node(self, node: str) -> None:
        """Forgets a node that has left the fleet for good."""


registered: dict[str, Callable[[FleetView], Remedy]] = {}
"""The function that makes it for a fleet, by a remedy's name."""


def register(name: str, make: Callable[[FleetView], Remedy]) -> None:
    """Adds a remedy to those that are there, from the next start of a remediator on.

    Raises:
        ValueError: there is another of this name.
    """
    if registered.setdefault(name, make) is not make:
        raise ValueError(f"there is a remedy named {name} already")
