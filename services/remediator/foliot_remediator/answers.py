"""What follows from the answers of nodes, and from those that never come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.commands import Parts
from foliot_remediator.deciding import Matter
from foliot_remediator.guards import Objection
from foliot_remediator.planning import Plan

if TYPE_CHECKING:
    from foliot_remediator.backups import Supplier
    from foliot_remediator.commands import Sent
    from foliot_remediator.deciding import Decider, Decision
    from foliot_remediator.guards import Evidence
    from foliot_remediator.strays import Strays
    from foliot_remediator.troubles import Troubles
    from foliot_schemas import Outcome


class Answers:
    """Settles commands; what was not done is taken back in mind, and tried again."""

    def __init__(self, decider: Decider, supplier: Supplier, troubles: Troubles, strays: Strays) -> None:
        self._decider = decider
        self._supplier = supplier
        self._troubles = troubles
        self._strays = strays

    def take(self, outcome: Outcome, now_ns: int) -> list[Decision | None]:
        """Takes an answer, or the report of a node that moved by itself."""
        sent = self._decider.desk.settle(outcome.command)
        if sent is None and self._decider.take_report(outcome):
            self._supplier.touch((outcome.node,))
            self._strays.moved_itself(outcome.node, now_ns)
        if sent is None or outcome.status in {"done", "already", "advised"}:
            return []
        self._decider.revert(sent)
        self._supplier.touch((outcome.node,))
        refusal = self._fail(sent, outcome.reason or outcome.status, now_ns)
        trouble = self._troubles.get(sent.who)
        if trouble is not None:
            trouble.by_rule = trouble.by_rule and not sent.command.away
            self._troubles.retry(trouble, now_ns)
        return [refusal]

    def miss(self, sent: Sent, now_ns: int) -> list[Decision | None]:
        """Asks again for the same: it may have been done, and what is taken to be in force is what will be taken back one day."""
        refusal = self._fail(sent, "no answer", now_ns)
        command, plan = sent.command, Plan()
        plan.parts[command.node] = Parts([*command.away], [*command.back], [*command.placements])
        decision, _ = self._decider.decide(Matter(command.verb, sent.who, sent.cause, now_ns, now_ns), plan)
        return [refusal, decision]

    def _fail(self, sent: Sent, reason: str, now_ns: int) -> Decision | None:
        command = sent.command
        failures = self._decider.desk.fail(sent, now_ns)
        evidence: Evidence = {"reason": reason, "command": command.id, "failures": failures}
        matter = Matter(command.verb, command.node, sent.cause, now_ns, now_ns)
        return self._decider.refuse(matter, Objection(guard="agent", evidence=evidence))
