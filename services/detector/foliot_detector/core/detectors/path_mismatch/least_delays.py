"""The least one-way delay of some paths in the latest reports."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.columns import grown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_detector.core.state.path_table import Delays, PathTable

_S = 1_000_000_000
_KEPT_NS = 5 * _S
"""How old a report may be: a reading of a flow waits for later ones, and is of a second before it."""
_WATCHED_NS = 10 * _S
"""For how long a path is watched after it was last asked for."""
_HOLE_NS = _S // 4
"""Reports with a delay may lie so far apart. In three of four reports of a path in use there is one at least."""


class _Report(NamedTuple):
    """The least delay of a path in one report, and the time on the timeline of which that is."""

    since_ns: int
    until_ns: int
    least_ns: int


class LeastDelays:
    """Of the paths that somebody watches, and of no others."""

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._is_watched = np.zeros(0, np.bool_)
        self._asked_ns: dict[int, int] = {}
        self._reports: collections.defaultdict[int, collections.deque[_Report]] = collections.defaultdict(
            collections.deque
        )

    def watch(self, paths: Iterable[int], now_ns: int) -> None:
        """Begins to watch paths, or goes on."""
        self._is_watched = grown(self._is_watched, self._table.room)
        for path_id in paths:
            self._asked_ns[path_id] = now_ns
            self._is_watched[path_id] = True

    def add(self, seen: Delays) -> None:
        """Takes the receiving end's rows of a batch; without a synchronised clock, it says nothing."""
        if seen.bound_ns < 0 or not self._asked_ns:
            return
        rows, ids = seen.rows, np.minimum(seen.ids, len(self._is_watched) - 1)
        chosen = np.flatnonzero(seen.timed & self._is_watched[ids] & (ids == seen.ids))
        since_ns, until_ns = seen.at_here_ns - seen.interval_ns, seen.at_here_ns
        for path_id, least_ns in zip(seen.ids[chosen].tolist(), rows["least_ns"][chosen].tolist(), strict=True):
            reports = self._reports[path_id]
            reports.append(_Report(since_ns, until_ns, least_ns))
            while until_ns - reports[0].until_ns > _KEPT_NS:
                reports.popleft()

    def drop_unasked(self, now_ns: int) -> None:
        """Watches no longer what nobody has asked for lately."""
        for path_id in [each for each, asked_ns in self._asked_ns.items() if now_ns - asked_ns > _WATCHED_NS]:
            del self._asked_ns[path_id]
            self._is_watched[path_id] = False
            self._reports.pop(path_id, None)

    def latest_ns(self, path_id: int) -> int | None:
        """The least delay of the latest report; None: there is none."""
        reports = self._reports.get(path_id)
        return reports[-1].least_ns if reports else None

    def least_ns(self, path_id: int, since_ns: int, until_ns: int) -> int | None:
        """The least delay between two times; None: the path was not heard all the while."""
        reports = self._reports.get(path_id, ())
        found = [each for each in reports if each.until_ns >= since_ns and each.since_ns <= until_ns]
        heard_ns = since_ns
        for report in found:
            if report.since_ns - heard_ns > _HOLE_NS:
                return None
            heard_ns = max(heard_ns, report.until_ns)
        return min(each.least_ns for each in found) if found and until_ns - heard_ns <= _HOLE_NS else None

    def quickest_ns(self, paths: Iterable[int], since_ns: int, until_ns: int) -> int | None:
        """The least delay of any of these paths between two times, however seldom they were heard; None: none was."""
        reports = (report for path_id in paths for report in self._reports.get(path_id, ()))
        return min((each.least_ns for each in reports if since_ns <= each.until_ns <= until_ns), default=None)
