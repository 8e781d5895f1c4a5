"""What messages say in plain words: the golden files of the contract, as ``foliot watch`` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from foliot.bus.observer import Heard
from foliot.cli.message_lines import in_json, in_text
from foliot.text.events import sentence
from foliot.text.messages import duration, one_line
from foliot_schemas import Command, DelayBatch, Event, Outcome, decode, encode
from foliot_schemas.subjects import BUCKETS, CHANNELS

GOLDEN = Path(__file__).parents[2] / "schemas" / "tests" / "golden"
ARRIVED_NS = 1_790_000_001_000_000_000
SAYS = {
    "claim.v1": "claimed by node3 on host 5f0c9a1be2d34477",
    "clock.v1": "node3 is synchronised: offset -50 ms, drift -12345.5 ppb, within 400 ns (surely 9 µs), "
    "by 7 neighbours in window 17",
    "command.v1": "node3 is told to reroute (away from rail0, node3 on rail0 by rail1#2)",
    "delay.v1": "node3: node1.rail0>node3.rail0#0 fell silent, heard 1 paths, 2 of 2 probes, "
    "medians 5.2 µs to 5.2 µs in 100 ms, within 400 ns",
    "event.v1": "node3.rail0 lost its carrier (carrier_down_count 2, penalty 1000, suppressed no)",
    "job.v1": "pretrain-7: node0.rail0, node3.rail0, priority 5",
    "lease.v1": "held by remediator@host",
    "node.v1": "node3: rail0 eth1 10.0.0.3 (service 10.200.0.4)",
    "outcome.v1": "node3 reroute: done (away from rail0, node3 on rail0 by rail1#2), "
    "1 of 1 confirmed on the wire after 2 ns",
    "paths.v1": "node3: away from rail0, destinations moved: 1, backups: 1, lease 9",
    "port.v1": "node3.rail0 has no carrier, lost it 2 times",
    "rejected.v1": "sync could not read foliot.v1.observation.stamps.node0: not a stamps.v1",
    "stamps.v1": "node0: 2 probes in 2 s, streams: 1",
}
KINDS = {str(it.message.__struct_config__.tag): it.message for it in (*CHANNELS, *BUCKETS)}


def golden(tag):
    """The bytes of a golden file."""
    return (GOLDEN / f"{tag}.msgpack").read_bytes()


@pytest.mark.parametrize("tag", sorted(SAYS))
def test_a_message_is_one_sentence(tag):
    """With the numbers that a person wants at a glance, in fitting units."""
    assert one_line(decode(golden(tag), KINDS[tag])) == SAYS[tag]


@pytest.mark.parametrize("tag", sorted(KINDS))
def test_every_message_has_words_and_json(tag):
    """None of the contract is forgotten."""
    heard = Heard("foliot.v1.x", golden(tag), {}, ARRIVED_NS)

    assert one_line(decode(heard.data, KINDS[tag])) in in_text(heard)
    assert json.loads(in_json(heard))["message"]["type"] == tag


def test_a_command_says_who_loses_by_it():
    """And for whom."""
    command = Command(
        id="c", verb="reroute", node="node1", cause="e", issued_ns=0, deadline_ns=1, lease_revision=1,
        evidence={"gaining": "node0.rail0>node4.rail0", "lost_mbps": 49.6, "losing_flows": 1},
    )  # fmt: skip
    assert one_line(command) == "node1 is told to reroute (for node0.rail0>node4.rail0; others lose 50 Mb/s)"


def test_an_event_of_a_kind_to_come_is_told_all_the_same():
    """Its own words stand in for ours; a guard and a doubt are said."""
    event = Event(
        id="e", kind="refusal", who="node3", state="postponed", at_ns=0, since_ns=0, policy="budget", confidence=0.5
    )

    assert one_line(event) == "refusal postponed: node3: budget, confidence 0.5"


@pytest.mark.parametrize(
    ("status", "armed", "words"),
    [
        ("done", True, "done by itself"),
        ("already", False, "was so already"),
        ("already", True, "was so already, as it found by itself"),
    ],
)
def test_what_was_so_already_does_not_read_like_a_move(status, armed, words):
    """Also where the node looked unasked: nothing was left to do."""
    outcome = decode(golden("outcome.v1"), Outcome)

    assert one_line(msgspec.structs.replace(outcome, status=status, armed=armed)) == (
        SAYS["outcome.v1"].replace("reroute: done", f"reroute: {words}")
    )


def test_evidence_has_clock_times_and_lengths_of_time_instead_of_nanoseconds():
    """Times as in the line's first column; a time of 0 is none; what is no number stays as it is."""
    at_ns = 1_790_000_000_123_000_000

    def said(**evidence):
        return one_line(
            Event(id="e", kind="flap", who="n.r", state="up", at_ns=at_ns, since_ns=at_ns, evidence=evidence)
        )

    assert said(half_life_s=900.0, reuse_at_ns=at_ns + 8_250_000_000) == (
        "n.r has its carrier back (half_life 900 s, reuse_at 14:13:28.373Z)"
    )
    assert said(silent_ms=131.25, spoke_ns=at_ns) == "n.r has its carrier back (silent 131 ms, spoke 14:13:20.123Z)"
    assert said(last_heard_ns=at_ns - 131_000_000) == "n.r has its carrier back (last_heard 14:13:19.992Z)"
    assert said(reuse_at_ns=0, bound_ns=400, drift_ppb=1.5) == "n.r has its carrier back (bound 400 ns, drift_ppb 1.5)"
    assert said(reuse_at_ns="soon", s=2, age_ms=True, spoke_ns=-1) == (
        "n.r has its carrier back (reuse_at_ns soon, s 2, age_ms yes, spoke -1 ns)"
    )
    assert said(spoke_ns=float("inf"), reuse_at_ns=float("nan")) == (
        "n.r has its carrier back (spoke inf s, reuse_at nan ns)"
    )


