"""The present state of the fleet, folded from messages."""

import time

import msgspec
import numpy as np
import pytest

from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.fleet import Fleet
from foliot_gateway.state.store import Store
from foliot_schemas import (
    ClockState,
    DelayBatch,
    DelayRow,
    Drain,
    Event,
    Nic,
    Node,
    NodePaths,
    Outcome,
    Placement,
    PortState,
    Witness,
)

PATH = "node0.rail0>node3.rail0#2"
SECOND_NS = 1_000_000_000


def port(*, carrier=True, admin_up=True, counters=None, **more):
    """The port of node3.rail0."""
    return PortState(
        node="node3", nic="node3.rail0", at_ns=5, carrier=carrier, admin_up=admin_up, carrier_down_count=1,
        carrier_up_count=2, counters=counters or {}, **more,
    )  # fmt: skip


def node(name="node3"):
    """An inventory record with one NIC."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="ib0", address="10.0.0.4", clock=name, service_address="10.200.0.4",
        path_addresses=("100.64.0.4",), entropies=(49200,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,))


def placement(via, entropy, peer="node3", rail="rail0"):
    """A way to node3."""
    return Placement(peer=peer, rail=rail, via=via, entropy=entropy)


def outcome(at_ns=10, status="done", **more):
    """What node0's agent did at a time."""
    return Outcome(id=f"o{at_ns}", command="c", verb="reroute", node="node0", status=status, started_ns=at_ns, **more)


def clock_state(clock, bound_ns=5):
    """What sync says of a clock."""
    return ClockState(
        clock=clock, reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=100, bound_ns=bound_ns,
        growth_ppb=1.0, as_of_ns=1, void_after_ns=2, status="synchronised",
    )  # fmt: skip


def only_nic(fleet):
    """The one NIC that is known."""
    (view,) = (nic for node in fleet.nodes() for nic in node.nics)
    return view


def in_force(fleet):
    """Those that traffic takes, of all paths from node0 to node3."""
    names = tuple(f"node0.rail{rail}>node3.rail{rail}#{entropy}" for rail in range(2) for entropy in range(4))
    rows = np.zeros(len(names), DelayRow)
    rows["path"], rows["witness"] = range(len(names)), Witness.SOURCE
    fleet.fold_delays(DelayBatch.of(rows, node="node0", at_ns=1, interval_ns=100, bound_ns=1, paths=names))
    shown = {view.path: view.in_force for view in fleet.paths(node="node0")}
    assert shown.keys() == set(names)
    return {path for path, is_taken in shown.items() if is_taken}


@pytest.mark.parametrize(
    ("carrier", "admin_up", "state"),
    [(True, True, "up"), (False, True, "down"), (False, False, "admin-down"), (True, False, "admin-down")],
)
def test_a_nic_is_what_its_port_says(carrier, admin_up, state):
    """An interface that an administrator set down is told apart from one that lost its carrier."""
    fleet = Fleet(time.time_ns)
    fleet.fold_port(port(carrier=carrier, admin_up=admin_up))

    assert state == only_nic(fleet).state


def test_a_nic_of_the_inventory_is_unknown_until_its_probe_speaks():
    """It is listed with its addresses from the start, and nothing is claimed of its link."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node3", node())
    before = only_nic(fleet)
    fleet.fold_port(port())
    after = only_nic(fleet)

    assert (before.state, before.carrier, before.service_address, before.device) == (
        "unknown",
        False,
        "10.200.0.4",
        "ib0",
    )
    assert (after.state, after.carrier, after.service_address) == ("up", True, "10.200.0.4")


def test_a_node_that_left_is_gone():
    """A deleted inventory record takes the node out of the list, its NICs off the page, and its clocks with it."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node3", node())
    fleet.fold_port(port())
    fleet.fold_clock(clock_state("node3"))
    fleet.fold_clock(clock_state("node3.rail0:phc"))
    assert len(fleet.clocks()) == 2
    fleet.changed_tiles()
    fleet.fold_node("node3", None)

    assert not list(fleet.nodes())
    assert fleet.clocks() == ()
    assert fleet.changed_tiles() == {"node3.rail0": None}


