"""Batches become clouds of points, and pairs become measurements."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from foliot_schemas.observation import StampBatch, StampRow, Stream
from foliot_sync.core.fit.delay_floor import DelayFloors
from foliot_sync.core.fit.delay_tails import DelayTails
from foliot_sync.core.fit.pair_estimate import combine, measure
from foliot_sync.core.fit.point_clouds import gather
from foliot_sync.core.fit.reassembly import Reassembly
from foliot_sync.settings import SyncSettings

SECOND = 1_000_000_000
NOON = 10**15
AHEAD = 123_456_789_012_345
"""What node1's clock is ahead of node0's."""


def batch(rows, streams=1, node="node0", until=2 * SECOND, kind="kernel", **header):
    """A batch of (stream, direction, seconds, delay in ns), of probes between node0 and node1."""
    array = np.empty(len(rows), StampRow)
    for number, (stream, direction, at_s, delay) in enumerate(rows):
        sent = NOON + round(at_s * SECOND)
        to, fro = (0, AHEAD) if direction == 0 else (AHEAD, 0)
        array[number] = (stream, direction, sent + to, sent + delay + fro)
    names = [
        Stream(path=f"{node}.rail0>node1.rail0#{n}", initiator="node0", responder="node1", kind=kind)
        for n in range(streams)
    ]
    return StampBatch.of(
        array, node=node, since_ns=NOON, until_ns=NOON + until, epoch_ns=0, streams=tuple(names), **header
    )


def numbers(name):
    """The number of a node."""
    return int(name[-1])


def straight(stream=0, delay=8_000):
    """Forty probes each way with the same delay."""
    return [(stream, direction, at, delay) for direction in (0, 1) for at in np.linspace(0.05, 1.95, 40)]


def measured(batches, floors=None):
    """The measurements in batches, without any history."""
    clouds = gather(batches, numbers, 0.0125)
    floors = floors or DelayFloors()
    return measure(clouds, floors.rows(clouds.paths), floors, DelayTails(), SyncSettings())[0]


def offset(pairs):
    """The whole offset, for the first pair."""
    return int(pairs.base_ns[0]) + float(pairs.offset_ns[0])


def test_offset_of_clocks_months_apart_is_exact():
    """With equal delays both ways the offset comes out to a nanosecond, whatever the epochs."""
    pairs = measured([batch(straight())])
    assert offset(pairs) == pytest.approx(AHEAD, abs=1)
    assert pairs.slope_ppb[0] == pytest.approx(0, abs=1)
    assert not pairs.torn[0]


def test_interval_holds_the_truth_under_any_asymmetry():
    """All of the delay in one direction moves the estimate by half of it, and stays inside the hard interval."""
    rows = [(0, 0, at, 40_000) for at in np.linspace(0, 2, 20)] + [(0, 1, at, 0) for at in np.linspace(0, 2, 20)]
    pairs = measured([batch(rows)])
    assert offset(pairs) == pytest.approx(AHEAD + 20_000, abs=1)
    assert pairs.base_ns[0] + pairs.lower_ns[0] <= AHEAD <= pairs.base_ns[0] + pairs.upper_ns[0]


def test_streams_heard_one_way_give_no_estimate():
    """Streams that were heard in one direction only are left out, and a window of nothing else is empty."""
    one_way = [row for row in straight(1) if row[1] == 0]
    clouds = gather([batch(straight() + one_way, streams=2)], numbers, 0.0125)
    assert clouds.paths == ("node0.rail0>node1.rail0#0",)
    assert gather([batch(one_way, streams=2)], numbers, 0.0125) is None
    assert gather([], numbers, 0.0125) is None


def test_stamps_from_another_time_are_left_out():
    """A stamp far outside what its batch covers, or of no direction, does not count."""
    bad = [(0, 0, 500.0, 1), (0, 2, 1.0, 1)]
    clouds = gather([batch(straight() + bad)], numbers, 0.0125)
    assert clouds.sides.counts.tolist() == [40, 40]


def test_tolerance_is_what_the_batch_kept():
    """A line may ignore a share of the points, but no more layers than the batch kept, and at least touches one."""
    many = [(0, direction, at, 8_000) for direction in (0, 1) for at in np.linspace(0, 2, 400)]
    assert gather([batch(many, tolerated=8)], numbers, 0.0125).sides.k.tolist() == [5, 5]
    assert gather([batch(many, tolerated=2)], numbers, 0.0125).sides.k.tolist() == [2, 2]
    assert gather([batch(straight()[::20])], numbers, 0.0125).sides.k.tolist() == [1, 1]


def test_step_within_the_window_tears_the_pair():
    """A clock that is set forward by 5 ms in mid-window leaves clouds that no line separates."""
    rows = straight()
    torn = batch(rows)
    stepped = torn.rows().copy()
    after = stepped["transmit_ns"] - np.where(stepped["direction"] == 1, AHEAD, 0) > NOON + SECOND
    stepped["receive_ns"] += np.where(after & (stepped["direction"] == 0), 5_000_000, 0)
    stepped["transmit_ns"] += np.where(after & (stepped["direction"] == 1), 5_000_000, 0)
    header = {name: getattr(torn, name) for name in ("node", "since_ns", "until_ns", "epoch_ns", "streams")}
    assert measured([StampBatch.of(stepped, **header)]).torn[0]


def test_stream_that_disagrees_is_left_out():
    """One stream 20 us off among five is outvoted."""
    offsets, sigmas = np.array([0.0, 30, -20, 10, 20_000]), np.full(5, 50.0)
    mean, variance, misfits = combine(offsets, sigmas**2, np.zeros(5, dtype=int), 1)
    assert mean[0] == pytest.approx(5)
    assert np.sqrt(variance[0]) == pytest.approx(25)
    assert misfits.off.tolist() == pytest.approx([-5, 25, -25, 5, 19_995])


def test_two_streams_that_disagree_both_stay_and_the_variance_says_so():
    """Of two nobody can say which is wrong."""
    mean, variance, _ = combine(np.array([0.0, 20_000]), np.full(2, 2_500.0), np.zeros(2, dtype=int), 1)
    assert mean[0] == pytest.approx(10_000)
    assert np.sqrt(variance[0]) == pytest.approx(10_000, rel=0.01)


def test_the_floor_is_that_of_the_best_window():
    """A narrow one whose points lie far apart is worth less than one that is a little wider, and certain."""
    floors = DelayFloors()
    for half, doubt in ((8_000.0, 20.0), (7_900.0, 5_000.0), (30_000.0, 10.0)):
        floors.learn(floors.rows(["a"]), np.array([half]), np.array([doubt]))
    assert floors.known(floors.rows(["a"]), np.array([38_000.0]), np.array([500.0])) == (8_000.0, 20.0)
    assert floors.known(floors.rows(["a"]), np.array([7_990.0]), np.array([10.0])) == (7_990.0, 10.0)


@pytest.mark.parametrize(("delays", "excess"), [((8_900, 8_300), 300), ((8_900, 8_000), 0), ((8_900, 7_900), 0)])
def test_a_pair_exceeds_its_floors_by_what_all_its_streams_do(delays, excess):
    """A host that is slow is so on all paths; what only some are late by was in a queue."""
    floors = DelayFloors()
    before = batch(straight(0) + straight(1), streams=2)
    rows = floors.rows(gather([before], numbers, 0.0125).paths)
    for _ in range(30):
        floors.learn(rows, np.full(2, 8_000.0), np.full(2, 1.0))

    now = batch(straight(0, delays[0]) + straight(1, delays[1]), streams=2)

    assert measured([now], floors).excess_ns.tolist() == pytest.approx([excess], abs=1)


def test_a_window_that_is_narrower_than_all_others_leaves_no_excess_behind():
    """A clock that is stepped within a window makes it narrower than any path is. Its next windows are no wider than usual."""
    floors = DelayFloors()
    rows = floors.rows(gather([batch(straight())], numbers, 0.0125).paths)
    for half in (8_000.0, 8_000.0, 5_000.0, 8_000.0):
        floors.learn(rows, np.array([half]), np.array([1.0]))

    assert floors.borne_out(rows).tolist() == [8_000.0]
    assert measured([batch(straight())], floors).excess_ns[0] < 600  # what a floor of four windows may be too high by


@pytest.mark.parametrize(("kind", "delay", "excess"), [
    ("kernel", 4_000, 600), ("kernel", 8_000_000, 1_000), ("hardware", 4_000, 0)
])  # fmt: skip
def test_a_host_may_have_been_slow_in_all_windows_so_far(kind, delay, excess):
    """By a share of the way, and of a long one by no more than a processor can be; no processor is in the way of NICs."""
    assert measured([batch(straight(delay=delay), kind=kind)]).excess_ns[0] == pytest.approx(excess, abs=1)


def rising(forth, back):
    """Sixty probes each way, delayed by up to 20 ns more, and by so much more in the second half of the window."""
    random = np.random.default_rng(5)
    return [
        (0, direction, at, 8_000 + random.integers(0, 20) + (later if at > 1 else 0))
        for direction, later in ((0, forth), (1, back))
        for at in np.linspace(0.02, 1.98, 60)
    ]


def test_a_rate_is_no_surer_than_both_directions_agree_on_it():
    """If a clock runs faster, one direction rises and the other falls; a host that becomes slow lets one rise alone."""

    def slope(forth, back):
        rows = batch(rising(forth, back))
        known = msgspec.structs.replace(rows.streams[0], least_ppb=-2_000.0, most_ppb=2_000.0)
        pairs = measured([msgspec.structs.replace(rows, streams=(known,))])
        return pairs.slope_ppb[0], np.sqrt(pairs.slope_variance[0])

    quiet, alone, opposite = slope(0, 0), slope(500, 0), slope(250, -250)
    assert abs(quiet[0]) < 20
    assert 100 < alone[0] < 3 * alone[1]  # nothing but the other direction speaks against it
    assert opposite[0] > 3 * opposite[1]
    assert opposite[1] < alone[1] / 2


def test_floor_is_forgotten_after_a_minute():
    """After thirty windows on a longer route, the floor of the old one no longer counts."""
    floors, wide, sure = DelayFloors(), np.array([20_000.0]), np.array([5.0])
    floors.learn(floors.rows(["a"]), np.array([8_000.0]), sure)
    for _ in range(29):
        floors.learn(floors.rows(["a"]), wide, sure)
    assert floors.known(floors.rows(["a"]), wide, sure).floor_ns[0] == 8_000
    floors.learn(floors.rows(["a"]), wide, sure)
    assert floors.known(floors.rows(["a"]), wide, sure).floor_ns[0] == 20_000


def test_noise_is_what_quiet_windows_have_shown():
    """The quarter of windows whose lowest points lie most densely.

    Not before there are some, and without those in which queues made the gaps.
    """
    floors = DelayFloors()
    row = floors.rows(["a"])
    for gap in (9.0, 400.0, 8.0):
        floors.learn(row, np.array([8_000.0]), np.array([20.0]), np.array([gap]))
    assert np.isnan(floors.noise_ns(row)[0])
    for gap in (np.inf, 7.0, 5_000.0, 12.0, 300.0, 11.0):
        floors.learn(row, np.array([8_000.0]), np.array([20.0]), np.array([gap]))
    assert floors.noise_ns(row)[0] == 8.0


@pytest.mark.parametrize(
    ("seen", "pure", "noise"), [(8.0, 0, 8.0), (1.0, 0, 6.0), (90.0, 0, 40.0), (30.0, 30, 30.0), (np.nan, 0, 25.0)]
)
def test_noise_is_what_was_seen_within_what_stamps_of_a_kind_can_have(seen, pure, noise):
    """Kernels' stamps repeat to between 6 and 40 ns, whether pairs are pure or not.

    And as usual where nothing was seen.
    """
    told = batch(straight())
    streams = tuple(msgspec.structs.replace(stream, pure_forth=pure, pure_back=pure) for stream in told.streams)
    clouds = gather([msgspec.structs.replace(told, streams=streams)], numbers, 0.0125)
    assert clouds.with_noise(np.array([seen])).noise_ns.tolist() == [noise]


def near(told, *counts):
    """The batch of clocks that run alike, with how many probes of each of its streams came near the floor."""
    streams = (
        msgspec.structs.replace(stream, near_forth=forth, near_back=back, least_ppb=-5.0, most_ppb=5.0)
        for stream, (forth, back) in zip(told.streams, counts, strict=True)
    )
    return msgspec.structs.replace(told, streams=tuple(streams))


def test_the_denser_side_is_thinned_to_as_many_probes_as_the_sparser_one():
    """Where nobody counted, or hardly a probe came near the floor, nothing is; and a count that cannot be is one of a thousand."""
    rows = [row for stream in range(5) for row in straight(stream)]
    told = near(batch(rows, streams=5), (10, 40), (50, 50), (0, 0), (3, 90), (4, 1 << 60))
    clouds = gather([told], numbers, 0.0125)
    assert clouds.share.tolist() == pytest.approx([1, 0.25, 1, 1, *[np.nan] * 4, 1, 1e-3], nan_ok=True)
    assert clouds.of(np.array([True])).share is clouds.share


def test_one_loaded_direction_does_not_seem_longer():
    """A tenth of its probes meets no queue.

    Its least is higher then, which half of goes into the offset where nobody counts. Told how many came near, most of
    that is gone.
    """
    random, off = np.random.default_rng(8), ([], [])
    for _ in range(200):
        rows = []
        for direction, count in enumerate((20, 200)):
            least = 8_000 + np.sort(random.gamma(2.0, 500.0, count))[:10]
            rows += [
                (0, direction, at, round(delay)) for at, delay in zip(random.uniform(0, 2, 10), least, strict=True)
            ]
        for errors, counts in zip(off, ((0, 0), (10, 100)), strict=True):
            errors.append(offset(measured([near(batch(rows, tolerated=10), counts)])) - AHEAD)
    uncounted, counted = (np.mean(errors) for errors in off)
    assert uncounted > 20
    assert abs(counted) < uncounted / 3


def test_windows_that_are_all_alike_are_no_trouble():
    """A floor that is known to the nanosecond is still known no better than stamps repeat."""
    floors = DelayFloors()
    for _ in range(5):
        floors.learn(floors.rows(["node0.rail0>node1.rail0#0"]), np.array([8_000.0]), np.array([25.0]))
    pairs = measured([batch(straight())], floors)
    assert offset(pairs) == pytest.approx(AHEAD, abs=1)
    assert 25 <= np.sqrt(pairs.variance[0]) < 100


def test_a_late_direction_moves_the_offset_by_less_than_half_of_what_it_was_late():
    """One way the queues were never empty; the other way's points lie densely, so that it was not the late one."""
    random = np.random.default_rng(3)
    at = np.linspace(0.05, 1.95, 40)
    forth = [
        (0, 0, when, 8_000 + round(late)) for when, late in zip(at, 3_000 + random.exponential(60_000, 40), strict=True)
    ]
    back = [(0, 1, when, 8_000 + round(late)) for when, late in zip(at, random.exponential(30, 40), strict=True)]
    floors = DelayFloors()
    floors.learn(floors.rows(["node0.rail0>node1.rail0#0"]), np.array([8_000.0]), np.array([5.0]))
    late_ns = min(delay for _, _, _, delay in forth) - 8_000
    assert late_ns > 3_000
    assert abs(offset(measured([batch(forth + back)], floors)) - AHEAD) < late_ns / 10


