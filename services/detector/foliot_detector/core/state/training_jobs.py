"""Training jobs whose ranks speak: how far each rank is, and which collectives it ended lately."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.analysis.collectives import Group, Operation, Progress, RankRecord
from foliot_detector.core.state.program_time import Mark, ProgramTime
from foliot_schemas.collective import place_of, ranks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from foliot_schemas import CollectiveBatch, CollectiveGroup, RankState

FORGOTTEN_NS = 60_000_000_000
"""A job, rank or worker of which nothing is told for so long is forgotten."""
_FRESH_NS = 2_000_000_000
"""A rank's word holds for so long: eight batches of its node."""
_SAME_NS = 500_000_000
"""A process that began to speak at another time is another one. The node's clock may have been set meanwhile, by less
than the start of a process takes."""
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
_LONGEST_GENERATION = 18
"""Digits of a number that fits into int64."""


class Ended(NamedTuple):
    """A collective that a rank is through with; times are its node's reference time."""

    rank: int
    group: str
    number: int
    began_ns: int
    ended_ns: int
    ran: Mark | None
    """How long the rank's program had run when it began; None: not known."""


class Collectives(NamedTuple):
    """What a node told of a job, as detectors see it."""

    job: TrainingJob
    ended: list[Ended]
    """Collectives with which ranks are through, each told once, in the order in which each rank began them."""


class Rank:
    """One rank of a job, as its node told it last. Times are of the timeline, unless another is named."""

    def __init__(self, node: str, state: RankState, now_ns: int) -> None:
        self.node = node
        self.state = state
        self.told_ns = now_ns
        """When its node spoke of it last."""
        self.at_ns = 0
        """The same, by the node's reference time."""
        self.is_heard = True
        """Whether its own process had spoken to the node lately then. If not, it may be further than is known."""
        self.looks = self.stopped_looks = 0
        """How often its node has looked at its process, and found that stopped."""
        self.moved_ns = now_ns
        """When it was last seen to have begun or ended something."""
        self.gaps_ns: deque[int] = deque(maxlen=_MOST_MOVES)
        """Times between such moves, pauses left out."""
        self.moves = 0
        """So many moves were seen since it came into its generation."""
        self.is_paused = False
        """Whether its group failed or forms, as its worker says: then it waits for nobody."""
        self._was_paused = False
        """Whether it was so when it last moved."""
        self.progress: dict[str, Progress] = {}
        self.open: tuple[Operation, ...] = ()
        """What it has begun and not ended, in the order in which it began it."""
        self.head_ns = now_ns
        """Since when the first of these is the first."""
        self.ended: deque[Operation] = deque(maxlen=_MOST_ENDED)
        self.time = ProgramTime()
        self._last_order = 0

    @property
    def is_over(self) -> bool:
        """Whether its process has ended."""
        return self.state.process in {"ended", "gone"}

    def is_fresh(self, now_ns: int) -> bool:
        """Whether its node has spoken of it lately."""
        return now_ns - self.told_ns <= _FRESH_NS

    def has_gone_on(self, since_ns: int) -> bool:
        """Whether it was seen to move since then, and before that: one that comes new or into a generation is not."""
        return self.moved_ns > since_ns and self.moves > 1

    def is_process(self, node: str, since_ns: int) -> bool:
        """Whether it is the process of a node that began to speak at a time of the node's."""
        return self.node == node and abs(self.state.since_ns - since_ns) < _SAME_NS

    def waited_ns(self, now_ns: int) -> int:
        """For how long it has waited in a collective, or done nothing beside a transfer; 0: it does not wait.

        The receipt of what comes later may be begun long before.
        """
        if not self.open or not self.is_heard or self.state.process != "running" or not self.is_fresh(now_ns):
            return 0
        since_ns = self.moved_ns if self.open[0].is_transfer else self.head_ns
        return now_ns - since_ns

    def take(self, progress: dict[str, Progress], operations: Sequence[Operation], now_ns: int) -> None:
        """Takes what is told of it, in the order in which it began it."""
        waiting = tuple(each for each in operations if not each.is_done)
        self.ended.extend(each for each in operations if each.is_done)
        last_order = max(self._last_order, operations[-1].order if operations else 0)
        if last_order > self._last_order or _is_further(progress, self.progress):
            if self.moves and not self._was_paused:
                self.gaps_ns.append(now_ns - self.moved_ns)
            self.moves += 1
            self.moved_ns, self._was_paused = now_ns, self.is_paused
        if self.is_paused or not waiting or not self.open or waiting[0].order != self.open[0].order:
            self.head_ns = now_ns
        self.progress, self.open, self._last_order = progress, waiting, last_order

    def renew(self) -> None:
        """Forgets what it did in its last generation: it has groups with other names now, and left what did not end."""
        self.progress, self.open, self.moves = {}, (), 0
        self.ended.clear()


