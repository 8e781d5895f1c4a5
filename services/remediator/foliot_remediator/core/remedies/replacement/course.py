"""A replacement under way: what was ordered, who has taken it, and who is to be asked again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.remedies.replacement.workers import MEETING, Process
from foliot_schemas.worker import NO_RANK

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.decision_request import DecisionRequest
    from foliot_remediator.core.remedies.replacement.hearing import Hearing
    from foliot_remediator.core.remedies.replacement.workers import TrainingJob, Worker
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_schemas import ReplaceRank

_AGAIN_NS = 2_000_000_000
"""A node whose workers have not taken the generation for so long is asked again: a command may have been lost."""
_STAYS_NS, _STAYS_STEPS = 5_000_000_000, 3
"""A process that keeps its former group for so long, and so many usual steps, does not leave it any more, though it was
asked again: its program hangs."""
_STAYS_LONG_NS = 15_000_000_000
"""The same where no rank was lost, as it may be at work, or where its group forms, as it may wait for a rank that died
meanwhile. Those that meet wait for it for 20 s."""
GIVEN_UP_NS = 20_000_000_000
"""After so long, and as many steps as above, a group is not formed any more: survivors wait for an order for as long."""
_COPIED_NS = 600_000_000_000
"""A group that has formed may take so long for the state and the first step: 75 GB at a gigabit a second."""


class Reason(NamedTuple):
    """Why a rank is to have another process."""

    cause: Cause
    word: str
    """See `ReplaceRank.cause`."""


@dataclass(slots=True)
class Course:
    """One order, until all ranks do steps in its generation."""

    order: ReplaceRank
    request: DecisionRequest
    """The question that was decided."""
    reasons: dict[int, Reason]
    """By rank that changes hands; empty: the same ranks form a group anew."""
    due_ns: int
    """When the processes are to leave their group."""
    asked_ns: dict[str, int] = field(default_factory=dict)
    """When each node was asked last; 0: it was not yet."""

    def pending(self, job: TrainingJob) -> dict[int, Process]:
        """By rank, who is to take it and has not said yet that it has it."""
        ranks = job.ranks()
        return {
            change.rank: Process(change.to_node, change.to_process)
            for change in self.order.changes
            if (holder := ranks.get(change.rank)) is not None and holder.name == (change.node, change.process)
        }

    def members(self, job: TrainingJob) -> dict[int, Worker]:
        """Who has each rank once the order is carried out, as far as their nodes have told of them."""
        members = dict(job.ranks())
        for rank, name in self.pending(job).items():
            taker = job.get(name)
            if taker is None:
                del members[rank]
            else:
                members[rank] = taker
        return members

    def is_done(self, job: TrainingJob) -> bool:
        """Whether every rank does steps in the generation."""
        return not self.pending(job) and all(
            worker.is_settled(self.order.generation) for worker in job.ranks().values()
        )

    def late(self, job: TrainingJob, hearing: Hearing) -> list[str]:
        """The nodes that are to be asked again: a process there has not taken the generation, or keeps a lost rank."""
        losers = (job.get(Process(change.node, change.process)) for change in self.order.changes)
        keeping = [worker for worker in losers if worker is not None and worker.state.rank != NO_RANK]
        behind = {
            worker.node
            for worker in (*self.members(job).values(), *keeping)
            if worker.state.generation < self.order.generation and worker.lives(hearing.read_ns)
        }
        return sorted(node for node in behind & self.asked_ns.keys() if self._is_late(node, hearing.now_ns))

    def is_given_up(self, job: TrainingJob, now_ns: int) -> bool:
        """Whether the group is late beyond hope. One that has formed still has its state to copy."""
        running = [worker for worker in self.members(job).values() if worker.runs]
        has_formed = bool(running) and all(map(self._has_formed, running)) and not self.pending(job)
        allowed_ns = _COPIED_NS if has_formed else GIVEN_UP_NS
        return now_ns - self.due_ns > allowed_ns + _STAYS_STEPS * job.step_ns

    def is_kept_by(self, worker: Worker, members: Collection[Worker], step_ns: int, now_ns: int) -> bool:
        """Whether a process does not leave its former group, while one of another node waits for it in this one."""
        generation = self.order.generation
        is_slow = not self.order.changes or worker.state.stage in MEETING
        allowed_ns = max(_STAYS_LONG_NS if is_slow else _STAYS_NS, _STAYS_STEPS * step_ns)
        if self.order.at_step or worker.state.generation >= generation or now_ns - self.due_ns < allowed_ns:
            return False
        return any(each.node != worker.node and each.runs and each.state.generation == generation for each in members)

    def is_behind(self, job: TrainingJob, node: str) -> bool:
        """Whether a process on a node that is to have a rank has not taken the generation."""
        members = self.members(job).values()
        return any(each.node == node and each.state.generation < self.order.generation for each in members)

    def _has_formed(self, worker: Worker) -> bool:
        state = worker.state
        return state.generation >= self.order.generation and state.stage in ("copying", "training")

    def _is_late(self, node: str, now_ns: int) -> bool:
        asked_ns = self.asked_ns[node]
        return not asked_ns or now_ns - max(asked_ns, self.due_ns) >= _AGAIN_NS
