"""Thresholds of the user's own: over, under, of what, and what is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from leaf_spine import MS, RAIL, idle, nic

from foliot.settings import SettingsError, read
from foliot_detector.core.detectors.delay_threshold.recent_delays import Counts, RecentDelays, counts_of
from foliot_detector.core.state.path_table import Delays
from foliot_detector.settings import DetectorSettings
from foliot_schemas import DelayCount, DelayRow, Job
from foliot_schemas.delay_buckets import bucket_of
from foliot_schemas.names import Path, parse_path

S = 1_000 * MS


def settings(**rule):
    """Settings with one threshold, of 1 ms for a second."""
    rule = {"name": "slow", "of": RAIL, "p99_us": 1_000.0, "for_s": 1.0} | rule
    return read(DetectorSettings, "detector", {"detector": {"thresholds": [rule]}}, {}, source="test.toml")


@pytest.fixture
def make_fabric():
    """Makes a fabric with a threshold, which has been idle for two seconds; its detectors are as `LeafSpine` has them."""

    def make(only="delay-threshold", **rule):
        fabric = idle(2, settings=settings(**rule), only=only)
        assert fabric.take("threshold") == []
        return fabric

    return make


def load(fabric, spine=0):
    """Two flows fill the way up from the first leaf to a spine."""
    for source, destination in ((0, 2), (1, 3)):
        fabric.send_by(source, destination, spine)
        fabric.begin(source, destination)


def way(fabric, source, destination):
    """The path that a pair's traffic takes."""
    return str(Path(nic(source), nic(destination), fabric.ways[source, destination]))


def test_a_rail_is_over_its_threshold_while_a_path_of_its_traffic_is(make_fabric):
    """Named are those paths, and the worst with its figures. The other detectors change nothing of it."""
    fabric = make_fabric(only="")
    load(fabric)
    begun_ns = fabric.now_ns
    fabric.run(4)
    (over,) = fabric.take("threshold")
    assert (over.who, over.state) == ("slow", "over")
    assert begun_ns <= over.since_ns
    assert S <= over.at_ns - over.since_ns <= 1_500 * MS
    full = {link for flow in fabric.flows for link in fabric.way(flow)}
    assert over.related["paths"]
    for name in over.related["paths"]:
        path = parse_path(name)
        assert name == way(fabric, int(path.source[4]), int(path.destination[4]))
        assert full & {*fabric.crossed(path)}
    assert over.evidence["worst"] in over.related["paths"]
    assert over.evidence["p99_us"] > over.evidence["threshold_us"] == 1_000
    assert over.evidence["probes"] >= 15

    fabric.end()
    ended_ns = fabric.now_ns
    fabric.run(5)
    (under,) = fabric.take("threshold")
    assert (under.who, under.state, under.cause, under.fault) == ("slow", "under", over.id, over.fault)
    assert ended_ns + S <= under.at_ns <= ended_ns + 4 * S
    assert under.evidence["p99_us"] < 800


@pytest.mark.parametrize(
    ("of", "is_over"),
    [
        ("node0>node2", True),
        ("node2>node0", False),
        ("node0.rail0>node2.rail0#{entropy}", True),
        ("node2.rail0>node0.rail0#0", False),
        ("rail1", False),
    ],
)
def test_a_threshold_is_about_what_it_names(make_fabric, of, is_over):
    """Of a pair, the paths that its traffic takes, in that direction; a path, whether or not anything takes it."""
    fabric = make_fabric()
    entropy = next(each for each in range(4) if fabric.spine_of[Path(nic(0), nic(2), each)] == 0)
    fabric = make_fabric(of=of.format(entropy=entropy))
    load(fabric)
    fabric.run(5)
    assert [event.state for event in fabric.take("threshold")] == ["over"] * is_over


def test_traffic_that_takes_another_way_is_under_it_again(make_fabric):
    """The threshold is about the traffic, and not about the path that it has left."""
    fabric = make_fabric(of="node0>node2")
    load(fabric)
    fabric.run(4)
    assert [event.state for event in fabric.take("threshold")] == ["over"]
    fabric.send_by(0, 2, 1)
    fabric.queue_us = 0.0
    fabric.run(4)
    assert [event.state for event in fabric.take("threshold")] == ["under"]


