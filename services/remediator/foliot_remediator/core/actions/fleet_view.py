"""All that is known of the fleet, for all remedies alike, and the way by which they ask for orders."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.actions.unanswered import forget_result, present_part
from foliot_remediator.core.state.routing_table import Cause
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from foliot.jobs import Jobs
    from foliot.link_map import LinkMap
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.coordination import Coordination
    from foliot_remediator.core.actions.decision import Decider, Decision
    from foliot_remediator.core.routing.path_selection import PathSelector
    from foliot_remediator.core.state.flow_reports import FlowReports
    from foliot_remediator.core.state.inventory import Destination, Inventory
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.core.state.routing_table import RoutingTable
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Event, Order, Outcome, Placement
    from foliot_schemas.event import Evidence


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that is known of the fleet, by whichever message, for all remedies alike."""

    settings: RemediatorSettings
    inventory: Inventory
    health: PathHealth
    routing: RoutingTable
    """The ways of service addresses that are believed to be in force."""
    flows: FlowReports
    """The traffic, by the word of those who send it; none where nobody asks for it."""
    links: LinkMap
    """The links of paths."""
    jobs: Jobs
    """The registered jobs; none where nobody asks for them."""
    selector: PathSelector
    decider: Decider
    mark_changed: Callable[[Iterable[str]], None]
    """Says that the ways in force on these nodes have changed: their backups are looked through next."""
    mark_affected: Callable[[Iterable[str]], None]
    """Says that something beside these nodes has changed, which may have been a backup of theirs."""
    assign_home: Callable[[Destination, Placement | None, Cause], bool]
    """Chooses where a destination's traffic belongs; it is taken there as after a loss. False: not now
    (`Remediator.assign_home`)."""
    coordination: Coordination
    """Who coordinates moves between several shards."""
    shared: FleetView | None = None
    """What is known of all shards' nodes; None: this is all."""

    @property
    def rails(self) -> FleetView:
        """What is known of whole rails, whoever commands their nodes."""
        return self if self.shared is None else self.shared

    def ask(self, remedy: str, event: Event, orders: Mapping[str, Order], now_ns: int) -> list[Decision]:
        """Decides on a remedy's orders of one verb, by node, because of an event; not while another holds the lease."""
        if not orders or not self.decider.lease:
            return []
        verb, cause = verb_of(next(iter(orders.values()))), Cause(event.id, event.fault, remedy)
        return self.decider.decide(DecisionRequest(verb, event.who, cause, now_ns, now_ns, remedy), orders)[0]

    def ask_again(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Asks again for what nobody answered and is still to be.

        It may be done, and only what is believed in force is taken back.
        """
        made: list[Decision] = []
        ledger, unanswered = self.decider.ledger, collections.defaultdict(list)
        for each in (*overdue, *ledger.sent.values()):
            unanswered[each.command.node].append(each)
        for sent in overdue:
            of_node = unanswered[sent.command.node]
            request = DecisionRequest(sent.command.verb, sent.who, sent.cause, now_ns, now_ns, sent.remedy)
            made += self.fail(sent, "no answer", now_ns)
            forget_result(sent, of_node, self.routing)
            again, _ = self.decider.decide(
                request, {sent.command.node: present_part(sent, self.health, self.selector, self.routing)}
            )
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
        self.mark_changed((outcome.node,))  # what was written of it may have the way that it refused
        return self.fail(sent, outcome.reason or outcome.status, now_ns)

    def fail(self, sent: Sent, reason: str, now_ns: int) -> list[Decision]:
        """Counts and says that a node did not do what it was told."""
        command, failures = sent.command, self.decider.ledger.fail(sent, now_ns)
        request = DecisionRequest(command.verb, command.node, sent.cause, now_ns, now_ns, sent.remedy)
        evidence: Evidence = {"reason": reason, "command": command.id, "failures": failures}
        return self.decider.refuse(request, Objection(guard="agent", evidence=evidence))


def is_refusal(outcome: Outcome) -> bool:
    """Whether a node did not do what it was told."""
    return outcome.status not in {"done", "already", "advised"}
