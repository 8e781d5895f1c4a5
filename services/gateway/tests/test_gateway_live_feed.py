"""What live pages are told: tiles by version, events by number; nothing is kept for a reader."""

import json

import msgspec
import pytest

from foliot_gateway.http.sse import frame
from foliot_gateway.state import live_feed
from foliot_gateway.state.live_feed import Board, Journal
from foliot_gateway.state.nic_condition import NicPaths, Tile, judge
from foliot_schemas import Event, PortState


def tile(nic, condition="up"):
    """A tile of a node's rail0."""
    return Tile(nic=f"{nic}.rail0", node=nic, rail="rail0", condition=condition)


def told(changes):
    """The changes as a page reads them: (event, data), with the id where there is one."""
    read = []
    for change in changes:
        fields = dict(line.split(": ", 1) for line in change.encoded(frame).decode().removesuffix("\n\n").split("\n"))
        read.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return read


def only(change):
    """The data of the one change."""
    ((_, data, _),) = told([change])
    return data


def event(number):
    """An event."""
    return Event(id=f"e{number}", kind="flap", who="node3.rail0", state="down", at_ns=number, since_ns=number)


def port(*, carrier=True, admin_up=True):
    """The port of a NIC."""
    return PortState(
        node="n", nic="n.rail0", at_ns=1, carrier=carrier, admin_up=admin_up, carrier_down_count=0, carrier_up_count=0
    )


def paths(*, out=28, into=28, bad_out=0, bad_into=0):
    """Counts of a NIC's paths."""
    counted = NicPaths()
    counted.out, counted.into, counted.bad_out, counted.bad_into = out, into, bad_out, bad_into
    return counted


def test_a_new_reader_gets_the_whole_and_then_only_what_changed():
    """The frame after a version holds what changed since, in the state of now."""
    board = Board()
    board.update({"a.rail0": tile("a"), "b.rail0": tile("b")})
    first = board.version
    whole = only(board.since(0))
    board.update({"a.rail0": tile("a", "lost"), "b.rail0": tile("b")})
    board.update({"a.rail0": tile("a", "moved")})

    assert (whole["whole"], [each["nic"] for each in whole["tiles"]]) == (True, ["a.rail0", "b.rail0"])
    changed = only(board.since(first))
    assert (changed["whole"], [each["condition"] for each in changed["tiles"]]) == (False, ["moved"])


def test_what_did_not_change_is_no_version():
    """Ten looks a second at a calm fleet wake nobody."""
    board = Board()

    assert board.update({"a.rail0": tile("a")})
    assert not board.update({"a.rail0": tile("a")})
    assert board.version == 1


def test_a_nic_that_left_is_said_to_be_gone_and_is_not_in_the_whole():
    """A reader that had it takes it away; one that comes later never hears of it."""
    board = Board()
    board.update({"a.rail0": tile("a"), "b.rail0": tile("b")})
    board.update({"a.rail0": None})

    assert only(board.since(1)) == {"whole": False, "tiles": [], "gone": ["a.rail0"]}
    assert [each["nic"] for each in only(board.since(0))["tiles"]] == ["b.rail0"]
    assert only(board.since(0))["gone"] == []


def test_a_change_is_made_and_encoded_once_for_all_readers_of_one_version():
    """However many they are; each transport has an encoding of its own."""
    board = Board()
    board.update({"a.rail0": tile("a")})

    assert board.since(0) is board.since(0)
    assert board.since(0).encoded(frame) is board.since(0).encoded(frame)
    assert board.since(0).encoded(lambda change: change.said.whole) is True


def test_a_reader_that_comes_back_gets_what_it_has_missed():
    """By the id of the last event that it had."""
    journal = Journal()
    journal.open([event(1), event(2)])
    last_id = told(journal.after(1))[-1][2]
    journal.append(event(3))
    journal.append(event(4))

    missed = journal.after(journal.start(last_id))
    assert [data["event"]["id"] for _, data, _ in told(missed)] == ["e3", "e4"]
    assert told(missed)[0][1]["words"] == "node3.rail0 lost its carrier"
    assert journal.after(journal.last) == ()


@pytest.mark.parametrize("last_id", ["other-2", "{run}-x", "nonsense"])
def test_a_reader_of_an_earlier_process_gets_all_there_is(last_id):
    """Its number means nothing here; events have ids of their own by which it knows those it has had."""
    journal = Journal()
    journal.open(event(number) for number in range(300))

    assert len(told(journal.after(journal.start(last_id.format(run=journal._run))))) == 300


def test_a_page_that_has_nothing_yet_gets_the_newest():
    """Not the whole past."""
    journal = Journal()
    journal.open(event(number) for number in range(300))
    frames = told(journal.after(journal.start("")))

    assert (len(frames), frames[-1][1]["event"]["id"]) == (200, "e299")


def test_a_reader_that_was_away_for_too_long_is_told_how_much_it_misses(monkeypatch):
    """The journal is bounded: what falls off is counted, not queued."""
    monkeypatch.setattr(live_feed, "MOST_EVENTS", 10)
    journal = Journal()
    journal.open(event(number) for number in range(5))
    behind = journal.start(f"{journal._run}-5")
    for number in range(5, 40):
        journal.append(event(number))

    (name, data, number), *frames = told(journal.after(behind))
    assert (name, data, number) == ("missed", {"events": 25}, None)
    assert [each["event"]["id"] for _, each, _ in frames] == [f"e{number}" for number in range(30, 40)]


@pytest.mark.parametrize(("state", "bad"), [("down", True), ("admin-down", True), ("up", False), ("admin-up", False)])
def test_a_page_is_told_whether_an_event_is_of_trouble(state, bad):
    """As the command line marks it: a NIC that was set down is lost, whoever did it."""
    journal = Journal()
    journal.open([msgspec.structs.replace(event(1), state=state)])

    assert only(*journal.after(0))["bad"] is bad


def test_before_the_past_is_read_events_wait_for_it():
    """They are of the past themselves when it is opened."""
    journal = Journal()
    journal.append(event(9))
    assert (journal.last, journal.is_open) == (0, False)

    journal.open([event(1), event(9)])
    assert journal.last == 2


@pytest.mark.parametrize(
    ("known", "counted", "moved", "dead", "expected"),
    [
        (None, paths(), False, False, ("unknown", "nothing was heard of it yet")),
        (port(), paths(), False, True, ("unknown", "its node's probe is dead or stalled")),
        (port(admin_up=False), paths(), True, False, ("lost", "set down by an administrator")),
        (port(carrier=False), paths(), True, False, ("lost", "no carrier")),
        (port(), paths(bad_out=21), True, False, ("lost", "21 of 28 paths out of it are silent or lossy")),
        (port(), paths(bad_into=28), False, False, ("lost", "28 of 28 paths to it are silent or lossy")),
        (port(), paths(bad_out=14), False, False, ("up", "14 of its 56 paths are silent or lossy")),
        (port(), paths(), True, False, ("moved", "")),
        (port(), paths(bad_into=1), True, False, ("moved", "1 of its 56 paths are silent or lossy")),
        (port(), paths(), False, False, ("up", "")),
        (port(), paths(out=0, into=0), False, False, ("up", "")),
    ],
)  # fmt: skip
def test_the_condition_of_a_nic(known, counted, moved, dead, expected):
    """Lost comes before moved: what is broken stays red although nobody suffers.

    Half of the paths are not the NIC's fault.
    """
    assert judge(known, counted, moved=moved, probe_dead=dead) == expected
