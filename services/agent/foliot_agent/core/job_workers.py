"""The workers of replaceable jobs on this node: what each has said, and the batches that tell it to the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas import WorkerBatch, WorkerState
from foliot_schemas.worker import MOST_WORKERS_OF_A_NODE, MOST_XIDS, NO_RANK, NO_USER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_agent.core.worker_report import WorkerReport
    from foliot_schemas.collective import ProcessState

_EACH_NS = 1_000_000_000
"""How often a job is told of which nothing is new."""
_KEPT_NS = 60_000_000_000
"""How long a worker is told whose process has ended."""
_ERRORS_KEPT_NS = 3_600_000_000_000
"""How long an error of a GPU is told."""
_DATED = ("left_ns", "formed_ns", "copied_ns", "first_step_ns")


class Worker:
    """One process of a job."""

    def __init__(self, report: WorkerReport, epoch_ns: int, at_ns: int) -> None:
        self.job = report.job
        self.process = report.process
        self.report = report
        self.alive: ProcessState = "running"
        self.since_ns = self.heard_ns = at_ns
        self.over_ns = 0
        """When its process had ended, reference time; 0: it lives."""
        self.is_news = True
        """Whether the fleet was not told yet what it came to."""
        self.told: tuple[int, int] | None = None
        """Generation and rank of the last order that was passed on to it."""
        self.user = NO_USER
        """Whose process it is."""
        self.untold = ""
        """Why an order could not be passed on to it."""
        self.epoch_ns = epoch_ns
        """Reference time minus CLOCK_MONOTONIC_RAW."""
        self._dated: dict[str, tuple[int, int]] = {}
        """Its times as it told them, and the reference times that were made of them."""
        self._date(report)

    @property
    def generation(self) -> int:
        """The highest generation that it was told of, or is in."""
        return max(self.report.generation, self.told[0] if self.told is not None else 0)

    @property
    def rank(self) -> int:
        """Its rank in that generation; -1: none."""
        if self.told is not None and self.told[0] > self.report.generation:
            return self.told[1]
        return self.report.rank

    @property
    def name(self) -> str:
        """It in words."""
        return f"process {self.process}" + (f" of rank {self.report.rank}" if self.report.rank != NO_RANK else "")

    def take(self, report: WorkerReport, epoch_ns: int, at_ns: int) -> None:
        """Takes a report of this process. It lives, whatever was believed before."""
        if report.stage != self.report.stage:
            self.since_ns = at_ns
        before = self.report
        self.is_news |= self.over_ns > 0 or (report.stage, report.generation, report.rank) != (
            before.stage, before.generation, before.rank,
        )  # fmt: skip
        if self.over_ns:
            self.alive, self.over_ns = "running", 0
        self.report, self.epoch_ns, self.heard_ns = report, epoch_ns, at_ns
        self._date(report)

    def runs(self, *, is_stopped: bool) -> None:
        """Takes what was seen of the process, which is there."""
        seen: ProcessState = "stopped" if is_stopped else "running"
        self.is_news |= seen != self.alive
        self.alive = seen

    def ended(self, at_ns: int) -> None:
        """Takes the end of the process."""
        if not self.over_ns:
            self.alive, self.over_ns = "ended" if self.report.stage == "over" else "gone", at_ns
            self.is_news = True

    def state(self) -> WorkerState:
        """The process, as the fleet is told."""
        said = self.report
        return WorkerState(
            process=said.process, rank=said.rank, generation=said.generation, step=said.step, stage=said.stage,
            alive=self.alive, meet=said.meet, since_ns=self.since_ns, heard_ns=self.heard_ns,
            state_bytes=said.state_bytes, state_from=said.state_from, lost_steps=said.lost_steps, reason=said.why,
            user=self.user,
            **{name: dated_ns for name, (_, dated_ns) in self._dated.items()},
        )  # fmt: skip

    def dated_ns(self, name: str) -> int:
        """One of its times, by its name in a report, as reference time; 0: it has none."""
        return self._dated[name][1]

    def _date(self, report: WorkerReport) -> None:
        """Dates its times once: they do not wander as the node's clock is corrected."""
        for name in _DATED:
            told_ns = getattr(report, name)
            if self._dated.get(name, (-1, 0))[0] != told_ns:
                self._dated[name] = told_ns, told_ns and told_ns + self.epoch_ns


