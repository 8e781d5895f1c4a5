"""NICs that lose a little of everything: told from their peers, from full queues and from bursts."""

from __future__ import annotations

import random

import pytest
from prepared import prepared

from draws import draws
from foliot_schemas.names import Path

MS = 1_000_000
NIC = "node0.rail0"
FLEET = {"nodes": 5, "rails": 1, "report_ms": 500, "tick_ms": 50}
OFTEN = FLEET | {"report_ms": 200}
"""As where queues come and go within half a second."""


class Some:
    """Loses a share of a path's probes by chance; no two in a row, which would be a silence here."""

    def __init__(self, share, seed):
        self._share, self._chance, self._last = share, random.Random(seed), -2

    def __call__(self, number):
        """Whether it loses the probe of this number."""
        lost = number - self._last > 1 and self._chance.random() < self._share
        self._last = number if lost else self._last
        return lost


def lose(inventory, share, *, source=None, destination=None, seed=1):
    """What a NIC sends, or what is sent to it, is lost by chance."""
    for number, path in enumerate(inventory.paths):
        if source in {None, path.source} and destination in {None, path.destination}:
            inventory.lose[path] = Some(share, 1_000 * seed + number)


def seeping(fleet, seed):
    """A fleet that has lost one in a hundred of what a NIC sends, for half a minute."""
    return prepared(lose_for_half_a_minute, fleet=fleet, seed=seed)


def lose_for_half_a_minute(fleet, seed):
    """As `seeping` has it."""
    lose(fleet, 0.01, source=NIC, seed=seed)
    fleet.run(30_000)
    return fleet


def told(events):
    """NIC, direction and state of events."""
    return [(event.kind, event.who, event.evidence["direction"], event.state) for event in events]


@pytest.fixture(params=draws(1))
def seed(request):
    """Chances, none of which is chosen."""
    return request.param


def test_a_nic_that_loses_one_in_a_hundred_of_what_it_sends(make_fleet, seed):
    """Is found within half a minute, once, with its numbers; and no peer is taken for it."""
    inventory = seeping(make_fleet(**FLEET), seed)
    (event,) = inventory.take()

    assert told([event]) == [("nic", NIC, "out", "lossy")]
    assert event.evidence["loss_share"] == pytest.approx(event.evidence["lost"] / event.evidence["sent"], abs=1e-6)
    assert event.evidence["loss_share"] >= 0.005
    assert event.evidence["lost"] >= 10
    assert 4 <= event.evidence["paths_losing"] <= event.evidence["paths"] == 8
    assert event.since_ns < event.at_ns
    inventory.run(20_000)
    assert inventory.take() == []


def test_a_nic_that_loses_one_in_a_hundred_of_what_it_gets(make_fleet, seed):
    """The other direction."""
    inventory = make_fleet(**FLEET)
    lose(inventory, 0.01, destination=NIC, seed=seed)
    inventory.run_until_said(30_000)

    assert told(inventory.take()) == [("nic", NIC, "in", "lossy")]


def test_a_nic_that_loses_both_ways(make_fleet, seed):
    """One fault; sound when both directions are."""
    inventory = make_fleet(**FLEET)
    lose(inventory, 0.012, destination=NIC, seed=seed)
    lose(inventory, 0.012, source=NIC, seed=seed + 50)
    inventory.run_until_said(30_000)
    (lossy,) = inventory.take()
    assert (lossy.who, lossy.state) == (NIC, "lossy")
    both = lossy.evidence["direction"] == "both"

    lose(inventory, 0.0, source=NIC)
    inventory.run(20_000)
    between = inventory.take()
    assert [event.state for event in between] in ([], ["sound", "lossy"]) if not both else between == []

    inventory.lose.clear()
    inventory.run_until_said(45_000)
    assert inventory.take()[-1].state == "sound"


def test_when_it_loses_nothing_any_more_it_is_sound(make_fleet, seed):
    """Under the same fault, because of what was said of it; not before."""
    inventory = seeping(make_fleet(**FLEET), seed)
    (lossy,) = inventory.take()

    inventory.lose.clear()
    inventory.run_until_said(45_000)
    (sound,) = inventory.take()
    assert told([sound]) == [("nic", NIC, "out", "sound")]
    assert (sound.cause, sound.fault, sound.since_ns) == (lossy.id, lossy.fault, lossy.since_ns)
    assert sound.evidence["loss_share"] < 0.0025


def test_a_loss_of_one_in_a_thousand_is_left_alone(make_fleet, seed):
    """And so is none at all."""
    inventory = make_fleet(**FLEET)
    lose(inventory, 0.001, source=NIC, seed=seed)
    inventory.run(40_000)

    assert inventory.take() == []


