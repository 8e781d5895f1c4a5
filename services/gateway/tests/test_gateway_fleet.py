"""The present state of the fleet, folded from messages."""

import numpy as np
import pytest

from foliot_gateway.fleet import Fleet
from foliot_gateway.paths import PathTable
from foliot_schemas import (
    ClockState,
    DelayBatch,
    DelayRow,
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


def batch(*rows, paths=(PATH,), node="node3", at_ns=1_000):
    """A batch of delays; rows as dictionaries of columns."""
    table = np.zeros(len(rows), DelayRow)
    for index, row in enumerate(rows):
        for column, value in row.items():
            table[index][column] = value
    return DelayBatch.of(table, node=node, at_ns=at_ns, interval_ns=100, bound_ns=10, paths=paths)


def heard(**more):
    """A row of a destination that hears well."""
    return {
        "witness": Witness.DESTINATION, "sent": 10, "received": 9, "least_ns": 100, "median_ns": 120, "p99_ns": 150,
        "last_ns": 990,
    } | more  # fmt: skip


def placement(via, entropy, peer="node3", rail="rail0"):
    """A way to node3."""
    return Placement(peer=peer, rail=rail, via=via, entropy=entropy)


def outcome(at_ns=10, status="done", **more):
    """What node0's agent did at a time."""
    return Outcome(id=f"o{at_ns}", command="c", verb="reroute", node="node0", status=status, started_ns=at_ns, **more)


def only_path(fleet):
    """The one path that is known."""
    (view,) = fleet.paths()
    return view


def only_nic(fleet):
    """The one NIC that is known."""
    (view,) = (nic for node in fleet.nodes() for nic in node.nics)
    return view


@pytest.mark.parametrize(
    ("carrier", "admin_up", "state"),
    [(True, True, "up"), (False, True, "down"), (False, False, "admin-down"), (True, False, "admin-down")],
)
def test_a_nic_is_what_its_port_says(carrier, admin_up, state):
    """An interface that an administrator set down is told apart from one that lost its carrier."""
    fleet = Fleet()
    fleet.fold_port(port(carrier=carrier, admin_up=admin_up))

    assert state == only_nic(fleet).state


def test_a_nic_of_the_inventory_is_unknown_until_its_probe_speaks():
    """It is listed with its addresses from the start, and nothing is claimed of its link."""
    fleet = Fleet()
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
    """A deleted inventory record takes the node out of the list."""
    fleet = Fleet()
    fleet.fold_node("node3", node())
    fleet.fold_node("node3", None)

    assert fleet.nodes() == ()


def test_a_change_without_counters_keeps_the_last_ones():
    """Link changes are sent at once, without counters; those of the last second stand."""
    fleet = Fleet()
    fleet.fold_port(port(counters={"rx_packets": 7}))
    fleet.fold_port(port(carrier=False, change=True))

    assert (only_nic(fleet).counters, only_nic(fleet).state) == ({"rx_packets": 7}, "down")


def test_a_nic_is_moved_when_the_remediator_wants_it_and_no_agent_spoke():
    """After a restart of the gateway with empty streams, the wanted state is the best there is."""
    fleet = Fleet()
    fleet.fold_wanted("node3", NodePaths(node="node3", lease_revision=1, away=("rail0",)))
    fleet.fold_port(port())

    assert only_nic(fleet).moved


def test_what_an_agent_did_counts_more_than_what_is_wanted():
    """An armed move shows at once, before the remediator has written that it wants it."""
    fleet = Fleet()
    fleet.fold_node("node0", node("node0"))
    fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=1))
    fleet.fold_outcome(outcome(at_ns=10, armed=True, away=("rail0",)))
    assert only_nic(fleet).moved

    fleet.fold_outcome(outcome(at_ns=20, back=("rail0",)))
    assert not only_nic(fleet).moved


