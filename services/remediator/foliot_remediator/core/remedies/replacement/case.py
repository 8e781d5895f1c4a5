"""All that is said of one job's ranks: losses, a broken group, wishes that ranks go elsewhere, and what is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.remedies.replacement.course import GIVEN_UP_NS, Course, Reason
from foliot_remediator.core.remedies.replacement.losses import Break, Loss, judge, judge_break, trouble, witnessed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from foliot_remediator.core.actions.guards import Objection
    from foliot_remediator.core.remedies.replacement.hearing import Hearing
    from foliot_remediator.core.remedies.replacement.troubled_nodes import TroubledNodes, Wish
    from foliot_remediator.core.remedies.replacement.workers import Process, TrainingJob, Worker
    from foliot_remediator.core.state.routing_table import Cause

_GATHER_NS = 200_000_000
"""How long the first loss waits for others. The events of a node's ranks come within half a second, but who is gone or
silent needs none; so this is for the words of the nodes."""
_GROUP = -1
"""In the place of a rank: the group as a whole."""
_MOST = 4_096
"""Losses and slow ranks of a job that are remembered."""


class Doubt(NamedTuple):
    """What speaks against a loss."""

    rank: int | None
    """None: against a break of the group."""
    cause: Cause
    objection: Objection


class Straggler(NamedTuple):
    """A rank for which the others wait in each step."""

    reason: Reason
    at_ns: int


@dataclass(slots=True)
class Case:
    """What stands about a job. Times are those of this process."""

    taken_ns: int
    """When anything was last said of it."""
    losses: dict[int, Loss] = field(default_factory=dict)
    stragglers: dict[int, Straggler] = field(default_factory=dict)
    broken: Break | None = None
    course: Course | None = None
    failed: set[Process] = field(default_factory=set)
    """Spares that were given a rank and did not live to take it."""
    answered: set[tuple[str, int]] = field(default_factory=set)
    """Causes and ranks for which nothing more is done: it was advised, or given up."""
    gathered_ns: int = 0
    """Until when the first loss waits for others; 0: there is none."""
    looked_ns: int = 0
    retry_ns: int = 0
    """Before this, what could not be done is not tried again."""

    def blame(self, loss: Loss, now_ns: int) -> None:
        """Takes an event about a rank, unless a later one was taken."""
        known = self.losses.get(loss.rank)
        if known is None or known.at_ns <= loss.at_ns:
            self.taken_ns, self.losses[loss.rank] = now_ns, loss
        while len(self.losses) > _MOST:
            del self.losses[next(iter(self.losses))]

    def slow(self, rank: int, straggler: Straggler, now_ns: int) -> None:
        """Takes that the others wait for a rank."""
        self.taken_ns, self.stragglers[rank] = now_ns, straggler
        while len(self.stragglers) > _MOST:
            del self.stragglers[next(iter(self.stragglers))]

    def answer(self, reasons: Mapping[int, Reason], first: Reason) -> None:
        """Takes that nothing more is done for these reasons, by rank; without ranks, for the first alone."""
        of = reasons or {_GROUP: first}
        self.answered |= {(reason.cause.event, rank) for rank, reason in of.items()}

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands about the job."""
        return not (self.losses or self.stragglers or self.broken or self.course or self.answered)

    def members(self, job: TrainingJob) -> dict[int, Worker]:
        """Who has each rank, or is to have it."""
        return job.ranks() if self.course is None else self.course.members(job)

    def pending(self, job: TrainingJob) -> dict[int, Process]:
        """By rank, who is to take it and has not said yet that it has it."""
        return {} if self.course is None else self.course.pending(job)

    def is_forming(self, job: TrainingJob, now_ns: int) -> bool:
        """Whether a generation forms, whoever ordered it."""
        if self.course is not None:
            return True
        is_new = job.generation > 0 and now_ns - job.generation_ns < GIVEN_UP_NS
        return is_new and any(each.runs and not each.is_settled(job.generation) for each in job.ranks().values())

    # -- at once ------------------------------------------------------------------------------------------------------

    def urgent(
        self, job: TrainingJob, troubled: TroubledNodes, hearing: Hearing, hung_ns: int
    ) -> tuple[dict[int, Reason], list[Doubt]]:
        """The ranks that need another process at once, and what speaks against other losses.

        Parameters:
            hung_ns: how long a process that runs may do no step.
        """
        lost, doubts = self._blamed(job, hearing, hung_ns)
        members = self.members(job)
        for rank, wish in self._leaving(members, troubled):
            if wish.is_urgent and not members[rank].is_over:
                lost.setdefault(rank, wish.reason)
        doubts += self._unfounded(members, troubled, hearing.now_ns)
        for rank, reason in self._failing(job, members, hearing):
            lost.setdefault(rank, reason)
        if lost:  # nobody has to wait for an event about a rank that cannot come with the others
            first = lost[min(lost)].cause
            for rank, worker in members.items():
                if not worker.is_over and (worker.is_gone or hearing.is_away(worker)):
                    lost.setdefault(rank, Reason(first, trouble(worker, hearing.read_ns)))
        return lost, doubts

    def broke(self, job: TrainingJob, hearing: Hearing) -> tuple[Reason | None, list[Doubt]]:
        """Why the same ranks are to form a group anew, and what speaks against that. Only where no rank is lost."""
        if self.broken is None or self._is_answered(self.broken.cause, _GROUP):
            return None, []
        if self.course is not None and self.course.order.generation > self.broken.generation:
            return None, []  # what was ordered about it is under way
        verdict = judge_break(self.broken, job, hearing)
        if verdict.is_over:
            self.broken = None
        elif verdict.believed:
            return Reason(self.broken.cause, "broken"), []
        elif verdict.against is not None:
            return None, [Doubt(None, self.broken.cause, verdict.against)]
        return None, []

    def is_gathered(self, lost: dict[int, Reason], job: TrainingJob, now_ns: int) -> bool:
        """Whether more losses are not to be waited for."""
        self.gathered_ns = self.gathered_ns or now_ns + _GATHER_NS
        members = self.members(job)
        nodes = {members[rank].node for rank in lost if rank in members}
        is_whole = all(rank in lost for rank, worker in members.items() if worker.node in nodes)
        return is_whole or now_ns >= self.gathered_ns

    def _blamed(self, job: TrainingJob, hearing: Hearing, hung_ns: int) -> tuple[dict[int, Reason], list[Doubt]]:
        """Losses that are believed, and doubts about others; those that are over are forgotten."""
        lost: dict[int, Reason] = {}
        doubts: list[Doubt] = []
        pending = self.pending(job)
        for rank, loss in [*self.losses.items()]:
            if rank in pending or self._is_answered(loss.cause, rank):
                continue
            verdict = judge(loss, job, hearing, hung_ns)
            if verdict.is_over:
                del self.losses[rank]
            elif verdict.believed:
                lost[rank] = Reason(loss.cause, loss.word)
            elif verdict.against is not None:
                doubts.append(Doubt(rank, loss.cause, verdict.against))
        return lost, doubts

    def _unfounded(self, members: Mapping[int, Worker], troubled: TroubledNodes, now_ns: int) -> Iterator[Doubt]:
        """What speaks against leaving the nodes of which it is said that their hardware has a fault."""
        for rank, worker in members.items():
            if not worker.is_over and (doubt := troubled.doubt(worker.node, now_ns)) is not None:
                yield Doubt(rank, *doubt)

    def _failing(self, job: TrainingJob, members: dict[int, Worker], hearing: Hearing) -> Iterator[tuple[int, Reason]]:
        """Ranks of the group that was ordered whose process cannot be of it: spares, or others while a group waits."""
        course = self.course
        if course is None:
            return
        cause, pending = course.request.cause, course.pending(job)
        for rank in pending.keys() - members.keys():  # nobody tells of the spare any more
            yield rank, Reason(cause, "silent")
        has_left = hearing.now_ns >= course.due_ns  # before, spares alone wait, which says nothing of the others
        for rank, worker in members.items():
            word = "" if worker.is_over else trouble(worker, hearing.read_ns)
            if (
                not word
                and not worker.is_over
                and course.is_kept_by(worker, members.values(), job.step_ns, hearing.now_ns)
            ):
                word = "absent"
            is_known = word != "silent" or hearing.is_away(worker)
            is_missed = has_left and witnessed(worker, members.values(), course.order.generation)
            if word and (rank in pending or (is_known and is_missed)):
                yield rank, Reason(cause, word)

    # -- at a step's end ----------------------------------------------------------------------------------------------

    def planned(self, job: TrainingJob, troubled: TroubledNodes, hearing: Hearing) -> dict[int, Reason]:
        """The ranks that are to go elsewhere at a step's end: those of one node, or a slow one. Only if all is well."""
        ranks = job.ranks()
        if not all(each.state.stage == "training" and each.lives(hearing.read_ns) for each in ranks.values()):
            return {}
        if leaving := dict(self._leaving(ranks, troubled)):
            first = min(ranks[rank].node for rank in leaving)
            return {rank: wish.reason for rank, wish in leaving.items() if ranks[rank].node == first}
        for rank, straggler in [*self.stragglers.items()]:
            worker = ranks.get(rank)
            if worker is None or (worker.state.generation > 0 and worker.state.formed_ns >= straggler.at_ns):
                del self.stragglers[rank]
            elif not self._is_answered(straggler.reason.cause, rank):
                return {rank: straggler.reason}
        return {}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _leaving(self, members: Mapping[int, Worker], troubled: TroubledNodes) -> Iterator[tuple[int, Wish]]:
        """The ranks on nodes that are to be left, and why, but those for which nothing more is done."""
        for rank, worker in members.items():
            wish = troubled.wish(worker.node)
            if wish is not None and not self._is_answered(wish.reason.cause, rank):
                yield rank, wish

    def _is_answered(self, cause: Cause, rank: int) -> bool:
        return (cause.event, rank) in self.answered
