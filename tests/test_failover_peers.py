"""The peers of the failover bench: what is read of them, what a row says, and where faults happen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.studies.failover_peers import carriers, flowing, frr, rows
from bench.studies.failover_peers.frr import Change, Ends, Logs
from bench.studies.failover_peers.rows import Row
from bench.studies.failover_peers.stage import VARIANTS, Cut, PeerError, place
from foliot_lab.faults.actions import Action
from foliot_lab.measure.outages import End, Pair, Pulses
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan

MS = 1_000_000
SPEC = FabricSpec(hosts=2, rails=2, leaves=2, spines=2)

STATES = """\
2026/11/22 12:19:00.271754 BFD: [SEY1D-NT8EQ] state-change: [mhop:yes peer:10.101.1.3 local:10.101.0.3 vrf:default] \
up -> down reason:control-expired
2026/11/22 12:19:00.300000 BFD: [PSB4R-8T1TJ] session-new: mhop:yes peer:10.101.1.3 local:10.101.0.3 vrf:default
2026/11/22 12:19:01.052401 BFD: [J1C6V-VMRW5] state-change: [mhop:no peer:10.101.1.2 local:10.101.1.3 vrf:default] \
init -> up
"""
FIRST_NS = 1_795_349_940_271_754_000
FORTH = Pair(End("node0", "rail0"), End("node1", "rail0"))
BACK = Pair(End("node1", "rail0"), End("node0", "rail0"))


def _cut(where="node0.rail0", kind="drop", action=None):
    return Cut("silent", kind, where, action or Action(lambda: None, lambda: None))


def test_states_are_read_to_the_microsecond_and_all_other_lines_left_out():
    """Of both kinds of session; the log's times are UTC."""
    first, second = frr.parse(STATES.splitlines())
    assert first == Change(FIRST_NS, Ends("10.101.0.3", "10.101.1.3"), "up", "down", "control-expired")
    assert second == Change(FIRST_NS + 780_647_000, Ends("10.101.1.3", "10.101.1.2"), "init", "up", "")


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    """And no line twice; the newest state of each end is kept."""
    file = tmp_path / "states.log"
    logs = Logs([file, tmp_path / "not there yet"])
    assert logs.news() == []
    file.write_text(STATES[:-20])
    assert [change.state for change in logs.news()] == ["down"]
    file.write_text(STATES)
    assert [change.state for change in logs.news()] == ["up"]
    assert logs.news() == []
    assert logs.states == {Ends("10.101.0.3", "10.101.1.3"): "down", Ends("10.101.1.3", "10.101.1.2"): "up"}


def test_settings_name_every_session_and_the_way_through_the_fabric_is_allowed():
    """Three routers take three off the time to live; one hop may take none."""
    sessions = [Ends("10.100.0.1", "10.100.1.1"), Ends("10.100.0.1", "10.100.1.3")]
    far = frr.text(Path("/log"), sessions, 50, multihop=True)
    assert far.count("multihop local-address 10.100.0.1") == far.count("minimum-ttl") == 2
    assert int(far.partition("minimum-ttl ")[2].split()[0]) <= 255 - 3
    near = frr.text(Path("/log"), sessions, 10, multihop=False)
    assert "multihop" not in near
    assert "minimum-ttl" not in near
    assert "interface" not in near.replace("-interval", "")
    named = frr.text(Path("/log"), sessions, 10, multihop=False, devices={"10.100.0.1": "rail0"})
    assert named.count("local-address 10.100.0.1 interface rail0\n") == 2
    assert near.count("transmit-interval 10\n") == near.count("receive-interval 10\n") == 2


def test_a_bfdd_that_is_not_there_is_said_to_be_missing_with_the_way_to_have_it(tmp_path):
    """In words that can be followed."""
    if Path("/usr/lib/frr/bfdd").exists():
        pytest.skip("frr is installed here")
    with pytest.raises(PeerError, match="apt-get download frr libyang2 libc-ares2"):
        frr.find(tmp_path)


def test_a_stream_that_stalls_twice_flows_from_the_end_of_the_last_on():
    """Its gap is the longer one; one that goes on is not in the list, and one that is still silent has no end."""
    steady = [turn * 2 * MS for turn in range(500)]
    stalled = [at for at in steady if not 400 * MS < at < 600 * MS and not 700 * MS < at < 840 * MS]
    dead = [at for at in steady if at < 402 * MS]
    arrivals = {FORTH: stalled, BACK: dead, Pair(FORTH.source, End("node2", "rail0")): steady}
    found = flowing.of_arrivals(arrivals, 401 * MS, 1_000 * MS)
    # What its reader missed while it waited for a processor is not the stream's.
    arrivals[FORTH] = [at for at in stalled if not 900 * MS < at < 950 * MS]
    assert flowing.of_arrivals(arrivals, 401 * MS, 1_000 * MS) == found
    assert found == [flowing.Silence(FORTH, 840 * MS, 200 * MS), flowing.Silence(BACK, None, None)]
    assert not flowing.over(found)
    assert flowing.of_arrivals(arrivals, 850 * MS, 1_000 * MS)[0].pair == BACK


def test_a_silence_from_before_the_fault_is_no_part_of_it():
    """What had ended by then."""
    arrivals = {FORTH: [0, 100 * MS, *range(102 * MS, 200 * MS, 2 * MS)]}
    assert flowing.of_arrivals(arrivals, 150 * MS, 200 * MS) == []