@pytest.mark.parametrize("status", ["advised", "refused", "failed"])
def test_a_command_that_was_not_carried_out_moves_nothing(status):
    """Only done and already change what is in force."""
    fleet = Fleet()
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(status=status, away=("rail0",), placements=(placement("rail1", 0),)))

    assert not only_nic(fleet).moved
    assert frozenset() == fleet.in_force()


def test_an_old_report_read_late_changes_nothing():
    """The streams are read while new reports arrive; the newest stays in force whatever the order."""
    fleet = Fleet()
    fleet.fold_node("node0", node("node0"))
    fleet.fold_outcome(outcome(at_ns=20, back=("rail0",), placements=(placement("rail0", 1),)))
    fleet.fold_outcome(outcome(at_ns=10, away=("rail0",), placements=(placement("rail1", 0),)))

    assert not only_nic(fleet).moved
    assert {"node0.rail0>node3.rail0#1"} == fleet.in_force()


def test_the_path_in_force_follows_placements():
    """Wanted first, then as the agent reports: the rail and entropy that carry a service address."""
    fleet = Fleet()
    fleet.fold_wanted("node0", NodePaths(node="node0", lease_revision=1, placements=(placement("rail0", 2),)))
    fleet.fold_delays(batch(heard()))
    assert only_path(fleet).in_force

    fleet.fold_outcome(outcome(placements=(placement("rail1", 3),)))
    assert not only_path(fleet).in_force
    assert {"node0.rail1>node3.rail1#3"} == fleet.in_force()


def test_backups_are_in_force_while_the_own_nic_is_away():
    """The one rule for a lost NIC puts its armed backups before all routes of the rail, and leaves other rails alone."""
    fleet = Fleet()
    wanted = NodePaths(
        node="node0", lease_revision=1, placements=(placement("rail0", 2), placement("rail1", 0, rail="rail1")),
        backups=(placement("rail1", 1), placement("rail0", 1, rail="rail1")),
    )  # fmt: skip
    fleet.fold_wanted("node0", wanted)
    fleet.fold_outcome(outcome(away=("rail0",), armed=True))

    assert {"node0.rail1>node3.rail1#1", "node0.rail1>node3.rail1#0"} == fleet.in_force()


def test_a_path_shows_what_both_ends_counted():
    """The source says what it sent, the destination what arrived and how long it took."""
    fleet = Fleet()
    fleet.fold_delays(batch({"witness": Witness.SOURCE, "sent": 12}, node="node0", at_ns=900))
    fleet.fold_delays(batch(heard(), at_ns=1_000))
    view = only_path(fleet)

    assert (view.sent, view.sent_at_ns, view.received, view.received_at_ns) == (12, 900, 9, 1_000)
    assert (view.least_ns, view.median_ns, view.p99_ns, view.heard_ns) == (100, 120, 150, 990)
    assert (view.source, view.destination, view.entropy, view.state) == ("node0.rail0", "node3.rail0", 2, "speaking")


def test_a_path_that_falls_silent_keeps_its_last_delays():
    """Silence is no delay of zero: the last measured ones stay, beside a count of nothing."""
    fleet = Fleet()
    fleet.fold_delays(batch(heard()))
    fleet.fold_delays(batch({"witness": Witness.FELL_SILENT, "last_ns": 990}, at_ns=1_150))
    view = only_path(fleet)

    assert (view.state, view.received, view.median_ns, view.heard_ns) == ("silent", 0, 120, 990)


@pytest.mark.parametrize("again", [{"witness": Witness.SPEAKS_AGAIN, "last_ns": 2_000}, heard(last_ns=2_000)])
def test_a_silent_path_speaks_again(again):
    """Either word of it will do: the one sent at once may be lost."""
    fleet = Fleet()
    fleet.fold_delays(batch({"witness": Witness.FELL_SILENT}))
    fleet.fold_delays(batch(again, at_ns=2_000))

    assert (only_path(fleet).state, only_path(fleet).heard_ns) == ("speaking", 2_000)