def test_intake_counts_each_batch_once():
    """A second copy is dropped; a second part of the same window, and the next window, are not."""
    reassembly = Reassembly(2 * SECOND)
    assert reassembly.add(batch(straight()), 1)
    assert not reassembly.add(batch(straight()), 2)
    assert reassembly.add(batch(straight(delay=9_000)), 3)
    assert reassembly.add(batch(straight(), until=4 * SECOND), 4)
    assert not reassembly.add(batch(straight()), 5)
    assert [arrived_ns for _, arrived_ns in reassembly.take()] == [1, 3, 4]
    assert reassembly.take() == []


def test_intake_refuses_what_is_late_but_not_a_host_that_has_booted():
    """A batch three windows behind is late; one from far before its predecessor is from a clock that began again."""
    reassembly = Reassembly(2 * SECOND)
    reassembly.add(batch([], until=60 * SECOND), 1)
    assert not reassembly.add(batch([], until=54 * SECOND), 2)
    assert reassembly.add(batch([], until=2 * SECOND), 3)
    assert reassembly.add(batch([], until=4 * SECOND), 4)


def test_intake_refuses_what_contradicts_itself():
    """A batch that covers no time, or whose columns do not fit, is refused with the reason."""
    reassembly = Reassembly(2 * SECOND)
    with pytest.raises(ValueError, match="not after it began"):
        reassembly.add(batch([], until=0), 1)
    broken = batch(straight())
    broken.columns.pop("direction")
    with pytest.raises(ValueError, match="direction"):
        reassembly.add(broken, 1)
    assert reassembly.take() == []


def test_clocks_that_are_made_up_are_left_out():
    """Stamps an hour apart between two clocks fit no window, and numbers that far apart no equation.

    Other pairs stay.
    """
    wild = [(1, 0, 1.0, 4_000_000_000_000), (1, 1, 1.0, 0)]
    clouds = gather([batch(straight() + straight(1) + wild, streams=2)], numbers, 0.0125)
    assert clouds is None
    long = msgspec.structs.replace(batch(straight()), until_ns=1 << 61)
    assert gather([long], numbers, 0.0125) is None
