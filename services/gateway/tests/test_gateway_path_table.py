"""The last that was heard of every path: what both ends count, silence, loss, and the room for many."""

import time

import numpy as np
import pytest

from foliot_gateway.state.cardinality_limit import CardinalityLimit
from foliot_gateway.state.fleet import Fleet
from foliot_gateway.state.path_table import PathTable
from foliot_schemas import DelayBatch, DelayRow, Event, HopBatch, HopRow, Witness

PATH = "node0.rail0>node3.rail0#2"


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


def only_path(fleet):
    """The one path that is known."""
    (view,) = fleet.paths()
    return view


def test_a_path_shows_what_both_ends_counted():
    """The source says what it sent, the destination what arrived and how long it took."""
    fleet = Fleet(time.time_ns)
    fleet.fold_delays(batch({"witness": Witness.SOURCE, "sent": 12}, node="node0", at_ns=900))
    fleet.fold_delays(batch(heard(), at_ns=1_000))
    view = only_path(fleet)

    assert (view.sent, view.sent_at_ns, view.received, view.received_at_ns) == (12, 900, 9, 1_000)
    assert (view.least_ns, view.median_ns, view.p99_ns, view.heard_ns) == (100, 120, 150, 990)
    assert (view.source, view.destination, view.entropy, view.state) == ("node0.rail0", "node3.rail0", 2, "speaking")


def test_a_path_shows_the_routers_that_it_crosses():
    """In their order, with a place for one that does not answer; a later word takes the place of all of it."""
    fleet = Fleet(time.time_ns)
    fleet.fold_delays(batch(heard()))
    assert only_path(fleet).hops == ()

    def told(*rows):
        return HopBatch.of(np.array(list(rows), HopRow), node="node0", at_ns=1, paths=(only_path(fleet).path,))

    fleet.fold_hops(told((0, 1, 0x0A640001), (0, 3, 0x0A640007)))
    assert only_path(fleet).hops == ("10.100.0.1", "", "10.100.0.7")
    fleet.fold_hops(told((0, 1, 0x0A640002)))
    assert only_path(fleet).hops == ("10.100.0.2",)
    fleet.fold_hops(told())
    assert only_path(fleet).hops == ()


def test_a_path_that_falls_silent_keeps_its_last_delays():
    """Silence is no delay of zero: the last measured ones stay, beside a count of nothing."""
    fleet = Fleet(time.time_ns)
    fleet.fold_delays(batch(heard()))
    fleet.fold_delays(batch({"witness": Witness.FELL_SILENT, "last_ns": 990}, at_ns=1_150))
    view = only_path(fleet)

    assert (view.state, view.received, view.median_ns, view.heard_ns) == ("silent", 0, 120, 990)


@pytest.mark.parametrize("again", [{"witness": Witness.SPEAKS_AGAIN, "last_ns": 2_000}, heard(last_ns=2_000)])
def test_a_silent_path_speaks_again(again):
    """Either word of it will do: the one sent at once may be lost."""
    fleet = Fleet(time.time_ns)
    fleet.fold_delays(batch({"witness": Witness.FELL_SILENT}))
    fleet.fold_delays(batch(again, at_ns=2_000))

    assert (only_path(fleet).state, only_path(fleet).heard_ns) == ("speaking", 2_000)


def test_an_interval_without_probes_says_nothing():
    """Nothing received where nothing was due neither silences a path nor makes it speak."""
    fleet = Fleet(time.time_ns)
    fleet.fold_delays(batch(heard(received=0, sent=0, least_ns=0, median_ns=0, p99_ns=0, last_ns=0)))

    assert (only_path(fleet).state, only_path(fleet).median_ns) == ("unknown", 0)


def verdict(state, at_ns, who=PATH):
    """The detector's word on a path."""
    return Event(id=f"e{at_ns}", kind="path", who=who, state=state, at_ns=at_ns, since_ns=at_ns)


def test_only_the_detector_ends_a_lossy_state():
    """A lossy path speaks too, so hearing it is no reason to call it well."""
    fleet = Fleet(time.time_ns)
    fleet.fold_event(verdict("lossy", 10))
    fleet.fold_delays(batch(heard()))
    assert only_path(fleet).state == "lossy"

    fleet.fold_event(verdict("speaking", 20))
    assert only_path(fleet).state == "speaking"


