"""Training jobs whose ranks can be replaced: their processes, as the nodes tell of them."""

from __future__ import annotations

import collections
import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.worker import MOST_WORKERS_OF_A_NODE, NO_RANK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from foliot_schemas import WorkerBatch
    from foliot_schemas.worker import WorkerState

_S = 1_000_000_000
SILENT_NS = 2 * _S
"""A process of which nothing was told for so long is not known to live. Nodes tell of each every second."""
_FORGOTTEN_NS = 60 * _S
"""A job, or a process without a rank, that nobody has spoken of for so long is over."""
_MOST_JOBS = 1_024
_MOST_OF_A_NODE = 2 * MOST_WORKERS_OF_A_NODE
"""Processes of a job on a node that are remembered: beside those that are told, those that were told before."""
_MOST_GENERATIONS = 1 << 40
"""A generation beyond is made up, and the next one must have a number."""
_STEPS, _STEP_SAMPLE_NS = 16, _S
"""A step's time is the median of so many samples, each as long as this: nodes tell of steps once a second."""
MEETING = frozenset({"forming", "copying"})
"""Stages of a process whose group forms."""
_STANDS_NS = 3 * _S
"""A process that was watched for so long without a step stands: that is three words of its node."""
_STANDS_STEPS, _LATE_STEPS = 3, 2
"""So many usual steps as well, or so many since its last one if it should have done one since something happened."""
_RETURNS_NS = 5 * _S
"""A job that is at fewer steps than it does in so long has gone back."""
_BEFORE_NS = 2 * _S
"""A process that had ended so long before all that live were there is of an earlier run of the job."""


class Process(NamedTuple):
    """The name of a process."""

    node: str
    number: int
    """See `WorkerState.process`."""


@dataclass(slots=True)
class Worker:
    """A process of a job, as its node told of it last. Times are those of this process."""

    node: str
    state: WorkerState
    first_ns: int
    """When it was told of first."""
    told_ns: int
    """When its node last told of it."""
    stepped_ns: int = 0
    """When it spoke of its present step first; 0: it was at this step when it was told of first."""
    ended_ns: int = 0
    """When its end was told first; 0: it was not."""

    @property
    def name(self) -> Process:
        """Its name."""
        return Process(self.node, self.state.process)

    @property
    def is_spare(self) -> bool:
        """Whether it waits to be given a rank."""
        return self.state.stage == "spare" and self.state.rank == NO_RANK

    @property
    def is_gone(self) -> bool:
        """Whether it does no more step, as its node or it says, and has not done its work."""
        return not self.is_over and (self.state.alive == "gone" or self.state.stage == "failed")

    @property
    def is_over(self) -> bool:
        """Whether it has done its work."""
        return self.state.alive == "ended" or self.state.stage == "over"

    @property
    def runs(self) -> bool:
        """Whether its node says that it lives and runs."""
        return self.state.alive == "running" and self.state.stage not in ("failed", "over")

    def is_silent(self, read_ns: int) -> bool:
        """Whether its node says nothing of it any more, as far as this process has read."""
        return read_ns - self.told_ns > SILENT_NS

    def lives(self, read_ns: int) -> bool:
        """Whether it runs, and was told of a moment ago."""
        return self.runs and not self.is_silent(read_ns)

    def stepped_since(self, at_ns: int) -> bool:
        """Whether it has done a step after a time."""
        return self.stepped_ns > at_ns

    def stands_since(self, at_ns: int, step_ns: int) -> bool:
        """Whether it has done no step after a time, as far as its usual steps tell; False as long as nobody can know.

        Parameters:
            step_ns: how long a step of the job takes.
        """
        from_ns = self.stepped_ns or self.first_ns
        stood_ns = self.told_ns - from_ns
        if stood_ns >= max(_STANDS_NS, _STANDS_STEPS * step_ns):
            return True
        return from_ns <= at_ns < self.told_ns and stood_ns >= _LATE_STEPS * step_ns

    def is_settled(self, generation: int) -> bool:
        """Whether it does steps in a generation, or in a later one; or has done its work."""
        state = self.state
        is_through = state.stage == "training" and state.first_step_ns > 0
        return self.is_over or (state.generation >= generation and is_through)