def test_a_node_that_comes_back_begins_anew():
    """What its agent reported before it left says nothing of the routes that it has now."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(away=("rail0",), placements=(placement("rail1", 1),)))
    fleet.fold_event(Event(id="e", kind="process", who="node0/probe", state="dead", at_ns=9, since_ns=8))
    assert (only_nic(fleet).moved, in_force(fleet)) == (True, {"node0.rail1>node3.rail1#1"})
    fleet.fold_node("node0", None)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_port(msgspec.structs.replace(port(), node="node0", nic="node0.rail0"))

    assert (only_nic(fleet).moved, only_nic(fleet).condition, in_force(fleet)) == (False, "up", set())


def test_what_is_dated_ahead_counts_as_of_now():
    """A node whose clock is an hour ahead: what the next one says, by a right clock, is newer."""
    hour_ns = 3_600_000_000_000
    fleet = Fleet(now_ns=lambda: 100)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(at_ns=hour_ns, away=("rail0",)))
    assert only_nic(fleet).moved
    fleet.fold_outcome(outcome(at_ns=100, back=("rail0",)))
    assert not only_nic(fleet).moved

    for at_ns, state in ((hour_ns, "dead"), (100, "alive")):
        fleet.fold_event(Event(id=state, kind="process", who="node0/probe", state=state, at_ns=at_ns, since_ns=1))
    fleet.fold_port(msgspec.structs.replace(port(), node="node0", nic="node0.rail0"))
    assert only_nic(fleet).condition == "up"


def test_no_node_moves_the_time_by_which_verdicts_are_ordered():
    """One that is ahead says something; its verdicts would outlast all others."""
    ahead_ns = time.time_ns() + 3_600 * SECOND_NS
    store = Store(GatewaySettings(), time.time_ns)
    store.event(verdict("path", PATH, "silent", at_ns=ahead_ns))
    store.event(verdict("path", PATH, "speaking", at_ns=time.time_ns() + SECOND_NS))

    assert [view.state for view in store.fleet.paths()] == ["speaking"]


def test_a_change_without_counters_keeps_the_last_ones():
    """Link changes are sent at once, without counters; those of the last second stand."""
    fleet = Fleet(time.time_ns)
    fleet.fold_port(port(counters={"rx_packets": 7}))
    fleet.fold_port(port(carrier=False, change=True))

    assert (only_nic(fleet).counters, only_nic(fleet).state) == ({"rx_packets": 7}, "down")


@pytest.mark.parametrize("in_inventory", [True, False])
def test_an_older_word_of_a_port_changes_nothing(in_inventory):
    """It comes late. Where the clock was set back, earlier dates are those of newer words."""
    now_ns = 10 * SECOND_NS
    fleet = Fleet(lambda: now_ns)
    if in_inventory:
        fleet.fold_node("node3", node())
    word = msgspec.structs.replace(port(carrier=False), at_ns=now_ns)
    fleet.fold_port(word)
    fleet.fold_port(msgspec.structs.replace(word, carrier=True, at_ns=9 * SECOND_NS))
    assert only_nic(fleet).state == "down"

    for tenth in range(5):
        now_ns += SECOND_NS // 10
        fleet.fold_port(msgspec.structs.replace(word, carrier=True, at_ns=5 * SECOND_NS + tenth * SECOND_NS // 10))
    assert only_nic(fleet).state == "up"


def test_a_nic_is_moved_when_the_remediator_wants_it_and_no_agent_spoke():
    """After a restart of the gateway with empty streams, the wanted state is the best there is."""
    fleet = Fleet(time.time_ns)
    fleet.fold_wanted("node3", NodePaths(node="node3", lease_revision=1, away=("rail0",)))
    fleet.fold_port(port())

    assert only_nic(fleet).moved


def test_what_an_agent_did_counts_more_than_what_is_wanted():
    """An armed move shows at once, before the remediator has written that it wants it."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=1))
    fleet.fold_outcome(outcome(at_ns=10, armed=True, away=("rail0",)))
    assert only_nic(fleet).moved

    fleet.fold_outcome(outcome(at_ns=20, back=("rail0",)))
    assert not only_nic(fleet).moved


