"""Training jobs whose ranks speak: how far each rank is, and which collectives it ended lately. Times are local."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.analysis.collectives import Group, Operation, Progress, RankRecord
from foliot_schemas.collective import ranks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from foliot_schemas import CollectiveBatch, CollectiveGroup, RankState

FORGOTTEN_NS = 60_000_000_000
"""A job or rank of which nothing is told for so long is forgotten."""
_FRESH_NS = 2_000_000_000
"""A rank's word holds for so long: eight batches of its node."""
_MOST_JOBS = 1_024
_MOST_RANKS_OF_A_NODE = 256
"""Ranks of all jobs that one node may claim: more than any host has GPUs, with some that are over."""
_MOST_GROUPS, _MOST_RUNS = 1 << 14, 1 << 15
"""Groups of a job, and runs of their members, all together. A job of 16,000 ranks has some 5,000 groups of a run or two
each."""
_MOST_MEMBERS = 1 << 20
"""Members of the groups of a job, all together. Each rank of a job is in some ten groups."""
_EXPIRED_EACH_NS = 1_000_000_000
_MOST_ENDED = 16
"""Collectives that are done, kept of each rank, to be compared with those of others."""
_MOST_MOVES = 64


class Ended(NamedTuple):
    """A collective that a rank is through with; times are its node's reference time."""

    rank: int
    group: str
    number: int
    began_ns: int
    ended_ns: int
    operation: str
    bytes: int


class Collectives(NamedTuple):
    """What a node told of a job, as detectors see it."""

    job: TrainingJob
    ended: list[Ended]
    """Collectives with which ranks are through, each told once, in the order in which each rank began them."""


class Rank:
    """One rank of a job, as its node told it last."""

    def __init__(self, node: str, state: RankState) -> None:
        self.node = node
        self.state = state
        self.told_ns = 0
        """When its node spoke of it last, on the timeline."""
        self.at_ns = 0
        """The same, by the node's reference time."""
        self.moved_ns = 0
        """When it was last seen to begin or end a collective, on the timeline."""
        self.gaps_ns: deque[int] = deque(maxlen=_MOST_MOVES)
        """Times between such moves."""
        self.progress: dict[str, Progress] = {}
        self.open: tuple[Operation, ...] = ()
        self.ended: deque[Operation] = deque(maxlen=_MOST_ENDED)

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        return self.state.process in {"ended", "gone"}

    def is_fresh(self, now_ns: int) -> bool:
        """Whether its node has spoken of it lately."""
        return now_ns - self.told_ns <= _FRESH_NS