def test_an_interval_without_probes_says_nothing():
    """Nothing received where nothing was due neither silences a path nor makes it speak."""
    fleet = Fleet()
    fleet.fold_delays(batch(heard(received=0, sent=0, least_ns=0, median_ns=0, p99_ns=0, last_ns=0)))

    assert (only_path(fleet).state, only_path(fleet).median_ns) == ("unknown", 0)


def verdict(state, at_ns, who=PATH):
    """The detector's word on a path."""
    return Event(id=f"e{at_ns}", kind="path", who=who, state=state, at_ns=at_ns, since_ns=at_ns)


def test_only_the_detector_ends_a_lossy_state():
    """A lossy path speaks too, so hearing it is no reason to call it well."""
    fleet = Fleet()
    fleet.fold_event(verdict("lossy", 10))
    fleet.fold_delays(batch(heard()))
    assert only_path(fleet).state == "lossy"

    fleet.fold_event(verdict("speaking", 20))
    assert only_path(fleet).state == "speaking"


def test_an_old_verdict_read_late_changes_nothing():
    """The stream's older verdicts arrive after the newest one when the gateway starts."""
    fleet = Fleet()
    fleet.fold_event(verdict("speaking", 20))
    fleet.fold_event(verdict("silent", 10))

    assert only_path(fleet).state == "speaking"


def test_paths_can_be_asked_by_node_and_nic():
    """Either end counts."""
    fleet = Fleet()
    names = (PATH, "node3.rail1>node1.rail1#0", "node1.rail0>node2.rail0#0")
    fleet.fold_delays(batch(*(heard(path=index) for index in range(3)), paths=names))

    assert {PATH, names[1]} == {view.path for view in fleet.paths(node="node3")}
    assert {names[1]} == {view.path for view in fleet.paths(nic="node3.rail1")}
    assert fleet.paths(nic="node9.rail0") == ()


def test_more_paths_than_the_first_room_are_kept_apart():
    """The table grows, and each row stays with its path."""
    table = PathTable()
    names = tuple(f"node0.rail0>node{number}.rail0#0" for number in range(1, 2_001))
    for first in (0, 1_000):
        rows = (heard(path=index, received=first + index) for index in range(1_000))
        table.fold(batch(*rows, paths=names[first : first + 1_000], node=f"n{first}"))

    assert len(table) == 2_000
    assert {name: number for number, name in enumerate(names)} == {
        view.path: view.received for view in table.views(frozenset())
    }


def test_a_node_may_change_the_paths_that_it_names():
    """Row numbers belong to a batch; the next batch of the same node may number otherwise."""
    fleet = Fleet()
    other = "node1.rail0>node3.rail0#0"
    fleet.fold_delays(batch(heard(received=1), heard(path=1, received=2), paths=(PATH, other)))
    fleet.fold_delays(batch(heard(received=3), heard(path=1, received=4), paths=(other, PATH)))

    assert {PATH: 4, other: 3} == {view.path: view.received for view in fleet.paths()}


def test_a_batch_about_no_path_is_refused():
    """The caller rejects the message; what was known stays."""
    fleet = Fleet()

    with pytest.raises(ValueError, match="not a path"):
        fleet.fold_delays(batch(heard(), paths=("nonsense",)))
    assert fleet.paths() == ()


def test_the_last_word_on_each_clock_is_kept():
    """One state per clock, by name."""
    fleet = Fleet()
    for clock, bound_ns in (("node1", 5), ("node0", 7), ("node1", 6)):
        fleet.fold_clock(
            ClockState(
                clock=clock, reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=100, bound_ns=bound_ns,
                growth_ppb=1.0, as_of_ns=1, void_after_ns=2, status="synchronised",
            )
        )  # fmt: skip

    assert [(state.clock, state.bound_ns) for state in fleet.clocks()] == [("node0", 7), ("node1", 6)]