@pytest.mark.parametrize("status", ["advised", "refused", "failed"])
def test_a_command_that_was_not_carried_out_moves_nothing(status):
    """Only done and already change what is in force."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(status=status, away=("rail0",), placements=(placement("rail1", 0),)))

    assert not only_nic(fleet).moved
    assert set() == in_force(fleet)


def test_an_old_report_read_late_changes_nothing():
    """The streams are read while new reports arrive; the newest stays in force whatever the order."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(at_ns=20, back=("rail0",), placements=(placement("rail0", 1),)))
    fleet.fold_outcome(outcome(at_ns=10, away=("rail0",), placements=(placement("rail1", 0),)))

    assert not only_nic(fleet).moved
    assert {"node0.rail0>node3.rail0#1"} == in_force(fleet)


def test_the_path_in_force_follows_placements():
    """Wanted first, then as the agent reports: the rail and entropy that carry a service address."""
    fleet = Fleet(time.time_ns)
    fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=1, placements=(placement("rail0", 2),)))
    assert in_force(fleet) == {"node0.rail0>node3.rail0#2"}

    fleet.fold_outcome(outcome(placements=(placement("rail1", 3),)))
    assert {"node0.rail1>node3.rail1#3"} == in_force(fleet)


def test_backups_are_in_force_while_the_own_nic_is_away():
    """The one rule for a lost NIC puts its armed backups before all the rail's routes, and leaves other rails alone."""
    fleet = Fleet(time.time_ns)
    wanted = NodePaths(
        node="node0", lease_revision=1, placements=(placement("rail0", 2), placement("rail1", 0, rail="rail1")),
        backups=(placement("rail1", 1), placement("rail0", 1, rail="rail1")),
    )  # fmt: skip
    fleet.fold_wanted("node0", wanted)
    fleet.fold_outcome(outcome(away=("rail0",), armed=True))

    assert {"node0.rail1>node3.rail1#1", "node0.rail1>node3.rail1#0"} == in_force(fleet)


def looks(fleet, nic="node0.rail0"):
    """The condition of a NIC's tile, and whether its traffic is said to be moved."""
    tile = fleet.changed_tiles()[nic]
    return tile.condition, tile.moved


def test_a_nic_is_moved_when_all_its_traffic_takes_another_rail():
    """Out of it, or to it; while one peer is still reached by it, it is not."""
    fleet = Fleet(time.time_ns)
    for name in ("node0", "node3", "node4"):
        fleet.fold_port(msgspec.structs.replace(port(), node=name, nic=f"{name}.rail0"))
    home = tuple(placement("rail0", 0, peer=peer) for peer in ("node3", "node4"))
    fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=1, placements=home))
    fleet.fold_outcome(outcome(at_ns=10, placements=(placement("rail1", 0, peer="node3"),)))
    assert looks(fleet) == ("up", False)

    fleet.fold_outcome(outcome(at_ns=20, placements=(placement("rail1", 0, peer="node4"),)))
    tiles = fleet.changed_tiles()
    assert {nic: tile.condition for nic, tile in tiles.items()} == {"node0.rail0": "moved", "node4.rail0": "moved"}

    fleet.fold_outcome(outcome(at_ns=30, placements=(placement("rail0", 3, peer="node3"),)))
    assert looks(fleet) == ("up", False)


def test_only_what_may_look_different_is_looked_at():
    """A thousand reports of counters cost nothing; each look forgets what it has shown."""
    fleet = Fleet(time.time_ns)
    fleet.fold_port(port())
    assert set(fleet.changed_tiles()) == {"node3.rail0"}

    fleet.fold_port(port(counters={"rx_packets": 7}))
    assert fleet.changed_tiles() == {}


