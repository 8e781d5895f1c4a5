"""One-way delays over the user's own thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from foliot.columns import grown
from foliot_detector.core.detectors.delay_threshold.recent_delays import Counts, RecentDelays, counts_of
from foliot_detector.core.detectors.delay_threshold.settings import OfJob, Pair, Rail, ThresholdRule
from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.state.path_table import Delays
from foliot_schemas import Event, Job, Node, NodePaths, Witness
from foliot_schemas.event_kinds import THRESHOLD
from foliot_schemas.names import Path, node_of, rail_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_detector.core.detectors.delay_threshold.settings import DelayThresholdSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

_S = 1_000_000_000
_SHORTEST_NS = _S
"""A p99 is of the reports of a second at least."""
_BREAK_NS = 5 * _S // 4
"""Delays are over a threshold without a break while no two reports that show it lie further apart. A path of the
slowest sweep has a probe a second."""
_BREAK_REPORTS = 1.25
"""So it is where reports come seldom, in their intervals."""
_MANY = 100
"""From so many delays on, a p99 is more than the longest of them, and says by itself whether it is over a threshold
without a break."""
_LEAST = 3
"""Late probes that it takes then. Two of some hundred are often late by chance."""
_UNDER = 0.8
"""Share of a threshold that delays must stay under to be under it again."""
_AGAIN_NS = _S
_MOST_NAMES = 1_024
"""Paths in an event, at most."""


class _Moment(NamedTuple):
    """When a report was true."""

    here_ns: int
    """On the timeline."""
    at_ns: int
    """By the receiver's reference time."""


@dataclass(slots=True)
class _Late:
    """A path with delays over the threshold lately."""

    delays: RecentDelays
    close_since: _Moment | None = None
    """The first of an unbroken series of reports with a late probe."""
    p99_since: _Moment | None = None
    """Since when the window's p99 is over the threshold."""
    latest_ns: int = 0
    """The last report with a late probe."""
    is_over: bool = False
    """Over it for long enough, and not under it again."""
    over_since_ns: int = 0
    """Since when, by the receiver's reference time."""

    def note(self, at: _Moment, counts: Counts, limit_ns: int, break_ns: int) -> None:
        """Takes a report; `break_ns` is 0 if no probe of it is late."""
        self.delays.add(at.here_ns, counts)
        if break_ns:
            if at.here_ns - self.latest_ns > break_ns:
                self.close_since = at
            self.latest_ns = at.here_ns
        is_over = self.delays.p99_ns > limit_ns and self.delays.above(limit_ns) >= _LEAST
        self.p99_since = (self.p99_since or at) if is_over else None

    def judge(self, at: _Moment, limit_ns: int, hold_ns: int) -> None:
        """Looks whether it is over the threshold for long enough, after a report with a late probe."""
        since = self.p99_since if self.delays.probes >= _MANY else self.close_since
        if self.is_over or since is None or at.here_ns - since.here_ns < hold_ns or self.delays.p99_ns <= limit_ns:
            return
        self.is_over, self.over_since_ns = True, since.at_ns


@dataclass(slots=True)
class _Watch:
    """One threshold, and the paths that it is about."""

    rule: ThresholdRule
    about: Path | Pair | Rail | OfJob
    limit_ns: int
    hold_ns: int
    is_watched: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """By path."""
    paths: dict[str, list[int]] = field(default_factory=dict)
    """By the node that sends on them."""
    late: dict[int, _Late] = field(default_factory=dict)
    open: Event | None = None
    job: Job | None = None
    """The job that it is about, as it was when its paths were chosen."""

    @property
    def window_ns(self) -> int:
        """The time of which a p99 is."""
        return max(_SHORTEST_NS, self.hold_ns)


