"""The interface of a remedy: a trouble or a chance that it sees by itself, what it asks for, and what that may cost."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from foliot_remediator.core.actions.decision import DecisionRequest
from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.actions.unanswered import forget_result, present_part
from foliot_remediator.core.state.routing_table import Cause
from foliot_schemas import DelayBatch, Event, Node, NodeHomes, NodePaths, Outcome, PortState
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from foliot_remediator.core.actions.action_kinds import ActionKind
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decider, Decision
    from foliot_remediator.core.actions.guards import Budget
    from foliot_remediator.core.routing.path_selection import PathSelector
    from foliot_remediator.core.state.inventory import Destination, Inventory
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.core.state.routing_table import RoutingTable
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Order, Placement
    from foliot_schemas.event import Evidence

Seen: TypeAlias = Event | DelayBatch | Outcome | Node | NodeHomes | NodePaths | PortState


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that is known of the fleet, by whichever message, for all remedies alike."""

    settings: RemediatorSettings
    inventory: Inventory
    health: PathHealth
    routing: RoutingTable
    """The ways of service addresses that are believed to be in force."""
    selector: PathSelector
    decider: Decider
    touch: Callable[[Iterable[str]], None]
    """Says that the ways in force on these nodes have changed: their backups are looked through next."""
    stir: Callable[[Iterable[str]], None]
    """Says that something beside these nodes has changed, which may have been a backup of theirs."""
    assign_home: Callable[[Destination, Placement | None, Cause], bool]
    """Chooses where a destination's traffic belongs; it is taken there as after a loss. False: not now
    (`Remediator.assign_home`)."""

    def ask(self, remedy: str, event: Event, orders: Mapping[str, Order], now_ns: int) -> list[Decision]:
        """Decides on a remedy's orders of one verb, by node, because of an event; not while another holds the lease."""
        if not orders or not self.decider.lease:
            return []
        verb, cause = verb_of(next(iter(orders.values()))), Cause(event.id, event.fault, remedy)
        return self.decider.decide(DecisionRequest(verb, event.who, cause, now_ns, now_ns, remedy), orders)[0]

    def ask_again(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Asks again for what nobody answered and is still to be: it may be done, and only what is believed in force is taken back."""
        made: list[Decision] = []
        ledger, unanswered = self.decider.ledger, collections.defaultdict(list)
        for each in (*overdue, *ledger.sent.values()):
            unanswered[each.command.node].append(each)
        for sent in overdue:
            of_node = unanswered[sent.command.node]
            request = DecisionRequest(sent.command.verb, sent.who, sent.cause, now_ns, now_ns, sent.remedy)
            made += self._fail(sent, "no answer", now_ns)
            forget_result(sent, of_node, self.routing)
            again, _ = self.decider.decide(request, {sent.command.node: present_part(sent, self)})
            for command in (command for decision in again for command in decision.commands if not command.advice):
                ledger.sent[command.id].undo = sent.undo  # nobody knows that the first was done
                of_node.append(ledger.sent[command.id])
            made += again
        return made

    def take_back(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Says what a node refused or failed to do, if it did, and no longer believes it to be in force."""
        if not is_refusal(outcome):
            return []
        forget_result(sent, self.decider.ledger.sent.values(), self.routing)
        self.decider.revert(sent)
        self.touch((outcome.node,))  # what was written of it may have the way that it refused
        return self._fail(sent, outcome.reason or outcome.status, now_ns)

    def _fail(self, sent: Sent, reason: str, now_ns: int) -> list[Decision]:
        command, failures = sent.command, self.decider.ledger.fail(sent, now_ns)
        request = DecisionRequest(command.verb, command.node, sent.cause, now_ns, now_ns, sent.remedy)
        evidence: Evidence = {"reason": reason, "command": command.id, "failures": failures}
        return self.decider.refuse(request, Objection(guard="agent", evidence=evidence))


def is_refusal(outcome: Outcome) -> bool:
    """Whether a node did not do what it was told."""
    return outcome.status not in {"done", "already", "advised"}


class Remedy(Protocol):
    """One sort of trouble or chance, with a plan, a policy and a budget of its own."""

    name: str
    priority: int
    """The order of remedies, with each message and each tick: the lower number goes first. Of two with the same
    number, the name decides. A whole number from 1 on: losses have 0."""
    budget: Budget

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
