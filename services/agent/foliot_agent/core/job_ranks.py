"""The ranks of jobs on this node: what each has said, and the batches that tell it to the fleet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas import CollectiveBatch, CollectiveGroup, CollectiveRow, ProgressRow, RankState
from foliot_schemas.collective import MOST_GROUPS, MOST_RANKS_OF_A_NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_agent.core.rank_report import RankReport, Row
    from foliot_schemas.collective import ProcessState

_MOST_DONE = 2_048
"""Collectives that are done and not told yet, of a rank; older ones are dropped."""
_MOST_OPEN = 256
"""Collectives that are not done, of a rank: the oldest of them."""
_MOST_ROWS = 4_096
"""Rows of a batch, beyond which further ranks come in another: some 300 KB. NATS takes a megabyte by default. And those
that are done, of all ranks, in one telling: others come with the next."""
_MOST_WORDS = 256
_MOST_RUNS = 4_096
"""Runs of members of a rank's groups, all together, and of those in a batch."""
_KEPT_NS = 60_000_000_000
"""How long a rank is told whose process is over."""
_GROUPS_EACH_NS = 10_000_000_000


class Rank:
    """One process of a job.

    Parameters:
        epoch_ns: reference time minus CLOCK_MONOTONIC_RAW.
    """

    def __init__(self, report: RankReport, epoch_ns: int) -> None:
        self.job = report.job
        self.rank = report.rank
        self.size = report.size
        self.began_ns = report.began_ns
        self.generation = report.generation
        self.process: ProcessState = "running"
        self.is_displaced = False
        """Whether another process has its rank now, by a higher generation."""
        self.since_ns = report.began_ns + epoch_ns
        self.heard_ns = 0
        self.over_ns = 0
        """When its process was over, reference time; 0: it is not."""
        self.data_ns = self.cpu_delay_ns = self.dropped = 0
        self.groups: dict[str, CollectiveGroup] = {}
        self.untold: dict[str, None] = {}
        """Groups of which nothing was said yet."""
        self.progress: dict[str, tuple[int, int]] = {}
        self.open: tuple[Row, ...] = ()
        self.done: deque[Row] = deque(maxlen=_MOST_DONE)
        self.epoch_ns = epoch_ns
        self._lost = self._runs = 0

    def take(self, report: RankReport, epoch_ns: int, at_ns: int) -> None:
        """Takes a report of this process."""
        self.epoch_ns, self.heard_ns = epoch_ns, at_ns
        self.data_ns, self.cpu_delay_ns = report.data_ns, report.cpu_delay_ns
        if report.generation != self.generation:
            self._begin_anew(report.generation)
        for group in report.groups:
            self._learn(CollectiveGroup(name=group.name, description=group.description, members=group.members))
        self.progress = {each.group: (each.begun, each.done) for each in report.progress}
        if report.open is not None:
            self.open = report.open[:_MOST_OPEN]
        self._lost += max(0, len(self.done) + len(report.done) - _MOST_DONE)
        self.done.extend(report.done)
        self.dropped = report.dropped + self._lost
        if report.over:
            self.ended(at_ns, "ended")

    def _begin_anew(self, generation: int) -> None:
        """Forgets the groups of another generation, with what was not done in them: they are no more."""
        self.generation = generation
        self.groups, self.untold, self._runs = {}, {}, 0
        self.open = ()

    def _learn(self, group: CollectiveGroup) -> None:
        """Takes what a group consists of, as far as there is room."""
        before = self.groups.get(group.name)
        runs = self._runs + len(group.members) - (0 if before is None else len(before.members))
        if runs <= _MOST_RUNS and (before is not None or len(self.groups) < MOST_GROUPS):
            self.groups[group.name], self._runs = group, runs
            self.untold[group.name] = None

    def runs(self, *, is_stopped: bool) -> None:
        """Takes what was seen of the process, which is there."""
        if not self.over_ns:
            self.process = "stopped" if is_stopped else "running"

    def ended(self, at_ns: int, how: ProcessState = "gone") -> None:
        """Takes the end of the process."""
        if not self.over_ns:
            self.process, self.over_ns = how, at_ns

    def state(self) -> RankState:
        """The process, as the fleet is told."""
        return RankState(
            rank=self.rank, process=self.process, since_ns=self.since_ns, heard_ns=self.heard_ns,
            data_ns=self.data_ns, cpu_delay_ns=self.cpu_delay_ns, dropped=self.dropped, generation=self.generation,
        )  # fmt: skip


