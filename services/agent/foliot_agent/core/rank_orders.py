"""Orders to give ranks of a job to spares: what they ask of each worker, which are kept, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_schemas import ReplaceRank  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.bounds import Count, Text, Word  # noqa: TC001 - as above
from foliot_schemas.worker import NO_RANK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foliot_agent.core.job_workers import Worker

_KEPT_NS = 60_000_000_000
"""How long an order is given to workers that connect. One waits for 20 s, and then gives up."""
_MOST_KEPT = 32
"""Jobs whose orders are kept: more than run on one node."""
_STEPS = (
    ("leave group", "left_ns"), ("form group", "formed_ns"), ("copy state", "copied_ns"), ("first step", "first_step_ns"),
)  # fmt: skip


class KeptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The newest order of a job."""

    order: ReplaceRank
    at_ns: Count
    """When it came, by CLOCK_MONOTONIC_RAW."""
    trace: dict[Word, Text] = {}
    """The span below which its course belongs, as message headers say it."""


def part_of(order: ReplaceRank, node: str, worker: Worker) -> int | None:
    """The rank that an order gives to a worker of this node; -1: it loses its own; None: it is not concerned."""
    for change in order.changes:
        if (change.node, change.process) == (node, worker.process):
            return NO_RANK
        if (change.to_node, change.to_process) == (node, worker.process):
            return change.rank
    return None if worker.rank == NO_RANK else worker.rank


def packet(order: ReplaceRank, rank: int, size: int) -> bytes:
    """The order as it is passed on to one process.

    Parameters:
        rank: what it has in the new group; -1: it has lost its rank.
    """
    return msgspec.json.encode(
        {
            "kind": "replace", "generation": order.generation, "rank": rank, "size": size, "meet": order.meet,
            "at_step": order.at_step, "cause": order.cause,
        }
    )  # fmt: skip


def object_to(order: ReplaceRank, node: str, living: list[Worker], find: Callable[[int], Worker | None]) -> str:
    """The objection of a node to an order that it has not had before; empty: none.

    An order may state a change again that an earlier one made, as another rank was lost before its group had formed.

    Parameters:
        living: the job's workers here whose process is there.
        find: the job's worker of this number, which may have ended; None: it is not known.
    """
    for worker in living:
        if worker.generation >= order.generation:
            return f"{worker.name} of {order.job} is of generation {worker.generation}, the order of {order.generation}"
        if any(change.rank >= worker.report.size for change in order.changes):
            return f"a rank of the order is not below {worker.report.size}, the size of {order.job}"
    for change in order.changes:
        loser = find(change.process) if change.node == node else None
        if loser is not None and not loser.over_ns and loser.rank not in {change.rank, NO_RANK}:
            return f"process {change.process} of {order.job} has rank {loser.rank}, and not {change.rank}"
        taker = find(change.to_process) if change.to_node == node else None
        if taker is not None and (objection := _object_to_taker(taker, change.rank)):
            return f"process {change.to_process} of {order.job} cannot take rank {change.rank}: it {objection}"
    return ""


def _object_to_taker(taker: Worker, rank: int) -> str:
    if taker.over_ns:
        return "has ended"
    if taker.report.stage in {"over", "failed"}:
        return "does no more work"
    return f"has rank {taker.rank}" if taker.rank not in {rank, NO_RANK} else ""


class RankOrders:
    """The newest order of each job, kept for a while. All times are of CLOCK_MONOTONIC_RAW.

    Parameters:
        kept: what another run of the agent has kept.
    """

    def __init__(self, kept: tuple[KeptOrder, ...] = ()) -> None:
        self._kept = {each.order.job: each for each in kept}

    def keep(self, order: KeptOrder) -> tuple[KeptOrder, ...]:
        """Keeps an order in the place of the job's former one; says which are kept now."""
        self._kept.pop(order.order.job, None)
        self._kept = {job: each for job, each in self._kept.items() if _is_recent(each, order.at_ns)}
        self._kept[order.order.job] = order
        for job in list(self._kept)[:-_MOST_KEPT]:
            del self._kept[job]
        return tuple(self._kept.values())

    def newest(self, job: str, now_ns: int) -> KeptOrder | None:
        """The newest order of a job; None: it has none, or it is long ago."""
        kept = self._kept.get(job)
        return kept if kept is not None and _is_recent(kept, now_ns) else None

    def object_to(self, order: ReplaceRank, living: list[Worker], now_ns: int) -> str:
        """The objection to an order that comes after a newer one; empty: none."""
        kept = self.newest(order.job, now_ns)
        if kept is None or order.generation > kept.order.generation or any(_is_later(each, kept) for each in living):
            return ""
        return f"{order.job} was ordered to form generation {kept.order.generation} before"

    def missed(self, worker: Worker, now_ns: int) -> KeptOrder | None:
        """The order that a worker has not had; None: there is none.

        One that began later belongs to a job that was started anew under its name.
        """
        kept = self.newest(worker.job, now_ns)
        if kept is None or worker.generation >= kept.order.generation or _is_later(worker, kept):
            return None
        return kept


def _is_later(worker: Worker, kept: KeptOrder) -> bool:
    """Whether a worker began after an order had come."""
    return worker.process > kept.at_ns


def _is_recent(kept: KeptOrder, now_ns: int) -> bool:
    return 0 <= now_ns - kept.at_ns < _KEPT_NS


class Course:
    """What one worker does upon an order: each part of it becomes a span once it is done.

    Parameters:
        kept: the order that was passed on.
        told_ns: when it was, CLOCK_MONOTONIC_RAW.
        epoch_ns: reference time minus that clock, then.
    """

    def __init__(self, kept: KeptOrder, told_ns: int, epoch_ns: int) -> None:
        self.kept = kept
        self.is_over = False
        self._told_ns = told_ns
        self._since_ns = told_ns + epoch_ns
        self._next = 0

    def take(self, worker: Worker, now_ns: int) -> Iterator[tuple[str, int, int]]:
        """The parts that are done since the last look: name, begin and end, reference time.

        A time that lies before the order belongs to another one, and one that is to come is not believed.
        """
        generation = self.kept.order.generation
        self.is_over |= worker.report.generation > generation
        if worker.report.generation != generation:
            return
        for place in range(self._next, len(_STEPS)):
            name, field = _STEPS[place]
            if not self._told_ns <= getattr(worker.report, field) <= now_ns:
                continue
            self._next = place + 1
            began_ns, self._since_ns = self._since_ns, max(worker.dated_ns(field), self._since_ns)
            yield name, began_ns, self._since_ns
        self.is_over |= self._next == len(_STEPS)