class TrainingJob:
    """One job."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.ranks: dict[int, Rank] = {}
        self._told: dict[str, CollectiveGroup] = {}
        self._runs = 0
        self._groups: dict[str, Group] = {}
        """Those that were asked for, with each of their members."""
        self._members = 0

    def learn(self, told: CollectiveGroup) -> None:
        """Takes what a group consists of. Those beyond the most that a job may have stay unknown."""
        before = self._told.get(told.name)
        if before == told:
            return
        runs = self._runs + len(told.members) - (0 if before is None else len(before.members))
        if runs > _MOST_RUNS or (before is None and len(self._told) >= _MOST_GROUPS):
            return
        self._told[told.name], self._runs = told, runs
        if (known := self._groups.pop(told.name, None)) is not None:
            self._members -= len(known.members)

    def group(self, name: str) -> Group:
        """A group; without members, if these are not known."""
        if (known := self._groups.get(name)) is not None:
            return known
        told = self._told.get(name)
        count = 0 if told is None else sum(each for _, _, each in told.members)
        if told is None or self._members + count > _MOST_MEMBERS:
            return Group(name, "", ())
        self._members += count
        made = self._groups[name] = Group(name, told.description, tuple(ranks_of(told.members)))
        return made

    def at_ns(self, node: str, now_ns: int) -> int:
        """A time of the timeline by a node's reference time, as it was told with the node's ranks."""
        told = next((rank for rank in self.ranks.values() if rank.node == node), None)
        return now_ns if told is None else told.at_ns + now_ns - told.told_ns

    def record(self, number: int) -> RankRecord:
        """What a rank says, for the analysis of a hang."""
        rank = self.ranks[number]
        groups = {name: self.group(name) for name in rank.progress}
        operations = sorted((*rank.ended, *rank.open), key=lambda each: each.order)
        return RankRecord(number, groups, dict(rank.progress), tuple(operations))


class TrainingJobs:
    """All jobs whose ranks speak."""

    def __init__(self) -> None:
        self._jobs: dict[str, TrainingJob] = {}
        self._of_node: Counter[str] = Counter()
        """How many ranks of all jobs are each node's."""
        self._expired_ns = 0

    def all(self) -> list[TrainingJob]:
        """The jobs, by name."""
        return [job for _, job in sorted(self._jobs.items())]

    def get(self, name: str) -> TrainingJob | None:
        """The job of a name; None: none of its ranks speaks."""
        return self._jobs.get(name)

    def take(self, batch: CollectiveBatch, now_ns: int) -> Collectives | None:
        """Takes what a node tells. None: there are too many jobs, or it is of another size than was told.

        Of two nodes that claim one rank, the one that speaks of a process that lives has it.
        """
        job = self._job(batch)
        if job is None:
            return None
        for told in batch.members:
            job.learn(told)
        rows, progress = batch.rows(), batch.progress()
        ended: list[Ended] = []
        for place, state in enumerate(batch.ranks):
            rank = self._rank(job, batch, state, now_ns)
            if rank is None:
                continue
            rank.state, rank.told_ns, rank.at_ns = state, now_ns, batch.at_ns
            _advance(rank, batch, progress[progress["rank"] == place], now_ns)
            ended += _operations(job, rank, batch, rows[rows["rank"] == place])
        return Collectives(job, ended)

    def expire(self, now_ns: int) -> None:
        """Forgets jobs and ranks that nobody speaks of any more; looks once a second."""
        if abs(now_ns - self._expired_ns) < _EXPIRED_EACH_NS:
            return
        self._expired_ns = now_ns
        for name, job in list(self._jobs.items()):
            for number in [number for number, rank in job.ranks.items() if now_ns - rank.told_ns >= FORGOTTEN_NS]:
                self._of_node[job.ranks.pop(number).node] -= 1
            if not job.ranks:
                del self._jobs[name]
        self._of_node = +self._of_node

    def _job(self, batch: CollectiveBatch) -> TrainingJob | None:
        job = self._jobs.get(batch.job)
        if job is not None and job.size != batch.size and all(rank.is_over for rank in job.ranks.values()):
            # It was started anew, with more or fewer ranks.
            self._of_node.subtract(rank.node for rank in job.ranks.values())
            job = None
        if job is None:
            if batch.job not in self._jobs and len(self._jobs) >= _MOST_JOBS:
                return None
            job = self._jobs[batch.job] = TrainingJob(batch.job, batch.size)
        return job if job.size == batch.size else None

    def _rank(self, job: TrainingJob, batch: CollectiveBatch, state: RankState, now_ns: int) -> Rank | None:
        """The rank that a node speaks of; None: it is another's, or the node has too many."""
        rank = job.ranks.get(state.rank)
        if rank is not None and rank.node == batch.node and rank.state.since_ns == state.since_ns:
            return rank
        if rank is not None and rank.node != batch.node and rank.is_fresh(now_ns) and not rank.is_over:
            return None
        if rank is not None:
            self._of_node[rank.node] -= 1
        elif self._of_node[batch.node] >= _MOST_RANKS_OF_A_NODE:
            return None
        self._of_node[batch.node] += 1
        made = job.ranks[state.rank] = Rank(batch.node, state)
        made.moved_ns = now_ns
        return made


def _advance(rank: Rank, batch: CollectiveBatch, rows: NDArray[np.void], now_ns: int) -> None:
    progress = {
        batch.groups[group]: Progress(begun, done)
        for group, begun, done in zip(
            rows["group"].tolist(), rows["begun"].tolist(), rows["done"].tolist(), strict=True
        )
    }
    if progress != rank.progress:
        if rank.progress:
            rank.gaps_ns.append(now_ns - rank.moved_ns)
        rank.moved_ns = now_ns
    rank.progress = progress


def _operations(job: TrainingJob, rank: Rank, batch: CollectiveBatch, rows: NDArray[np.void]) -> Iterator[Ended]:
    """Takes the operations of a rank in a batch; returns the collectives among them that have ended."""
    waiting = []
    for row in np.sort(rows, order="order").tolist():
        _, group, operation, type_, number, order, peer, began_ns, ended_ns, into, out, bytes_ = row
        name, kind = batch.operations[operation], batch.types[type_]
        ends = _ends(job, batch.groups[group], rank.state.rank, peer, name)
        if ends is None:
            continue
        made = Operation(
            order, batch.groups[group], number, name, *ends, (((into,),), ((out,),)), ((kind,), (kind,)), ended_ns != 0
        )
        if not ended_ns:
            waiting.append(made)
            continue
        rank.ended.append(made)
        if peer < 0:
            yield Ended(rank.state.rank, made.group, number, began_ns, ended_ns, name, bytes_)
    rank.open = tuple(waiting)


def _ends(job: TrainingJob, group: str, rank: int, peer: int, operation: str) -> tuple[int | None, int | None] | None:
    """Sender and receiver of a transfer, by their ranks in the group; of a collective, nobody.

    None: it is a transfer in a group whose members are not known.
    """
    if peer < 0:
        return None, None
    members = job.group(group).members
    if rank not in members:
        return None
    own = members.index(rank)
    return (own, peer) if operation == "send" else (peer, own)