def register(fabric, *hosts):
    """Tells the detector of a job; without hosts, of its end."""
    fabric.tell(Job(name="pretrain-7", nics=tuple(map(nic, hosts)), since_ns=1))


def test_a_threshold_of_a_job_is_about_the_traffic_between_its_nics(make_fabric):
    """As it is registered: other flows on the same link are not its own."""
    fabric = make_fabric(of="job:pretrain-7")
    load(fabric)
    fabric.run(4)
    assert fabric.take("threshold") == [], "there is no such job"
    register(fabric, 0, 1, 2)
    fabric.run(4)
    (over,) = fabric.take("threshold")
    assert over.state == "over"
    assert {way(fabric, 0, 2)} <= {*over.related["paths"]} <= {way(fabric, 0, 2), way(fabric, 1, 2)}
    assert over.related["jobs"] == ("pretrain-7",)

    register(fabric, 0, 1)
    fabric.run(2)
    (under,) = fabric.take("threshold")
    assert (under.state, under.cause, under.related) == ("under", over.id, over.related)


def test_a_job_that_ends_is_under_its_threshold(make_fabric):
    """Nothing of it is late any more."""
    fabric = make_fabric(of="job:pretrain-7")
    register(fabric, 0, 2)
    load(fabric)
    fabric.run(4)
    assert [event.state for event in fabric.take("threshold")] == ["over"]
    register(fabric)
    fabric.run(2)
    assert [event.state for event in fabric.take("threshold")] == ["under"]


@pytest.mark.parametrize(("every", "said"), [(8, ["over"]), (20, [])], ids=["without a break", "with breaks"])
def test_one_late_probe_is_no_second_over_it(make_fabric, every, said):
    """A late probe each 0.8 s is more than one in a hundred all the time; one each 2 s is over each time anew."""
    fabric = make_fabric(of="node0>node2")
    for step in range(60):
        fabric.lies_us[2] = 5_000.0 if step % every == 0 else 0.0
        fabric.run(0.1)
    assert [event.state for event in fabric.take("threshold")] == said


def test_a_delay_between_the_two_limits_changes_nothing(make_fabric):
    """Over it stays over until it is under 0.8 of it."""
    fabric = make_fabric(of="node0>node2")
    fabric.lies_us[2] = 900.0
    fabric.run(4)
    assert fabric.take("threshold") == []
    fabric.lies_us[2] = 1_500.0
    fabric.run(3)
    assert [event.state for event in fabric.take("threshold")] == ["over"]
    fabric.lies_us[2] = 850.0
    fabric.run(5)
    assert fabric.take("threshold") == []
    fabric.lies_us[2] = 500.0
    fabric.run(4)
    assert [event.state for event in fabric.take("threshold")] == ["under"]


@pytest.mark.parametrize("host", [0, 2], ids=["sender", "receiver"])
def test_clocks_that_are_not_synchronised_say_nothing(make_fabric, host):
    """Of either end."""
    fabric = make_fabric(of="node0>node2")
    fabric.bound_ns[host] = -1
    fabric.run(1)
    fabric.lies_us[2] = 5_000.0
    fabric.run(4)
    assert fabric.take("threshold") == []


def test_a_path_that_is_not_heard_stays_over(make_fabric):
    """Nothing says that it is under."""
    fabric = make_fabric(of="node0>node2")
    fabric.lies_us[2] = 5_000.0
    fabric.run(3)
    assert [event.state for event in fabric.take("threshold")] == ["over"]
    fabric.off_bus.add(2)
    fabric.run(5)
    assert fabric.take("threshold") == []


