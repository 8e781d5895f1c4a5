"""Loss: lossy paths told from congested, silent and merely unlucky ones."""

from __future__ import annotations

import pytest

from foliot_detector.core.detectors.packet_loss.path_loss import PathLossDetector
from foliot_schemas import ClockState, Witness
from foliot_schemas.names import Path

PATH = Path("node0.rail0", "node1.rail0", 0)
MS = 1_000_000


def told(events):
    """Who and state of events."""
    return [(event.who, event.state) for event in events]


LOSSY = (str(PATH), "lossy")


def every(number):
    """Loses one probe in so many."""
    return lambda count: count % number == 0


def test_a_path_that_loses_a_tenth_is_lossy(make_fleet):
    """Once, with the numbers of its window: ten lost are enough."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.run(20_000)
    (event,) = inventory.take()

    assert told([event]) == [LOSSY]
    assert 90 <= event.evidence["sent"] <= 200
    assert 10 <= event.evidence["lost"] <= event.evidence["sent"] / 10 + 1
    assert event.evidence["loss_share"] == pytest.approx(event.evidence["lost"] / event.evidence["sent"], abs=1e-6)
    assert not event.evidence["congestion"]
    assert event.id == f"{event.fault}/lossy"
    assert event.since_ns < event.at_ns


def test_a_loss_below_the_threshold_is_no_event(make_fleet):
    """One in forty is 2.5 %."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(40)
    inventory.run(25_000)

    assert inventory.take() == []


def test_a_lossy_path_that_heals_speaks(make_fleet):
    """Under the same fault; at the edge of the threshold it does not chatter."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.run(12_000)
    (lossy,) = inventory.take()
    inventory.lose[PATH] = every(25)
    inventory.run(25_000)
    assert inventory.take() == []

    inventory.lose.clear()
    inventory.run(15_000)
    (healed,) = inventory.take()
    assert told([healed]) == [(str(PATH), "speaking")]
    assert (healed.fault, healed.cause) == (lossy.fault, lossy.id)
    assert healed.evidence["loss_share"] < 0.025


@pytest.mark.parametrize("too_small", [False, True])
@pytest.mark.parametrize("trouble", ["port", "sender"])
def test_a_lossy_path_that_heals_in_another_trouble_speaks(make_fleet, too_small, trouble):
    """It was claimed silent meanwhile, and the port or process explains that: no silence is said, and none ends."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    if too_small:
        inventory.too_small.add(PATH)
    else:
        inventory.lose[PATH] = every(10)
    inventory.run(12_000)
    (lossy,) = inventory.take()

    inventory.too_small.clear()
    inventory.lose.clear()
    if trouble == "port":
        inventory.set_carrier(PATH.source, carrier=False)
        inventory.run(4_000)
        inventory.set_carrier(PATH.source, carrier=True)
    else:
        inventory.stopped.add("node0")
        inventory.run(2_000)
        inventory.stopped.clear()
    inventory.run(20_000)
    (healed,) = [event for event in inventory.take() if event.kind == "path"]
    assert (told([healed]), healed.cause) == ([(str(PATH), "speaking")], lossy.id)


def test_a_lossy_path_that_falls_silent_is_lossy_anew_afterwards(make_fleet):
    """The end of a silence ends all that was said of the path."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.run(12_000)
    inventory.cut.add(PATH)
    inventory.run(1_000)
    inventory.cut.clear()
    inventory.run(15_000)

    assert [state for _, state in told(inventory.take())] == ["lossy", "silent", "speaking", "lossy"]


def test_loss_under_a_standing_queue_is_congestion(make_fleet):
    """The delays of what gets through stand 20 ms above the least: a full queue, no fault."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.delay_ns[PATH] = 20 * MS
    inventory.run(20_000)

    assert inventory.take() == []


@pytest.mark.parametrize("late_ms", [0, 700], ids=["in-time", "late"])
def test_loss_in_bursts_that_other_paths_wait_in_is_congestion(make_fleet, late_ms):
    """A queue that is full a third of the time loses probes, and most of those that come through did not wait.

    The paths beside it tell of the queue, also where their reports are late.
    """
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    beside = [path for path in inventory.paths if path.source == PATH.source and path != PATH]
    inventory.bus_delay_ns["node2"] += late_ms * MS

    def bursts(count):
        for _ in range(count):
            inventory.lose[PATH] = every(2)
            inventory.delay_ns.update(dict.fromkeys(beside, 10 * MS))
            inventory.run(100)
            inventory.lose.pop(PATH)
            inventory.delay_ns.clear()
            inventory.run(200)

    bursts(50)
    assert inventory.take() == []

    inventory.lose[PATH] = every(10)
    inventory.run(20_000)
    assert told(inventory.take()) == [LOSSY]

    inventory.lose.clear()
    bursts(50)
    assert told(inventory.take()) == [(str(PATH), "speaking")]