def verdict(kind, who, state, at_ns=1):
    """What the detector says."""
    return Event(id=f"{who}/{state}", kind=kind, who=who, state=state, at_ns=at_ns, since_ns=at_ns)


def test_paths_that_the_detector_says_are_silent_make_a_nic_lost():
    """All that leave it; the NICs at their other ends have one bad path each, and stay up."""
    fleet = Fleet(time.time_ns)
    for name in ("node0", "node3", "node4"):
        fleet.fold_port(msgspec.structs.replace(port(), node=name, nic=f"{name}.rail0"))
    for peer in ("node3", "node4"):
        fleet.fold_event(verdict("path", f"{peer}.rail0>node0.rail0#0", "speaking"))
        fleet.fold_event(verdict("path", f"node4.rail0>{peer}.rail0#0", "speaking"))
        fleet.fold_event(verdict("path", f"node0.rail0>{peer}.rail0#0", "silent"))
        fleet.fold_event(verdict("path", f"node0.rail0>{peer}.rail0#0", "silent", at_ns=2))
    tiles = fleet.changed_tiles()
    assert (tiles["node0.rail0"].condition, tiles["node0.rail0"].why) == (
        "lost", "2 of 2 paths out of it are silent or lossy",
    )  # fmt: skip
    assert tiles["node4.rail0"].condition == "up"

    fleet.fold_event(verdict("path", "node0.rail0>node3.rail0#0", "speaking", at_ns=3))
    assert looks(fleet) == ("up", False)


def test_a_nic_that_loses_a_little_stays_up_and_says_so():
    """Until it is sound; an older word that is read late changes nothing."""
    fleet = Fleet(time.time_ns)
    fleet.fold_node("node3", node("node3"))
    fleet.fold_port(port())
    lossy = msgspec.structs.replace(
        verdict("nic", "node3.rail0", "lossy", at_ns=5), evidence={"direction": "in", "loss_share": 0.0123}
    )
    fleet.fold_event(lossy)
    tile = fleet.changed_tiles()["node3.rail0"]
    assert (tile.condition, tile.why) == ("up", "loses 1.2% of what is sent to it")

    fleet.fold_event(verdict("nic", "node3.rail0", "sound", at_ns=4))
    assert fleet.changed_tiles() == {}
    fleet.fold_event(verdict("nic", "node3.rail0", "sound", at_ns=6))
    assert fleet.changed_tiles()["node3.rail0"].why == ""


def test_nobody_speaks_for_the_nics_of_a_dead_probe():
    """They are unknown until it is alive; an older verdict that is read late changes nothing."""
    fleet = Fleet(time.time_ns)
    fleet.fold_port(port())
    fleet.fold_event(verdict("process", "node3/probe", "dead", at_ns=5))
    assert looks(fleet, "node3.rail0") == ("unknown", False)

    fleet.fold_event(verdict("process", "node3/probe", "alive", at_ns=4))
    assert fleet.changed_tiles() == {}
    fleet.fold_event(verdict("process", "node3/probe", "alive", at_ns=6))
    assert looks(fleet, "node3.rail0") == ("up", False)


class SetClock:
    """A fleet, by a clock that is right, and node3, by one that is ahead or behind."""

    def __init__(self, ahead_ns):
        self.now_ns, self.ahead_ns = 1_000 * SECOND_NS, ahead_ns
        self.fleet = Fleet(lambda: self.now_ns)
        for name in ("node0", "node3"):
            self.fleet.fold_node(name, node(name))
        self.report()

    def report(self):
        """Half a second in which node3 says how its port is."""
        for _ in range(5):
            self.now_ns += SECOND_NS // 10
            self.fleet.fold_port(msgspec.structs.replace(port(), at_ns=self.now_ns + self.ahead_ns))

    def say(self, kind, who, state, cause=""):
        """An event by node3's clock; returns its id."""
        event = msgspec.structs.replace(
            verdict(kind, who, state, at_ns=self.now_ns + self.ahead_ns), id=f"{who}/{state}-{self.now_ns}", cause=cause
        )
        self.fleet.fold_event(event)
        return event.id

    @property
    def look(self):
        """Condition of node3's NIC, and why."""
        view = next(nic for each in self.fleet.nodes() for nic in each.nics if nic.nic == "node3.rail0")
        return view.condition, view.why