def test_what_an_earlier_run_said_is_ended_by_the_next(make_fabric):
    """By its paths, which the event names."""
    fabric = make_fabric(of="node0>node2")
    fabric.lies_us[2] = 5_000.0
    fabric.run(3)
    (over,) = fabric.take("threshold")
    fabric.start_detector()
    fabric.detector.resume(over)
    fabric.detector.resume(msgspec.structs.replace(over, who="nobody's"))
    fabric.run(4)
    assert fabric.take("threshold") == []
    fabric.lies_us[2] = 0.0
    fabric.run(4)
    (under,) = fabric.take("threshold")
    assert (under.state, under.cause) == ("under", over.id)


# -- how delays are spread ---------------------------------------------------------------------------------------------


def run_with_bursts(fabric, *, late, every, seconds):
    """Of the probes that host 2 hears on a path, so many are 5 ms late in one report of so many; else none is."""
    for step in range(seconds * 10):
        fabric.late_us[2] = (5_000.0,) * late if step % every == 0 else ()
        fabric.run(0.1)


@pytest.mark.parametrize(("counts_delays", "said"), [(True, ["over"]), (False, [])], ids=["counted", "of before"])
def test_a_burst_that_a_median_hides_is_over_a_p99(make_fabric, counts_delays, said):
    """Three in a hundred probes, six at a time.

    Of these a node of before tells one, and that the median of the report is small.
    """
    fabric = make_fabric(of="node0>node2", for_s=2.0)
    fabric.fast_probes, fabric.counts_delays = (20, 20), counts_delays
    run_with_bursts(fabric, late=6, every=10, seconds=5)
    assert [event.state for event in fabric.take("threshold")] == said


@pytest.mark.parametrize(
    ("late", "every", "said"),
    [(3, 30, ["over"]), (1, 13, ["over"]), (1, 20, [])],
    ids=["bursts", "one in 1.3 s", "one in 2 s"],
)
def test_a_p99_of_many_delays_says_by_itself_whether_it_is_over(make_fabric, late, every, said):
    """Of a hundred and twenty delays in 4 s, three are enough, however they lie."""
    fabric = make_fabric(of="node0>node2", for_s=4.0)
    fabric.fast_probes, fabric.report_every = (3, 3), 1
    begun_ns = fabric.now_ns
    run_with_bursts(fabric, late=late, every=every, seconds=13)
    events = fabric.take("threshold")
    assert [event.state for event in events] == said
    for over in events:
        assert over.at_ns - over.since_ns >= 4 * S
        assert over.at_ns <= begun_ns + 8 * S
        assert over.evidence["p99_us"] == pytest.approx(5_050, rel=0.05)
        assert over.evidence["probes"] == 120


def test_one_burst_is_not_for_long_enough(make_fabric):
    """It is over as soon as it begins."""
    fabric = make_fabric(of="node0>node2", for_s=4.0)
    fabric.fast_probes = (20, 20)
    fabric.late_us[2] = (5_000.0,) * 20
    fabric.run(0.3)
    del fabric.late_us[2]
    fabric.run(10)
    assert fabric.take("threshold") == []


@pytest.mark.parametrize("counts_delays", [True, False], ids=["counted", "of before"])
def test_reports_that_come_seldom_are_no_breaks(make_fabric, counts_delays):
    """As the nodes of a large fleet send them."""
    fabric = make_fabric(of="node0>node2", for_s=4.0)
    fabric.report_every, fabric.counts_delays = 20, counts_delays
    fabric.run(4)
    fabric.lies_us[2] = 5_000.0
    fabric.run(8)
    assert [event.state for event in fabric.take("threshold")] == ["over"]
    fabric.lies_us[2] = 0.0
    fabric.run(8)
    assert [event.state for event in fabric.take("threshold")] == ["under"]


