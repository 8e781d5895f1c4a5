"""Guards against what may not be done: policy, doubts, budgets. Each guard that objects makes one refusal event."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Literal

import msgspec

from foliot_remediator.core.actions.command_ledger import scope_of
from foliot_schemas import Event
from foliot_schemas.bounds import fitting

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.decision_request import DecisionRequest
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas.event import Evidence

Guard = Literal[
    "lease", "policy", "unknown", "confidence", "contradicted", "stale-observation", "stale-clock", "no-alternative",
    "moves-per-minute", "nics-away", "nodes-at-once", "agent", "unknown-links", "no-gain", "not-coordinated",
    "not-confirmed", "not-replaceable", "no-spare", "no-progress", "at-once", "per-hour", "not-formed", "sharded",
]  # fmt: skip

_WIDEST_BOUND_NS = 100_000_000
"""Widest bound of a clock that can tell a deadline: a twentieth of what commands have."""
_MINUTE_NS = 60_000_000_000


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """A guard's word, with the numbers it rests on."""

    guard: Guard
    evidence: Evidence


class Budget:
    """How much one remedy may move in a minute, and on how many nodes at once, whatever others do.

    Parameters:
        per_minute: units of orders, see `ActionKind.units`.
        nodes_at_once: nodes with commands to answer, of whichever remedy, up to which this one may command one more.
    """

    def __init__(self, per_minute: int, nodes_at_once: int) -> None:
        self.per_minute = per_minute
        self.nodes_at_once = nodes_at_once
        self._moves: collections.deque[tuple[int, int, str]] = collections.deque()
        self._moved = 0
        self._for: collections.Counter[str] = collections.Counter()
        """Per lost NIC, what was moved for it."""
        self._for_nics = 0

    def allowed(self, moves: int, now_ns: int, *, lost: str = "", can_wait: bool = False) -> int:
        """How many of so many moves may be made now.

        All that a lost NIC carries is dead, and its port has said so itself. So other moves take nothing from its
        budget. The traffic of one lost NIC may always be moved, however much it is.

        Parameters:
            lost: the NIC that they are for; empty: no lost NIC.
            can_wait: nothing is dead. Half of the budget is left to what cannot wait.
        """
        self._expire(now_ns)
        most = self.per_minute
        if lost:
            left = moves if self._for_nics == self._for[lost] else most - self._for_nics
        else:
            left = ((most + 1) // 2 if can_wait else most) - self._moved
        return min(max(left, 0), moves)

    def moved(self, now_ns: int, *, lost: str = "") -> int:
        """Moves within the last minute; of a lost NIC, those for lost NICs."""
        self._expire(now_ns)
        return self._for_nics if lost else self._moved

    def spend(self, moves: int, now_ns: int, *, lost: str = "") -> None:
        """Counts moves that were commanded."""
        self._moves.append((now_ns, moves, lost))
        self._count(moves, lost)

    def _expire(self, now_ns: int) -> None:
        while self._moves and self._moves[0][0] <= now_ns - _MINUTE_NS:
            _, moves, lost = self._moves.popleft()
            self._count(-moves, lost)

    def _count(self, moves: int, lost: str) -> None:
        self._moved += moves
        if lost:
            self._for_nics += moves
            self._for[lost] += moves
            if not self._for[lost]:
                del self._for[lost]


def object_to_nics(settings: RemediatorSettings, nics_away: int, nics: int) -> Objection | None:
    """The objection if too many of the commanded nodes' NICs would be away at once; one always may be."""
    allowed = min(settings.nics_away, max(int(nics * settings.nics_away_share), 1))
    if nics_away <= allowed:
        return None
    return Objection(guard="nics-away", evidence={"nics_away": nics_away, "nics_allowed": allowed, "nics": nics})


def object_to_clocks(
    nodes: Collection[str], health: PathHealth, within_ns: int, now_ns: int
) -> tuple[Collection[str], list[Objection]]:
    """The nodes whose clock is too uncertain for a deadline, and the objection to commanding them."""
    bounds = {node: health.reports.bound_ns(node, now_ns, within_ns) for node in nodes}
    stale = [node for node, bound_ns in bounds.items() if not 0 <= bound_ns <= _WIDEST_BOUND_NS]
    if not stale:
        return (), []
    first = min(stale)
    evidence: Evidence = {"nodes_refused": len(stale), "nodes": len(nodes), "node": first, "bound_ns": bounds[first]}
    return stale, [Objection(guard="stale-clock", evidence=evidence)]


def refusal(objection: Objection, request: DecisionRequest) -> Event:
    """The event of a refusal: one per cause, what is concerned, and guard, however often it is tried again."""
    verb, who, cause, now_ns = request.verb, request.who, request.cause, request.now_ns
    return Event(
        id=fitting(f"{scope_of(cause, request.remedy)}/refused/{objection.guard}/{verb}/{who}"),
        kind="refusal", who=who, state="refused", at_ns=now_ns, since_ns=now_ns, fault=cause.fault,
        cause=cause.event, policy=objection.guard, evidence={"verb": verb, **objection.evidence},
    )  # fmt: skip
