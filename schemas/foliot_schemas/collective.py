"""What ranks of training jobs say of their collectives. There is much of it, and it may be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from foliot_schemas.bounds import Bound, Count, LongName, Name, Span, Text, Time, Word, check_name
from foliot_schemas.columns import pack, rows_once, unpack_checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

MOST_RANKS = 1 << 18
"""Ranks of a job, at most: more than twice the GPUs of the largest published."""
MOST_RANKS_OF_A_NODE = 64
MOST_GROUPS = 1 << 10
"""Process groups of the ranks of one node."""
_MOST_RUNS = 1 << 12
_MOST_WORDS = 256

CollectiveRow = np.dtype(
    [
        ("rank", "<u2"),
        ("group", "<u2"),
        ("operation", "<u2"),
        ("type", "<u2"),
        ("number", "<i8"),
        ("order", "<i8"),
        ("peer", "<i4"),
        ("began_ns", "<i8"),
        ("ended_ns", "<i8"),
        ("elements_in", "<i8"),
        ("elements_out", "<i8"),
        ("bytes", "<i8"),
    ]
)
"""One collective of a rank, or its side of a transfer to another one. `rank`, `group`, `operation` and `type` index the
batch's ranks, groups, operations and types; `type` is that of the tensors' elements.

`number` counts the collectives of the group from 1; of a transfer, those that were begun before it. `order` counts all
that the rank began. `peer` is the other end of a transfer, by its rank in the group; -1: it is a collective. `began_ns`
is when the rank's program began it, and `ended_ns` when it was through, reference time; 0: it is not. `elements_in` and
`elements_out` count the elements of the tensors that go in and come out, and `bytes` is the size of those that go in."""

ProgressRow = np.dtype([("rank", "<u2"), ("group", "<u2"), ("begun", "<i8"), ("done", "<i8")])
"""How far a rank is in a group's collectives. `rank` and `group` index the batch's ranks and groups. `begun` is the
number of the last that it began. With all up to `done`, it is through."""

_Run = Annotated[tuple[Count, ...], msgspec.Meta(min_length=3, max_length=3)]
"""Not a tuple of three types: AsyncAPI's own parser has no schema for it."""

ProcessState = Literal["running", "stopped", "ended", "gone"]


class RankState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One rank of the job that runs on the node."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
    """Its rank in the job."""
    process: ProcessState
    """What the node knows of its process. `stopped`: a signal or a debugger stopped it. `ended`: it said that it is
    over. `gone`: it ended without a word."""
    since_ns: Time
    """When it began to speak: a rank that was started anew has another time."""
    heard_ns: Time
    """When it spoke last."""
    data_ns: Span = 0
    """How long its program has waited for its data since it began, in all."""
    cpu_delay_ns: Span = 0
    """How long its program could have run and had no processor since it began, in all, as the kernel counts it. It is
    that of the program's first thread."""
    dropped: Count = 0
    """Collectives of which nothing is told, as there were too many at a time."""
    generation: Count = 0
    """The number of its process group, which rises as ranks are replaced: of two that claim one rank, the one of the
    higher generation has it."""


class CollectiveGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process group of a job."""

    name: LongName
    """Unique within the job."""
    description: Text = ""
    """What its program calls it."""
    members: Annotated[tuple[_Run, ...], msgspec.Meta(max_length=_MOST_RUNS)]
    """Its ranks, in the order of their ranks in the group, as runs: the first rank, the step to the next, and how many
    there are. Empty: not told."""


class CollectiveBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="collective.v1"):
    """What the ranks of a job on one node did lately.

    Collectives that are not done are in every batch, those that are done in one.
    """

    job: Name
    """The job, as its ranks name it."""
    node: Name
    """The node on which they run."""
    at_ns: Time
    """When it was told, reference time as the node knows it."""
    bound_ns: Bound
    """Statistical bound of the node's clock; -1: it is not synchronised."""
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    """The number of the job's ranks."""
    ranks: Annotated[tuple[RankState, ...], msgspec.Meta(max_length=MOST_RANKS_OF_A_NODE)]
    """The ranks on this node that the columns index, from 0."""
    groups: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_GROUPS)] = ()
    """The names of the groups that the columns index, from 0."""
    members: Annotated[tuple[CollectiveGroup, ...], msgspec.Meta(max_length=MOST_GROUPS)] = ()
    """What groups consist of: told as a rank names one first, and again every ten seconds."""
    operations: Annotated[tuple[Word, ...], msgspec.Meta(max_length=_MOST_WORDS)] = ()
    """The names of operations that the column indexes, from 0: ``all_reduce``, ``send``."""
    types: Annotated[tuple[Word, ...], msgspec.Meta(max_length=_MOST_WORDS)] = ()
    """The types of elements that the column indexes, from 0: ``float32``."""
    progress_columns: Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]
    """One group of a rank a row: see x-progress."""
    columns: Annotated[dict[Word, bytes], msgspec.Meta(max_length=64)]
    """One collective a row: see x-columns."""

    @classmethod
    def of(cls, rows: NDArray[Any], progress: NDArray[Any], **header: Any) -> CollectiveBatch:
        """A batch of these rows, of dtype `CollectiveRow` and `ProgressRow`."""
        return cls(columns=pack(rows), progress_columns=pack(progress), **header)

    def rows(self) -> NDArray[Any]:
        """The collectives, of dtype `CollectiveRow`.

        Raises:
            ValueError: the columns do not fit together, or name what the batch does not have.
        """
        return rows_once(self, self._collectives)

    def progress(self) -> NDArray[Any]:
        """How far the ranks are, of dtype `ProgressRow`.

        Raises:
            ValueError: as `rows`.
        """
        return rows_once(self, self._progress, "progress_unpacked")

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`; a rank is there twice or beyond the job's size; a group has more members than that.
        """
        check_name(self.job)
        ranks = [each.rank for each in self.ranks]
        if len({*ranks}) != len(ranks) or max(ranks, default=0) >= self.size:
            raise ValueError(f"a rank of {self.job} is there twice, or is not below {self.size}")
        for group in self.members:
            if not _is_within(group.members, self.size):
                raise ValueError(f"the group {group.name[:64]} has members that are no ranks of {self.job}")
        self.rows()
        self.progress()

    def _collectives(self) -> NDArray[Any]:
        bounded = ("number", "order", "began_ns", "ended_ns", "elements_in", "elements_out", "bytes")
        rows = unpack_checked(self.columns, CollectiveRow, bounded, "rank", len(self.ranks))
        if len(rows):
            self._check_index(rows, "group", len(self.groups))
            self._check_index(rows, "operation", len(self.operations))
            self._check_index(rows, "type", len(self.types))
            if min(int(rows[name].min()) for name in ("number", "order", "elements_in", "elements_out", "bytes")) < 0:
                raise ValueError("a collective has a negative count")
        return rows

    def _progress(self) -> NDArray[Any]:
        rows = unpack_checked(self.progress_columns, ProgressRow, ("begun", "done"), "rank", len(self.ranks))
        if len(rows):
            self._check_index(rows, "group", len(self.groups))
            if int(rows["done"].min()) < 0 or bool((rows["done"] > rows["begun"]).any()):
                raise ValueError("a rank is through with collectives that it has not begun")
        return rows

    def _check_index(self, rows: NDArray[Any], name: str, count: int) -> None:
        if int(rows[name].max()) >= count:
            raise ValueError(f"a row names a {name} that the batch does not have")


def runs(ranks: Iterable[int]) -> tuple[tuple[int, int, int], ...]:
    """Ranks as runs of first, step and count, in their order. Ranks of a group mostly have one step."""
    found: list[list[int]] = []
    for rank in ranks:
        if found:
            first, step, count = run = found[-1]
            if count == 1 and rank > first:
                run[1:] = [rank - first, 2]
                continue
            if count > 1 and rank == first + step * count:
                run[2] += 1
                continue
        found.append([rank, 0, 1])
    return tuple((first, step, count) for first, step, count in found)


def ranks_of(members: Iterable[Sequence[int]]) -> Iterator[int]:
    """The ranks of a group's runs, in their order."""
    for first, step, count in members:
        for place in range(count):
            yield first + step * place


def place_of(members: Iterable[Sequence[int]], rank: int) -> int | None:
    """The place of a rank among a group's runs; None: it is in none."""
    before = 0
    for first, step, count in members:
        at, rest = divmod(rank - first, step) if step else (0, rank - first)
        if not rest and 0 <= at < count:
            return before + at
        before += count
    return None


def _is_within(members: Iterable[Sequence[int]], size: int) -> bool:
    """Whether runs have no more ranks than a job has, and none that it does not have."""
    total = 0
    for first, step, count in members:
        total += count
        if total > size or (not step and count > 1) or first + step * max(count - 1, 0) >= size:
            return False
    return True