class JobWorkers:
    """All workers on the node.

    Parameters:
        node: the node's name.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._workers: dict[tuple[str, int], Worker] = {}
        self._told_ns: dict[str, int] = {}
        """When each job was told last."""
        self._errors_ns: dict[int, int] = {}
        """Kinds of GPUs' errors, and when the last of each was seen; the newest kind comes last."""

    def take(self, report: WorkerReport, epoch_ns: int, at_ns: int) -> Worker:
        """Takes a report; says whose it is.

        Raises:
            ValueError: another process has its rank in this generation, the job has another size, or there are too
                many workers.
        """
        worker = self._workers.get((report.job, report.process))
        others = [each for each in self.living(report.job) if each is not worker]
        for other in others:
            if other.report.size != report.size:
                raise ValueError(f"{report.job} has {other.report.size} ranks, and not {report.size}")
            if report.rank == other.report.rank != NO_RANK and report.generation == other.report.generation:
                raise ValueError(
                    f"rank {report.rank} of {report.job} is another process in generation {report.generation}"
                )
        if worker is None:
            self._make_room()
            worker = self._workers[report.job, report.process] = Worker(report, epoch_ns, at_ns)
        else:
            worker.take(report, epoch_ns, at_ns)
        if not others:
            self._forget_other_sizes(report)
        return worker

    def note_gpu_error(self, xid: int, at_ns: int) -> bool:
        """Takes that a GPU of the node has an error; returns whether jobs are to be told at once."""
        is_news = self._errors_ns.pop(xid, None) is None
        self._errors_ns[xid] = at_ns
        if len(self._errors_ns) > MOST_XIDS:
            del self._errors_ns[next(iter(self._errors_ns))]
        if is_news:
            self._told_ns.clear()
        return is_news and bool(self._workers)

    def find(self, job: str, process: int) -> Worker | None:
        """The worker of this name; None: it is not known."""
        return self._workers.get((job, process))

    def living(self, job: str) -> list[Worker]:
        """The workers of a job whose process is there."""
        return [each for each in self._workers.values() if each.job == job and not each.over_ns]

    def batches(self, at_ns: int, bound_ns: int) -> Iterator[WorkerBatch]:
        """What is due now: jobs of which something is new, and each second every job."""
        self._workers = {
            key: each for key, each in self._workers.items() if not each.over_ns or at_ns - each.over_ns < _KEPT_NS
        }
        self._errors_ns = {
            xid: seen_ns for xid, seen_ns in self._errors_ns.items() if at_ns - seen_ns < _ERRORS_KEPT_NS
        }
        by_job: dict[str, list[Worker]] = {}
        for worker in self._workers.values():
            by_job.setdefault(worker.job, []).append(worker)
        self._told_ns = {job: told_ns for job, told_ns in self._told_ns.items() if job in by_job}
        for job, workers in by_job.items():
            is_recent = 0 <= at_ns - self._told_ns.get(job, at_ns - _EACH_NS) < _EACH_NS
            if is_recent and not any(each.is_news for each in workers):
                continue
            self._told_ns[job] = at_ns
            yield self._batch(job, workers, at_ns, bound_ns)

    def _batch(self, job: str, workers: Iterable[Worker], at_ns: int, bound_ns: int) -> WorkerBatch:
        states = []
        for worker in workers:
            worker.is_news = False
            states.append(worker.state())
            size = worker.report.size
        return WorkerBatch(
            job=job, node=self._node, at_ns=at_ns, bound_ns=bound_ns, size=size, workers=tuple(states),
            xids=tuple(self._errors_ns),
        )  # fmt: skip

    def _make_room(self) -> None:
        """Forgets the one that ended first, where there are too many: of a job that is started again and again."""
        if len(self._workers) < MOST_WORKERS_OF_A_NODE:
            return
        over = [(each.over_ns, key) for key, each in self._workers.items() if each.over_ns]
        if not over:
            raise ValueError(f"there are {MOST_WORKERS_OF_A_NODE} workers already")
        del self._workers[min(over)[1]]

    def _forget_other_sizes(self, report: WorkerReport) -> None:
        """Forgets what ended of a job that was started anew with another number of ranks: a batch has one size."""
        for key, each in list(self._workers.items()):
            if each.job == report.job and each.report.size != report.size:
                del self._workers[key]
