"""From ranks that are to have another process to the order: who takes them, where all meet, and when they leave."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.guards import Objection, object_to_clocks
from foliot_remediator.core.remedies.replacement.spare_choice import Search, SpareChoice
from foliot_schemas import ReplaceRank
from foliot_schemas.orders import RankChange

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.remedies.replacement.case import Case
    from foliot_remediator.core.remedies.replacement.course import Reason
    from foliot_remediator.core.remedies.replacement.hearing import Hearing
    from foliot_remediator.core.remedies.replacement.spare_delays import SpareDelays
    from foliot_remediator.core.remedies.replacement.troubled_nodes import TroubledNodes
    from foliot_remediator.core.remedies.replacement.workers import TrainingJob, Worker
    from foliot_schemas.event import Evidence

_AHEAD_NS = 1_000_000_000
"""How far ahead a planned step lies: a command and its passing on take some tens of ms, and nodes tell of steps once a
second."""
_BY_NODE = frozenset({"silent", "drain", "hardware", "compute", "data", "processor", "halted"})
"""Reasons after which no spare on the same node is taken: the node is the trouble."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An order, and the nodes that are to have it."""

    order: ReplaceRank
    nodes: tuple[str, ...]
    due_ns: int
    """When the processes are to leave their group."""
    evidence: Evidence


class Planner:
    """Plans replacements by what is known of the fleet."""

    def __init__(self, view: FleetView, troubled: TroubledNodes, delays: SpareDelays) -> None:
        self._inventory, self._health = view.inventory, view.health
        self._stale_ns = round(view.settings.clock_stale_s * 1e9)
        self.choice = SpareChoice(view, troubled, delays)
        self._troubled = troubled

    def plan(
        self, case: Case, job: TrainingJob, lost: dict[int, Reason], word: str, hearing: Hearing, *, at_step: bool
    ) -> Plan | Objection:
        """The order that gives ranks to spares, or what speaks against it. If none is lost, all of them meet anew.

        What an earlier order gives to a spare that has not taken it yet is said again.

        Parameters:
            word: why, as of `Reason`.
            at_step: leave at the end of a step ahead, in place of at once.
        """
        ranks, now_ns = job.ranks(), hearing.now_ns
        if unheard := [rank for rank in range(job.size) if rank not in ranks]:
            reason = f"nothing was heard of rank {unheard[0]} yet: it could not be told"
            return Objection(guard="not-replaceable", evidence={"reason": reason, "ranks": len(unheard)})
        pending = case.pending(job)
        kept = {
            rank: taker for rank, name in pending.items() if rank not in lost and (taker := job.get(name)) is not None
        }
        losers = {rank: ranks[rank] for rank in lost if rank in ranks}
        staying = {rank: worker for rank, worker in ranks.items() if rank not in lost and rank not in kept}
        avoided = {
            worker.node
            for rank, worker in losers.items()
            if lost[rank].word in _BY_NODE or self._troubled.wish(worker.node) is not None
        }
        meet = _meeting_point(staying, {worker.node for worker in losers.values()}, avoided, hearing.read_ns)
        if meet is None:
            return Objection(guard="not-replaceable", evidence={"reason": "no rank that stays has a store to meet at"})
        group = [*staying.values(), *kept.values()]
        excluded = {taker.name for taker in kept.values()} | case.failed
        excluded |= {pending[rank] for rank in lost if rank in pending}
        found = self.choice.choose(Search(job, losers, group, excluded, avoided, hearing))
        if len(found.takers) < len(losers):
            return Objection(guard="no-spare", evidence=found.evidence)
        takers = kept | found.takers
        nodes = {worker.node for worker in (*group, *found.takers.values())}
        _, objections = object_to_clocks(nodes, self._health, self._stale_ns, now_ns)
        if objections:  # a part of a group cannot form one
            return objections[0]
        step = (job.step_at(now_ns) + math.ceil(_AHEAD_NS / job.step_ns) + 1) if at_step else 0
        order = ReplaceRank(
            job=job.name, generation=job.generation + 1, meet=meet, at_step=step, cause=word,
            changes=tuple(_change(rank, ranks[rank], takers[rank]) for rank in sorted(takers)),
        )  # fmt: skip
        due_ns = now_ns + (step - job.step_at(now_ns)) * job.step_ns if at_step else now_ns
        nodes |= self._told_of_it({ranks[rank].node for rank in takers}, job, hearing)
        evidence = {**found.evidence, "step": job.highest_step}
        if order.changes:
            evidence["spare"] = order.changes[0].to_node
        return Plan(order, tuple(sorted(nodes & self._inventory.nodes.keys())), due_ns, evidence)

    def _told_of_it(self, nodes: Collection[str], job: TrainingJob, hearing: Hearing) -> set[str]:
        """Of the nodes that lose ranks, those that can be told so: a process there may live, and is to end."""
        alive = {each.node for each in job if each.node in nodes and each.state.alive in ("running", "stopped")}
        heard = {each.node for each in job if each.node in alive and not each.is_silent(hearing.read_ns)}
        stale, _ = object_to_clocks(heard, self._health, self._stale_ns, hearing.now_ns)
        return heard.difference(stale)


def _meeting_point(
    staying: dict[int, Worker], losing: Collection[str], avoided: Collection[str], read_ns: int
) -> str | None:
    """The store of the lowest rank that stays, if possible on a node that loses none; None: there is none."""
    able = [
        worker
        for _, worker in sorted(staying.items())
        if worker.state.meet and worker.lives(read_ns) and worker.node not in avoided
        if not _is_loopback(worker.state.meet)
    ]
    best = next((worker for worker in able if worker.node not in losing), able[0] if able else None)
    return None if best is None else best.state.meet


def _is_loopback(meet: str) -> bool:
    """Whether others would find themselves at a place of meeting. Names are taken as they are."""
    try:
        return ipaddress.ip_address(meet.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False


def _change(rank: int, loser: Worker, taker: Worker) -> RankChange:
    return RankChange(
        rank=rank, node=loser.node, process=loser.state.process, to_node=taker.node, to_process=taker.state.process
    )