def test_loss_goes_on_after_the_queue_has_drained(make_fleet):
    """Then it is a fault."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.delay_ns[PATH] = 20 * MS
    inventory.run(12_000)
    inventory.delay_ns.clear()
    inventory.run(15_000)

    assert told(inventory.take()) == [LOSSY]


@pytest.mark.parametrize("stepped", ["node1", "node1.rail0:phc"], ids=["host", "nic"])
def test_a_stepped_clock_is_no_queue(make_fleet, stepped):
    """The delays jump by 20 ms as the clock does, a host's or a NIC's; the news of it makes the detector measure them anew."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.lose[PATH] = every(10)
    inventory.delay_ns[PATH] = 20 * MS
    inventory.run(2_000)
    clock = {
        "clock": stepped, "reference": "node0", "offset_ns": 0, "drift_ppb": 0.0, "hard_bound_ns": 1, "bound_ns": 1,
        "growth_ppb": 0.0, "void_after_ns": 10**19 // 2, "status": "disrupted", "as_of_ns": inventory.now_ns,
    }  # fmt: skip
    inventory.tell(ClockState(**clock))
    inventory.run(15_000)

    assert told(inventory.take()) == [(stepped, "disrupted"), LOSSY]


def test_what_a_silence_lost_is_left_to_the_silence(make_fleet):
    """Two seconds of silence are 40 of a window's probes."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.cut.add(PATH)
    inventory.run(2_000)
    inventory.cut.clear()
    inventory.run(20_000)

    assert told(inventory.take()) == [(str(PATH), "silent"), (str(PATH), "speaking")]


def test_what_a_lost_nic_lost_is_left_to_the_nic(make_fleet):
    """On paths in use and on swept ones."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.set_carrier(PATH.source, carrier=False)
    inventory.run(8_000)
    inventory.set_carrier(PATH.source, carrier=True)
    inventory.run(45_000)

    assert told(inventory.take()) == [(PATH.source, "down"), (PATH.source, "up")]


def test_batches_lost_on_the_bus_are_no_lost_probes(make_fleet):
    """Every third batch of the receiver never arrives."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    tell, count = inventory.tell, iter(range(100_000))
    inventory.tell = lambda message: tell(message) if next(count) % 3 else None
    inventory.run(25_000)

    assert inventory.take() == []


def test_a_receiver_that_was_away_makes_no_path_lossy(make_fleet):
    """What came meanwhile was lost at the receiver, not on the path."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.stopped.add("node1")
    inventory.run(3_000)
    inventory.stopped.clear()
    inventory.run(20_000)

    assert {event.kind for event in inventory.take()} == {"process"}


def test_few_probes_are_no_evidence(make_fleet, make_delays):
    """Nine lost of eighteen: half, and one too few to judge by."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    detector = inventory.detector
    events = []
    for number in range(1, 10):
        at_ns = inventory.now_ns + number * 100 * MS
        events += detector.observe(make_delays("node1", at_ns, [(PATH, Witness.DESTINATION, 2, 1, at_ns)]))

    assert [event for event in events if event.state == "lossy"] == []


def test_one_burst_of_losses_makes_no_lossy_path(make_fleet, make_delays):
    """A node that was away for less than a silence loses a second's probes at once: that says nothing of the path."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    events = []
    for number in range(1, 41):
        at_ns = inventory.now_ns + number * 100 * MS
        sent, received = (20, 3) if number == 5 else (5, 5)
        rows = [(PATH, Witness.DESTINATION, sent, received, at_ns)]
        events += inventory.detector.observe(make_delays("node1", at_ns, rows))

    assert [event for event in events if event.state == "lossy"] == []