TROUBLES = [
    ("path", PATH, "silent", "speaking"), ("nic", "node3.rail0", "lossy", "sound"),
    ("process", "node3/probe", "dead", "alive"),
]  # fmt: skip
"""Kind, whom it is about, and the states that begin and end it."""
CLOCKS = [(0, -5 * SECOND_NS), (3_600 * SECOND_NS, 0)]
"""How far node3's clock is ahead before it is set, and afterwards."""


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_ends_although_the_clock_was_set_back(trouble, clock, reports):
    """Its end is dated before its beginning, whether or not the gateway has heard the new clock yet."""
    world = SetClock(clock[0])
    kind, who, bad, good = trouble
    begun = world.say(kind, who, bad)
    assert world.look != ("up", "")
    world.ahead_ns = clock[1]
    if reports:
        world.report()
    world.say(kind, who, good, cause=begun)

    assert world.look == ("up", "")


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_begins_although_the_clock_was_set_back(trouble, clock):
    """The last one ended later, by the clock as it was then."""
    world = SetClock(clock[0])
    kind, who, bad, good = trouble
    world.say(kind, who, good, cause=world.say(kind, who, bad))
    world.ahead_ns = clock[1]
    world.report()
    world.say(kind, who, bad)

    assert world.look != ("up", "")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_trouble_that_is_told_after_its_end_is_over(trouble):
    """Although the clock was set back between them."""
    world = SetClock(-5 * SECOND_NS)
    kind, who, bad, good = trouble
    late = verdict(kind, who, bad, at_ns=world.now_ns)
    world.say(kind, who, good, cause=late.id)
    world.fleet.fold_event(late)

    assert world.look == ("up", "")


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_is_moved_is_back_although_the_clock_was_set_back(clock):
    """So is a placement in force, of which the agent reported last."""
    world = SetClock(clock[0])
    for rail, ahead_ns in zip((1, 0), clock, strict=True):
        world.ahead_ns = ahead_ns
        world.report()
        moved = {"away" if rail else "back": ("rail0",), "placements": (placement(f"rail{rail}", 0, peer="node0"),)}
        done = msgspec.structs.replace(outcome(at_ns=world.now_ns + world.ahead_ns, **moved), node="node3")
        world.fleet.fold_outcome(done)
        assert (world.look[0] == "moved") == bool(rail)


def test_the_last_word_on_each_clock_is_kept():
    """One state per clock, by name."""
    fleet = Fleet(time.time_ns)
    for clock, bound_ns in (("node1", 5), ("node0", 7), ("node1", 6)):
        fleet.fold_clock(clock_state(clock, bound_ns))

    assert [(state.clock, state.bound_ns) for state in fleet.clocks()] == [("node0", 7), ("node1", 6)]


def test_a_node_is_drained_until_somebody_wants_it_again(monkeypatch):
    """By a word that says so, or as the wish is gone; strangers' names are limited."""
    monkeypatch.setattr("foliot_gateway.state.fleet.MOST_STRANGERS", 1)
    fleet = Fleet(time.time_ns)
    fleet.fold_drain("stranger", Drain(node="stranger", at_ns=1))
    for ends in (Drain(node="node3", at_ns=2, over=True), None):
        fleet.fold_node("node3", node())
        fleet.fold_drain("node3", Drain(node="node3", at_ns=1))
        assert [each.drained for each in fleet.nodes()] == [True]
        fleet.fold_drain("node3", ends)
        assert [each.drained for each in fleet.nodes()] == [False]