def told(*delays_ns, counted):
    """What one report says of the delays of each path."""
    rows = np.zeros(len(delays_ns), DelayRow)
    rows["path"] = np.arange(len(rows))
    for row, of_path in zip(rows, delays_ns, strict=True):
        values = np.sort(of_path)
        row["received"] = len(values)
        row["least_ns"], row["median_ns"], row["p99_ns"] = values[0], values[(len(values) - 1) // 2], values[-1]
    each = [(path, bucket, 1) for path, of_path in enumerate(delays_ns) for bucket in bucket_of(np.array(of_path))]
    np.random.default_rng(len(each)).shuffle(each)
    histogram = np.array([*map(tuple, each)], DelayCount) if counted else None
    return Delays("node2", 1, 1, 1, 1, rows, np.arange(len(rows)), np.ones(len(rows), np.int64), histogram)


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "of before"])
@pytest.mark.parametrize("seed", range(10))
def test_a_p99_is_what_all_probes_together_show(seed, counted):
    """Of any number that is counted, or of up to three of which a node of before tells the delays.

    Of less than a hundred, it is the longest.
    """
    chance = np.random.default_rng(seed)
    recent, probes = RecentDelays(60 * S), []
    for number in range(int(chance.integers(1, 300))):
        mine, other = (chance.integers(1_000, 10_000_000, chance.integers(1, 40 if counted else 4)) for _ in range(2))
        probes += mine.tolist()
        (counts,) = counts_of(told(other, mine, counted=counted), np.array([1]))
        recent.add(number * 100 * MS + 1, counts)
    assert recent.probes == len(probes)
    assert recent.p99_ns == pytest.approx(np.sort(probes)[int(np.ceil(0.99 * len(probes))) - 1], rel=0.03)
    above, below = (np.count_nonzero(np.array(probes) > limit_ns) for limit_ns in (4_850_000, 5_150_000))
    assert below <= recent.above(5_000_000) <= above
    if len(probes) < 100:
        assert recent.p99_ns == pytest.approx(max(probes), rel=0.03)


def test_a_window_forgets():
    """What is as old as it is long."""

    def one(delay_ns):
        return Counts(bucket_of(np.array([delay_ns])), np.array([1]))

    recent = RecentDelays(S)
    assert recent.p99_ns == 0
    recent.add(1, one(9_000))
    assert not recent.is_whole
    for number in range(1, 10):
        recent.add(1 + number * 100 * MS, one(5_000))
    assert not recent.is_whole
    assert (recent.p99_ns, recent.probes) == (pytest.approx(9_000, rel=0.03), 10)
    recent.add(1 + S, one(5_000))
    assert recent.is_whole
    assert (recent.p99_ns, recent.probes) == (pytest.approx(5_000, rel=0.03), 10)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"p99_us": 0.9}, r"detector.thresholds\[0\].p99_us: expected `float` >= 1"),
        ({"p99_us": 2e7}, r"detector.thresholds\[0\].p99_us: expected `float` <= 2000000"),
        ({"for_s": -1.0}, r"detector.thresholds\[0\].for_s: expected `float` > 0"),
        ({"for_s": 3_600.0}, r"detector.thresholds: .*for_s of slow is at most 600"),
        ({"of": "a>b>c"}, r"detector.thresholds: .*of of slow is not a path"),
        ({"of": "a.rail0>b.rail0#x"}, r"detector.thresholds: .*of of slow is not a path"),
        ({"of": "job:"}, r"detector.thresholds: .*of of slow is not a path"),
        ({"of": "job:found:node0"}, r"detector.thresholds: .*of of slow is not a path.*nobody has registered"),
        ({"of": ""}, r"detector.thresholds: .*of of slow is not a path"),
        ({"name": ""}, r"detector.thresholds\[0\].name: "),
        ({"fro_s": 1.0}, r"detector.thresholds\[0\]: object contains unknown field `fro_s`"),
    ],
)
def test_a_wrong_threshold_is_refused_by_its_name(rule, said):
    """A number out of range, something that is nothing, a misspelt key."""
    with pytest.raises(SettingsError, match=said):
        settings(**rule)


def test_each_threshold_has_its_own_name():
    """Events would be taken for each other's."""
    rule = {"name": "slow", "of": RAIL, "p99_us": 1.0, "for_s": 1.0}
    with pytest.raises(SettingsError, match="two named 'slow'"):
        read(DetectorSettings, "detector", {"detector": {"thresholds": [rule, rule]}}, {}, source="test.toml")