class TrainingJob:
    """One job.

    Parameters:
        now_ns: when it was heard of first.
    """

    def __init__(self, name: str, now_ns: int) -> None:
        self.name = name
        self.first_ns = self.told_ns = now_ns
        self.size = 0
        """The number of its ranks."""
        self.generation = 0
        """The highest generation that was told or ordered."""
        self.generation_ns = 0
        """When it was first known."""
        self.highest_step = 0
        """The most steps that a process has done, in this run of the job and since the last return to a checkpoint."""
        self.fruitless = 0
        """Generations in a row, up to the last, in which no step was done, and no new one was done since."""
        self._workers: dict[str, dict[int, Worker]] = {}
        """By node and process."""
        self._heard_ns = 0
        """When a node told of it last, by what it said."""
        self._holders: dict[int, Worker] | None = None
        self._samples: collections.deque[tuple[int, int]] = collections.deque(maxlen=_STEPS)
        """When the highest step was what."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def take(self, batch: WorkerBatch, here_ns: Callable[[int], int], now_ns: int) -> None:
        """Takes what a node tells.

        Parameters:
            here_ns: makes the node's time this process's.
        """
        self.size = batch.size
        self.told_ns, self._holders, at_ns = now_ns, None, here_ns(batch.at_ns)
        self._heard_ns = max(self._heard_ns, at_ns)
        known = self._workers.setdefault(batch.node, {})
        told = [state for state in batch.workers if state.generation <= _MOST_GENERATIONS]
        for state in told:
            worker = known.pop(state.process, None)  # those told of last are last
            if worker is None:
                worker = Worker(batch.node, state, at_ns, at_ns)
            elif state.step > worker.state.step and state.stage not in MEETING:  # there, it is given its state
                worker.stepped_ns = here_ns(state.heard_ns)
            worker.state, worker.told_ns = state, at_ns
            worker.ended_ns = 0 if not (worker.is_gone or worker.is_over) else worker.ended_ns or at_ns
            known[state.process] = worker
        while len(known) > _MOST_OF_A_NODE:
            del known[next(iter(known))]
        self._learn([state for state in told if state.rank != NO_RANK], here_ns, now_ns)

    def note_generation(self, generation: int, now_ns: int) -> None:
        """Takes that a generation is told, or ordered."""
        if generation > self.generation:
            self.fruitless += 1
            self.generation, self.generation_ns = generation, now_ns

    def forget_node(self, node: str) -> None:
        """Forgets the processes of a node."""
        self._workers.pop(node, None)
        self._holders = None

    def expire(self, now_ns: int) -> None:
        """Forgets processes that nobody tells of any more, but for the last of each rank: it may be replaced."""
        self._note_return()
        holders = {worker.name for worker in self.ranks().values()}
        for node, known in [*self._workers.items()]:
            for number, worker in [*known.items()]:
                if now_ns - worker.told_ns > _FORGOTTEN_NS and worker.name not in holders:
                    del known[number]
            if not known:
                del self._workers[node]
        self._holders = None

    # -- out ----------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Worker]:
        """All processes."""
        return (worker for known in self._workers.values() for worker in known.values())

    def get(self, name: Process) -> Worker | None:
        """A process, if it is known."""
        return self._workers.get(name.node, {}).get(name.number)

    def ranks(self) -> dict[int, Worker]:
        """Who has each rank: of several that say so, the one of the highest generation, then who lives.

        Those that had ended before any that lives was there are of an earlier run of the job, and have none.
        """
        if self._holders is None:
            self._holders = {}
            claiming = [worker for worker in self if worker.state.rank != NO_RANK]
            living = [each.first_ns for each in claiming if each.lives(self._heard_ns)]
            oldest_ns = min(living, default=0) - _BEFORE_NS
            for worker in claiming:
                is_former = not worker.lives(self._heard_ns) and (worker.ended_ns or worker.told_ns) < oldest_ns
                known = self._holders.get(worker.state.rank)
                if not is_former and (known is None or _claim(worker) > _claim(known)):
                    self._holders[worker.state.rank] = worker
        return self._holders

    @property
    def step_ns(self) -> int:
        """How long a step takes; 0: it is not known."""
        times = [
            (later_ns - at_ns) / (more - step) for (at_ns, step), (later_ns, more) in itertools.pairwise(self._samples)
        ]
        return round(statistics.median(times)) if times else 0

    def step_at(self, now_ns: int) -> int:
        """The most steps that a process can have done by now: since its last word it went on, for a word's time."""
        most, step_ns = 0, self.step_ns
        for worker in self.ranks().values():
            from_ns = worker.stepped_ns or worker.first_ns
            since = min(max(now_ns - from_ns, 0), SILENT_NS) // step_ns if step_ns else 0
            most = max(most, worker.state.step + since)
        return most

    # -- inside -------------------------------------------------------------------------------------------------------

    def _learn(self, ranked: Sequence[WorkerState], here_ns: Callable[[int], int], now_ns: int) -> None:
        """Takes how far the job is, by processes that have a rank."""
        if not ranked:
            return
        # Who has ended may be of an earlier run, which was further.
        ahead = max((state for state in ranked if state.alive == "running"), key=lambda state: state.step, default=None)
        if ahead is not None and ahead.step > self.highest_step:
            self.highest_step, self.fruitless = ahead.step, 0
            at_ns = here_ns(ahead.heard_ns)
            if not self._samples or at_ns - self._samples[-1][0] >= _STEP_SAMPLE_NS:
                self._samples.append((at_ns, ahead.step))
        self.note_generation(max(state.generation for state in ranked), now_ns)
        if any(state.generation == self.generation and state.first_step_ns for state in ranked):
            self.fruitless = 0

    def _note_return(self) -> None:
        """Takes that the job is at fewer steps than before: it began anew, or went back to a checkpoint."""
        steps = [worker.state.step for worker in self.ranks().values() if worker.runs]
        late = _RETURNS_NS // self.step_ns if self.step_ns else 0  # a node has told last of its steps a while ago
        if steps and max(steps) + late < self.highest_step:
            self.highest_step = max(steps)
            self._samples.clear()


