"""Thresholds of the user's own: over, under, of what, and what is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from leaf_spine import MS, RAIL, LeafSpine, nic

from foliot.settings import SettingsError, read
from foliot_detector.core.detectors.delay_threshold.recent_delays import RecentDelays, Report
from foliot_detector.settings import DetectorSettings
from foliot_schemas.names import Path, parse_path

S = 1_000 * MS


def settings(**rule):
    """Settings with one threshold, of 1 ms for a second."""
    rule = {"name": "slow", "of": RAIL, "p99_us": 1_000.0, "for_s": 1.0} | rule
    return read(DetectorSettings, "detector", {"detector": {"thresholds": [rule]}}, {}, source="test.toml")


@pytest.fixture
def make_fabric():
    """Makes a fabric with a threshold, which has been idle for two seconds."""

    def make(**rule):
        fabric = LeafSpine(settings=settings(**rule), only=False)
        fabric.run(2)
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
    """Named are those paths, and the worst with its figures."""
    fabric = make_fabric()
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


@pytest.mark.parametrize("seed", range(20))
def test_a_p99_is_what_all_probes_together_show(seed):
    """Of reports of up to three probes; and the longest where there are less than a hundred."""
    chance = np.random.default_rng(seed)
    recent, probes = RecentDelays(60 * S), []
    for number in range(int(chance.integers(1, 300))):
        delays = np.sort(chance.integers(1, 10_000, chance.integers(1, 4)))
        probes += delays.tolist()
        median = int(delays[(len(delays) - 1) // 2])
        recent.add(Report(number * 100 * MS + 1, len(delays), int(delays[0]), median, int(delays[-1])))
    assert recent.probes == len(probes)
    assert recent.p99_ns == np.sort(probes)[int(np.ceil(0.99 * len(probes))) - 1]
    if len(probes) < 100:
        assert recent.p99_ns == max(probes)


def test_a_window_forgets(make_fabric):
    """What is older than it."""
    recent = RecentDelays(S)
    assert recent.p99_ns == 0
    recent.add(Report(1, 1, 9, 9, 9))
    assert not recent.is_whole
    for number in range(1, 12):
        recent.add(Report(1 + number * 100 * MS, 1, 5, 5, 5))
    assert recent.is_whole
    assert (recent.p99_ns, recent.probes) == (5, 11)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"p99_us": 0.0}, r"detector.thresholds\[0\].p99_us: expected `float` > 0"),
        ({"for_s": -1.0}, r"detector.thresholds\[0\].for_s: expected `float` > 0"),
        ({"for_s": 3_600.0}, r"detector.thresholds: .*for_s of slow is at most 600"),
        ({"of": "a>b>c"}, r"detector.thresholds: .*of of slow is not a path"),
        ({"of": "a.rail0>b.rail0#x"}, r"detector.thresholds: .*of of slow is not a path"),
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
