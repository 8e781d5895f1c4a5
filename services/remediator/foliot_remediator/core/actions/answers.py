"""What follows, whatever the verb, from the answers of nodes, and from those that never come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision import DecisionRequest
from foliot_remediator.core.actions.guards import Objection

if TYPE_CHECKING:
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decider, Decision
    from foliot_schemas import Outcome
    from foliot_schemas.event import Evidence


def is_refusal(outcome: Outcome) -> bool:
    """Whether a node did not do what it was told."""
    return outcome.status not in {"done", "already", "advised"}


def take_back(decider: Decider, sent: Sent, outcome: Outcome, now_ns: int) -> Decision | None:
    """Takes back in mind what a node refused or failed to do, and says so."""
    decider.revert(sent)
    return _fail(decider, sent, outcome.reason or outcome.status, now_ns)


def ask_again(decider: Decider, sent: Sent, now_ns: int) -> list[Decision | None]:
    """Asks again for the same: it may have been done, and what is taken to be in force is what will be taken back one day."""
    refusal = _fail(decider, sent, "no answer", now_ns)
    request = DecisionRequest(sent.command.verb, sent.who, sent.cause, now_ns, now_ns, sent.remedy)
    decision, _ = decider.decide(request, {sent.command.node: sent.order})
    return [refusal, decision]


def _fail(decider: Decider, sent: Sent, reason: str, now_ns: int) -> Decision | None:
    command = sent.command
    failures = decider.ledger.fail(sent, now_ns)
    evidence: Evidence = {"reason": reason, "command": command.id, "failures": failures}
    request = DecisionRequest(command.verb, command.node, sent.cause, now_ns, now_ns, sent.remedy)
    return decider.refuse(request, Objection(guard="agent", evidence=evidence))