@pytest.mark.parametrize("late", [heard(last_ns=1_400), {"witness": Witness.SPEAKS_AGAIN, "last_ns": 1_400}])
def test_what_was_heard_before_a_verdict_does_not_end_it(late):
    """A row that comes late counts as of when the path was heard; what was heard later does end it, at once."""
    fleet = Fleet(time.time_ns)
    fleet.fold_event(verdict("silent", 2_000))
    fleet.fold_delays(batch(late, at_ns=1_500))
    assert (only_path(fleet).state, only_path(fleet).heard_ns) == ("silent", 1_400)

    fleet.fold_delays(batch(late | {"last_ns": 2_400}, at_ns=2_500))
    assert only_path(fleet).state == "speaking"


def test_a_lossy_path_that_is_silent_for_a_while_stays_lossy():
    """What its receiver says of silence and return says nothing of loss."""
    fleet = Fleet(time.time_ns)
    fleet.fold_event(verdict("lossy", 10))
    for witness in (Witness.FELL_SILENT, Witness.SPEAKS_AGAIN):
        fleet.fold_delays(batch({"witness": witness, "last_ns": 2_000}, at_ns=2_100))
        assert only_path(fleet).state == "lossy"


def test_an_old_verdict_read_late_changes_nothing():
    """The stream's older verdicts arrive after the newest one when the gateway starts."""
    fleet = Fleet(time.time_ns)
    fleet.fold_event(verdict("speaking", 20))
    fleet.fold_event(verdict("silent", 10))

    assert only_path(fleet).state == "speaking"


def test_paths_can_be_asked_by_node_and_nic():
    """Either end counts."""
    fleet = Fleet(time.time_ns)
    names = (PATH, "node1.rail1>node3.rail1#0", "node1.rail0>node3.rail0#0")
    fleet.fold_delays(batch(*(heard(path=index) for index in range(3)), paths=names))

    assert {PATH} == {view.path for view in fleet.paths(node="node0")}
    assert set(names[1:]) == {view.path for view in fleet.paths(node="node1")}
    assert {names[1]} == {view.path for view in fleet.paths(nic="node3.rail1")}
    assert not list(fleet.paths(node="node0", nic="node1.rail0"))
    assert not list(fleet.paths(nic="node9.rail0"))


def test_paths_come_by_name():
    """Also where one node's name begins with another's."""
    fleet = Fleet(time.time_ns)
    names = [f"{node}.rail{rail}>node3.rail{rail}#0" for node in ("node1", "node1-a", "node10") for rail in (1, 0)]
    fleet.fold_delays(batch(*(heard(path=index) for index in range(6)), paths=tuple(names)))

    assert [view.path for view in fleet.paths()] == [view.path for view in fleet.paths(node="node3")] == sorted(names)


def test_more_paths_than_the_first_room_are_kept_apart():
    """The table grows, and each row stays with its path."""
    table = PathTable(CardinalityLimit())
    names = tuple(f"node{number}.rail0>node0.rail0#0" for number in range(1, 2_001))
    for first in (0, 1_000):
        rows = (heard(path=index, received=first + index) for index in range(1_000))
        table.fold(batch(*rows, paths=names[first : first + 1_000], node="node0"))

    assert {name: number for number, name in enumerate(names)} == {
        view.path: view.received for view in table.views(lambda _: frozenset())
    }


def test_a_node_may_change_the_paths_that_it_names():
    """Row numbers belong to a batch; the next batch of the same node may number otherwise."""
    fleet = Fleet(time.time_ns)
    other = "node1.rail0>node3.rail0#0"
    fleet.fold_delays(batch(heard(received=1), heard(path=1, received=2), paths=(PATH, other)))
    fleet.fold_delays(batch(heard(received=3), heard(path=1, received=4), paths=(other, PATH)))

    assert {PATH: 4, other: 3} == {view.path: view.received for view in fleet.paths()}


def test_a_batch_about_no_path_is_refused():
    """The caller rejects the message; what was known stays."""
    fleet = Fleet(time.time_ns)

    with pytest.raises(ValueError, match="nonsense neither begins nor ends"):
        fleet.fold_delays(batch(heard(), paths=("nonsense",)))
    with pytest.raises(ValueError, match="not a path"):
        fleet.fold_delays(batch(heard(), paths=(">node3.rail0#x",)))
    assert not list(fleet.paths())