def test_a_healed_path_of_the_slow_sweep_speaks_within_twenty_seconds(make_fleet, make_delays):
    """Seventy-five without a loss say it, however few of its window's two hundred they are."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    events = []
    for number in range(1, 81):
        at_ns = inventory.now_ns + number * 200 * MS
        rows = [(PATH, Witness.DESTINATION, 1, int(number % 2 or number > 20), at_ns)]
        events += inventory.detector.observe(make_delays("node1", at_ns, rows))
    lossy_ns = inventory.now_ns + 20 * 200 * MS
    assert [event.state for event in events] == ["lossy"]
    for number in range(81, 96):
        at_ns = inventory.now_ns + number * 200 * MS
        rows = [(PATH, Witness.DESTINATION, 1, 1, at_ns)]
        events += inventory.detector.observe(make_delays("node1", at_ns, rows))

    assert [event.state for event in events] == ["lossy", "speaking"]
    assert events[1].at_ns - lossy_ns == 75 * 200 * MS


def test_received_before_sent_is_known_is_no_gain(make_fleet, make_delays):
    """A batch may count more received than its sequence numbers prove sent; sums even out, never below none lost."""
    inventory = make_fleet(nodes=2, rails=1, tick_ms=50)
    events = []
    for number in range(1, 101):
        at_ns = inventory.now_ns + number * 100 * MS
        rows = [(PATH, Witness.DESTINATION, 5, 6, at_ns)]
        events += inventory.detector.observe(make_delays("node1", at_ns, rows))

    assert [event for event in events if event.state == "lossy"] == []


def test_what_a_flapping_nic_loses_is_not_loss_on_its_paths(make_fleet):
    """Half of all probes are lost, each with a known cause; the flaps are told, and the paths have nothing to add."""
    inventory = make_fleet(rails=1, report_ms=200, tick_ms=50)
    inventory.run(12_000)
    for _ in range(30):
        inventory.set_carrier("node1.rail0", carrier=False)
        inventory.run(500)
        inventory.set_carrier("node1.rail0", carrier=True)
        inventory.run(500)
    inventory.run(15_000)

    assert {(event.kind, event.who) for event in inventory.take()} == {("flap", "node1.rail0")}


def test_a_path_that_passes_only_small_packets_is_lossy_at_once(make_fleet):
    """Eight probes of full size are lost in a row and all others arrive; said once, within two seconds."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    began_ns = inventory.now_ns
    inventory.too_small.add(PATH)
    inventory.run(5_000)
    (event,) = inventory.take()

    assert told([event]) == [LOSSY]
    assert event.at_ns - began_ns < 2_000 * MS
    assert began_ns - 200 * MS < event.since_ns < event.at_ns
    assert event.evidence["full_size_lost"] is True
    assert event.evidence["bytes"] == 1_450
    assert event.evidence["lost"] == 8
    assert 24 <= event.evidence["sent"] <= 40


def test_it_speaks_again_only_when_full_size_probes_arrive(make_fleet):
    """However many small ones come; then soon, and under the same fault. As lossy as before, it is another fault."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.too_small.add(PATH)
    inventory.run(20_000)
    (lossy,) = inventory.take()

    inventory.too_small.clear()
    healed_ns = inventory.now_ns
    inventory.run(5_000)
    (healed,) = inventory.take()
    assert told([healed]) == [(str(PATH), "speaking")]
    assert (healed.fault, healed.cause) == (lossy.fault, lossy.id)
    assert healed.at_ns - healed_ns < 2_000 * MS
    assert healed.evidence["full_size_lost"] is False

    inventory.too_small.add(PATH)
    inventory.run(5_000)
    (again,) = inventory.take()
    assert told([again]) == [LOSSY]
    assert again.fault != lossy.fault


def test_all_paths_of_a_nic_that_passes_only_small_packets_are_found_soon(make_fleet):
    """Slowly probed ones as well, after two lost probes each, and no path of another NIC is accused.

    So traffic is not moved from one to the next.
    """
    inventory = make_fleet(probe_ms=40, tick_ms=50)
    behind = {path for path in inventory.paths if path.source == "node0.rail0"}
    inventory.too_small |= behind
    began_ns = inventory.now_ns
    inventory.run(4_000)
    events = [event for event in inventory.take() if event.kind == "path"]

    assert {event.who for event in events} == {str(path) for path in behind}
    assert len(events) == len(behind)
    assert max(event.at_ns for event in events) - began_ns < 2_500 * MS


def test_lost_large_probes_under_a_standing_queue_are_congestion(make_fleet):
    """A full queue has room for small packets when it has none for large ones."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.delay_ns[PATH] = 20 * MS
    inventory.run(1_000)
    inventory.too_small.add(PATH)
    inventory.run(5_000)

    assert not [event for event in inventory.take() if "full_size_lost" in event.evidence]


