"""What may not be done: policy, doubts, budgets. Each guard that speaks is one refusal event."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from foliot.recent import Recent
from foliot_schemas import Event
from foliot_schemas.bounds import fitting

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.health import Health
    from foliot_remediator.settings import RemediatorSettings
    from foliot_remediator.ways import Cause
    from foliot_schemas import Verb

Guard = Literal[
    "lease", "policy", "unknown", "confidence", "contradicted", "stale-observation", "stale-clock", "no-alternative",
    "moves-per-minute", "nics-away", "nodes-at-once", "agent",
]  # fmt: skip
Evidence: TypeAlias = dict[str, float | int | str | bool]

_MINUTE_NS = 60_000_000_000
_REMEMBERED = 8_192
"""Refusals remembered so as not to be repeated: half an hour of them at 300 events/s, one in 60 refused."""


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """A guard's word, with the numbers it rests on."""

    guard: Guard
    evidence: Evidence


class Budgets:
    """How much was moved lately, and how much is on its way."""

    def __init__(self, settings: RemediatorSettings) -> None:
        self._settings = settings
        self._moves: collections.deque[tuple[int, int]] = collections.deque()
        self._moved = 0

    def nics_allowed(self, nics: int) -> int:
        """How many of so many NICs may be away at once; one always may."""
        share = int(nics * self._settings.nics_away_share)
        return min(self._settings.nics_away, max(share, 1))

    def object_to(
        self, *, moves: int, nics_away: int, nics: int, nodes: int, now_ns: int, more_away: bool
    ) -> Objection | None:
        """The first budget that a plan would exceed.

        Parameters:
            moves: of the plan.
            nics_away: after the plan.
            nics: of the nodes that are commanded from here.
            nodes: with commands on their way, after the plan.
            more_away: the plan sends a NIC's traffic away that was not.
        """
        before = self.moved(now_ns)
        if before + moves > self._settings.moves_per_minute:
            evidence: Evidence = {
                "moves": moves, "moved_last_minute": before, "moves_per_minute": self._settings.moves_per_minute,
            }  # fmt: skip
            return Objection(guard="moves-per-minute", evidence=evidence)
        if more_away and nics_away > self.nics_allowed(nics):
            evidence = {"nics_away": nics_away, "nics_allowed": self.nics_allowed(nics), "nics": nics}
            return Objection(guard="nics-away", evidence=evidence)
        if nodes > self._settings.nodes_at_once:
            evidence = {"nodes": nodes, "nodes_at_once": self._settings.nodes_at_once}
            return Objection(guard="nodes-at-once", evidence=evidence)
        return None

    def has_room(self, moves: int, now_ns: int) -> bool:
        """Whether half of what may be moved in a minute is left after moves that could wait."""
        return 2 * (self.moved(now_ns) + moves) <= self._settings.moves_per_minute

    def moved(self, now_ns: int) -> int:
        """Moves within the last minute."""
        while self._moves and self._moves[0][0] <= now_ns - _MINUTE_NS:
            self._moved -= self._moves.popleft()[1]
        return self._moved

    def spend(self, moves: int, now_ns: int) -> None:
        """Counts moves that were commanded."""
        self._moves.append((now_ns, moves))
        self._moved += moves


def stale_clocks(nodes: Collection[str], health: Health, settings: RemediatorSettings, now_ns: int) -> dict[str, int]:
    """Of these nodes, those whose clock is too uncertain for a deadline, with the bound they last gave (-1: unknown)."""
    within_ns, widest_ns = round(settings.clock_stale_s * 1e9), round(settings.clock_bound_s * 1e9)
    bounds = {node: health.bound_ns(node, now_ns, within_ns) for node in nodes}
    return {node: bound_ns for node, bound_ns in bounds.items() if not 0 <= bound_ns <= widest_ns}


def object_to_clocks(stale: dict[str, int], nodes: int) -> Objection:
    """The objection to nodes with stale clocks."""
    first = min(stale)
    evidence: Evidence = {"nodes_refused": len(stale), "nodes": nodes, "node": first, "bound_ns": stale[first]}
    return Objection(guard="stale-clock", evidence=evidence)


class Refusals:
    """Makes refusal events: one per cause, what is concerned, and guard, however often it is tried again."""

    def __init__(self) -> None:
        self._said = Recent(_REMEMBERED)

    def say(self, objection: Objection, *, verb: Verb, who: str, cause: Cause, now_ns: int) -> tuple[Event, ...]:
        """The event, unless it was said before."""
        identity = fitting(f"{cause.event}/refused/{objection.guard}/{verb}/{who}")
        if not self._said.add(identity):
            return ()
        event = Event(
            id=identity, kind="refusal", who=who, state="refused", at_ns=now_ns, since_ns=now_ns, fault=cause.fault,
            cause=cause.event, policy=objection.guard, evidence={"verb": verb, **objection.evidence},
        )  # fmt: skip
        return (event,)