def test_what_was_sent_long_before_does_not_count(make_fleet, seed):
    """A NIC that was good for more than a minute is found as soon as a new one."""
    inventory = make_fleet(**FLEET)
    inventory.run(65_000)
    lose(inventory, 0.01, source=NIC, seed=seed)
    inventory.run_until_said(20_000)

    assert told(inventory.take()) == [("nic", NIC, "out", "lossy")]


def test_one_path_that_loses_is_not_its_nic(make_fleet):
    """One in thirty-three, below what makes a path lossy.

    Of all that the NIC sends it is more than half a percent, and of one peer alone.
    """
    inventory = make_fleet(**FLEET)
    for path in inventory.paths:
        if (path.source, path.destination) == (NIC, "node1.rail0"):
            inventory.lose[path] = lambda number: number % 33 == 0
    inventory.run(40_000)

    assert inventory.take() == []


def test_full_queues_drop_and_no_nic_seeps(make_fleet, seed):
    """Half of the time, in turns of 0.4 s as a training job's, delays stand 10 ms above the least.

    One probe in a hundred is dropped then.
    """
    inventory = make_fleet(**OFTEN)
    mine = [path for path in inventory.paths if path.source == NIC]
    chances = {path: Some(0.01, 1_000 * seed + number) for number, path in enumerate(mine)}
    for _ in range(45):
        for path in mine:
            inventory.lose[path], inventory.delay_ns[path] = chances[path], 10 * MS
        inventory.run(400)
        for path in mine:
            del inventory.lose[path], inventory.delay_ns[path]
        inventory.run(400)

    assert inventory.take() == []


def test_a_nic_that_seeps_under_load_is_found_while_its_queue_is_empty(make_fleet, seed):
    """Losses at all times, and a queue that is full for a quarter of it."""
    inventory = make_fleet(**OFTEN)
    lose(inventory, 0.012, source=NIC, seed=seed)
    mine = [path for path in inventory.paths if path.source == NIC]
    events = []
    for _ in range(110):
        inventory.delay_ns.update(dict.fromkeys(mine, 10 * MS))
        inventory.run(400)
        inventory.delay_ns.clear()
        inventory.run(1_200)
        if events := inventory.take():
            break

    assert told(events) == [("nic", NIC, "out", "lossy")]


def test_bursts_on_a_rail_are_no_nics(make_fleet):
    """Routes that change lose a probe of each path, four times in forty seconds."""
    inventory = make_fleet(**OFTEN)
    rail = [path for path in inventory.paths if path.source.endswith("rail0")]
    for _ in range(4):
        inventory.lose.update({path: lambda _: True for path in rail})
        inventory.run(45)
        inventory.lose.clear()
        inventory.run(10_000)

    assert inventory.take() == []


def test_a_flapping_nic_does_not_seep(make_fleet):
    """What it loses until its peers hear nothing has a cause."""
    inventory = make_fleet(**FLEET)
    for _ in range(12):
        inventory.set_carrier(NIC, carrier=False)
        inventory.run(300)
        inventory.set_carrier(NIC, carrier=True)
        inventory.run(2_000)

    assert {event.kind for event in inventory.take()} == {"flap"}


def test_two_nics_of_different_hosts_are_told_apart(make_fleet, seed):
    """Each is found; what passes between them is one's or the other's, once."""
    inventory = make_fleet(**FLEET | {"nodes": 7})
    lose(inventory, 0.012, source=NIC, seed=seed)
    lose(inventory, 0.015, source="node5.rail0", seed=seed + 100)
    inventory.run(25_000)

    assert sorted(told(inventory.take())) == [("nic", NIC, "out", "lossy"), ("nic", "node5.rail0", "out", "lossy")]


def test_a_path_that_loses_much_is_told_besides(make_fleet):
    """A NIC that seeps, and one of its paths that loses a tenth: traffic leaves by the path's own event."""
    inventory = seeping(make_fleet(**FLEET), 0)
    inventory.take()
    path = next(path for path in inventory.paths if path.source == NIC and path.entropy == 0)
    inventory.lose[path] = lambda number: number % 10 == 0
    inventory.run_until_said(20_000)

    assert [(event.kind, event.who, event.state) for event in inventory.take()] == [("path", str(path), "lossy")]


def test_a_detector_that_takes_over_says_when_it_is_sound(make_fleet):
    """And not once more that it is not."""
    inventory = seeping(make_fleet(**FLEET), 0)
    (lossy,) = inventory.take()
    inventory.start_detector()
    inventory.detector.resume(lossy)
    inventory.run(20_000)
    assert inventory.take() == []

    inventory.lose.clear()
    inventory.run_until_said(45_000)
    (sound,) = inventory.take()
    assert (sound.state, sound.cause) == ("sound", lossy.id)