def _pulses(arrived, devices):
    count = len(arrived)
    sent_ns = np.arange(count, dtype=np.int64) * 2 * MS + MS
    return Pulses(
        sent_ns=sent_ns, arrived_ns=np.where(arrived, sent_ns + 10_000, 0), device=np.array(devices, dtype=np.int16),
        devices=("rail0", "rail1"),
    )  # fmt: skip


def test_a_way_that_changes_without_a_loss_counts_with_a_gap_of_none():
    """And one that goes on as it was does not count."""
    moved = _pulses([True] * 100, [0] * 50 + [1] * 50)
    lost = _pulses([True] * 50 + [False] * 10 + [True] * 40, [0] * 50 + [1] * 50)
    same = _pulses([True] * 100, [0] * 100)
    seen = {FORTH: moved, BACK: lost, Pair(FORTH.source, End("node2", "rail0")): same}
    found = flowing.of_pulses(seen, 100 * MS)
    assert found == [
        flowing.Silence(FORTH, 101 * MS + 10_000, 0),
        flowing.Silence(BACK, 121 * MS + 10_000, 22 * MS + 10_000),
    ]


def test_a_row_tells_what_a_host_sends_from_what_is_sent_to_it():
    """One direction that stays silent leaves no time for both, nor a gap."""
    planned = plan(SPEC, 1)
    bare = Row(variant="silent", where="node0.rail0", tool="any", rep=0)
    both = [flowing.Silence(FORTH, 30 * MS, 20 * MS), flowing.Silence(BACK, 50 * MS, 40 * MS)]
    row = flowing.row(bare, both, 10 * MS, _cut(), planned)
    assert (row.ought, row.did, row.move_ms, row.move_out_ms, row.move_in_ms, row.gap_ms) == (2, 2, 40, 20, 40, 40)
    row = flowing.row(bare, [both[0], flowing.Silence(BACK, None, None)], 10 * MS, _cut(), planned)
    assert (row.ought, row.did, row.move_ms, row.move_out_ms, row.move_in_ms, row.gap_ms) == (
        2,
        1,
        None,
        20,
        None,
        None,
    )
    row = flowing.row(bare, [], 10 * MS, _cut(), planned)
    assert (row.ought, row.did, row.move_ms, row.gap_ms) == (0, 0, None, None)


def test_the_table_shows_rows_and_reasons():
    """Under its heading, column by column."""
    row = Row(variant="carrier", where="node0.rail0", tool="any", rep=1, detect_ms=1.25, ought=6, did=3, strays=2)
    line = rows.line(row)
    assert len(line) == len(rows.HEADING)
    assert line[: rows.HEADING.index("detect")].split() == ["carrier", "node0.rail0", "any", "1"]
    assert line.split()[4:] == ["1.2", "-", "3/6", "2", "-", "-", "-", "-", "-"]
    unable = Row(variant="carrier", where="node0.rail0", tool="any", rep=1, said="there is no bfdd")
    assert rows.line(unable).endswith("there is no bfdd")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_place_has_its_turn(variant):
    """Each once, before any comes again."""
    planned = plan(FabricSpec(hosts=4, rails=2, leaves=2, spines=4), 1)
    count = 8 if VARIANTS[variant][1] else 16
    places = [place(variant, planned, rep) for rep in range(2 * count)]
    assert len(set(places[:count])) == count
    assert places[:count] == places[count:]


def test_traffic_on_every_rail_between_both_sides_of_a_fault_is_watched():
    """Of a NIC its host with all others; of a fabric link the hosts of its leaf with those of others."""
    planned = plan(FabricSpec(hosts=4, rails=2, leaves=2, spines=2), 1)
    at_nic = flowing.pairs(_cut("node3.rail1"), planned)
    assert len(set(at_nic)) == len(at_nic) == 2 * 2 * 3
    assert all("node3" in {pair.source.node, pair.destination.node} for pair in at_nic)
    at_link = flowing.pairs(_cut("rail0.leaf0-spine1"), planned)
    assert len(set(at_link)) == 2 * 2 * 2 * 2
    assert {pair.source.rail for pair in at_link} == {"rail0", "rail1"}


def test_streams_between_hosts_that_a_fault_does_not_part_are_none_of_its():
    """They may be late for other reasons."""
    planned = plan(FabricSpec(hosts=4, rails=2, leaves=2, spines=2), 1)
    within, across = (
        flowing.Silence(Pair(End("node0", "rail1"), End(f"node{far}", "rail1")), None, None) for far in (1, 2)
    )
    assert flowing.concerned([within, across], _cut("rail0.leaf0-spine1"), planned) == [across]
    assert flowing.concerned([within, across], _cut("node1.rail0"), planned) == [within]


def test_other_messages_about_links_are_not_a_loss():
    """Half a message, an address, and a device that is set down by its owner."""
    header = bytes.fromhex("20000000100000000000000000000000")
    body = bytes(4) + (7).to_bytes(4, "little")
    up_without = header + body + (0x1).to_bytes(4, "little") + bytes(4)
    assert carriers.without_carrier(up_without)
    assert not carriers.without_carrier(up_without[:20])
    assert not carriers.without_carrier(up_without[:4] + b"\x14" + up_without[5:])
    assert not carriers.without_carrier(header + body + bytes(8))
    assert not carriers.without_carrier(header + body + (0x41).to_bytes(4, "little") + bytes(4))
    assert carriers.without_carrier(header + body + bytes(8) + up_without)