def test_an_event_names_the_other_things_that_it_concerns():
    """A few of them; a spine's link is shared by hundreds of flows."""
    flows = tuple(f"node{number}.rail0>node9.rail0" for number in range(9))
    event = Event(
        id="e", kind="contention", who="10.110.0.5", state="fabric-contention", at_ns=1, since_ns=1,
        evidence={"slowest_share": 0.5}, related={"links": ("10.110.0.5",), "flows": flows, "jobs": ()},
    )  # fmt: skip

    words = one_line(event)
    assert words.startswith("flows share the link 10.110.0.5 while others have room")
    assert words.endswith(", 5 more)")
    assert "links 10.110.0.5, flows node0.rail0>node9.rail0, node1.rail0>node9.rail0" in words
    assert sentence(event).endswith(" (9 flows, the slowest at 50% of what it could get)")
    over = msgspec.structs.replace(event, state="clear", evidence={"lasted_ms": 2.0})
    assert sentence(over) == "nothing is short at 10.110.0.5 any more"


def test_columns_are_lists_of_numbers_in_json():
    """Nobody has to take base64 apart."""
    line = json.loads(in_json(Heard("foliot.v1.observation.delay.node3", golden("delay.v1"), {}, ARRIVED_NS)))

    assert line["message"]["columns"]["least_ns"] == [5_000, 0]
    assert line["at"] == "2026-09-21T14:13:21.000Z"


def test_a_batch_whose_columns_do_not_fit_is_unreadable():
    """It is shown as such, and nothing ends."""
    broken = msgspec.structs.replace(decode(golden("delay.v1"), DelayBatch), paths=())
    heard = Heard("foliot.v1.observation.delay.node3", encode(broken), {}, ARRIVED_NS)

    assert "cannot be read: not a delay.v1: a row names a path that the batch does not have" in in_text(heard)
    assert json.loads(in_json(heard))["unreadable"]


def test_trouble_and_its_end_have_colours_on_a_terminal():
    """Red and green, and none where they are not wanted."""
    down = Heard("foliot.v1.event.flap.node3_2erail0", golden("event.v1"), {}, ARRIVED_NS)
    up = msgspec.structs.replace(decode(down.data, Event), state="up")

    assert "\x1b[31mnode3.rail0 lost" in in_text(down, colour=True)
    assert "\x1b[32mnode3.rail0 has" in in_text(down._replace(data=encode(up)), colour=True)
    assert "\x1b" not in in_text(down)


@pytest.mark.parametrize(
    ("length_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (5_200, "5.2 µs"),
        (-49_999_123, "-50 ms"),
        (2_000_000_000, "2 s"),
        (4e12, "4000 s"),
    ],
)
def test_a_length_of_time_has_three_digits_and_a_unit(length_ns, text):
    """Also a negative one."""
    assert duration(length_ns) == text