def test_without_synchronised_clocks_nobody_knows_of_full_queues(make_fleet, seed):
    """What is lost may be lost in one, and no NIC is accused; when the clocks are known, it is."""
    inventory = make_fleet(**FLEET, offsets_ms=(3, -3, 1, 0, 5))
    lose(inventory, 0.012, source=NIC, seed=seed)
    inventory.run(30_000)
    assert inventory.take() == []

    inventory.bound_ns.update(dict.fromkeys(inventory.names, 100))
    inventory.offset_ns.update(dict.fromkeys(inventory.names, 0))
    inventory.run_until_said(20_000)
    assert told(event for event in inventory.take() if event.kind == "nic") == [("nic", NIC, "out", "lossy")]


@pytest.mark.parametrize("late_ms", [0, 700], ids=["in-time", "late"])
def test_bursts_shorter_than_a_probe_interval_show_in_other_paths_and_no_nic_seeps(make_fleet, seed, late_ms):
    """Every half second the queue of a NIC is full for 50 ms.

    Of a path's probes one falls into that, is delayed or lost, and nothing else of it tells of a queue. The nodes that
    could tell of it may be the late ones.
    """
    inventory = make_fleet(**OFTEN)
    for name in inventory.names[2::2]:
        inventory.bus_delay_ns[name] += late_ms * MS
    mine = [path for path in inventory.paths if path.source == NIC]
    chances = {path: Some(0.2, 1_000 * seed + number) for number, path in enumerate(mine)}
    for _ in range(60):
        for number, path in enumerate(mine):
            inventory.lose[path] = chances[path]
            if number % 2:  # in turn; those of which a probe came through tell of it
                inventory.delay_ns[path] = 10 * MS
        inventory.run(50)
        for path in mine:
            inventory.lose.pop(path, None)
        inventory.run(100)
        inventory.delay_ns.clear()
        inventory.run(350)

    assert [each for each in inventory.take() if each.kind == "nic"] == []


@pytest.mark.parametrize(
    ("is_told", "late_ms"), [(True, 0), (True, 700), (False, 0)], ids=["told in time", "told late", "untold"]
)
def test_what_a_host_dropped_itself_no_link_has_lost(make_fleet, seed, is_told, late_ms):
    """Every third of a second, its own queue is full for 100 ms, and a third of its probes never leave.

    No delay shows that queue, as a probe is stamped behind it. The host alone knows, and may be the late one.
    """
    inventory = make_fleet(**OFTEN)
    inventory.bus_delay_ns["node0"] += late_ms * MS
    inventory.tells_unsent = is_told
    mine = [path for path in inventory.paths if path.source == NIC]
    for _ in range(60):
        for number, path in enumerate(mine):
            inventory.drop_unsent[path] = Some(0.35, 1_000 * seed + number)
        inventory.run(100)
        inventory.drop_unsent.clear()
        inventory.run(233)
    assert bool(inventory.take()) is not is_told


@pytest.mark.parametrize(("share", "every_ms"), [(0.02, 1_000), (0.1, 333)])
def test_a_host_that_drops_probes_itself_hides_no_nic_that_loses_more(make_fleet, seed, share, every_ms):
    """What it lost while nothing was dropped counts on: two in a hundred, or more if it drops a third of the time."""
    inventory = make_fleet(**OFTEN)
    lose(inventory, share, source=NIC, seed=seed)
    mine = [path for path in inventory.paths if path.source == NIC]
    for _ in range(round(25_000 / every_ms)):
        for number, path in enumerate(mine):
            inventory.drop_unsent[path] = Some(0.35, 1_000 * seed + number)
        inventory.run(100)
        inventory.drop_unsent.clear()
        inventory.run(every_ms - 100)
    assert told(event for event in inventory.take() if event.kind == "nic") == [("nic", NIC, "out", "lossy")]


def test_what_a_host_dropped_of_a_path_says_nothing_of_another(make_fleet):
    """Neither of the same NIC, nor of the way back: probes of full size or some of all are lost there."""
    inventory = make_fleet()
    dropped = Path(NIC, "node1.rail0", 0)
    lossy, narrow, back = Path(NIC, "node2.rail0", 0), Path(NIC, "node2.rail0", 1), Path("node1.rail0", NIC, 0)
    for path in (lossy, back):
        inventory.lose[path] = lambda number: number % 9 in {0, 2, 4, 6}
    inventory.too_small.add(narrow)
    for _ in range(40):
        inventory.drop_unsent[dropped] = lambda number: not number % 2
        inventory.run(100)
        inventory.drop_unsent.clear()
        inventory.run(300)
    said = {event.who for event in inventory.take() if (event.kind, event.state) == ("path", "lossy")}
    assert said == {str(path) for path in (lossy, narrow, back)}
