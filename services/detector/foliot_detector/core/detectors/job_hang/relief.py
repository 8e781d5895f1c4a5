"""How what was said of a hang ends: the job goes on, or another process has the place of the rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_detector.core.detectors.job_hang.finding import S, rank_of

if TYPE_CHECKING:
    from foliot_detector.core.state.training_jobs import Rank, TrainingJob
    from foliot_detector.core.state.workers import Worker, WorkerJob
    from foliot_schemas import Event

_REPLACING_NS = 60 * S
"""Once others are of a higher generation, a rank's new process is waited for so long."""


class Open(NamedTuple):
    """An event whose end is to come."""

    event: Event
    here_ns: int
    """When it was said, on the timeline; 0: by an earlier run of the detector."""
    process: int
    """The worker that it is about, by its number on its node; 0: not known."""
    began_ns: int
    """When the rank that it is about had begun to speak of its collectives, by its node; 0: not known."""
    is_known: bool = True
    """Whether anybody had spoken of the rank."""

    @property
    def node(self) -> str:
        """The node of whom it is about."""
        return next(iter(self.event.related.get("nodes", ())), "")


class Course(NamedTuple):
    """What is known of how a job goes on."""

    ranks: TrainingJob | None
    """By its collectives; None: nothing is told of these."""
    workers: WorkerJob | None
    """By its workers; None: its ranks cannot be replaced."""

    def has_moved(self, since_ns: int) -> bool:
        """Whether a rank was seen to go on since a time of the timeline.

        Where there are workers, steps tell it: a collective that failed is done, too.
        """
        if self.workers is not None and (held := self.workers.ranks()):
            return any(worker.advanced_ns > since_ns for worker in held.values())
        known = () if self.ranks is None else self.ranks.ranks.values()
        return any(rank.has_gone_on(since_ns) for rank in known)

    def relief(self, each: Open, now_ns: int) -> str:
        """The state in which an event ends, if a rank goes on; empty: it does not end yet."""
        number = rank_of(each.event.who)
        rank = None if self.ranks is None or number is None else self.ranks.ranks.get(number)
        worker = None if self.workers is None or number is None else self.workers.holder(number)
        if worker is not None and each.process:
            if (worker.node, worker.state.process) != (each.node, each.process):
                return "replaced" if worker.advanced_ns > each.here_ns else ""
        elif rank is not None and not _is_its(rank, each):
            return "replaced" if rank.has_gone_on(each.here_ns) else ""
        return "" if self._is_missed(rank, worker, now_ns) else "moving"

    def _is_missed(self, rank: Rank | None, worker: Worker | None, now_ns: int) -> bool:
        """Whether a job goes on without a rank's process, or could not, so that another is to come into its place."""
        if self.workers is not None and worker is not None:
            if worker.state.generation < self.workers.generation:
                return now_ns - self.workers.risen_ns < _REPLACING_NS
            return worker.is_lost
        if self.ranks is not None and rank is not None and rank.state.generation < self.ranks.generation:
            return now_ns - self.ranks.risen_ns < _REPLACING_NS
        return False


def _is_its(rank: Rank, each: Open) -> bool:
    """Whether a rank's process is still the one that an event is about, as far as is known."""
    if not each.is_known:
        return True
    if not each.began_ns:
        return rank.node == each.node and rank.state.since_ns <= each.event.at_ns
    return rank.is_process(each.node, each.began_ns)
