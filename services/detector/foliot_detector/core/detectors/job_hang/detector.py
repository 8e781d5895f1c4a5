"""Training jobs of which ranks wait for longer than they should, and the rank for which they wait."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.job_hang.blame import blamed
from foliot_detector.core.detectors.job_hang.finding import CONFIRMED_NS, LOOK_NS, S, rank_of
from foliot_detector.core.detectors.job_hang.lost_workers import lost
from foliot_detector.core.detectors.job_hang.relief import Course, Open
from foliot_detector.core.state.training_jobs import FORGOTTEN_NS
from foliot_detector.core.state.workers import WorkerJob
from foliot_schemas import Event
from foliot_schemas.event_kinds import HANG, is_relief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_detector.core.detectors.job_hang.finding import Finding
    from foliot_detector.core.detectors.job_hang.settings import JobHangSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.training_jobs import TrainingJob

_LARGE, _LARGE_LOOK_NS = 1_024, 2 * S
"""A job of more ranks that hangs is looked at less often, as that takes a while."""
_LARGE_WORKERS_NS, _LARGE_AT_ONCE_NS = S, S // 5
"""Nor are its workers looked at more often than so, nor where one of them is in trouble."""
_USUAL, _USUAL_TIMES = 3, 3
"""Of the longest times between moves of a rank, the third is usual: within a step, others are much shorter. And one or
two may be of hangs."""
_LEAST_MOVES = 5
"""Before a rank was seen to move so often, it sets itself up: see below."""
_SETTING_UP_TIMES = 20
_LEARNT_TIMES = 1.5
_LEARNT_FOR_NS = 7_200 * S
_LONGEST_LEARNT_NS = 600 * S
"""A rank that was absent for longer is no usual one."""


class JobHangDetector:
    """Events of kind ``hang``, one for each rank that is to blame, or one for the job."""

    def __init__(self, inventory: Inventory, settings: JobHangSettings) -> None:
        self._inventory = inventory
        self._hold_ns = round(settings.hang_s * S)
        self._open: dict[str, dict[str, Open]] = {}
        """By job and whom they are about."""
        self._found: dict[str, dict[tuple[str, str], int]] = {}
        """By job: since when each finding, by whom it is about and its state, is found without a break in what it waits for."""
        self._lost: dict[str, dict[tuple[str, str], int]] = {}
        """Likewise, in what is told of its workers."""
        self._again_ns: dict[str, int] = {}
        """By job: when to look again."""
        self._learnt: dict[str, tuple[int, int]] = {}
        """By rank: how long it held up its job and then went on by itself, and when."""
        self._missing_ns: dict[str, int] = {}
        """Since when no rank of a job speaks, by its name."""
        self._asked_ns: dict[str, int] = {}
        """By large job: when its workers were looked at."""
        self._looked_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether a job goes on that an earlier run said to hang."""
        if event.kind == HANG.name and not is_relief(event):
            self._open.setdefault(_job_of(event), {})[event.who] = Open(event, 0, round(event.number("process")), 0)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the word of workers that somebody is missed, or goes on; other verdicts come with time."""
        if not isinstance(seen, WorkerJob):
            return []
        if seen.troubled_ns != now_ns or not self._is_due(seen, _LARGE_AT_ONCE_NS, now_ns):
            return []
        return [*self._relieved(seen.name, now_ns), *self._look_at_workers(seen, now_ns)]

    def tick(self, now_ns: int) -> list[Event]:
        """Looks at all jobs."""
        if abs(now_ns - self._looked_ns) < LOOK_NS:
            return []
        self._looked_ns = now_ns
        names = self._inventory.training.names() | self._inventory.workers.names()
        events = [event for name in sorted(names) for event in self._look(name, now_ns)]
        for name in self._open.keys() - names:
            # Another run of this detector may have known it: it is given the time to speak.
            if now_ns - self._missing_ns.setdefault(name, now_ns) >= FORGOTTEN_NS:
                events += self._end_all(name, now_ns)
        self._missing_ns = {name: since_ns for name, since_ns in self._missing_ns.items() if name in self._open}
        for known in (self._found, self._lost, self._again_ns, self._asked_ns):
            for name in known.keys() - names:
                del known[name]
        self._learnt = {who: each for who, each in self._learnt.items() if now_ns - each[1] <= _LEARNT_FOR_NS}
        return events

    def _course(self, name: str) -> Course:
        return Course(self._inventory.training.get(name), self._inventory.workers.get(name))

    def _look(self, name: str, now_ns: int) -> Iterator[Event]:
        job, workers = self._course(name)
        if (job is not None and job.is_over()) or (workers is not None and name in self._open and workers.is_over()):
            yield from self._end_all(name, now_ns)
            return
        yield from self._relieved(name, now_ns)
        if workers is not None and self._is_due(workers, _LARGE_WORKERS_NS, now_ns):
            yield from self._look_at_workers(workers, now_ns)
        if job is not None:
            yield from self._look_at_waits(job, workers, now_ns)

    def _is_due(self, job: WorkerJob, each_ns: int, now_ns: int) -> bool:
        """Whether the workers of a job are to be looked at. All of a large one are not looked at as often."""
        is_due = job.size <= _LARGE or now_ns - self._asked_ns.get(job.name, 0) >= each_ns
        if is_due:
            self._asked_ns[job.name] = now_ns
        return is_due

    def _look_at_workers(self, workers: WorkerJob, now_ns: int) -> Iterator[Event]:
        """Names ranks that are gone, or the job whose group broke without a loss."""
        job, held = self._inventory.training.get(workers.name), workers.ranks()

        def waited_ns(number: int) -> int:
            rank = None if job is None else job.ranks.get(number)
            return 0 if rank is None else rank.waited_ns(now_ns)

        lost_now = lost(workers, held, waited_ns, now_ns, self._hold_ns)
        found = {(finding.who, finding.state): finding for finding in lost_now}
        since = _since(self._lost, workers.name, found, now_ns)
        for key, finding in found.items():
            if now_ns - since[key] >= finding.confirmed_ns:
                yield from self._say(workers.name, finding, now_ns)

    def _look_at_waits(self, job: TrainingJob, workers: WorkerJob | None, now_ns: int) -> Iterator[Event]:
        """Names whom others wait for in collectives. While a group forms, they wait for nobody."""
        longest_ns = max((rank.waited_ns(now_ns) for rank in job.ranks.values()), default=0)
        # What takes long to tell is asked last.
        if longest_ns < self._hold_ns - CONFIRMED_NS:
            self._found.pop(job.name, None)
            return
        if now_ns < self._again_ns.get(job.name, 0):
            return
        patience_ns = self._patience_ns(job)
        if longest_ns < patience_ns - CONFIRMED_NS or (workers is not None and workers.is_forming(now_ns)):
            self._found.pop(job.name, None)
            return
        if len(job.ranks) > _LARGE:
            self._again_ns[job.name] = now_ns + _LARGE_LOOK_NS
        found = blamed(job, now_ns, longest_ns)
        if workers is not None and workers.is_broken(now_ns):  # where no rank is to blame, it is known why
            found = [finding for finding in found if finding.who != job.name]
        yield from self._judge(job, found, longest_ns, patience_ns, now_ns)

    def _judge(
        self, job: TrainingJob, findings: Iterable[Finding], longest_ns: int, patience_ns: int, now_ns: int
    ) -> Iterator[Event]:
        """Names whom the job waits for, if that was found for long enough."""
        found = {(finding.who, finding.state): finding for finding in findings}
        since = _since(self._found, job.name, found, now_ns)
        # A rank may be named after the job was: its node spoke later.
        for key, finding in found.items():
            if now_ns - since[key] < finding.confirmed_ns or longest_ns < patience_ns:
                continue
            if finding.state == "absent" and longest_ns < self._allowed_ns(job, finding.who):
                continue
            if finding.who != job.name or not self._open.get(job.name):
                yield from self._say(job.name, finding, now_ns)

    def _say(self, name: str, finding: Finding, now_ns: int) -> Iterator[Event]:
        """Says what was found, unless it was said of the same process."""
        number, course = rank_of(finding.who), self._course(name)
        worker = None if course.workers is None or number is None else course.workers.holder(number)
        process = finding.process or (0 if worker is None else worker.state.process)
        known = self._open.get(name, {})
        before = known.get(finding.who)
        if before is not None and number is None:
            # Of the job as a whole, another thing may be said, or the same of a later group. It is one fault.
            if before.event.state == finding.state and before.event.number("generation") >= _generation(finding):
                return
        elif before is not None:
            if not process or not before.process or (before.node, before.process) == (finding.nodes[0], process):
                return
            del known[finding.who]
            yield self._ended(before, now_ns, "replaced")
        rank = None if course.ranks is None or number is None else course.ranks.ranks.get(number)
        event = _begun(name, finding, process, "" if before is None or number is not None else before.event.fault)
        began_ns = 0 if rank is None else rank.state.since_ns
        is_known = rank is not None or worker is not None
        self._open.setdefault(name, {})[finding.who] = Open(event, now_ns, process, began_ns, is_known)
        yield event

    def _patience_ns(self, job: TrainingJob) -> int:
        """For how long its ranks may wait."""
        gaps = [sorted(rank.gaps_ns)[-_USUAL] for rank in job.ranks.values() if len(rank.gaps_ns) >= _LEAST_MOVES]
        if 2 * len(gaps) < len(job.ranks):
            return self._hold_ns * _SETTING_UP_TIMES
        return self._hold_ns + _USUAL_TIMES * max(gaps)

    def _allowed_ns(self, job: TrainingJob, who: str) -> int:
        """For how long a rank may be absent: as it was before, or while a process sets itself up that has just come."""
        number = rank_of(who)
        rank = None if number is None else job.ranks.get(number)
        is_new = rank is not None and rank.state.generation > 0 and rank.moves <= _LEAST_MOVES
        return max(self._learnt_ns(who), self._hold_ns * _SETTING_UP_TIMES if is_new else 0)

    def _learnt_ns(self, who: str) -> int:
        """For how long a rank may hold up the others, as it did so before and went on by itself."""
        learnt_ns, _ = self._learnt.get(who, (0, 0))
        return round(_LEARNT_TIMES * learnt_ns)

    def _relieved(self, name: str, now_ns: int) -> Iterator[Event]:
        """Ends what was said, once a rank that it is about, or one that waited, was seen to go on."""
        known = self._open.get(name)
        if not known:
            return
        course = self._course(name)
        if not course.has_moved(min(each.here_ns for each in known.values())):
            return
        ending = {who: state for who, each in known.items() if (state := course.relief(each, now_ns))}
        for who, state in ending.items():
            each = known.pop(who)
            if state == "moving" and each.event.state == "absent" and course.ranks is not None:
                self._learn(course.ranks, each, now_ns)
            yield self._ended(each, now_ns, state)
        if not known:
            del self._open[name]
        if ending:
            self._found.pop(name, None)
            for rank in () if course.ranks is None else course.ranks.ranks.values():
                rank.gaps_ns = deque((gap for gap in rank.gaps_ns if gap < self._hold_ns), rank.gaps_ns.maxlen)

    def _learn(self, job: TrainingJob, each: Open, now_ns: int) -> None:
        """Learns how long a rank was absent that went on by itself: it was at work, as when it writes a checkpoint."""
        who = each.event.who
        number = rank_of(who)
        rank = None if number is None else job.ranks.get(number)
        if rank is None or rank.moved_ns <= each.here_ns:
            return
        lasted_ns = job.at_ns(rank.node, now_ns) - each.event.since_ns
        if lasted_ns <= _LONGEST_LEARNT_NS:
            self._learnt[who] = max(self._learnt_ns(who), lasted_ns), now_ns

    def _end_all(self, name: str, now_ns: int) -> list[Event]:
        """Ends what was said of a job that is over."""
        return [self._ended(each, now_ns, "over") for each in self._open.pop(name, {}).values()]

    def _ended(self, begun: Open, now_ns: int, state: str) -> Event:
        event, (job, workers) = begun.event, self._course(_job_of(begun.event))
        told_ns = None if workers is None else workers.at_ns(begun.node, now_ns)
        if told_ns is None:
            told_ns = self._inventory.at_ns(begun.node, now_ns) if job is None else job.at_ns(begun.node, now_ns)
        at_ns = max(told_ns, event.since_ns)
        relief = ended(event, state, at_ns, {"lasted_s": (at_ns - event.since_ns) / S})
        return msgspec.structs.replace(relief, related=event.related)


def _since(
    of: dict[str, dict[tuple[str, str], int]], job: str, found: Iterable[tuple[str, str]], now_ns: int
) -> dict[tuple[str, str], int]:  # fmt: skip
    """Since when each finding about a job was found without a break. What is not found any more is forgotten."""
    before = of.pop(job, {})
    since = {key: before.get(key, now_ns) for key in found}
    if since:
        of[job] = since
    return since


def _generation(finding: Finding) -> float:
    known = finding.evidence.get("generation", 0)
    return float(known) if isinstance(known, int | float) else 0.0


def _begun(job: str, finding: Finding, process: int, fault: str) -> Event:
    """The event of a finding; `fault` is that of the event that it follows, if any."""
    name = f"{finding.who}/{finding.state}-{finding.since_ns}"
    return Event(
        id=name, kind=HANG.name, who=finding.who, state=finding.state, at_ns=finding.at_ns, since_ns=finding.since_ns,
        fault=fault or name, confidence=finding.confidence, evidence=finding.evidence | ({"process": process} if process else {}),
        related={"jobs": (job,), "nodes": finding.nodes},
    )  # fmt: skip


def _job_of(event: Event) -> str:
    return event.who.partition("/")[0]