class TrainingJobs:
    """All jobs of which a node of the fleet has told lately."""

    def __init__(self) -> None:
        self._jobs: collections.OrderedDict[str, TrainingJob] = collections.OrderedDict()
        """The one told of longest ago first."""

    def __iter__(self) -> Iterator[TrainingJob]:
        """All of them."""
        return iter([*self._jobs.values()])

    def get(self, name: str) -> TrainingJob | None:
        """The job of a name, if it is known."""
        return self._jobs.get(name)

    def take(self, batch: WorkerBatch, here_ns: Callable[[int], int], now_ns: int) -> None:
        """Takes what a node tells of a job."""
        job = self._jobs.setdefault(batch.job, TrainingJob(batch.job, now_ns))
        self._jobs.move_to_end(batch.job)
        job.take(batch, here_ns, now_ns)
        if len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)

    def expire(self, now_ns: int) -> None:
        """Forgets what nobody speaks of any more."""
        while self._jobs:
            name, job = next(iter(self._jobs.items()))
            if now_ns - job.told_ns <= _FORGOTTEN_NS:
                break
            del self._jobs[name]
        for job in self._jobs.values():
            job.expire(now_ns)

    def forget_node(self, node: str) -> None:
        """Forgets the processes of a node."""
        for job in self._jobs.values():
            job.forget_node(node)


def _claim(worker: Worker) -> tuple[int, bool, int, int]:
    return worker.state.generation, worker.runs, worker.told_ns, worker.state.process
