"""Training jobs of which ranks wait for longer than they should, and the rank for which they wait."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.job_hang.blame import blamed, nodes_of
from foliot_detector.core.state.training_jobs import FORGOTTEN_NS
from foliot_schemas import Event
from foliot_schemas.event_kinds import HANG, is_relief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_detector.core.detectors.job_hang.blame import Finding
    from foliot_detector.core.detectors.job_hang.settings import JobHangSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.training_jobs import TrainingJob

_S = 1_000_000_000
_LOOK_NS = _S // 4
"""How often jobs are looked at: as often as nodes speak of them."""
_LARGE, _LARGE_LOOK_NS = 1_024, 2 * _S
"""A job of more ranks that hangs is looked at less often, as that takes a while."""
_USUAL, _USUAL_TIMES = 3, 3
"""Of the longest times between moves of a rank, the third is usual: within a step, others are much shorter. And one or
two may be of hangs."""
_LEAST_MOVES = 5
"""Before a rank was seen to move so often, it sets itself up: see below."""
_SETTING_UP_TIMES = 20
_LEARNT_TIMES = 1.5
_LEARNT_FOR_NS = 7_200 * _S
_LONGEST_LEARNT_NS = 600 * _S
"""A rank that was absent for longer is no usual one."""
_CONFIRMED_NS = 3 * _LOOK_NS
"""For so long a finding must hold."""


class _Open(NamedTuple):
    """An event whose end is to come."""

    event: Event
    here_ns: int
    """When it was said, on the timeline."""


class JobHangDetector:
    """Events of kind ``hang``, one for each rank that is to blame, or one for the job."""

    def __init__(self, inventory: Inventory, settings: JobHangSettings) -> None:
        self._inventory = inventory
        self._hold_ns = round(settings.hang_s * _S)
        self._open: dict[str, dict[str, _Open]] = {}
        """By job and whom they are about."""
        self._found: dict[str, dict[tuple[str, str], int]] = {}
        """By job: since when each finding, by whom it is about and its state, is found without a break."""
        self._again_ns: dict[str, int] = {}
        """By job: when to look again."""
        self._learnt: dict[str, tuple[int, int]] = {}
        """By rank: how long it held up its job and then went on by itself, and when."""
        self._missing_ns: dict[str, int] = {}
        """Since when no rank of a job speaks, by its name."""
        self._looked_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether a job goes on that an earlier run said to hang."""
        if event.kind == HANG.name and not is_relief(event):
            self._open.setdefault(_job_of(event), {})[event.who] = _Open(event, 0)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:  # noqa: ARG002 - the jobs are learnt before
        """Nothing: verdicts come with time."""
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Looks at all jobs."""
        if abs(now_ns - self._looked_ns) < _LOOK_NS:
            return []
        self._looked_ns = now_ns
        jobs = self._inventory.training
        events = [event for job in jobs.all() for event in self._look(job, now_ns)]
        for name in [name for name in self._open if jobs.get(name) is None]:
            # Another run of this detector may have known it: it is given the time to speak.
            if now_ns - self._missing_ns.setdefault(name, now_ns) >= FORGOTTEN_NS:
                events += [self._ended(each, now_ns, "over") for each in self._open.pop(name).values()]
        self._missing_ns = {name: since_ns for name, since_ns in self._missing_ns.items() if name in self._open}
        for known in (self._found, self._again_ns):
            for name in [name for name in known if jobs.get(name) is None]:
                del known[name]
        self._learnt = {who: each for who, each in self._learnt.items() if now_ns - each[1] <= _LEARNT_FOR_NS}
        return events

    def _look(self, job: TrainingJob, now_ns: int) -> Iterator[Event]:
        if all(rank.is_over for rank in job.ranks.values()):
            for each in self._open.pop(job.name, {}).values():
                yield self._ended(each, now_ns, "over")
            return
        yield from self._relieved(job, now_ns)
        longest_ns = max((rank.waited_ns(now_ns) for rank in job.ranks.values()), default=0)
        # What takes long to tell is asked last.
        if longest_ns < self._hold_ns - _CONFIRMED_NS:
            self._found.pop(job.name, None)
            return
        if now_ns < self._again_ns.get(job.name, 0):
            return
        patience_ns = self._patience_ns(job)
        if longest_ns < patience_ns - _CONFIRMED_NS:
            self._found.pop(job.name, None)
            return
        if len(job.ranks) > _LARGE:
            self._again_ns[job.name] = now_ns + _LARGE_LOOK_NS
        yield from self._judge(job, longest_ns, patience_ns, now_ns)

    def _judge(self, job: TrainingJob, longest_ns: int, patience_ns: int, now_ns: int) -> Iterator[Event]:
        """Names whom the job waits for, if that was found for long enough."""
        found = {(finding.who, finding.state): finding for finding in blamed(job, now_ns, longest_ns)}
        # Nodes speak one after the other, so that a job that goes on looks torn for a moment.
        before = self._found.get(job.name, {})
        since = self._found[job.name] = {key: before.get(key, now_ns) for key in found}
        known = self._open.get(job.name, {})
        # A rank may be named after the job was: its node spoke later.
        for key, finding in found.items():
            if now_ns - since[key] < _CONFIRMED_NS or longest_ns < patience_ns:
                continue
            if finding.state == "absent" and longest_ns < self._learnt_ns(finding.who):
                continue
            if finding.who not in known and not (finding.who == job.name and known):
                event = self._begun(job, finding, longest_ns, now_ns)
                known[finding.who] = _Open(event, now_ns)
                self._open[job.name] = known
                yield event

    def _patience_ns(self, job: TrainingJob) -> int:
        """For how long its ranks may wait."""
        gaps = [sorted(rank.gaps_ns)[-_USUAL] for rank in job.ranks.values() if len(rank.gaps_ns) >= _LEAST_MOVES]
        if 2 * len(gaps) < len(job.ranks):
            return self._hold_ns * _SETTING_UP_TIMES
        return self._hold_ns + _USUAL_TIMES * max(gaps)

    def _learnt_ns(self, who: str) -> int:
        """For how long a rank may hold up the others, as it did so before and went on by itself."""
        learnt_ns, _ = self._learnt.get(who, (0, 0))
        return round(_LEARNT_TIMES * learnt_ns)

    def _relieved(self, job: TrainingJob, now_ns: int) -> Iterator[Event]:
        """Ends what was said, once a rank that it is about, or one that waited, was seen to go on."""
        known = self._open.get(job.name)
        if not known:
            return
        first_ns = min(each.here_ns for each in known.values())
        moved = {number for number, rank in job.ranks.items() if rank.moved_ns > first_ns and rank.gaps_ns}
        if not moved:
            return
        for who, each in list(known.items()):
            number = _rank_of(who)
            rank = None if number is None else job.ranks.get(number)
            if each.event.state == "absent" and rank is not None and rank.moved_ns > each.here_ns:
                # It went on by itself: it was at work, as when it writes a checkpoint.
                lasted_ns = job.at_ns(rank.node, now_ns) - each.event.since_ns
                if lasted_ns <= _LONGEST_LEARNT_NS:
                    self._learnt[who] = max(self._learnt_ns(who), lasted_ns), now_ns
            yield self._ended(each, now_ns, "moving")
        del self._open[job.name]
        self._found.pop(job.name, None)
        for rank_ in job.ranks.values():
            rank_.gaps_ns = deque((gap for gap in rank_.gaps_ns if gap < self._hold_ns), rank_.gaps_ns.maxlen)

    def _begun(self, job: TrainingJob, finding: Finding, longest_ns: int, now_ns: int) -> Event:
        at_ns = job.at_ns(finding.node, now_ns)
        since_ns = at_ns - longest_ns
        fault = f"{finding.who}/{finding.state}-{since_ns}"
        nodes = (finding.node,) if finding.who != job.name else nodes_of(job)
        return Event(
            id=fault, kind=HANG.name, who=finding.who, state=finding.state, at_ns=at_ns, since_ns=since_ns, fault=fault,
            confidence=finding.confidence, evidence=finding.evidence, related={"jobs": (job.name,), "nodes": nodes},
        )  # fmt: skip

    def _ended(self, begun: _Open, now_ns: int, state: str) -> Event:
        event = begun.event
        job, node = self._inventory.training.get(_job_of(event)), event.related.get("nodes", ("",))[0]
        here_ns = self._inventory.at_ns(node, now_ns) if job is None else job.at_ns(node, now_ns)
        at_ns = max(here_ns, event.since_ns)
        relief = ended(event, state, at_ns, {"lasted_s": (at_ns - event.since_ns) / _S})
        return msgspec.structs.replace(relief, related=event.related)


def _rank_of(who: str) -> int | None:
    number = who.rpartition("/rank")[2]
    return int(number) if "/rank" in who and number.isdecimal() else None


def _job_of(event: Event) -> str:
    return event.who.partition("/")[0]
