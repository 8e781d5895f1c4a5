"""Chooses spares for lost ranks: the one nearest to the place of the lost rank, on a node that nobody doubts."""

from __future__ import annotations

import collections
import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.guards import object_to_clocks
from foliot_remediator.core.state.state_machine import State
from foliot_schemas.names import nic_name
from foliot_schemas.worker import NO_USER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.remedies.replacement.hearing import Hearing
    from foliot_remediator.core.remedies.replacement.spare_delays import Pair, SpareDelays
    from foliot_remediator.core.remedies.replacement.troubled_nodes import TroubledNodes
    from foliot_remediator.core.remedies.replacement.workers import Process, TrainingJob, Worker
    from foliot_remediator.settings import SpareLimit
    from foliot_schemas.event import Evidence

_MOST_REASONS = 16
"""Spares of which it is said why they were passed over."""


@dataclass(frozen=True, slots=True)
class Search:
    """For whom spares are sought."""

    job: TrainingJob
    losers: Mapping[int, Worker]
    """By rank, who loses it."""
    survivors: Collection[Worker]
    """Who keeps a rank."""
    excluded: Collection[Process]
    """Who is not to be taken: they have a rank already, or failed at it."""
    avoided: Collection[str]
    """Nodes that are the trouble."""
    hearing: Hearing


@dataclass(slots=True)
class Found:
    """The spare of each rank, as far as there is one."""

    takers: dict[int, Worker]
    evidence: Evidence


class SpareChoice:
    """Knows what speaks against a spare, and how near it is to another node."""

    def __init__(self, view: FleetView, troubled: TroubledNodes, delays: SpareDelays) -> None:
        self._inventory, self._health, self._links = view.inventory, view.health, view.links
        self._limits = view.settings.spares
        self._stale_ns = round(view.settings.clock_stale_s * 1e9)
        self._troubled = troubled
        self._delays = delays

    def pairs(self, job: TrainingJob) -> set[Pair]:
        """The pairs of nodes whose delays decide whether a spare may join a job."""
        limit = self._limit(job)
        if limit is None or not limit.p99_us:
            return set()
        ranked = {worker.node for worker in job.ranks().values()}
        spares = {worker.node for worker in job if worker.is_spare}
        forth = {(spare, node) for spare in spares for node in ranked if spare != node}
        return forth | {(node, spare) for spare, node in forth}

    def choose(self, search: Search) -> Found:
        """The spare for each rank that is to be given away, nearest to where it was."""
        reasons: dict[str, str] = {}
        good = []
        for worker in search.job:
            if worker.is_spare and worker.name not in search.excluded:
                if reason := self._against(worker, search):
                    reasons.setdefault(worker.node, reason)
                else:
                    good.append(worker)
        ranks_on = collections.Counter(worker.node for worker in search.survivors)
        takers: dict[int, Worker] = {}
        for rank, loser in sorted(search.losers.items()):
            if not good:
                break
            taker = min(good, key=lambda worker: self._order(worker, loser, ranks_on, search.hearing.now_ns))
            good.remove(taker)
            takers[rank] = taker
            ranks_on[taker.node] += 1
        evidence: Evidence = {"ranks": len(search.losers), "spares_left": len(good)}
        if reasons:
            said = [f"{node}: {reason}" for node, reason in sorted(reasons.items())]
            more = len(said) - _MOST_REASONS
            evidence["passed_over"] = "; ".join(said[:_MOST_REASONS] + ([f"and {more} more"] if more > 0 else []))
        return Found(takers, evidence)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _against(self, worker: Worker, search: Search) -> str:
        """What speaks against a spare; empty: nothing."""
        node = worker.node
        if not worker.lives(search.hearing.read_ns):
            return "its process is not heard"
        if node in search.avoided:
            return "the lost rank was there"
        users = {each.state.user for each in (*search.losers.values(), *search.survivors)}
        if NO_USER not in users | {worker.state.user} and worker.state.user not in users:
            return "its process is another user's"
        return self._against_node(node, search.hearing.now_ns) or self._over_limit(worker, search)

    def _against_node(self, node: str, now_ns: int) -> str:
        """What speaks against a spare's node; empty: nothing."""
        if node not in self._inventory.nodes:
            return "it is not in the inventory"
        if word := self._troubled.against_spare(node):
            return "it is drained" if word == "drain" else "its hardware has a fault"
        bad = [
            nic
            for rail in self._inventory.rails(node)
            if self._health.nic_state(nic := nic_name(node, rail)) is not State.UP
        ]
        if bad:
            return f"{bad[0]} is not up"
        stale, _ = object_to_clocks((node,), self._health, self._stale_ns, now_ns)
        return "its clock is uncertain" if stale else ""

    def _order(
        self, worker: Worker, loser: Worker, ranks_on: Mapping[str, int], now_ns: int
    ) -> tuple[bool, bool, bool, int, str, int]:
        """The lower, the better: who was to blame lately is a last resort."""
        node, inventory = worker.node, self._inventory
        other_rails = {*inventory.rails(node)} != {*inventory.rails(loser.node)}
        is_offender = self._troubled.is_recent_offender(node, now_ns)
        return is_offender, other_rails, not self._is_near(node, loser.node), ranks_on[node], node, worker.name.number

    def _is_near(self, node: str, other: str) -> bool:
        """Whether two nodes are at the same leaf, on every rail: their paths have one router."""
        return node == other or {*self._routers(node, other)} == {1}

    def _routers(self, node: str, peer: str) -> list[int]:
        """The numbers of routers of those paths from one node to another whose routers are known."""
        inventory = self._inventory
        paths = (
            f"{nic_name(node, rail)}>{nic_name(peer, rail)}#{entropy}"
            for rail in inventory.shared(node, peer)
            for entropy in range(inventory.entropies(node, peer, rail))
        )
        return [len(links) - 1 for path in paths if (links := self._links.of(path))]

    def _limit(self, job: TrainingJob) -> SpareLimit | None:
        return next((limit for limit in self._limits if fnmatch.fnmatchcase(job.name, limit.job)), None)

    def _over_limit(self, worker: Worker, search: Search) -> str:
        """Which limit of the settings its paths to the ranks that stay do not keep; empty: none. A doubt counts."""
        limit = self._limit(search.job)
        if limit is None:
            return ""
        for node in sorted({each.node for each in search.survivors} - {worker.node}):
            if limit.hops:
                routers = self._routers(worker.node, node)
                if not routers:
                    return f"the routers to {node} are not known"
                if max(routers) > limit.hops:
                    return f"{max(routers)} routers to {node}, {limit.hops} are allowed"
            if limit.p99_us:
                for pair in ((worker.node, node), (node, worker.node)):
                    p99_us = self._delays.p99_ns(pair, search.hearing.now_ns) / 1e3
                    if not p99_us:
                        return f"no delay from {pair[0]} to {pair[1]} is measured"
                    if p99_us > limit.p99_us:
                        return f"p99 {p99_us:,.0f} µs from {pair[0]} to {pair[1]}, {limit.p99_us:,.0f} are allowed"
        return ""
