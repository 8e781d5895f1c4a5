"""The workers of jobs whose ranks can be replaced, as nodes last told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_schemas.collective import ProcessState  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.job import FOUND
from foliot_schemas.worker import Stage  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_schemas import WorkerBatch, WorkerState

_FORGOTTEN_NS = 60_000_000_000
"""What a node told holds for so long."""
_MOST_NODES = 1 << 14
"""Nodes of all jobs together: each may have workers of several."""
_MOST_WORKERS = 1 << 18
"""Workers of all of these: as many as the largest job may have ranks."""
_MOST_SHOWN = 1_024
"""Workers in one answer."""


class _Told(NamedTuple):
    """What a node told of a job last."""

    workers: tuple[WorkerState, ...]
    here_ns: int


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """The process that has a rank, as its node last told of it."""

    rank: int
    """Its rank in the job."""
    node: str
    """The node on which it runs."""
    stage: Stage
    """What it does: `forming`, `copying`, `training`, `broken`, `over` or `failed`."""
    generation: int
    """The number of its process group, which rises as ranks are replaced."""
    step: int
    """The steps that it has done."""
    alive: ProcessState
    """What the node knows of the process itself: `running`, `stopped`, `ended` or `gone`."""
    since_ns: int
    """When it came into its stage, reference time."""
    reason: str
    """Why it has failed, or waits; empty: it does neither."""


class JobWorkers:
    """All workers. Times are of one clock, whichever."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, _Told]] = {}
        """By job and node."""
        self._nodes = self._count = 0
        """Nodes of all jobs together, and workers on these."""

    def fold(self, batch: WorkerBatch, now_ns: int) -> None:
        """Takes what a node tells of a job; what is too much is left out.

        Raises:
            ValueError: it contradicts itself, or has the name of a job that nobody has named.
        """
        batch.check()
        if batch.job.startswith(FOUND):
            raise ValueError(f"a job's name does not begin with {FOUND}")
        self._forget(batch.job, batch.node)
        if not self._has_room_for(batch):
            self.expire(now_ns)
        if batch.workers and self._has_room_for(batch):
            self._told.setdefault(batch.job, {})[batch.node] = _Told(batch.workers, now_ns)
            self._nodes += 1
            self._count += len(batch.workers)

    def names(self) -> Iterable[str]:
        """The jobs of which any worker or spare is told."""
        return self._told.keys()

    def nodes(self, job: str) -> Iterable[str]:
        """The nodes that tell of workers or spares of a job."""
        return self._told.get(job, {}).keys()

    def of(self, job: str) -> tuple[WorkerView, ...]:
        """The workers of a job by rank: each rank's of the highest generation.

        Of a job that has more than are shown, those that do no steps come before others.
        """
        held: dict[int, tuple[str, WorkerState]] = {}
        for node, state in self._states(job):
            known = held.get(state.rank)
            if state.rank >= 0 and state.stage != "spare" and (known is None or _claim(state) > _claim(known[1])):
                held[state.rank] = node, state
        shown = sorted(held.values(), key=lambda each: (_does_steps(each[1]), each[1].rank))[:_MOST_SHOWN]
        return tuple(
            WorkerView(
                rank=state.rank, node=node, stage=state.stage, generation=state.generation, step=state.step,
                alive=state.alive, since_ns=state.since_ns, reason=state.reason,
            )
            for node, state in sorted(shown, key=lambda each: each[1].rank)
        )  # fmt: skip

    def spares(self, job: str) -> int:
        """How many spares of a job wait to be given a rank."""
        return sum(state.stage == "spare" and state.alive == "running" for _, state in self._states(job))

    def expire(self, now_ns: int) -> None:
        """Forgets what was told too long ago."""
        old = [
            (job, node)
            for job, nodes in self._told.items()
            for node, told in nodes.items()
            if abs(now_ns - told.here_ns) > _FORGOTTEN_NS
        ]
        for job, node in old:
            self._forget(job, node)

    def _has_room_for(self, batch: WorkerBatch) -> bool:
        return self._nodes < _MOST_NODES and self._count + len(batch.workers) <= _MOST_WORKERS

    def _states(self, job: str) -> Iterator[tuple[str, WorkerState]]:
        for node, told in self._told.get(job, {}).items():
            for state in told.workers:
                yield node, state

    def _forget(self, job: str, node: str) -> None:
        known = self._told.get(job, {})
        if (told := known.pop(node, None)) is not None:
            self._nodes -= 1
            self._count -= len(told.workers)
            if not known:
                del self._told[job]


def _claim(state: WorkerState) -> tuple[int, bool, int]:
    """Of two that claim one rank, the greater has it."""
    return state.generation, state.alive in {"running", "stopped"}, state.heard_ns


def _does_steps(state: WorkerState) -> bool:
    return state.stage == "training" and state.alive == "running"
