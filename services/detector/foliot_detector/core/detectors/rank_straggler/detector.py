"""Ranks that work longer than their peers between collectives, so that these wait for them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.rank_straggler.own_time import OwnTimes
from foliot_detector.core.detectors.rank_straggler.pace import Pace
from foliot_detector.core.detectors.rank_straggler.signs import (
    Counted,
    by_data,
    by_processor,
    is_halted,
    is_starved,
    signs_of,
)
from foliot_detector.core.state.training_jobs import FORGOTTEN_NS, Collectives, generation_of
from foliot_schemas import Event
from foliot_schemas.bounds import fitting
from foliot_schemas.event_kinds import STRAGGLER, is_relief
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_detector.core.detectors.rank_straggler.own_time import Excess
    from foliot_detector.core.detectors.rank_straggler.settings import RankStragglerSettings
    from foliot_detector.core.detectors.rank_straggler.signs import Signs
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.training_jobs import TrainingJob
    from foliot_schemas.event import Evidence

_LOOK_NS = 1_000_000_000
_MOSTLY = 0.5
"""Share of what a rank costs from which on it is the fault of its data, or of its host's processors."""
_LEAST_MEMBERS, _MOST_MEMBERS = 2, 1_024
"""Of groups that are looked at. Peers of a role are in small ones, and all of a large job are no peers."""
_MOST_GROUPS = 4_096
"""Groups of a job that are looked at."""
_FIRST_WINDOWS = 3
"""Of a generation that took the place of another, so many windows of each group are left out: a process that is new to
the job needs longer for its first steps."""
_NETWORK = "network"
_NOBODY = -1
"""In place of a rank: all of a group."""
_MOST_NODES = 64
_EASED = 0.5
"""Share of the threshold below which a rank is in step again."""


@dataclass(slots=True)
class _Watch:
    """A rank in a group: whether it costs its peers time there."""

    windows: int = 0
    """For how many on end it was so; or, if an event says that it is slow there, was not so."""
    since_ns: int = 0
    """When that began, by its node's reference time."""


@dataclass(slots=True)
class _Named:
    """A rank that an event says to be slow."""

    event: Event
    group: str
    """The one by whose collectives it was found; empty: another run of the detector found it."""
    judged_ns: int
    """When it was looked at last, on the timeline."""


@dataclass(slots=True)
class _Watched:
    """One job."""

    starts: int
    """How often its ranks had been started, or came into another generation."""
    left_out: Counter[str] = field(default_factory=Counter)
    """By group, windows in which ranks found their pace."""
    groups: dict[str, OwnTimes] = field(default_factory=dict)
    ranks: dict[tuple[str, int], _Watch] = field(default_factory=lambda: defaultdict(_Watch))
    """By group and rank."""
    counted: dict[str, dict[int, Counted]] = field(default_factory=lambda: defaultdict(dict))
    """By group and rank."""
    paces: dict[str, Pace] = field(default_factory=lambda: defaultdict(Pace))
    """By group."""


class _Window(NamedTuple):
    """A window of one group."""

    job: TrainingJob
    group: str
    signs: dict[int, Signs]
    slowdown: float
    """By what share of it, its collectives took longer than usual."""
    now_ns: int


