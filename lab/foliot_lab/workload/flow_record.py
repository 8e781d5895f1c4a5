"""The record of each flow in shared memory: bytes and longest gap per slot, and errors; of jobs, also their steps.

The flows' process writes it, and the lab reads it. The lab writes one thing: which jobs are to run. Times are lab time
in ns. Bytes are counted when they are read, a few milliseconds after their arrival. Gaps are measured between the
kernel's receive timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mmap

    from numpy.typing import NDArray

SLOT_NS = 20_000_000
GAP_NS = 10_000_000
"""The shortest gap that is kept. Below two turns of the loop that reads, gaps are the senders' own bursts."""
_MICROSECOND_NS = 1_000
_ERRORS = 1 << 12
_STEPS = 1 << 16
"""Steps kept, of all jobs together: at ten a second, an hour and three quarters."""
_BASE, _ERROR_COUNT, _WRITTEN, _STEP_COUNT = range(4)
_HEADER = 8


class FlowRecord:
    """The record of `flows` flows and `jobs` jobs over the last `slots` slots of 20 ms.

    Flows and jobs are counted from 0. One process writes, any may read.

    Parameters:
        buffer: at least `size` bytes, zeroed; shared between writer and readers.
        jobs: 0: the flows are of no job. Then no steps are kept.
    """

    def __init__(self, buffer: mmap.mmap | bytearray, flows: int, slots: int, jobs: int = 0) -> None:
        words = np.frombuffer(buffer, dtype=np.int64, count=_words(flows, jobs))
        self._header = words[:_HEADER]
        self.opened_ns = words[_HEADER : _HEADER + flows]
        """When each flow's first connection carried its first byte; 0: not yet."""
        self.last_ns = words[_HEADER + flows : _HEADER + 2 * flows]
        """Arrival of each flow's last byte, or when nothing was due of it for the last time; 0: never."""
        rest = words[_HEADER + 2 * flows :]
        self._errors = rest[: 3 * _ERRORS].reshape(_ERRORS, 3)
        self._wanted = rest[3 * _ERRORS : 3 * _ERRORS + jobs]
        self._steps = rest[3 * _ERRORS + jobs :].reshape(-1, 3)
        """Job, beginning and end of each step."""
        count = flows * slots
        tables = np.frombuffer(buffer, dtype=np.uint32, count=_tables(jobs) * count, offset=words.nbytes)
        self._bytes = tables[:count].reshape(slots, flows)
        self._gaps = tables[count : 2 * count].reshape(slots, flows)
        """The longest gap that ended in each slot, in microseconds."""
        self._due = tables[2 * count :].reshape(slots if jobs else 0, flows)
        """The time of each slot for which bytes of a flow were due, in microseconds."""
        self._slots = slots

    @staticmethod
    def size(flows: int, slots: int, jobs: int = 0) -> int:
        """Bytes that the buffer needs."""
        return 8 * _words(flows, jobs) + _tables(jobs) * 4 * flows * slots

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(self, base_ns: int) -> None:
        """Sets the start of slot 0."""
        self._header[_BASE] = base_ns

    def slot(self, at_ns: int) -> int:
        """The number of the slot of a time, counted from the start."""
        return int(at_ns - int(self._header[_BASE])) // SLOT_NS

    def clear(self, slot: int) -> None:
        """Makes room for a slot that begins: the oldest is forgotten."""
        self._bytes[slot % self._slots] = 0
        self._gaps[slot % self._slots] = 0
        if len(self._due):
            self._due[slot % self._slots] = 0

    def received(self, slot: int, flow: int, count: int) -> None:
        """Counts bytes."""
        self._bytes[slot % self._slots, flow] += count

    def gap(self, slot: int, flow: int, gap_ns: int) -> None:
        """Writes down that a time without a byte ended in a slot."""
        row = slot % self._slots
        self._gaps[row, flow] = max(int(self._gaps[row, flow]), gap_ns // _MICROSECOND_NS)

    def error(self, flow: int, at_ns: int, number: int) -> None:
        """Writes down a socket error by its errno; 0: the connection was closed by the other end."""
        count = int(self._header[_ERROR_COUNT])
        self._errors[count % _ERRORS] = flow, at_ns, number
        self._header[_ERROR_COUNT] = count + 1

    def was_due(self, slot: int, flow: int, lasted_ns: int) -> None:
        """Counts time for which bytes of a job's flow were due."""
        self._due[slot % self._slots, flow] += lasted_ns // _MICROSECOND_NS

    def step(self, job: int, began_ns: int, ended_ns: int) -> None:
        """Writes down a job's step that is over."""
        count = int(self._header[_STEP_COUNT])
        self._steps[count % _STEPS] = job, began_ns, ended_ns
        self._header[_STEP_COUNT] = count + 1

    def want(self, job: int, *, runs: bool) -> None:
        """The lab's word to the flows' process: a job is to run, or to stop sending."""
        self._wanted[job] = runs

    def written(self, at_ns: int) -> None:
        """Declares that everything before this moment stands in the record."""
        self._header[_WRITTEN] = at_ns

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def written_ns(self) -> int:
        """The time up to which the record reaches."""
        return int(self._header[_WRITTEN])

    def mbps(self, flow: int, since_ns: int, until_ns: int) -> float | None:
        """Megabits received per second, over an interval's whole slots that the record still has; None without any."""
        rows = self._rows(since_ns, until_ns)
        if not len(rows):
            return None
        return float(self._bytes[rows, flow].sum(dtype=np.int64)) * 8e3 / (len(rows) * SLOT_NS)

    def mbps_while_due(self, flow: int, since_ns: int, until_ns: int) -> float | None:
        """The rate of a job's flow as in `mbps`, over the time for which bytes of it were due; None without any.

        So a flow that waits for the slowest of its job is not slower for that.
        """
        rows = self._rows(since_ns, until_ns)
        due_us = int(self._due[rows, flow].sum(dtype=np.int64))
        return float(self._bytes[rows, flow].sum(dtype=np.int64)) * 8 / due_us if due_us else None

    def steps(self, job: int, since_ns: int, until_ns: int) -> NDArray[np.int64]:
        """The steps of a job that began and ended within an interval, a row each: beginning, end."""
        rows = self._steps[: min(int(self._header[_STEP_COUNT]), _STEPS)]
        mine = (rows[:, 0] == job) & (rows[:, 1] >= since_ns) & (rows[:, 2] <= until_ns) & (rows[:, 2] > 0)
        found = rows[mine, 1:]
        return found[np.argsort(found[:, 0])]

    def is_wanted(self, job: int) -> bool:
        """Whether a job is to run."""
        return bool(self._wanted[job])

    def errors(self, flow: int, since_ns: int, until_ns: int) -> int:
        """Socket errors, resets and unasked ends in an interval."""
        rows = self._errors[: min(int(self._header[_ERROR_COUNT]), _ERRORS)]
        mine = (rows[:, 0] == flow) & (rows[:, 1] >= since_ns) & (rows[:, 1] <= until_ns)
        return int(mine.sum())

    def longest_gap_ms(self, flow: int, since_ns: int, until_ns: int) -> float:
        """The longest time without a byte that overlaps an interval, whole; 0 if all were under 10 ms."""
        gaps = self.gaps(flow, since_ns, until_ns)
        return max((until - since for since, until in gaps), default=0) * 1e-6

    def gaps(self, flow: int, since_ns: int, until_ns: int) -> list[tuple[int, int]]:
        """The times without a byte that overlap an interval, each whole, as since and until.

        Gaps under 10 ms are not kept; of several that ended in one slot, the longest is. A gap is too long by at most 5
        ms. The first byte after it may be stamped like the last of those read with it. The slot tells the end of a gap.
        The last gap may be open, to the end of the interval or of the record.
        """
        slots = np.arange(max(self.slot(since_ns), self._oldest()), self.slot(self.written_ns) + 1)
        lengths_ns = self._gaps[slots % self._slots, flow].astype(np.int64) * _MICROSECOND_NS
        ended_ns = int(self._header[_BASE]) + (slots + 1) * SLOT_NS
        began_ns = ended_ns - lengths_ns
        some = (lengths_ns > 0) & (began_ns < until_ns)
        found = [(int(since), int(until)) for since, until in zip(began_ns[some], ended_ns[some], strict=True)]
        last_ns = int(self.last_ns[flow])
        open_until_ns = min(until_ns, self.written_ns)
        if last_ns and open_until_ns - last_ns >= GAP_NS:
            found.append((last_ns, open_until_ns))
        return found

    def _rows(self, since_ns: int, until_ns: int) -> NDArray[np.intp]:
        """The rows of an interval's whole slots that the record still has."""
        first = max(-(-(since_ns - int(self._header[_BASE])) // SLOT_NS), self._oldest())
        last = min(self.slot(until_ns), self.slot(self.written_ns))
        return np.arange(first, last, dtype=np.intp) % self._slots

    def _oldest(self) -> int:
        """The oldest slot that is still in the record."""
        return max(self.slot(self.written_ns) - self._slots + 1, 0)


def _words(flows: int, jobs: int) -> int:
    return _HEADER + 2 * flows + 3 * _ERRORS + (jobs + 3 * _STEPS if jobs else 0)


def _tables(jobs: int) -> int:
    return 3 if jobs else 2