class TrainingJob:
    """One job."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.ranks: dict[int, Rank] = {}
        self.starts = 0
        """How often a rank came, was started anew, or came into another generation."""
        self.generation = 0
        """The highest of its ranks."""
        self.risen_ns = 0
        """When that was seen first."""
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

    def is_over(self) -> bool:
        """Whether the processes of all ranks that spoke have ended."""
        return all(rank.is_over for rank in self.ranks.values())

    def rise(self, generation: int, now_ns: int) -> None:
        """Takes the generation of a rank. Groups are forgotten that nobody is in any more, once the next one is there."""
        if generation <= self.generation:
            return
        left, self.generation, self.risen_ns = self.generation, generation, now_ns
        for name in [name for name in self._told if generation_of(name) < left]:
            self._runs -= len(self._told.pop(name).members)
            if (known := self._groups.pop(name, None)) is not None:
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

    def place(self, name: str, rank: int) -> int | None:
        """The rank of a rank of the job in a group; None: it is none of its members, as far as is known."""
        told = self._told.get(name)
        return None if told is None else place_of(told.members, rank)

    def at_ns(self, node: str, now_ns: int) -> int:
        """A time of the timeline by a node's reference time, as it was told with the node's ranks."""
        told = next((rank for rank in self.ranks.values() if rank.node == node), None)
        return now_ns if told is None else told.at_ns + now_ns - told.told_ns

    def record(self, number: int) -> RankRecord:
        """What a rank says, for the analysis of a hang."""
        rank = self.ranks[number]
        names = {*rank.progress, *(each.group for each in (*rank.ended, *rank.open))}
        groups = {name: self.group(name) for name in names}
        operations = sorted((*rank.ended, *rank.open), key=lambda each: each.order)
        return RankRecord(number, groups, dict(rank.progress), tuple(operations), is_in_order=False)


class TrainingJobs:
    """All jobs whose ranks speak."""

    def __init__(self) -> None:
        self._jobs: dict[str, TrainingJob] = {}
        self._of_node: Counter[str] = Counter()
        """How many ranks of all jobs are each node's."""
        self._expired_ns = 0

    def names(self) -> set[str]:
        """The names of the jobs."""
        return {*self._jobs}

    def get(self, name: str) -> TrainingJob | None:
        """The job of a name; None: none of its ranks speaks."""
        return self._jobs.get(name)

    def take(self, batch: CollectiveBatch, now_ns: int, paused: AbstractSet[int] = frozenset()) -> Collectives | None:
        """Takes what a node tells. None: there are too many jobs, or it is of another size than was told.

        Of two that claim one rank, the one of the higher generation has it. Of two nodes, it is then the one that speaks
        of a process that lives.

        Parameters:
            paused: the ranks that do no steps now, as their groups failed or form.
        """
        job = self._job(batch)
        if job is None:
            return None
        claimed = [(place, state, self._rank(job, batch, state, now_ns)) for place, state in enumerate(batch.ranks)]
        told = [(place, state, rank) for place, state, rank in claimed if rank is not None]
        for group in batch.members:
            # What a group consists of, its members say.
            if any(place_of(group.members, state.rank) is not None for _, state, _ in told):
                job.learn(group)
        rows, progress = batch.rows(), batch.progress()
        of_rows, of_progress = (_generations(batch, each) for each in (rows, progress))
        ended: list[Ended] = []
        for place, state, rank in told:
            if state.generation > rank.state.generation:
                rank.renew()
                job.starts += 1
            job.rise(state.generation, now_ns)
            rank.is_paused = state.rank in paused
            rank.state, rank.told_ns, rank.at_ns = state, now_ns, batch.at_ns
            rank.looks += 1
            rank.stopped_looks += state.process == "stopped"
            rank.is_heard = batch.at_ns - state.heard_ns <= _FRESH_NS
            own = rows[(rows["rank"] == place) & (of_rows >= state.generation)]
            own = own[np.argsort(own["order"], kind="stable")]
            known = _progress(batch, progress[(progress["rank"] == place) & (of_progress >= state.generation)])
            rank.take(known, _operations(job, state.rank, batch, own), now_ns)
            ended += _ended(rank, batch, own)
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
        if job is not None and _is_anew(job, batch) and job.is_over():
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
        if rank is not None and state.generation < rank.state.generation:
            return None  # it was replaced
        if rank is not None and rank.is_process(batch.node, state.since_ns):
            return rank
        is_later = rank is not None and state.generation > rank.state.generation
        if rank is not None and rank.node != batch.node and not is_later and rank.is_fresh(now_ns) and not rank.is_over:
            return None
        if rank is not None:
            self._of_node[rank.node] -= 1
        elif self._of_node[batch.node] >= _MOST_RANKS_OF_A_NODE:
            return None
        self._of_node[batch.node] += 1
        job.starts += 1
        made = job.ranks[state.rank] = Rank(batch.node, state, now_ns)
        return made