class RankStragglerDetector:
    """Events of kind ``straggler``, one for each slow rank."""

    def __init__(self, inventory: Inventory, settings: RankStragglerSettings) -> None:
        self._inventory = inventory
        self._share = settings.straggler_share
        self._windows = settings.straggler_windows
        self._jobs: dict[str, _Watched] = {}
        self._named: dict[str, _Named] = {}
        """By the name of the rank."""
        self._looked_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether a rank is in step again that an earlier run said to be slow."""
        if event.kind == STRAGGLER.name and not is_relief(event):
            self._named[event.who] = _Named(event, "", 0)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the collectives that ranks ended."""
        if not isinstance(seen, Collectives):
            return []
        job = seen.job
        watched = self._jobs.get(job.name)
        if watched is None or watched.starts != job.starts:
            watched = self._jobs[job.name] = _Watched(job.starts)
            self._look_anew(job)
        events: list[Event] = []
        for each in seen.ended:
            members = job.group(each.group).members
            if not _LEAST_MEMBERS <= len(members) <= _MOST_MEMBERS:
                continue
            group = watched.groups.get(each.group)
            if group is None or members != group.members:
                if group is None and len(watched.groups) >= _MOST_GROUPS:
                    continue
                group = watched.groups[each.group] = OwnTimes(members)
            if found := group.take(each):
                events += self._judge(job, watched, each.group, found, now_ns)
        return events

    def tick(self, now_ns: int) -> list[Event]:
        """Ends what is said of jobs that are over, and of ranks of which nothing is known any more."""
        if abs(now_ns - self._looked_ns) < _LOOK_NS:
            return []
        self._looked_ns = now_ns
        jobs = self._inventory.training
        for name in [name for name in self._jobs if jobs.get(name) is None]:
            del self._jobs[name]
        events: list[Event] = []
        for who, named in list(self._named.items()):
            job = jobs.get(_job_of(who))
            named.judged_ns = named.judged_ns or now_ns
            if job is not None and job.is_over():
                events.append(self._ended(who, "over", now_ns, {}))
            elif now_ns - named.judged_ns >= FORGOTTEN_NS:
                events.append(self._ended(who, "unknown", now_ns, {}))
        return events

    def _look_anew(self, job: TrainingJob) -> None:
        """Lets any group show that ranks are in step again that were said to be slow in one of an earlier generation."""
        for who, named in self._named.items():
            if (
                _job_of(who) == job.name
                and named.event.state != _NETWORK
                and generation_of(named.group) < job.generation
            ):
                named.group = ""

    def _judge(
        self, job: TrainingJob, watched: _Watched, group: str, found: list[Excess], now_ns: int
    ) -> Iterator[Event]:
        """Looks at what the ranks of a group cost in a window."""
        signs = signs_of(job, watched.groups[group].members, watched.counted[group], found[0].window_ns)
        if job.generation and watched.left_out[group] < _FIRST_WINDOWS:
            watched.left_out[group] += 1
            return
        is_disturbed = any(each.stopped or is_starved(rank, signs) for rank, each in signs.items())
        slowdown = watched.paces[group].slowdown(found[0], self._share, is_disturbed=is_disturbed)
        window = _Window(job, group, signs, slowdown, now_ns)
        for each in found:
            if (event := self._judge_rank(window, watched.ranks[group, each.rank], each)) is not None:
                yield event
        is_by_rank = is_disturbed or any(each.share >= self._share for each in found)
        yield from self._judge_network(
            job, watched, group, now_ns, window=found[0], slowdown=0.0 if is_by_rank else slowdown
        )

    def _judge_rank(self, window: _Window, watch: _Watch, each: Excess) -> Event | None:
        """Looks at what one rank cost; returns what is to be said of it."""
        rank, who = window.job.ranks.get(each.rank), f"{window.job.name}/rank{each.rank}"
        named = self._named.get(who)
        if rank is None or (named is not None and not _is_judged_by(named, window.group)):
            return None
        if named is not None:
            named.group, named.judged_ns = window.group, window.now_ns
        halted, starved = is_halted(each.rank, window.signs), is_starved(each.rank, window.signs)
        share = max(each.share, window.slowdown) if halted or starved else each.share
        if not self._is_changed(watch, share, rank.at_ns - each.window_ns, is_named=named is not None):
            return None
        waited, delayed = by_data(each, window.signs), by_processor(each, window.signs)
        evidence = {
            **_evidence(each), "share": round(share, 3), "group": window.group, "by_data": round(waited, 2),
            "by_processor": round(delayed, 2), "stopped": round(window.signs[each.rank].stopped, 2),
        }  # fmt: skip
        if named is not None:
            return self._ended(who, "in-step", window.now_ns, evidence)
        state = _cause(halted=halted, starved=starved, waited=waited, delayed=delayed)
        event = _begun(window.job, each.rank, window.now_ns, since_ns=watch.since_ns, state=state, evidence=evidence)
        self._named[who] = _Named(event, window.group, window.now_ns)
        return event

    def _judge_network(
        self, job: TrainingJob, watched: _Watched, group: str, now_ns: int, *, window: Excess, slowdown: float
    ) -> Iterator[Event]:
        """Looks whether a group's collectives take longer while something is said of its flows."""
        who, named = next(
            (
                (who, named) for who, named in self._named.items()
                if named.event.state == _NETWORK and named.group == group and _job_of(who) == job.name
            ),
            ("", None),
        )  # fmt: skip
        trouble = self._trouble_of(job, watched.groups[group].members)
        share = 0.0 if trouble is None else slowdown
        if named is not None:
            named.judged_ns = now_ns
        since_ns = job.ranks[window.rank].at_ns - window.window_ns if window.rank in job.ranks else now_ns
        watch = watched.ranks[group, _NOBODY]
        if not self._is_changed(watch, share, since_ns, is_named=named is not None):
            return
        evidence: Evidence = {**_evidence(window), "share": round(slowdown, 3), "group": group}
        if named is not None:
            yield self._ended(who, "in-step", now_ns, evidence)
        elif trouble is not None:
            members = watched.groups[group].members
            event = _by_network(job, members, trouble, now_ns, since_ns=watch.since_ns, evidence=evidence)
            if event.who not in self._named:
                self._named[event.who] = _Named(event, group, now_ns)
                yield event

    def _trouble_of(self, job: TrainingJob, members: tuple[int, ...]) -> Event | None:
        """What is said of a flow between two nodes of a group; None: nothing."""
        nodes = {job.ranks[number].node for number in members if number in job.ranks}
        for event in self._inventory.contention.values():
            for flow in event.related.get("flows", ()):
                if nodes.issuperset(node_of(end) for end in flow.split(">")):
                    return event
        return None

    def _is_changed(self, watch: _Watch, share: float, since_ns: int, *, is_named: bool) -> bool:
        """Whether a rank has been slow for long enough now, or in step again."""
        is_slow = share >= (_EASED * self._share if is_named else self._share)
        if is_slow == is_named:
            watch.windows = 0
            return False
        if not watch.windows:
            watch.since_ns = since_ns
        watch.windows += 1
        if watch.windows < self._windows:
            return False
        watch.windows = 0
        return True

    def _ended(self, who: str, state: str, now_ns: int, evidence: Evidence) -> Event:
        begun = self._named.pop(who).event
        node = begun.related.get("nodes", ("",))[0]
        job = self._inventory.training.get(_job_of(who))
        at_ns = self._inventory.at_ns(node, now_ns) if job is None else job.at_ns(node, now_ns)
        relief = ended(begun, state, max(at_ns, begun.since_ns), evidence)
        return msgspec.structs.replace(relief, related=begun.related)


