"""The verb `replace-rank`: ranks of a training job are given to spares, as its processes on this node are told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from foliot import tracing
from foliot_agent.control.action_handlers import Confirmed, Result
from foliot_agent.core.rank_orders import Course, KeptOrder, RankOrders, object_to, packet, part_of
from foliot_schemas import ReplaceRank
from foliot_schemas.worker import NO_RANK

if TYPE_CHECKING:
    from foliot.clock import Clock
    from foliot_agent.control.restart_cache import RestartCache
    from foliot_agent.core.job_workers import Worker
    from foliot_agent.ranks.rank_socket import RankSocket
    from foliot_schemas import Command, OutcomeStatus

log = structlog.get_logger()

_CONNECTS_S = 3.0
"""How long an order waits for processes that are not connected: they connect anew within two seconds."""
_ANSWERS_S = 5.0
"""How long a worker has to leave its group at once: it shuts its sockets, and says so by its next packet."""
_LEAVES_S = 60.0
"""How long it has where it first does steps: the order names one that is a second or so ahead, or the next."""
_NAMED = 8
"""Processes that a reason names."""


class RankHandler:
    """See `ActionHandler`.

    Parameters:
        node: the node's name.
        ranks: the socket by which processes are told.
        restart_cache: keeps orders for processes that connect to the next run of the agent.
    """

    verbs = ("replace-rank",)

    def __init__(self, node: str, ranks: RankSocket, clock: Clock, restart_cache: RestartCache) -> None:
        self._node = node
        self._ranks = ranks
        self._clock = clock
        self._restart_cache = restart_cache
        self._orders = RankOrders(restart_cache.recall().rank_orders)
        self._courses: dict[Worker, Course] = {}
        ranks.heard = self._heard

    def check(self, order: ReplaceRank, command: Command) -> str:  # noqa: ARG002 - the protocol's
        """Checks that the job is here, and that the order fits what is known of its processes."""
        if self._is_known(order):
            return ""
        living = self._ranks.workers(order.job)
        if not living and not self._is_named(order) and self._ranks.is_settled:
            return f"no process of {order.job} runs here"
        return self._orders.object_to(order, living, _raw_ns()) or object_to(
            order, self._node, living, lambda process: self._ranks.worker(order.job, process)
        )

    async def apply(self, order: ReplaceRank) -> Result:
        """Tells every worker of the job that is not told yet, and waits a while for those that are not connected."""
        was_known, before = self._is_known(order), self._told(order)
        if not was_known:
            trace: dict[str, str] = {}
            tracing.inject(trace)
            self._restart_cache.keep_rank_orders(
                self._orders.keep(KeptOrder(order=order, at_ns=_raw_ns(), trace=trace))
            )
        for worker in self._ranks.workers(order.job):
            self._pass_on(worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONNECTS_S):
                while self._untold(order) or not self._ranks.is_settled:
                    await self._ranks.news()
        told = self._told(order)
        reasons = [*self._untold(order), *self._ended(order)]
        if not told and not reasons and not self._is_named(order):
            reasons = [f"no process of {order.job} runs here"]
        is_as_before = was_known and told == before
        status: OutcomeStatus = "failed" if reasons else "already" if is_as_before else "done"
        return Result(
            status=status, done=order, reason=_in_words(reasons), changed_ns=0 if is_as_before else self._clock.now_ns()
        )

    async def confirm(self, result: Result, fault: str) -> Confirmed:  # noqa: ARG002 - the protocol's
        """Waits until each that was told to be in the new group says that it is, or has left or ended.

        One that has lost its rank need not answer: it may be stopped, or hang.
        """
        order = result.done
        assert isinstance(order, ReplaceRank)
        asked = [worker for worker in self._told(order) if worker.rank != NO_RANK]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVES_S if order.at_step else _ANSWERS_S):
                while not all(_has_followed(worker, order) for worker in asked):
                    await self._ranks.news()
        missing = [f"{worker.name} does not answer" for worker in asked if not _has_followed(worker, order)]
        return Confirmed(
            expected=len(asked), reason=_in_words(missing), at_ns=0 if missing else self._clock.now_ns()
        )  # fmt: skip

    def _is_known(self, order: ReplaceRank) -> bool:
        kept = self._orders.newest(order.job, _raw_ns())
        return kept is not None and kept.order == order

    def _is_named(self, order: ReplaceRank) -> bool:
        return any(self._node in {change.node, change.to_node} for change in order.changes)

    def _told(self, order: ReplaceRank) -> list[Worker]:
        """The living workers that are told, or are of the order's generation already."""
        return [each for each in self._ranks.workers(order.job) if each.generation == order.generation]

    def _untold(self, order: ReplaceRank) -> list[str]:
        """The processes, in words, that are to be told and are not yet."""
        said = [
            f"{worker.name} {worker.untold or 'is not connected'}"
            for worker in self._ranks.workers(order.job)
            if worker.generation < order.generation and part_of(order, self._node, worker) is not None
        ]
        return said + [
            f"process {change.to_process}, which is to take rank {change.rank}, is not connected"
            for change in order.changes
            if change.to_node == self._node and self._ranks.worker(order.job, change.to_process) is None
        ]

    def _ended(self, order: ReplaceRank) -> list[str]:
        """The processes, in words, that were to take a rank and have ended."""
        takers = [
            (change.rank, self._ranks.worker(order.job, change.to_process))
            for change in order.changes
            if change.to_node == self._node
        ]
        return [
            f"process {taker.process}, which is to take rank {rank}, has ended"
            for rank, taker in takers
            if taker is not None and taker.over_ns
        ]

    # -- a worker has spoken ------------------------------------------------------------------------------------------

    def _heard(self, worker: Worker) -> None:
        """Tells a worker what it has missed, and makes spans of what it has done."""
        self._pass_on(worker)
        if (course := self._courses.get(worker)) is None:
            return
        try:
            self._trace(worker, course)
        except Exception:  # a trace is no reason to hear a worker no more
            log.exception("course_not_traced", job=worker.job, process=worker.process)
            course.is_over = True
        if course.is_over:
            del self._courses[worker]

    def _pass_on(self, worker: Worker) -> None:
        """Tells a worker the job's newest order, if it has not had it and has a part in it."""
        now_ns = _raw_ns()
        if (kept := self._orders.missed(worker, now_ns)) is None:
            return
        if (rank := part_of(kept.order, self._node, worker)) is None:
            return
        worker.untold = self._ranks.send(worker, packet(kept.order, rank, worker.report.size))
        if worker.untold:
            return
        worker.told = kept.order.generation, rank
        log.info("worker_told", job=worker.job, process=worker.process, rank=rank, generation=kept.order.generation)
        self._courses = {each: course for each, course in self._courses.items() if not each.over_ns}
        if rank != NO_RANK:
            self._courses[worker] = Course(kept, now_ns, worker.epoch_ns)

    def _trace(self, worker: Worker, course: Course) -> None:
        said = worker.report
        with tracing.received(course.kept.trace):
            for name, began_ns, ended_ns in course.take(worker, _raw_ns()):
                tracing.past(
                    name, began_ns, ended_ns, job=worker.job, rank=said.rank, generation=said.generation,
                    process=worker.process, state_bytes=said.state_bytes, lost_steps=said.lost_steps,
                )  # fmt: skip


def _has_followed(worker: Worker, order: ReplaceRank) -> bool:
    """Whether it is in the new group or on the way there, or is no worker any more."""
    said = worker.report
    return worker.over_ns > 0 or said.generation >= order.generation or said.stage in {"over", "failed"}


def _in_words(reasons: list[str]) -> str:
    more = f", and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
    return ", ".join(reasons[:_NAMED]) + more


def _raw_ns() -> int:
    """The clock by which processes name themselves and say their times."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
