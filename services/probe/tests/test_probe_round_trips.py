"""Which clocks are near: by the least round trips, whatever the clocks are wrong by."""

from __future__ import annotations

import numpy as np
import pytest

from foliot_probe.core.measure.one_way_delay import References
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.rate.clock_neighbours import Pair
from foliot_probe.core.rate.round_trips import WINDOWS, RoundTrips
from foliot_probe.core.stream_table import StreamEnds, StreamKey
from foliot_schemas import ClockState


def known(offset_ns, rows):
    """Clocks that sync believes to be so far from the reference; NaN: it knows nothing of them."""
    references = References(rows)
    for row, each in enumerate(np.broadcast_to(offset_ns, rows)):
        if np.isfinite(each):
            state = ClockState(
                clock="a", reference="a", offset_ns=int(each), drift_ppb=0.0, hard_bound_ns=500, bound_ns=50,
                growth_ppb=0.0, as_of_ns=0, void_after_ns=1 << 60, status="synchronised",
            )  # fmt: skip
            references.set(row, state)
    return references


def probes(*delays_ns):
    """One direction: of each row, probes of these delays, by clocks that are right."""
    rows = [row for row, each in enumerate(delays_ns) for _ in each]
    sent_ns = 1_000_000 * np.arange(1, len(rows) + 1)
    late_ns = np.array([delay for each in delays_ns for delay in each], np.int64)
    return [Completed(np.array(rows, np.intp), np.arange(len(rows)), sent_ns, sent_ns + late_ns)]


class Minute:
    """A node `a` with a peer in each row, and windows that are all alike."""

    def __init__(self, rows, entropies=1):
        self.rows = rows
        self.trips = RoundTrips(rows)
        self.ends = [
            StreamEnds(
                StreamKey(f"n{row // entropies}", "rail0", row % entropies),
                "",
                "",
                "a",
                f"n{row // entropies}",
                initiator=True,
            )
            for row in range(rows)
        ]

    def near(self, trips_ns, *, own=0.0, peers=0.0, windows=WINDOWS):
        """The near peers after so many windows with round trips of these lengths, two thirds of them on the way back."""
        forth, back = [[trip // 3, trip] for trip in trips_ns], [[trip, trip - trip // 3] for trip in trips_ns]
        for number in range(windows):
            over = self.trips.take((probes(*forth), probes(*back)), known(own, self.rows), known(peers, self.rows))
            assert over == (number + 1 == windows == WINDOWS)
        return {pair.peer for pair in self.trips.near(self.ends) if pair.own == "a"}


TWO_LEAVES_NS = (2_000, 2_050, 1_990, 5_000, 5_200, 4_990)


def test_those_under_the_same_leaf_are_near():
    """By the least round trip: other probes met queues."""
    assert Minute(6).near(TWO_LEAVES_NS) == {"n0", "n1", "n2"}


@pytest.mark.parametrize("wrong_ns", [3_000, -3_000, 50_000])
def test_a_clock_that_is_wrong_is_as_near_as_it_is(wrong_ns):
    """What is added to one direction is taken from the other."""
    assert Minute(6).near(TWO_LEAVES_NS, own=wrong_ns) == {"n0", "n1", "n2"}
    assert Minute(6).near(TWO_LEAVES_NS, peers=np.array([0, wrong_ns, 0, 0, wrong_ns, 0])) == {"n0", "n1", "n2"}


def test_where_all_are_as_far_all_are_near():
    """Then the choice is what it would be without."""
    assert Minute(6).near((2_000, 2_050, 1_990, 2_010, 2_100, 2_080)) == {f"n{row}" for row in range(6)}


def test_one_peer_alone_is_near_nobody():
    """Nor are two: both are neighbours in any case."""
    assert Minute(2).near((2_000, 5_000)) == set()


def test_a_peer_is_as_near_as_its_nearest_path():
    """Paths by several spines and NICs have their own lengths."""
    assert Minute(8, entropies=2).near((9_000, 2_000, 9_000, 2_050, 9_000, 5_000, 9_000, 5_000)) == {"n0", "n1"}


def test_a_clock_that_is_not_known_is_not_near():
    """Its delays say nothing."""
    peers = np.array([np.nan, 0, 0, 0, 0, 0])
    assert Minute(6).near(TWO_LEAVES_NS, peers=peers) == {"n1", "n2"}


def test_what_is_older_than_two_minutes_does_not_count():
    """A host was moved to another leaf."""
    minute = Minute(6)
    moved_ns = (*TWO_LEAVES_NS[3:], *TWO_LEAVES_NS[:3])
    assert minute.near(TWO_LEAVES_NS) == {"n0", "n1", "n2"}
    assert minute.near(moved_ns) == {f"n{row}" for row in range(6)}
    assert minute.near(moved_ns) == {"n3", "n4", "n5"}


def test_who_was_near_stays_so_a_little_further():
    """Noise does not change neighbours to and fro."""
    minute = Minute(4)
    assert minute.near((2_000, 2_000, 2_150, 5_000)) == {"n0", "n1", "n2"}
    for _ in range(3):  # until nothing is left of the first minute
        assert minute.near((2_000, 2_000, 2_300, 5_000)) == {"n0", "n1", "n2"}
    assert Minute(4).near((2_000, 2_000, 2_300, 5_000)) == {"n0", "n1"}


def test_a_row_whose_stream_has_ended_is_another_ones():
    """The next peer there begins anew."""
    minute = Minute(6)
    minute.near(TWO_LEAVES_NS, windows=1)
    for row in range(6):
        minute.trips.forget(row)
    assert minute.trips.near(minute.ends) == frozenset()


def test_rows_come_as_peers_do():
    """They are not known at first."""
    minute = Minute(6)
    minute.near(TWO_LEAVES_NS, windows=1)
    minute.trips.grow(20)
    assert minute.trips.near([*minute.ends, *[None] * 14]) == {Pair("a", f"n{row}") for row in range(3)}
