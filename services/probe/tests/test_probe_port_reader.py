"""Ports: what counts as a change, and which fault it belongs to."""

from __future__ import annotations

import msgspec
import pytest

from foliot import tracing
from foliot.node.addressing import describe
from foliot.node.rtnetlink import LinkChange
from foliot.settings import NicSettings, NodeSettings, TelemetrySettings
from foliot_probe.io.port_reader import PortReader, parse_counters, turn
from foliot_schemas.fault import port_fault, root_span_id
from foliot_schemas.observation import MOST_CHANGES
from virtual_clock import VirtualClock

UP = LinkChange(name="e0", index=2, admin_up=True, carrier=True, carrier_down_count=1, carrier_up_count=2)


def link(**changes):
    """The link that is up, but for these."""
    return msgspec.structs.replace(UP, **changes)


@pytest.fixture
def told():
    """What was told."""
    return []


@pytest.fixture
def ports(told):
    """The ports of a node with one NIC, on device e0."""
    own = describe(
        NodeSettings(name="n", index=0, nics=(NicSettings(rail="r", number=0, device="e0", address="10.0.0.1"),))
    )
    return PortReader(own, VirtualClock(), "boot", told.append)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (link(), ""),
        (link(carrier=False, carrier_down_count=2), "lost"),
        (link(carrier=False, admin_up=False), "lost"),
        (link(carrier_down_count=2, carrier_up_count=3), "lost"),
        (link(gone=True, carrier=False), "lost"),
        (link(carrier_up_count=3), "changed"),
    ],
)
def test_from_up_a_link_is_lost_when_its_carrier_or_its_count_says_so(now, expected):
    """A flap that was over before its message was read is found by the count; a repeated message is nothing."""
    assert turn(UP, now) == expected


def test_a_link_returns_when_its_carrier_does():
    """From down, the carrier alone counts."""
    down = link(carrier=False, carrier_down_count=2)
    assert turn(down, link(carrier_down_count=2, carrier_up_count=3)) == "returned"
    assert turn(down, msgspec.structs.replace(down, admin_up=False)) == "changed"


def test_a_link_that_is_down_at_the_start_is_told_and_one_that_is_up_is_not():
    """Up is what everybody assumes."""
    assert turn(None, UP) == ""
    assert turn(None, link(carrier=False)) == "changed"


def test_a_change_is_told_once_with_what_names_the_fault(ports, told):
    """The boot, the NIC and the kernel's count name the fault; a repeated message tells nothing."""
    ports.begin([UP, link(name="lo")])
    down = link(carrier=False, carrier_down_count=2)
    ports.changed(down)
    ports.changed(down)
    (state,) = told
    assert (state.nic, state.carrier, state.admin_up, state.change) == ("n.r", False, True, True)
    assert (state.fault, state.carrier_down_count) == ("boot", 2)


@pytest.fixture
def spans():
    """Spans are made, and sent nowhere."""
    tracing.start("probe", VirtualClock(), TelemetrySettings(endpoint=""))
    yield
    tracing.stop()


def test_a_loss_is_told_within_the_root_span_of_its_fault(ports, told, spans):
    """And the return within a span of the same trace, so that one trace holds both."""
    seen = []
    ports._tell = lambda state: seen.append((state.carrier, tracing.span_id()))
    root = f"{root_span_id(port_fault('boot', 'n.r', 2, UP.index)):016x}"
    ports.begin([UP])
    ports.changed(link(carrier=False, carrier_down_count=2))
    ports.changed(link(carrier_down_count=2, carrier_up_count=3))
    assert [carrier for carrier, _ in seen] == [False, True]
    assert seen[0][1] == root
    assert seen[1][1] not in {"", root}


def test_a_message_that_came_before_the_survey_is_newer(ports, told):
    """What was found at the start does not undo it."""
    ports.changed(link(carrier=False, carrier_down_count=2))
    ports.begin([UP])
    assert [state.carrier for state in told] == [False]


def test_each_word_has_the_changes_before_it(ports, told):
    """Without end: whoever finds the bus again may do so at any time. A change is not among those before it."""
    ports.begin([UP])
    ports.tell_counters()
    ports.changed(link(carrier=False, carrier_down_count=2))
    ports.changed(link(carrier_down_count=2, carrier_up_count=3))
    for _ in range(100):
        ports.tell_counters()
    first, down, up, *later = told
    assert (first.changes, down.changes) == ((), ())
    assert [(change.carrier, change.carrier_down_count) for change in up.changes] == [(False, 2)]
    assert {word.changes[:1] for word in later} == {up.changes}
    assert {len(word.changes) for word in later} == {2}
    last = later[-1].changes[1]
    assert (last.at_ns, last.carrier, last.carrier_up_count, last.index) == (up.at_ns, True, 3, UP.index)


def test_of_many_changes_a_word_has_the_last(ports, told):
    """As many as the contract lets it have."""
    ports.begin([UP])
    for count in range(2, 2 + MOST_CHANGES):
        ports.changed(link(carrier=False, carrier_down_count=count))
        ports.changed(link(carrier_down_count=count, carrier_up_count=count + 1))
    ports.tell_counters()
    changes = told[-1].changes
    assert len(changes) == MOST_CHANGES
    assert changes[-1].carrier_down_count == MOST_CHANGES + 1


def test_other_devices_are_nobodys_business(ports, told):
    """Only the node's own backend NICs are ports."""
    ports.changed(link(name="docker0", carrier=False))
    assert told == []


def test_a_device_that_vanished_is_told_as_down(ports, told):
    """And has no counters any more."""
    ports.begin([UP])
    ports.changed(link(gone=True))
    ports.tell_counters()
    assert [(state.carrier, state.admin_up) for state in told] == [(False, False)]


def test_a_driver_that_is_loaded_again_is_no_loss(ports, told):
    """The device goes, and comes back under another index with counts of its own, however high."""
    ports.begin([UP])
    again = link(index=3, carrier_down_count=4, carrier_up_count=5)
    for change in (link(gone=True, carrier=False, carrier_down_count=2), again):
        ports.changed(change)
    assert turn(UP, again) == "changed"
    assert [(state.index, state.admin_up, state.carrier_down_count) for state in told] == [(2, False, 2), (3, True, 4)]


def test_the_management_port_is_told_as_such(ports, told):
    """On change and with the counters, as soon as it is known."""
    ports.begin([UP])
    ports.management = frozenset({"e0"})
    ports.changed(link(carrier=False, carrier_down_count=2))
    ports.tell_counters()
    assert [state.management for state in told] == [True, True]


def test_the_rdma_devices_count_stands_beside_the_kernels(ports, told, monkeypatch):
    """With the regular report; a change is told at once, without reading files."""
    monkeypatch.setattr(ports._link_downed, "read", lambda device, index: {"link_downed": 10 * index})
    ports.begin([UP])
    ports.changed(link(carrier=False, carrier_down_count=2))
    ports.tell_counters()
    assert [state.counters.get("link_downed") for state in told] == [None, 20]


def test_counters_have_the_kernels_names():
    """The text of /proc/net/dev, device names with colons and lines of another form included."""
    text = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
a:b:0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
 short: 1 2 3
"""
    counters = parse_counters(text)
    assert set(counters) == {"eth0", "a:b:0"}
    assert counters["eth0"]["rx_bytes"] == 1
    assert counters["eth0"]["multicast"] == 8
    assert counters["eth0"]["tx_carrier_errors"] == 15
    assert counters["a:b:0"]["tx_packets"] == 30
