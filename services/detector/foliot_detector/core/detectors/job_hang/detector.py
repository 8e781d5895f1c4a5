"""Training jobs of which ranks wait for longer than they should, and the rank for which they wait."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot.analysis.hang import judge
from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.state.training_jobs import FORGOTTEN_NS
from foliot_schemas import Event
from foliot_schemas.event_kinds import HANG, is_relief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_detector.core.detectors.job_hang.settings import JobHangSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.training_jobs import Rank, TrainingJob
    from foliot_schemas.event import Evidence

    _Told = dict[str, float | int | str | bool]

_S = 1_000_000_000
_LOOK_NS = _S // 4
"""How often jobs are looked at: as often as nodes speak of them."""
_USUAL, _USUAL_TIMES = 2, 3
"""Of the longest times between moves of a rank, the second is usual: within a step, others are much shorter."""
_LEAST_MOVES = 5
"""Before a rank was seen to move so often, it sets itself up: see below."""
_SETTING_UP_TIMES = 20
_LEARNT_TIMES = 1.5
_LEARNT_FOR_NS = 7_200 * _S
_LONGEST_LEARNT_NS = 600 * _S
"""A rank that was absent for longer is no usual one."""
_STANDING_NS = _S
"""A rank is blamed that did nothing while the others waited, but for so long."""
_CONFIRMED_NS = 3 * _LOOK_NS
"""For so long a finding must hold."""
_MOST_NAMES = 64


class _Finding(NamedTuple):
    """Who is to be named, and why."""

    who: str
    state: str
    node: str
    confidence: float
    evidence: Evidence


class JobHangDetector:
    """Events of kind ``hang``, one for each rank that is to blame, or one for the job."""

    def __init__(self, inventory: Inventory, settings: JobHangSettings) -> None:
        self._inventory = inventory
        self._hold_ns = round(settings.hang_s * _S)
        self._open: dict[str, dict[str, Event]] = {}
        """By job and whom they are about."""
        self._found: dict[str, dict[tuple[str, str], int]] = {}
        """By job: since when each finding, by whom it is about and its state, is found without a break."""
        self._learnt: dict[str, tuple[int, int]] = {}
        """By rank: how long it held up its job and then went on by itself, and when."""
        self._missing_ns: dict[str, int] = {}
        """Since when no rank of a job speaks, by its name."""
        self._looked_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether a job goes on that an earlier run said to hang."""
        if event.kind == HANG.name and not is_relief(event):
            self._open.setdefault(event.who.partition("/")[0], {})[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:  # noqa: ARG002 - the jobs are learnt before
        """Nothing: verdicts come with time."""
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Looks at all jobs."""
        if now_ns - self._looked_ns < _LOOK_NS:
            return []
        self._looked_ns = now_ns
        jobs = self._inventory.training
        events = [event for job in jobs.all() for event in self._look(job, now_ns)]
        for name in [name for name in self._open if jobs.get(name) is None]:
            # Another run of this detector may have known it: it is given the time to speak.
            if now_ns - self._missing_ns.setdefault(name, now_ns) >= FORGOTTEN_NS:
                events += self._relieved(name, now_ns, "over")
        self._found = {name: found for name, found in self._found.items() if jobs.get(name) is not None}
        self._missing_ns = {name: since_ns for name, since_ns in self._missing_ns.items() if name in self._open}
        return events

    def _look(self, job: TrainingJob, now_ns: int) -> Iterator[Event]:
        if all(rank.is_over for rank in job.ranks.values()):
            yield from self._relieved(job.name, now_ns, "over")
            return
        waiting = [rank for rank in job.ranks.values() if rank.open and rank.is_fresh(now_ns) and not rank.is_over]
        longest_ns = max((now_ns - rank.moved_ns for rank in waiting), default=0)
        patience_ns = self._patience_ns(job)
        if longest_ns < patience_ns - _CONFIRMED_NS:
            self._found.pop(job.name, None)
            if job.name in self._open and longest_ns < self._hold_ns:
                self._learn(job, now_ns)
                for rank in job.ranks.values():
                    rank.gaps_ns = deque((gap for gap in rank.gaps_ns if gap < self._hold_ns), rank.gaps_ns.maxlen)
                yield from self._relieved(job.name, now_ns, "moving")
            return
        found = {(finding.who, finding.state): finding for finding in _found(job, now_ns, longest_ns)}
        # Nodes speak one after the other, so that a job that goes on looks torn for a moment.
        before = self._found.get(job.name, {})
        since = self._found[job.name] = {key: before.get(key, now_ns) for key in found}
        known = self._open.setdefault(job.name, {})
        # A rank may be named after the job was: its node spoke later.
        for key, finding in found.items():
            if now_ns - since[key] < _CONFIRMED_NS or longest_ns < patience_ns:
                continue
            if finding.state == "absent" and longest_ns < self._learnt_ns(finding.who, now_ns):
                continue
            if finding.who not in known and not (finding.who == job.name and known):
                known[finding.who] = event = self._begun(job, finding, longest_ns, now_ns)
                yield event
        if not known:
            del self._open[job.name]

    def _patience_ns(self, job: TrainingJob) -> int:
        """For how long its ranks may wait."""
        gaps = [sorted(rank.gaps_ns)[-_USUAL] for rank in job.ranks.values() if len(rank.gaps_ns) >= _LEAST_MOVES]
        if 2 * len(gaps) < len(job.ranks):
            return self._hold_ns * _SETTING_UP_TIMES
        return self._hold_ns + _USUAL_TIMES * max(gaps)

    def _learnt_ns(self, who: str, now_ns: int) -> int:
        """For how long a rank may hold up the others, as it did so before and went on by itself."""
        learnt_ns, at_ns = self._learnt.get(who, (0, 0))
        if learnt_ns and now_ns - at_ns > _LEARNT_FOR_NS:
            del self._learnt[who]
            return 0
        return round(_LEARNT_TIMES * learnt_ns)

    def _learn(self, job: TrainingJob, now_ns: int) -> None:
        """Remembers how long a rank took that went on by itself: it was at work, as when it writes a checkpoint."""
        for event in self._open[job.name].values():
            lasted_ns = job.at_ns(_node(event), now_ns) - event.since_ns
            if event.state == "absent" and lasted_ns <= _LONGEST_LEARNT_NS:
                before_ns, _ = self._learnt.get(event.who, (0, 0))
                self._learnt[event.who] = max(before_ns, lasted_ns), now_ns

    def _begun(self, job: TrainingJob, finding: _Finding, longest_ns: int, now_ns: int) -> Event:
        at_ns = job.at_ns(finding.node, now_ns)
        since_ns = at_ns - longest_ns
        fault = f"{finding.who}/{finding.state}-{since_ns}"
        nodes = (finding.node,) if finding.who != job.name else _nodes(job)
        return Event(
            id=fault, kind=HANG.name, who=finding.who, state=finding.state, at_ns=at_ns, since_ns=since_ns, fault=fault,
            confidence=finding.confidence, evidence=finding.evidence, related={"jobs": (job.name,), "nodes": nodes},
        )  # fmt: skip

    def _relieved(self, name: str, now_ns: int, state: str) -> Iterator[Event]:
        job = self._inventory.training.get(name)
        for begun in self._open.pop(name, {}).values():
            node = _node(begun)
            here_ns = self._inventory.at_ns(node, now_ns) if job is None else job.at_ns(node, now_ns)
            at_ns = max(here_ns, begun.since_ns)
            relief = ended(begun, state, at_ns, {"lasted_s": (at_ns - begun.since_ns) / _S})
            yield msgspec.structs.replace(relief, related=begun.related)


def _found(job: TrainingJob, now_ns: int, longest_ns: int) -> Iterator[_Finding]:
    """Whom to name for a hang: ranks whose process is stopped or gone, those that the wait blames, or the job."""
    lost = {
        number: rank
        for number, rank in job.ranks.items()
        if rank.state.process in {"stopped", "gone"} and rank.is_fresh(now_ns)
    }
    present = {
        number: job.record(number)
        for number, rank in job.ranks.items()
        if number not in lost and rank.is_fresh(now_ns) and not rank.is_over
    }
    verdict = judge(present, job.size)
    waiting = sum(bool(job.ranks[number].open) for number in present)
    told: _Told = {
        "waited_s": round(longest_ns / _S, 1), "waiting": waiting, "heard": len(present) + len(lost), "size": job.size,
    }  # fmt: skip
    for number, rank in sorted(lost.items()):
        state = "stopped" if rank.state.process == "stopped" else "dead"
        yield _Finding(_name(job, number), state, rank.node, 1.0, told | _place(job, rank))
    named = {*lost}
    for blame in verdict.blamed:
        rank_ = job.ranks.get(blame.rank)
        if blame.rank in named or (blame.why == "dead" and lost):
            continue
        if rank_ is not None and now_ns - rank_.moved_ns < longest_ns - _STANDING_NS:
            continue
        evidence: _Told = {
            **told, "group": blame.group, "collective": blame.collective, "number": blame.number,
            "certain": verdict.is_certain,
        }  # fmt: skip
        node = "" if rank_ is None else rank_.node
        confidence = 1.0 if verdict.is_certain else 0.5
        named.add(blame.rank)
        yield _Finding(_name(job, blame.rank), blame.why, node or _nodes(job)[0], confidence, evidence)
    if not named and len(present) == job.size:
        rank_ = max((job.ranks[number] for number in present), key=lambda each: (bool(each.open), -each.moved_ns))
        yield _Finding(job.name, "stuck", rank_.node, 1.0, told | _place(job, rank_))


def _place(job: TrainingJob, rank: Rank) -> _Told:
    """Where a rank stands; where most stand, if it does not wait itself."""
    at = rank.open or next((other.open for other in job.ranks.values() if other.open), ())
    if not at:
        return {}
    first = min(at, key=lambda each: each.order)
    return {"group": first.group, "collective": first.name, "number": first.number}


def _name(job: TrainingJob, rank: int) -> str:
    return f"{job.name}/rank{rank}"


def _nodes(job: TrainingJob) -> tuple[str, ...]:
    return tuple(sorted({rank.node for rank in job.ranks.values()})[:_MOST_NAMES])


def _node(event: Event) -> str:
    return event.related.get("nodes", ("",))[0]