def _cause(*, halted: bool, starved: bool, waited: float, delayed: float) -> str:
    """The state of an event about a slow rank.

    Parameters:
        waited: share of what it costs for which it waited for data.
        delayed: share for which it had no processor.
    """
    if (starved or delayed >= _MOSTLY) and not halted:
        return "processor"  # also while it waits for data that it loads itself
    if waited >= _MOSTLY:
        return "data"
    return "halted" if halted else "compute"


def _is_judged_by(named: _Named, group: str) -> bool:
    """Whether what is said of a rank is for this group's collectives to end."""
    return named.group in {"", group} and named.event.state != _NETWORK


def _begun(
    job: TrainingJob, number: int, now_ns: int, *, since_ns: int, state: str, evidence: Evidence
) -> Event:  # fmt: skip
    rank = job.ranks[number]
    at_ns = max(job.at_ns(rank.node, now_ns), since_ns)
    fault = f"{job.name}/rank{number}/slow-{since_ns}"
    return Event(
        id=fault, kind=STRAGGLER.name, who=f"{job.name}/rank{number}", state=state, at_ns=at_ns, since_ns=since_ns,
        fault=fault, evidence=evidence, related={"jobs": (job.name,), "nodes": (rank.node,)},
    )  # fmt: skip


def _by_network(
    job: TrainingJob, members: tuple[int, ...], trouble: Event, now_ns: int, *, since_ns: int, evidence: Evidence
) -> Event:  # fmt: skip
    """The event that joins the times of collectives with what is said of a flow. It follows from that."""
    node = node_of(trouble.who)
    if ">" in trouble.who:
        node = node_of(trouble.who.partition(">")[2])
    ranks = [number for number in members if number in job.ranks and job.ranks[number].node == node]
    who = f"{job.name}/rank{ranks[0]}" if len(ranks) == 1 else job.name
    nodes = (
        (node,) if len(ranks) == 1 else tuple(sorted({job.ranks[each].node for each in members if each in job.ranks}))
    )
    names = {name: trouble.related[name] for name in ("flows", "links") if trouble.related.get(name)}
    return Event(
        id=fitting(f"{trouble.id}/{who}"), kind=STRAGGLER.name, who=who, state=_NETWORK,
        at_ns=max(job.at_ns(nodes[0], now_ns), since_ns), since_ns=since_ns, fault=trouble.fault, cause=trouble.id,
        confidence=trouble.confidence, evidence=evidence,
        related={"jobs": (job.name,), "nodes": nodes[:_MOST_NODES], **names},
    )  # fmt: skip


def _job_of(who: str) -> str:
    return who.partition("/")[0]


def _evidence(each: Excess) -> dict[str, float | int | str | bool]:
    return {
        "late_ms": round(each.excess_ns / each.numbers / 1e6, 3),
        "each_ms": round(each.window_ns / each.numbers / 1e6, 3),
    }
