"""What follows from the answers of nodes, and from those that never come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision import DecisionRequest
from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.routing.reroute_plan import NodeChanges, ReroutePlan

if TYPE_CHECKING:
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decider, Decision
    from foliot_remediator.core.routing.backup_arming import BackupArmer
    from foliot_remediator.core.state.displaced import Displaced
    from foliot_remediator.core.state.incidents import Incidents
    from foliot_schemas import Outcome
    from foliot_schemas.event import Evidence


class Outcomes:
    """Settles commands; what was not done is taken back in mind, and tried again."""

    def __init__(self, decider: Decider, armer: BackupArmer, incidents: Incidents, displaced: Displaced) -> None:
        self._decider = decider
        self._armer = armer
        self._incidents = incidents
        self._displaced = displaced

    def take(self, outcome: Outcome, now_ns: int) -> list[Decision | None]:
        """Takes an answer, or the report of a node that moved by itself."""
        sent = self._decider.ledger.settle(outcome.command)
        if sent is None and self._decider.take_report(outcome):
            self._armer.touch((outcome.node,))
            self._displaced.moved_itself(outcome.node, now_ns)
        if sent is None or outcome.status in {"done", "already", "advised"}:
            return []
        self._decider.revert(sent)
        self._armer.touch((outcome.node,))
        refusal = self._fail(sent, outcome.reason or outcome.status, now_ns)
        incident = self._incidents.get(sent.who)
        if incident is not None:
            incident.by_rule = incident.by_rule and not sent.command.away
            self._incidents.retry(incident, now_ns)
        return [refusal]

    def miss(self, sent: Sent, now_ns: int) -> list[Decision | None]:
        """Asks again for the same: it may have been done, and what is taken to be in force is what will be taken back one day."""
        refusal = self._fail(sent, "no answer", now_ns)
        command, plan = sent.command, ReroutePlan()
        plan.parts[command.node] = NodeChanges([*command.away], [*command.back], [*command.placements])
        decision, _ = self._decider.decide(DecisionRequest(command.verb, sent.who, sent.cause, now_ns, now_ns), plan)
        return [refusal, decision]

    def _fail(self, sent: Sent, reason: str, now_ns: int) -> Decision | None:
        command = sent.command
        failures = self._decider.ledger.fail(sent, now_ns)
        evidence: Evidence = {"reason": reason, "command": command.id, "failures": failures}
        request = DecisionRequest(command.verb, command.node, sent.cause, now_ns, now_ns)
        return self._decider.refuse(request, Objection(guard="agent", evidence=evidence))
