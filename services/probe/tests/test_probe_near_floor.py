"""How many probes of each direction came near the quickest one."""

from __future__ import annotations

import numpy as np

from foliot_probe.core.measure.near_floor import near_floor
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.measure.slope_range import SlopeRange

PPM = 1e-6
APART = 20 * PPM
"""What the responders' clocks gain on the initiator's."""
KNOWN = 10e-9


def probes(row, direction, delays_ns):
    """Probes of a row, spread over two seconds, of clocks that run apart."""
    sent_ns = 10**15 + np.linspace(0, 2e9, len(delays_ns)).astype(np.int64)
    came_ns = sent_ns + np.asarray(delays_ns, np.int64)
    gained_ns = ((came_ns if direction == 0 else sent_ns) - 10**15) * APART
    gained_ns = np.rint(gained_ns).astype(np.int64)
    stamps = (sent_ns, came_ns + gained_ns) if direction == 0 else (sent_ns + gained_ns, came_ns)
    return Completed(np.full(len(sent_ns), row), np.arange(len(sent_ns)), *stamps)


def together(*several):
    """All of these, ordered by row."""
    return Completed(*map(np.concatenate, zip(*several, strict=True)))


def slopes(rows, doubt=KNOWN):
    """The range of slopes of each row's line."""
    return SlopeRange(np.full(rows, APART - doubt), np.full(rows, APART + doubt))


def test_both_directions_are_counted_within_the_narrower_ones_median():
    """A tenth of the probes forth meet no queue, and all of those back.

    The clocks gain forty microseconds in the window, which nobody mistakes for a queue.
    """
    random = np.random.default_rng(1)
    work = random.uniform(0, 100, (2, 200))
    queues = np.where(np.arange(200) % 10 == 0, 0, 50_000 + random.uniform(0, 50_000, 200))
    directions = probes(1, 0, 5_000 + work[0] + queues), probes(1, 1, 5_000 + work[1])
    forth, back = near_floor(directions, slopes(3))
    assert (forth[[0, 2]] == 0).all()
    assert (back[[0, 2]] == 0).all()
    assert 95 <= back[1] <= 105
    assert 5 <= forth[1] <= 16


def test_rows_are_counted_apart():
    """Each by its own delays, wherever the other rows' clocks are."""
    random = np.random.default_rng(2)
    several = [
        [probes(row, direction, 4_000 * (row + 1) + random.uniform(0, 10.0 ** (row + 1), 100)) for row in range(3)]
        for direction in (0, 1)
    ]
    alone = [near_floor([each[row] for each in several], slopes(3)) for row in range(3)]
    found = near_floor([together(*each) for each in several], slopes(3))
    assert [[counts[row] for counts in found] for row in range(3)] == [
        [counts[row] for counts in alone[row]] for row in range(3)
    ]


def test_nothing_is_counted_along_a_line_that_nobody_knows():
    """Where clocks may run apart by more than a millionth, they spread a window's delays themselves."""
    directions = [probes(0, direction, np.full(50, 5_000) + np.arange(50)) for direction in (0, 1)]
    assert [counts[0] > 0 for counts in near_floor(directions, slopes(1))] == [True, True]
    for unknown in (slopes(1, doubt=PPM), SlopeRange.unknown(1)):
        assert [counts[0] for counts in near_floor(directions, unknown)] == [0, 0]


def test_one_direction_alone_is_not_counted():
    """There is nothing to compare it with; and no probes at all are no trouble."""
    nothing = Completed(*(np.zeros(0, np.int64) for _ in Completed._fields))
    assert [counts.tolist() for counts in near_floor((probes(0, 0, np.arange(50)), nothing), slopes(1))] == [[0], [0]]
    assert [counts.tolist() for counts in near_floor((nothing, nothing), slopes(2))] == [[0, 0], [0, 0]]