class JobRanks:
    """All ranks on the node.

    Parameters:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._ranks: dict[tuple[str, int], Rank] = {}
        self._tell_groups_ns = 0

    def take(self, report: RankReport, epoch_ns: int, at_ns: int) -> Rank:
        """Takes a report; says whose it is. Of two that claim one rank, the one of the higher generation has it.

        Raises:
            ValueError: another process is that rank, and lives; or there are too many.
        """
        key = report.job, report.rank
        rank = self._ranks.get(key)
        if rank is not None and rank.began_ns != report.began_ns and not rank.over_ns:
            if report.generation <= rank.generation:
                raise ValueError(f"rank {report.rank} of {report.job} is another process")
            rank.is_displaced = True
        if rank is None or rank.began_ns != report.began_ns:
            if rank is None and len(self._ranks) >= MOST_RANKS_OF_A_NODE:
                raise ValueError(f"there are {MOST_RANKS_OF_A_NODE} ranks already")
            rank = self._ranks[key] = Rank(report, epoch_ns)
        elif rank.size != report.size:
            raise ValueError(f"{report.job} has {rank.size} ranks, and not {report.size}")
        rank.take(report, epoch_ns, at_ns)
        return rank

    def batches(self, at_ns: int, bound_ns: int) -> Iterator[CollectiveBatch]:
        """What there is to tell now, of each job. What is done is told once."""
        self._ranks = {
            key: rank for key, rank in self._ranks.items() if not rank.over_ns or at_ns - rank.over_ns < _KEPT_NS
        }
        if at_ns >= self._tell_groups_ns or at_ns < self._tell_groups_ns - _GROUPS_EACH_NS:
            self._tell_groups_ns = at_ns + _GROUPS_EACH_NS
            for rank in self._ranks.values():
                rank.untold |= dict.fromkeys(rank.groups)
        left = _MOST_ROWS
        for part in self._parts():
            done: list[list[Row]] = []
            for rank in part:
                done.append([rank.done.popleft() for _ in range(min(len(rank.done), left))])
                left -= len(done[-1])
            yield _batch(part, done, self._node, at_ns, bound_ns)
        # Another one goes first next time.
        for key in list(self._ranks)[:1]:
            self._ranks[key] = self._ranks.pop(key)

    def _parts(self) -> Iterator[list[Rank]]:
        """Ranks of a job that go into one batch."""
        by_job: dict[tuple[str, int], list[Rank]] = {}
        for rank in self._ranks.values():
            by_job.setdefault((rank.job, rank.size), []).append(rank)
        for ranks in by_job.values():
            part: list[Rank] = []
            rows = 0
            for rank in ranks:
                own = len(rank.open) + len(rank.done)
                if part and rows + own > _MOST_ROWS:
                    yield part
                    part, rows = [], 0
                part.append(rank)
                rows += own
            yield part


class _Words:
    """Words by number. Beyond the most that a batch has, the last stands for all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The number of a word."""
        if word not in self._numbers and len(self._numbers) >= self._most:
            return self._most - 1
        return self._numbers.setdefault(word, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """The words, by their numbers."""
        return tuple(self._numbers)


def _batch(ranks: list[Rank], done: list[list[Row]], node: str, at_ns: int, bound_ns: int) -> CollectiveBatch:
    groups, operations, types = _Words(MOST_GROUPS), _Words(_MOST_WORDS), _Words(_MOST_WORDS)
    rows, progress = [], []
    for place, rank in enumerate(ranks):
        for row in (*done[place], *rank.open):
            began_ns = row.began_ns + rank.epoch_ns
            rows.append(
                (
                    place, groups.number(row.group), operations.number(row.operation), types.number(row.type),
                    row.number, row.order, row.peer, began_ns, row.ended_ns and row.ended_ns + rank.epoch_ns,
                    row.elements_in, row.elements_out, row.bytes,
                )
            )  # fmt: skip
        progress += [(place, groups.number(name), *each) for name, each in rank.progress.items()]
    return CollectiveBatch.of(
        np.array(rows, CollectiveRow), np.array(progress, ProgressRow), job=ranks[0].job, node=node, at_ns=at_ns,
        bound_ns=bound_ns, size=ranks[0].size, ranks=tuple(rank.state() for rank in ranks), groups=groups.all(),
        members=tuple(_untold(ranks)), operations=operations.all(), types=types.all(),
    )  # fmt: skip


def _untold(ranks: list[Rank]) -> Iterator[CollectiveGroup]:
    """The groups of which something is to be told now, each once. What does not fit is told next time."""
    left, told = _MOST_RUNS + MOST_GROUPS, set[str]()
    for rank in ranks:
        for name in list(rank.untold):
            group = rank.groups[name]
            if name not in told:
                if (left := left - len(group.members) - 1) < 0 or len(told) >= MOST_GROUPS:
                    return
                told.add(name)
                yield group
            del rank.untold[name]
