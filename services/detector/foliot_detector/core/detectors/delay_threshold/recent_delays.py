"""How the delays of one path are spread over the reports of a window, and their p99."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_schemas.delay_buckets import BUCKETS, MIDDLE_NS, bucket_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import Delays


_Packed = tuple[int, bytes, bytes]
"""A report: when it was true, its buckets (one byte each), and how many lie in each (four). It takes half of what arrays
take."""


class Counts(NamedTuple):
    """The delays of a path in one report: buckets, and how many lie in each."""

    bucket: NDArray[np.integer[Any]]
    probes: NDArray[np.integer[Any]]


def counts_of(seen: Delays, rows: NDArray[np.intp]) -> list[Counts]:
    """The delays that some rows of a batch are about.

    A node of before tells three delays of its probes. Each stands for as many probes as lie nearest to it: the least
    and the p99 for one each, the median for all others. With three probes at most that is what they were.
    """
    told = seen.rows.take(rows)
    if seen.histogram is None:
        received = told["received"].astype(np.int64)
        probes = np.stack([received > 1, np.maximum(received - 2, 0), received > 0], axis=1)
        buckets = np.stack([bucket_of(told[name]) for name in ("least_ns", "median_ns", "p99_ns")], axis=1)
        return [*map(Counts, buckets, probes)]
    path, bucket, probes = (seen.histogram[name] for name in ("path", "bucket", "probes"))
    order = np.argsort(path, kind="stable")
    first = np.searchsorted(path[order], told["path"], "left").tolist()
    stop = np.searchsorted(path[order], told["path"], "right").tolist()
    parts = (order[begin:end] for begin, end in zip(first, stop, strict=True))
    return [Counts(bucket[part], probes[part]) for part in parts]


class RecentDelays:
    """The delays of a path in its latest reports."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._reports: collections.deque[_Packed] = collections.deque()
        self._begun_ns = 0
        self._probes = np.zeros(BUCKETS, np.int64)
        """By bucket, of all these reports."""

    def add(self, here_ns: int, counts: Counts) -> None:
        """Takes a report, with when it was true on the timeline, and forgets those from before the window."""
        self._begun_ns = self._begun_ns or here_ns
        packed = counts.bucket.astype(np.uint8).tobytes(), counts.probes.astype(np.uint32).tobytes()
        self._reports.append((here_ns, *packed))
        np.add.at(self._probes, counts.bucket, counts.probes)
        while here_ns - self._reports[0][0] >= self._window_ns:
            _, bucket, probes = self._reports.popleft()
            np.subtract.at(self._probes, np.frombuffer(bucket, np.uint8), np.frombuffer(probes, np.uint32))

    @property
    def is_whole(self) -> bool:
        """Whether the reports reach back as far as the window does."""
        return bool(self._reports) and self._reports[-1][0] - self._begun_ns >= self._window_ns

    @property
    def probes(self) -> int:
        """How many probes have a delay."""
        return int(self._probes.sum())

    def above(self, limit_ns: int) -> int:
        """How many probes have a delay above a limit, to 3 % of it."""
        return int(self._probes[np.searchsorted(MIDDLE_NS, limit_ns, side="right") :].sum())

    @property
    def p99_ns(self) -> int:
        """The delay that 99 % of the probes did not exceed, to 3 %; 0: there are none.

        Of less than a hundred probes that is the longest.
        """
        reached = self._probes.cumsum()
        return int(MIDDLE_NS[np.searchsorted(100 * reached, 99 * reached[-1])]) if reached[-1] else 0