def generation_of(group: str) -> int:
    """The generation of ranks that a group is of, which stands behind an ``@`` in its name; 0: nothing stands there."""
    number = group.rpartition("@")[2]
    return int(number) if "@" in group and number.isdecimal() and len(number) <= _LONGEST_GENERATION else 0


def _generations(batch: CollectiveBatch, rows: NDArray[np.void]) -> NDArray[np.int64]:
    """The generation of the group of each row."""
    of_groups: NDArray[np.int64] = np.array([generation_of(name) for name in batch.groups], np.int64)
    return of_groups.take(rows["group"])


def _is_anew(job: TrainingJob, batch: CollectiveBatch) -> bool:
    """Whether a node speaks of another run of a job.

    It has more or fewer ranks, or processes of an earlier generation that began to speak later.
    """
    if job.size != batch.size:
        return True
    known = [(state, job.ranks[state.rank].state) for state in batch.ranks if state.rank in job.ranks]
    return any(
        now.process == "running" and now.generation < before.generation and now.since_ns > before.since_ns + _SAME_NS
        for now, before in known
    )


def _is_further(progress: dict[str, Progress], before: dict[str, Progress]) -> bool:
    none = Progress(0, 0)
    return any(each.begun > before.get(name, none).begun or each.done > before.get(name, none).done
               for name, each in progress.items())  # fmt: skip


def _progress(batch: CollectiveBatch, rows: NDArray[np.void]) -> dict[str, Progress]:
    columns = (rows["group"].tolist(), rows["begun"].tolist(), rows["done"].tolist())
    return {batch.groups[group]: Progress(begun, done) for group, begun, done in zip(*columns, strict=True)}


def _operations(job: TrainingJob, rank: int, batch: CollectiveBatch, rows: NDArray[np.void]) -> list[Operation]:
    """The operations of a rank in a batch, as the analysis of hangs has them."""
    made = []
    for row in rows.tolist():
        _, group, operation, type_, number, order, peer, _, ended_ns, into, out, _ = row
        name, kind = batch.operations[operation], batch.types[type_]
        ends = _ends(job, batch.groups[group], rank, peer, name)
        if ends is None:
            continue
        made.append(Operation(
            order, batch.groups[group], number, name, *ends, (((into,),), ((out,),)), ((kind,), (kind,)), ended_ns != 0
        ))  # fmt: skip
    return made


def _ended(rank: Rank, batch: CollectiveBatch, rows: NDArray[np.void]) -> Iterator[Ended]:
    """The collectives of a rank in a batch that have ended."""
    for order, began_ns, ended_ns in zip(
        rows["order"].tolist(), rows["began_ns"].tolist(), rows["ended_ns"].tolist(), strict=True
    ):
        rank.time.take(order, began_ns, ended_ns)
    rank.time.advance()
    for row in rows[(rows["ended_ns"] != 0) & (rows["peer"] < 0)].tolist():
        _, group, _, _, number, order, _, began_ns, ended_ns, *_ = row
        yield Ended(rank.state.rank, batch.groups[group], number, began_ns, ended_ns, rank.time.at(order))


def _ends(job: TrainingJob, group: str, rank: int, peer: int, operation: str) -> tuple[int | None, int | None] | None:
    """Sender and receiver of a transfer, by their ranks in the group; of a collective, nobody.

    None: it is a transfer in a group whose members are not known.
    """
    if peer < 0:
        return None, None
    own = job.place(group, rank)
    if own is None:
        return None
    return (own, peer) if operation == "send" else (peer, own)
