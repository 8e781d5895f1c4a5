"""The delays of one path in the reports of a window, and their p99."""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np


class Report(NamedTuple):
    """A receiver's word of the probes of an interval."""

    here_ns: int
    """When it was true, on the timeline."""
    received: int
    least_ns: int
    median_ns: int
    p99_ns: int


class RecentDelays:
    """Reports of a path, the latest last.

    A report has three delays of its probes. Each stands for as many probes as lie nearest to it: the least and the p99
    for one each, the median for all others. With three probes at most that is what they were.
    """

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._reports: collections.deque[Report] = collections.deque()
        self._begun_ns = 0

    def add(self, report: Report) -> None:
        """Takes a report, and forgets those from before the window."""
        self._begun_ns = self._begun_ns or report.here_ns
        self._reports.append(report)
        while report.here_ns - self._reports[0].here_ns > self._window_ns:
            self._reports.popleft()

    @property
    def is_whole(self) -> bool:
        """Whether the reports reach back as far as the window does."""
        return bool(self._reports) and self._reports[-1].here_ns - self._begun_ns >= self._window_ns

    @property
    def probes(self) -> int:
        """How many probes were received."""
        return sum(report.received for report in self._reports)

    @property
    def p99_ns(self) -> int:
        """The delay that 99 % of the probes did not exceed; 0: none was received.

        Of less than a hundred probes that is the longest.
        """
        if not self._reports:
            return 0
        received, *delays = np.array([report[1:] for report in self._reports], np.int64).T
        counts = np.stack([received > 1, np.maximum(received - 2, 0), received > 0])
        values = np.concatenate(delays)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(counts.ravel()[order])
        return int(values[order][np.searchsorted(reached, 0.99 * reached[-1])]) if reached[-1] else 0