def fill_now_and_then(fleet, paths, rest_ms):
    """A queue in which these paths wait is full twelve times for 300 ms, and empty in between."""
    for _ in range(12):
        fleet.delay_ns.update(dict.fromkeys(paths, 12 * MS))
        fleet.run(300)
        fleet.delay_ns.clear()
        fleet.run(rest_ms)


def test_lost_large_probes_are_congestion_while_others_queue_at_the_same_nic(make_fleet):
    """A slowly probed path is seldom heard at the moment when the queue is full: the paths beside it say that it is."""
    inventory = make_fleet(nodes=3, probe_ms=40, tick_ms=50)
    beside = [path for path in inventory.paths if path.source == PATH.source and path.destination != PATH.destination]
    slow = PATH._replace(entropy=1)
    inventory.too_small.add(slow)
    fill_now_and_then(inventory, beside, rest_ms=900)
    assert inventory.take() == []

    inventory.run(12_000)
    assert told(inventory.take()) == [(str(slow), "lossy")]


def test_lost_large_probes_are_congestion_while_a_queue_was_full_lately(make_fleet):
    """TCP fills the queue and drains it, each in a second: there is hardly room for a large packet in between."""
    inventory = make_fleet(nodes=3, rails=1, probe_ms=40, tick_ms=50)
    inventory.run(2_000)
    inventory.too_small.add(PATH)
    beside = [path for path in inventory.paths if path.source == PATH.source and path != PATH]
    fill_now_and_then(inventory, beside, rest_ms=1_200)

    assert inventory.take() == []


def test_where_nothing_is_padded_any_more_nobody_knows_and_the_path_speaks(make_fleet):
    """As when settings are changed: it would be left for ever."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.too_small.add(PATH)
    inventory.run(5_000)
    (lossy,) = inventory.take()
    inventory.pads = False
    inventory.run(10_000)
    (healed,) = inventory.take()
    assert (healed.state, healed.cause) == ("speaking", lossy.id)

    inventory.pads = True
    inventory.run(5_000)
    assert told(inventory.take()) == [LOSSY]


def test_paths_that_pass_none_cost_nothing_until_full_size_probes_arrive(make_fleet, monkeypatch):
    """A switch with a wrong setting has thousands of them, and each report tells of some."""
    looked_at = []
    judge = PathLossDetector._judge_size
    monkeypatch.setattr(
        PathLossDetector,
        "_judge_size",
        lambda self, path_id, seen: (looked_at.append(path_id), judge(self, path_id, seen))[1],
    )
    inventory = make_fleet(probe_ms=40, tick_ms=50)
    inventory.too_small |= {path for path in inventory.paths if path.source == "node0.rail0"}
    inventory.run(4_000)
    assert looked_at
    looked_at.clear()
    inventory.run(4_000)
    assert looked_at == []
    lossy = [event for event in inventory.take() if event.kind == "path"]
    inventory.too_small.clear()
    inventory.run(10_000)
    healed = [event for event in inventory.take() if event.kind == "path"]
    assert {event.state for event in healed} == {"speaking"}
    assert {event.cause for event in healed} == {event.id for event in lossy}


def test_a_dead_path_is_silent_and_not_too_small(make_fleet):
    """Nothing arrives, so no size can be told; after it neither."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.cut.add(PATH)
    inventory.run(3_000)
    inventory.cut.clear()
    inventory.run(5_000)

    assert told(inventory.take()) == [(str(PATH), "silent"), (str(PATH), "speaking")]


def test_a_path_that_loses_much_of_everything_is_not_accused_of_its_size(make_fleet):
    """A third of the small probes are lost as well."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.too_small.add(PATH)
    inventory.lose[PATH] = lambda number: number % 4 == 1
    inventory.run(5_000)
    lossy = [event for event in inventory.take() if event.state == "lossy"]

    assert told(lossy[:1]) == [LOSSY]
    assert "full_size_lost" not in lossy[0].evidence


def test_a_detector_that_starts_anew_goes_on(make_fleet):
    """It takes the event over, and waits for full-size probes likewise."""
    inventory = make_fleet(nodes=2, probe_ms=40, tick_ms=50)
    inventory.too_small.add(PATH)
    inventory.run(3_000)
    (lossy,) = inventory.take()

    inventory.start_detector()
    inventory.detector.resume(lossy)
    inventory.run(12_000)
    assert inventory.take() == []
    inventory.too_small.clear()
    inventory.run(3_000)
    (healed,) = inventory.take()
    assert (healed.state, healed.cause) == ("speaking", lossy.id)
