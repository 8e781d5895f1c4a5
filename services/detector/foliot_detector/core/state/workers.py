"""The processes of training jobs whose ranks can be replaced: who is worker of what, as nodes tell it."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from typing import TYPE_CHECKING

from foliot_detector.core.state.training_jobs import FORGOTTEN_NS
from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_schemas import WorkerBatch, WorkerState

FRESH_NS = 2_500_000_000
"""A node's word holds for so long: two of its batches and some."""
_BACK_NS = 3_000_000_000
"""The nodes of a fleet find the bus again within two seconds, one after the other, and tell each second."""
_PAUSE_NS = 60_000_000_000
"""A generation that takes longer to form is no excuse any more for a job that stands."""
_BEFORE_NS = 2_000_000_000
"""Nodes speak one after the other: who is heard of first so long after another was lost may have been there before. A
process that is started anew takes longer, as it imports PyTorch."""
_MOST_JOBS = 1_024
_MOST_WORKERS_OF_A_NODE = 512
"""Of all jobs: four times what a node may tell of one."""
_EXPIRED_EACH_NS = 1_000_000_000
_MOST_STEPS = 16
_PAUSED = frozenset({"forming", "copying", "broken"})


class Worker:
    """One process, as its node told it last. Times are of the timeline, unless another is named."""

    def __init__(self, node: str, state: WorkerState, now_ns: int) -> None:
        self.node = node
        self.state = state
        self.first_ns = now_ns
        """When it was told of first."""
        self.told_ns = now_ns
        """When its node told of it last."""
        self.at_ns = 0
        """The same, by the node's reference time."""
        self.turned_ns = now_ns
        """When it was found in its present stage and generation."""
        self.advanced_ns = 0
        """When it was last seen to have done a step; 0: never."""
        self.steps_ns: deque[int] = deque(maxlen=_MOST_STEPS)
        """What its steps took, pauses left out."""
        self.over_ns = 0
        """When it was found that it does no more steps, whatever happens; 0: it was not."""
        self.over_at_ns = 0
        """The same, by the node's reference time."""

    @property
    def has_rank(self) -> bool:
        """Whether it has a place in the job, or had one. A spare has none."""
        return self.state.rank >= 0 and self.state.stage != "spare"

    @property
    def is_live(self) -> bool:
        """Whether its process is there, and has neither done its work nor given up."""
        return self.state.alive in {"running", "stopped"} and self.state.stage not in {"over", "failed"}

    @property
    def is_lost(self) -> bool:
        """Whether it left its work undone: its process is gone, or it has given up."""
        return not self.is_live and self.state.stage != "over"

    def is_fresh(self, now_ns: int) -> bool:
        """Whether its node has spoken of it lately."""
        return now_ns - self.told_ns <= FRESH_NS

    def is_paused(self, now_ns: int) -> bool:
        """Whether it does no steps now, as a group failed or forms."""
        return self.is_live and self.state.stage in _PAUSED and now_ns - self.turned_ns < _PAUSE_NS

    def stood_ns(self, now_ns: int) -> int:
        """For how long it has been in its stage without a step."""
        return now_ns - max(self.turned_ns, self.advanced_ns)

    def usual_step_ns(self) -> int:
        """What a step of it usually takes; 0: not known."""
        return round(statistics.median(self.steps_ns or (0,)))

    def knew(self, other: Worker) -> bool:
        """Whether it was there before another was heard of last, so that both are of one run of the job."""
        return self.first_ns <= (other.over_ns or other.told_ns) + _BEFORE_NS

    def take(self, state: WorkerState, at_ns: int, now_ns: int) -> None:
        """Takes what is told of it."""
        before, self.state = self.state, state
        if (state.stage, state.generation) != (before.stage, before.generation):
            self.turned_ns = now_ns
        elif state.stage == "training" and state.step > before.step:
            if self.advanced_ns > self.turned_ns:
                self.steps_ns.append((now_ns - self.advanced_ns) // (state.step - before.step))
            self.advanced_ns = now_ns
        if state.first_step_ns and state.first_step_ns != before.first_step_ns:
            self.advanced_ns = now_ns
        if self.is_live:
            self.over_ns = 0
        elif not self.over_ns:
            self.over_ns, self.over_at_ns = now_ns, at_ns
        self.told_ns, self.at_ns = now_ns, at_ns


class WorkerJob:
    """One job."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.of: dict[str, dict[int, Worker]] = {}
        """By node and process."""
        self.generation = 0
        """The highest that a worker with a rank was ever of."""
        self.risen_ns = 0
        """When that was seen first."""
        self.told_ns = 0
        """When a node told of it last."""
        self.silent_from_ns = 0
        """Before this, nobody's silence counts: no node told of it for a while, as the bus was away, or this process."""
        self.troubled_ns = 0
        """When a worker was last found to be lost, or to have missed somebody."""
        self._claimants: dict[int, list[Worker]] = {}
        """By rank, the workers that claim it, or did."""
        self._oldest: Worker | None = None
        """Of those that have a rank and live, the one that was told of first, as it was a moment ago."""

    def all(self) -> Iterator[Worker]:
        """All workers and spares."""
        for workers in self.of.values():
            yield from workers.values()

    def holder(self, rank: int) -> Worker | None:
        """The worker whose a rank is: of the highest generation. None: nobody's, or of an earlier run of the job."""
        claimants = (each for each in self._claimants.get(rank, ()) if each.has_rank and not self._is_former(each))
        return max(claimants, key=_strength, default=None)

    def ranks(self) -> dict[int, Worker]:
        """By rank, the worker whose it is, as of `holder`."""
        found = ((rank, self.holder(rank)) for rank in self._claimants)
        return {rank: worker for rank, worker in found if worker is not None}

    def paused(self, ranks: Iterable[int], now_ns: int) -> frozenset[int]:
        """Those of some ranks whose workers do no steps, as a group failed or forms."""
        held = ((rank, self.holder(rank)) for rank in ranks)
        return frozenset(rank for rank, worker in held if worker is not None and worker.is_paused(now_ns))

    def is_forming(self, now_ns: int) -> bool:
        """Whether a group forms now."""
        return any(
            worker.is_paused(now_ns) and worker.state.stage != "broken" and worker.is_fresh(now_ns)
            for worker in self.ranks().values()
        )

    def is_broken(self, now_ns: int) -> bool:
        """Whether a rank says that its group broke."""
        return any(each.is_live and each.state.stage == "broken" and each.is_fresh(now_ns) for each in self.all())

    def is_over(self) -> bool:
        """Whether all of its ranks are known, and none does any more steps."""
        held = self.ranks()
        return len(held) == self.size and not any(worker.is_live for worker in held.values())

    def at_ns(self, node: str, now_ns: int) -> int | None:
        """A time of the timeline by a node's reference time, as it was told with its workers; None: it was not."""
        told = max(self.of.get(node, {}).values(), key=lambda each: each.told_ns, default=None)
        return None if told is None else min(told.at_ns + now_ns - told.told_ns, FAR_NS - 1)

    def take(self, batch: WorkerBatch, room: int, now_ns: int) -> int:
        """Takes what a node tells; returns by how many it tells of more than before.

        Parameters:
            room: for so many more of the node.
        """
        if now_ns - self.told_ns > FRESH_NS:
            self.silent_from_ns = now_ns + _BACK_NS
        self.told_ns = now_ns
        own = self.of.setdefault(batch.node, {})
        before = len(own)
        for state in batch.workers:
            worker = own.get(state.process)
            if worker is None:
                if len(own) - before >= room:
                    continue
                worker = own[state.process] = Worker(batch.node, state, now_ns)
            self._claim(worker, state)
            worker.take(state, batch.at_ns, now_ns)
            if now_ns in {worker.turned_ns, worker.over_ns} and (worker.is_lost or state.stage == "broken"):
                self.troubled_ns = now_ns
            if worker.has_rank and state.generation > self.generation:
                self.generation, self.risen_ns = state.generation, now_ns
        # An agent that was started anew hears of those that live. Of others it need not speak any more.
        told = {state.process for state in batch.workers}
        self._drop(batch.node, [number for number, each in own.items() if number not in told and not each.is_live])
        return len(self.of.get(batch.node, ())) - before

    def expire(self, now_ns: int) -> Counter[str]:
        """Forgets workers that nobody speaks of any more; returns how many of each node they were."""
        gone: Counter[str] = Counter()
        for node, own in list(self.of.items()):
            silent = [number for number, each in own.items() if now_ns - each.told_ns >= FORGOTTEN_NS]
            gone[node] = len(silent)
            self._drop(node, silent)
        placed = (worker for worker in self.all() if worker.has_rank and worker.is_live)
        self._oldest = min(placed, key=lambda each: each.first_ns, default=None)
        return gone

    def _is_former(self, worker: Worker) -> bool:
        """Whether a worker that is over is of an earlier run of the job: all that live came later."""
        return not worker.is_live and self._oldest is not None and not self._oldest.knew(worker)

    def _claim(self, worker: Worker, state: WorkerState) -> None:
        """Notes which rank a worker claims as of now."""
        if worker not in self._claimants.get(state.rank, ()):
            self._unclaim(worker)
            if state.rank >= 0 and state.stage != "spare":
                self._claimants.setdefault(state.rank, []).append(worker)

    def _unclaim(self, worker: Worker) -> None:
        claimants = self._claimants.get(worker.state.rank, [])
        if worker in claimants:
            claimants.remove(worker)
            if not claimants:
                del self._claimants[worker.state.rank]

    def _drop(self, node: str, processes: list[int]) -> None:
        own = self.of[node]
        for number in processes:
            self._unclaim(own.pop(number))
        if not own:
            del self.of[node]


class Workers:
    """All jobs whose ranks can be replaced."""

    def __init__(self) -> None:
        self._jobs: dict[str, WorkerJob] = {}
        self._of_node: Counter[str] = Counter()
        """How many workers of all jobs are each node's."""
        self._expired_ns = 0

    def names(self) -> set[str]:
        """The names of the jobs."""
        return {*self._jobs}

    def get(self, name: str) -> WorkerJob | None:
        """The job of a name; None: none of its workers speaks."""
        return self._jobs.get(name)

    def take(self, batch: WorkerBatch, now_ns: int) -> WorkerJob | None:
        """Takes what a node tells. None: there are too many jobs, or it is of another size than was told."""
        job = self._jobs.get(batch.job)
        if job is not None and job.size != batch.size and not any(worker.is_live for worker in job.all()):
            # It was started anew, with more or fewer ranks.
            self._of_node.subtract(worker.node for worker in job.all())
            job = None
        if job is None:
            if batch.job not in self._jobs and len(self._jobs) >= _MOST_JOBS:
                return None
            job = self._jobs[batch.job] = WorkerJob(batch.job, batch.size)
        if job.size != batch.size:
            return None
        room = _MOST_WORKERS_OF_A_NODE - self._of_node[batch.node]
        self._of_node[batch.node] += job.take(batch, room, now_ns)
        return job

    def expire(self, now_ns: int) -> None:
        """Forgets jobs and workers that nobody speaks of any more; looks once a second."""
        if abs(now_ns - self._expired_ns) < _EXPIRED_EACH_NS:
            return
        self._expired_ns = now_ns
        for name, job in list(self._jobs.items()):
            self._of_node.subtract(job.expire(now_ns))
            if not job.of:
                del self._jobs[name]
        self._of_node = +self._of_node


def _strength(worker: Worker) -> tuple[int, bool, int]:
    """Of two that claim one rank, the greater has it."""
    return worker.state.generation, worker.is_live, worker.first_ns