class DelayThresholdDetector:
    """Events of kind ``threshold``.

    A threshold is over while any path is that it is about. Delays count if the clocks of both ends are synchronised.
    """

    def __init__(self, inventory: Inventory, settings: DelayThresholdSettings) -> None:
        self._inventory = inventory
        self._watches = [
            _Watch(rule, rule.about(), round(rule.p99_us * 1e3), round(rule.for_s * _S)) for rule in settings.thresholds
        ]
        self._stirred: dict[str, None] = {}
        """Nodes whose ways are to be looked at again."""
        self._look_ns = 0

    def resume(self, event: Event) -> None:
        """Watches whether what an earlier run said to be over a threshold is under it again."""
        watch = next((watch for watch in self._watches if watch.rule.name == event.who), None)
        if event.kind != THRESHOLD.name or event.state != "over" or watch is None:
            return
        watch.open = event
        names = event.related.get("paths", ())
        for place in self._inventory.paths.ids(names, self._inventory.nics).tolist():
            if place >= 0:
                watch.late[place] = _Late(RecentDelays(watch.window_ns), is_over=True)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:  # noqa: ARG002 - reports have their own time
        """Takes delays, and which paths traffic takes."""
        if not self._watches:
            return []
        if isinstance(seen, NodePaths):
            self._stirred[seen.node] = None
        elif isinstance(seen, Node):
            self._stirred[seen.name] = None
        elif isinstance(seen, Delays):
            return [event for watch in self._watches for event in self._take(watch, seen)]
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Looks once a second at the paths that thresholds are about."""
        if not self._watches or now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + _AGAIN_NS
        stirred, self._stirred = self._stirred, {}
        events = []
        for watch in self._watches:
            for node in stirred | self._moved_by_job(watch):
                if not self._choose(watch, node):
                    self._stirred[node] = None
            for place in [place for place in watch.late if not watch.is_watched[place : place + 1].any()]:
                del watch.late[place]
            events += self._relieved(watch, now_ns)
        return events

    # -- inside -------------------------------------------------------------------------------------------------------

    def _moved_by_job(self, watch: _Watch) -> dict[str, None]:
        """The nodes of a watched job that has come, changed or ended."""
        if not isinstance(watch.about, OfJob):
            return {}
        before, watch.job = watch.job, self._inventory.jobs.get(watch.about.name)
        if before == watch.job:
            return {}
        return {node_of(nic): None for job in (before, watch.job) if job is not None for nic in job.nics}

    def _choose(self, watch: _Watch, node: str) -> bool:
        """Finds the paths from a node that a threshold is about. Returns whether all of them are known."""
        table = self._inventory.paths
        watch.is_watched = grown(watch.is_watched, table.room)
        watch.is_watched[watch.paths.pop(node, [])] = False
        places = [table.id_of(path) for path in self._about(watch, node)]
        watch.paths[node] = known = [place for place in places if place >= 0]
        watch.is_watched[known] = True
        return len(known) == len(places)

    def _about(self, watch: _Watch, node: str) -> Iterable[Path]:
        about = watch.about
        if node not in self._inventory.nodes:
            return ()
        if isinstance(about, Path):
            return (about,) if node_of(about.source) == node else ()
        if isinstance(about, OfJob):
            return self._inventory.ways.within(node, about.name, self._inventory.jobs)
        in_use = self._inventory.ways.in_use(node)
        if isinstance(about, Rail):
            return (path for path in in_use if rail_of(path.source) == about.name)
        return (path for path in in_use if (node, node_of(path.destination)) == about)

    def _take(self, watch: _Watch, seen: Delays) -> list[Event]:
        rows = seen.rows
        if not 0 <= seen.bound_ns < watch.limit_ns or not len(watch.is_watched):
            return []
        ids = np.minimum(seen.ids, len(watch.is_watched) - 1)
        # Of a probe that was just heard, the delay may not be known yet.
        timed = (rows["witness"] == Witness.DESTINATION) & (rows["p99_ns"] != 0) & watch.is_watched[ids]
        known = np.flatnonzero(timed)
        is_late = rows["p99_ns"][known] > watch.limit_ns
        was_late = np.array([place in watch.late for place in seen.ids[known].tolist()], np.bool_)
        chosen = known[is_late | was_late]
        if not len(chosen):
            return []
        places, p99s_ns = seen.ids[chosen].tolist(), rows["p99_ns"][chosen].tolist()
        for place, p99_ns, counts in zip(places, p99s_ns, counts_of(seen, chosen), strict=True):
            self._report(watch, place, seen, counts, is_late=p99_ns > watch.limit_ns)
        return self._begun(watch, seen) or self._relieved(watch, seen.at_here_ns)

    def _report(self, watch: _Watch, place: int, seen: Delays, counts: Counts, *, is_late: bool) -> None:
        source = self._inventory.paths.nodes[self._inventory.paths.source_node[place]]
        if self._inventory.bound_ns.get(source, -1) < 0:
            return
        late, at = watch.late.get(place), _Moment(seen.at_here_ns, seen.at_ns)
        if late is None:
            late = watch.late[place] = _Late(RecentDelays(watch.window_ns))
        break_ns = max(_BREAK_NS, round(_BREAK_REPORTS * self._inventory.interval_ns(seen.node)))
        late.note(at, counts, watch.limit_ns, break_ns if is_late else 0)
        if is_late:
            late.judge(at, watch.limit_ns, watch.hold_ns)
        elif late.is_over:
            late.is_over = not late.delays.is_whole or late.delays.p99_ns >= _UNDER * watch.limit_ns
        elif at.here_ns - late.latest_ns > max(_BREAK_NS, watch.window_ns):
            del watch.late[place]

    def _begun(self, watch: _Watch, seen: Delays) -> list[Event]:
        if watch.open is not None:
            return []
        over = {place: late for place, late in watch.late.items() if late.is_over}
        if not over:
            return []
        worst = max(over, key=lambda place: (over[place].delays.p99_ns, -place))
        since_ns = min(late.over_since_ns for late in over.values())
        names = self._inventory.paths.names
        fault = f"{watch.rule.name}/over-{since_ns}"
        related = {"paths": tuple(sorted(names[place] for place in over)[:_MOST_NAMES])}
        if isinstance(watch.about, OfJob):
            related["jobs"] = (watch.about.name,)
        watch.open = Event(
            id=fault, kind=THRESHOLD.name, who=watch.rule.name, state="over", at_ns=max(seen.at_ns, since_ns),
            since_ns=since_ns, fault=fault, evidence=_evidence(watch, over[worst].delays) | {"worst": names[worst]},
            related=related,
        )  # fmt: skip
        return [watch.open]

    def _relieved(self, watch: _Watch, now_ns: int) -> list[Event]:
        begun = watch.open
        if begun is None or any(late.is_over for late in watch.late.values()):
            return []
        watch.open = None
        first = begun.related.get("paths", ("",))[0]
        at_ns = max(self._inventory.at_ns(node_of(first.partition(">")[2].partition("#")[0]), now_ns), begun.since_ns)
        delays = max((late.delays for late in watch.late.values()), key=lambda each: each.p99_ns, default=None)
        relief = ended(begun, "under", at_ns, _evidence(watch, delays))
        return [msgspec.structs.replace(relief, related=begun.related)]


def _evidence(watch: _Watch, delays: RecentDelays | None) -> dict[str, float | int | str]:
    return {
        "p99_us": 0.0 if delays is None else round(delays.p99_ns / 1e3, 1),
        "threshold_us": watch.rule.p99_us,
        "for_s": watch.rule.for_s,
        "of": watch.rule.of,
        "probes": 0 if delays is None else delays.probes,
    }
