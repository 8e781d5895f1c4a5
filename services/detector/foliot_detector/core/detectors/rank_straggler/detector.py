"""Ranks that work longer than their peers between collectives, so that these wait for them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.rank_straggler.own_time import OwnTimes
from foliot_detector.core.state.training_jobs import Collectives
from foliot_schemas import Event
from foliot_schemas.event_kinds import STRAGGLER, is_relief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_detector.core.detectors.rank_straggler.own_time import Excess
    from foliot_detector.core.detectors.rank_straggler.settings import RankStragglerSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_detector.core.state.training_jobs import Rank, TrainingJob
    from foliot_schemas.event import Evidence

_BY_DATA = 0.5
"""Share of what a rank costs from which on it is its data's fault."""
_LEAST_MEMBERS, _MOST_MEMBERS = 2, 1_024
"""Of groups that are looked at. Peers of a role are in small ones, and all of a large job are no peers."""
_MOST_GROUPS = 4_096
"""Groups of a job that are looked at."""
_EASED = 0.5
"""Share of the threshold below which a rank is in step again."""


@dataclass(slots=True)
class _Watch:
    """A rank that costs its peers time now, or did."""

    windows: int = 0
    """For how many on end it was so; or, if an event says that it is slow, was not so."""
    since_ns: int = 0
    """When that began, by its node's reference time."""
    open: Event | None = None


@dataclass(slots=True)
class _Watched:
    """One job."""

    size: int
    groups: dict[str, OwnTimes] = field(default_factory=dict)
    ranks: dict[int, _Watch] = field(default_factory=lambda: defaultdict(_Watch))
    data_ns: dict[tuple[str, int], int] = field(default_factory=dict)
    """How long a rank had waited for data when the window of a group began."""


class RankStragglerDetector:
    """Events of kind ``straggler``, one for each slow rank."""

    def __init__(self, inventory: Inventory, settings: RankStragglerSettings) -> None:
        self._inventory = inventory
        self._share = settings.straggler_share
        self._windows = settings.straggler_windows
        self._jobs: dict[str, _Watched] = {}
        self._resumed: dict[str, Event] = {}

    def resume(self, event: Event) -> None:
        """Watches whether a rank is in step again that an earlier run said to be slow."""
        if event.kind == STRAGGLER.name and not is_relief(event):
            self._resumed[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the collectives that ranks ended."""
        if not isinstance(seen, Collectives):
            return []
        job = seen.job
        watched = self._jobs.get(job.name)
        if watched is None or watched.size != job.size:
            watched = self._jobs[job.name] = _Watched(job.size)
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
        """Ends what is said of jobs that are over."""
        events: list[Event] = []
        for name, watched in list(self._jobs.items()):
            job = self._inventory.training.get(name)
            if job is not None and not all(rank.is_over for rank in job.ranks.values()):
                continue
            for watch in watched.ranks.values():
                if watch.open is not None:
                    events.append(self._ended(watch.open, "over", now_ns, {}))
                    watch.open = None
            if job is None:
                del self._jobs[name]
        return events

    def _judge(
        self, job: TrainingJob, watched: _Watched, group: str, found: list[Excess], now_ns: int
    ) -> Iterator[Event]:
        """Looks at what the ranks of a group cost in a window."""
        waits = self._data_waits(job, watched, group, found[0].window_ns)
        for each in found:
            rank = job.ranks.get(each.rank)
            if rank is None:
                continue
            watch, who = watched.ranks[each.rank], f"{job.name}/rank{each.rank}"
            if who in self._resumed:
                watch.open = self._resumed.pop(who)
            if not self._is_changed(watch, each, rank):
                continue
            by_data = _by_data(each, waits)
            evidence = {**_evidence(each), "group": group, "by_data": round(by_data, 2)}
            if watch.open is None:
                watch.open = self._begun(job, each.rank, watch, evidence, now_ns, by_data=by_data)
                yield watch.open
            else:
                yield self._ended(watch.open, "in-step", now_ns, evidence)
                watch.open = None

    def _is_changed(self, watch: _Watch, each: Excess, rank: Rank) -> bool:
        """Whether a rank has been slow for long enough now, or in step again."""
        is_slow = each.share >= (self._share if watch.open is None else _EASED * self._share)
        if is_slow == (watch.open is not None):
            watch.windows = 0
            return False
        if not watch.windows:
            watch.since_ns = rank.at_ns - each.window_ns
        watch.windows += 1
        if watch.windows < self._windows:
            return False
        watch.windows = 0
        return True

    def _data_waits(self, job: TrainingJob, watched: _Watched, group: str, window_ns: int) -> dict[int, float]:
        """For what share of the window each rank of the group waited for its data."""
        waits = {}
        for number in watched.groups[group].members:
            if (rank := job.ranks.get(number)) is None:
                continue
            key, waited_ns = (group, number), rank.state.data_ns
            waits[number] = max(0, waited_ns - watched.data_ns.get(key, waited_ns)) / window_ns
            watched.data_ns[key] = waited_ns
        return waits

    def _begun(
        self, job: TrainingJob, number: int, watch: _Watch, evidence: Evidence, now_ns: int, *,
        by_data: float,
    ) -> Event:  # fmt: skip
        rank = job.ranks[number]
        at_ns = max(job.at_ns(rank.node, now_ns), watch.since_ns)
        fault = f"{job.name}/rank{number}/slow-{watch.since_ns}"
        return Event(
            id=fault, kind=STRAGGLER.name, who=f"{job.name}/rank{number}",
            state="data" if by_data >= _BY_DATA else "compute", at_ns=at_ns, since_ns=watch.since_ns, fault=fault,
            evidence=evidence, related={"jobs": (job.name,), "nodes": (rank.node,)},
        )  # fmt: skip

    def _ended(self, begun: Event, state: str, now_ns: int, evidence: Evidence) -> Event:
        node = begun.related.get("nodes", ("",))[0]
        job = self._inventory.training.get(begun.who.partition("/")[0])
        at_ns = self._inventory.at_ns(node, now_ns) if job is None else job.at_ns(node, now_ns)
        relief = ended(begun, state, max(at_ns, begun.since_ns), evidence)
        return msgspec.structs.replace(relief, related=begun.related)


def _by_data(each: Excess, waits: dict[int, float]) -> float:
    """The share of what a rank costs for which it waited longer for its data than its peers."""
    others = [wait for other, wait in waits.items() if other != each.rank]
    usual = statistics.median(others) if others else 0.0
    return (waits.get(each.rank, 0.0) - usual) / each.share if each.share > 0 else 0.0


def _evidence(each: Excess) -> dict[str, float | int | str | bool]:
    return {
        "share": round(each.share, 3),
        "late_ms": round(each.excess_ns / each.numbers / 1e6, 3),
        "each_ms": round(each.window_ns / each.numbers / 1e6, 3),
    }
