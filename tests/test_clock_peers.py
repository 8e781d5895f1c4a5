"""The bench of clocks beside their peers: what it reads, judges and counts is what it says."""

from __future__ import annotations

import random
import socket
import struct
import types
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench.independence import effective, outside_at_most
from bench.studies.clock_peers import chrony, judged, load, network, ours, ptp, rows
from bench.studies.clock_peers.counting import Counters
from foliot_lab.fabric import capabilities
from foliot_lab.fabric.namespaces import Namespace, inside, make_socket
from foliot_lab.faults.skewed_clock import Skew, SkewSpec
from foliot_schemas import ClockState
from patience import patience

SECOND_NS = 1_000_000_000
SPAN = judged.Span(begin_s=1000.0, end_s=1010.0, begin_raw_ns=0, end_raw_ns=10 * SECOND_NS)

STATISTICS = """\
====================================================================================================================
   Date (UTC) Time     IP Address    Std dev'n Est offset  Offset sd  Diff freq   Est skew  Stress  Ns  Bs  Nr  Asym
====================================================================================================================
2026-11-22 05:35:51 100.64.0.1       1.576e-07 -2.147e-06  1.768e-07  2.966e-08  2.122e-05 1.5e-05   3   0   3  0.00
2026-11-22 05:36:00 100.64.0.1       2.745e-07  5.286e-07  7.634e-08  8.728e-09  5.108e-08 6.7e-03  54   0  25  0.00
2026-11-22 05:36:01 100.64.0.1       2.7
"""

ANSWER = bytes.fromhex(
    "0d020068000000000000000000000000000000001a692cfffe4968d900000001047f000000000000000000010000020000010034c000"
    "fffffffffffffea418ea474476a4575d00000000000000000000000000000000000000000000000000012afdd3fffe14a765"
)
"""Of linuxptp 3.1.1 to a question of ours."""


def state(clock, window, offset_ns=0, **more):
    """A state that is good from local time 0 on, and wrong by at most 100 ns."""
    values = {
        "drift_ppb": 0.0, "hard_bound_ns": 500, "bound_ns": 100, "growth_ppb": 0.0, "as_of_ns": 0,
        "void_after_ns": 1 << 60,
        "status": "synchronised", **more,
    }  # fmt: skip
    return ClockState(clock=clock, reference="host00", offset_ns=offset_ns, window=window, **values)


def test_chronys_offsets_are_read_and_all_other_lines_left_out():
    """Headings, and a line that is being written."""
    read = chrony.parse(STATISTICS.splitlines())
    assert [each.error_ns for each in read] == pytest.approx([-2147.0, 528.6])
    assert read[1].at_s - read[0].at_s == 9.0


def test_ptp4ls_answer_is_read_and_nothing_else():
    """Not a question, a part of an answer, or one from before the first measurement."""
    assert ptp.parse(ANSWER) == ptp.Offset(pytest.approx(1795325760.834, abs=1e-3), -348.0)
    assert ptp.parse(ptp.question(7)) is None
    assert ptp.parse(ANSWER[:60]) is None
    assert ptp.parse(ANSWER[:62] + bytes(8) + ANSWER[70:]) is None


def test_a_question_to_ptp4l_is_a_management_message_that_stays_where_it_is():
    """With hops it would be sent on to the other hosts, and be counted as their packets."""
    asked = ptp.question(7)
    assert struct.unpack_from("!H", asked, 2) == (len(asked),)
    assert asked[44:46] == b"\0\0"
    assert asked[48:] == bytes.fromhex("00010002c000")


def test_the_low_pass_is_the_median_of_the_last_two_seconds():
    """One value in three is far off, and does not show; nor does what is older than two seconds."""
    said = [ptp.Offset(number * 0.1, 1e6 if number < 30 else (9e9 if number % 3 == 0 else 5.0)) for number in range(80)]
    low = ptp.low_passed(said)
    assert low[0].at_s >= ptp.LOW_PASS_S
    assert {each.error_ns for each in low if each.at_s < 2.9} == {1e6}
    assert {each.error_ns for each in low if each.at_s > 5.1} == {5.0}


def test_only_what_was_said_within_the_span_is_judged_by_windows():
    """Five windows: one host is heard in three, the other in two of them."""
    said = {
        "host01": [chrony.Estimate(at_s, 7.0) for at_s in (999.9, 1000.0, 1003.0, 1009.0, 1010.0)],
        "host02": [chrony.Estimate(at_s, -9.0) for at_s in (1001.0, 1003.5)],
    }
    found = judged.offsets(said, SPAN)
    assert (found.windows, found.silent) == (3, 3)
    assert sorted(found.error_ns) == [-9.0, -9.0, 7.0, 7.0, 7.0]
    assert not len(found.bound_ns)


def test_foliots_error_is_that_of_the_value_in_use_until_the_next_one_has_come():
    """A clock that drifts by 1 ppm and is said not to: after a second it is wrong by a microsecond more."""
    skews = {"host00": Skew(SkewSpec(start_raw_ns=0)), "host01": Skew(SkewSpec(start_raw_ns=0, drift_ppb=1_000.0))}
    told = []
    for window, came_s in enumerate((1, 3, 5)):
        correct = -1_000 * came_s
        told += [
            ours.Told(came_s * SECOND_NS - 5, state("host00", window)),
            ours.Told(came_s * SECOND_NS, state("host01", window, correct, bound_ns=1_200, hard_bound_ns=2_000)),
        ]
    found = judged.foliot(told, skews, "host00", SPAN)
    assert (found.windows, found.silent) == (2, 0)
    assert found.error_ns.tolist() == [0, 500, 1_000, 1_500, 2_000] * 2
    assert set(found.bound_ns) == {1_300.0}
    assert set(found.hard_bound_ns) == {2_500.0}
    assert found.nearest == (2_000 / 1_300,) * 2


@pytest.mark.parametrize(
    "lacking", [{"status": "disrupted"}, {"status": "unsynchronised"}, {"void_after_ns": SECOND_NS}]
)
def test_a_clock_that_promises_nothing_is_silent(lacking):
    """It is not judged, but counted."""
    skews = {host: Skew(SkewSpec(start_raw_ns=0)) for host in ("host00", "host01")}
    told = [
        ours.Told(window * 2 * SECOND_NS, state(host, window, **(lacking if host == "host01" else {})))
        for window in (1, 2, 3)
        for host in skews
    ]
    found = judged.foliot(told, skews, "host00", SPAN)
    assert (found.windows, found.silent, len(found.error_ns)) == (0, 2, 0)


CHRONY = rows.of_chrony("filter 16")
NEAREST = np.random.default_rng(1).random(10)
"""How near windows came to their bound, none as its neighbours."""


def _row(tool, p99_ns, *, drift_ppb=0.0, topology="mesh: 16 hosts", load=0.6):
    errors = np.array([p99_ns, -p99_ns])
    bounds = np.full(2, 200.0) if tool == rows.FOLIOT else np.empty(0)
    nearest = tuple(NEAREST) if tool == rows.FOLIOT else ()
    found = judged.Judged(10, 0, errors, bounds, bounds * 2, nearest)
    run = rows.Run(topology, load, "both", drift_ppb)
    return rows.row(tool, run, found, packets_per_s=250.0, carried=(0.6, 0.6), idle_cpu=0.5)


def test_a_row_says_what_a_tool_does_not_have_by_null():
    """And beside a coverage that is whole, how much of it ten windows prove, for what they are worth."""
    mine, other = _row(rows.FOLIOT, 150.0), _row(CHRONY, 150.0)
    assert (mine.p50_ns, mine.max_ns, mine.bias_ns) == (150.0, 150.0, 0.0)
    assert mine.p99_about_bias_ns == 150.0
    assert (mine.within_bound, mine.within_hard_bound, mine.median_bound_ns) == (1, 1, 200)
    assert mine.windows_independent == round(effective(NEAREST), 1)
    assert mine.uncovered_at_most == round(3 / effective(NEAREST), 4)
    assert (other.within_bound, other.within_hard_bound, other.median_bound_ns, other.uncovered_at_most) == (None,) * 4
    wrong = _row(rows.FOLIOT, 250.0)
    assert (wrong.within_bound, wrong.within_hard_bound, wrong.uncovered_at_most) == (0, 1, None)
    assert rows.line(other)


def test_a_bias_is_told_from_the_spread_about_it():
    """Always wrong by 700 ns, give or take 50."""
    nothing = np.empty(0)
    found = judged.Judged(10, 0, np.array([-650.0, -750.0]), nothing, nothing)
    row = rows.row(CHRONY, rows.Run("path", 0.6, "one", 0.0), found, packets_per_s=1.0, carried=(), idle_cpu=0.5)
    assert (row.p50_ns, row.bias_ns, row.p99_about_bias_ns) == (700.0, -700.0, 50.0)


def test_a_tool_that_said_nothing_gets_a_row_of_nulls():
    """As chrony may under a load that leaves no exchange undelayed."""
    nothing = judged.offsets({"host01": []}, SPAN)
    row = rows.row(CHRONY, rows.Run("path", 0.9, "both", 0.0), nothing, packets_per_s=1.0, carried=(), idle_cpu=0.5)
    assert (row.windows, row.silent_windows, row.p50_ns, row.p99_ns, row.bias_ns) == (0, 5, None, None, None)
    assert rows.line(row)


FIFTH, THIRD = (
    f"at most a {share} of that of chrony's best configuration{more}"
    for share, more in (("fifth", ""), ("third", " without its bias"))
)


def test_goals_compare_like_with_like():
    """At 60 % load; chrony in the same topology, and Foliot without drift."""
    every = [
        _row(CHRONY, 1_000.0), _row(rows.FOLIOT, 100.0), _row(rows.FOLIOT, 300.0, drift_ppb=30_000.0),
        _row(rows.FOLIOT, 900.0, drift_ppb=10_000.0), _row(rows.FOLIOT, 900.0, load=0.9),
        _row(CHRONY, 5.0, topology="path"),
    ]  # fmt: skip
    found = [(goal.wanted_ns, goal.measured_ns, goal.met) for goal in rows.goals(every) if "bound" not in goal.what]
    assert found == [(200.0, 100.0, True), (333.3, 100.0, True), (20.0, 100.0, False), (200.0, 300.0, False)]


def test_goals_beside_chrony_are_held_on_the_path_too_and_without_its_bias():
    """Each is held against the configuration that does best by it: with its bias it may be another one."""
    plain, peer = (
        msgspec.structs.replace(_row(tool, p99_ns, topology="path"), p99_about_bias_ns=about_ns)
        for tool, p99_ns, about_ns in ((CHRONY, 700.0, 90.0), (rows.of_chrony("peer"), 600.0, 300.0))
    )
    found = rows.goals([plain, peer, _row(rows.FOLIOT, 40.0, topology="path")])
    assert [(goal.what, goal.wanted_ns, goal.met) for goal in found if "bound" not in goal.what] == [
        (FIFTH, 120.0, True),
        (THIRD, 30.0, False),
    ]


def test_the_goal_of_the_bound_is_held_in_every_run():
    """A bound of 200 ns is at most four times a p99 of 50 ns, and not of 49, whatever the load and the drift."""
    every = [_row(rows.FOLIOT, 50.0), _row(rows.FOLIOT, 49.0, load=0.9, drift_ppb=10_000.0)]
    found = [goal for goal in rows.goals(every) if "bound" in goal.what]
    assert [(goal.load, goal.wanted_ns, goal.measured_ns, goal.met) for goal in found] == [
        (0.6, 200.0, 200.0, True),
        (0.9, 196.0, 200.0, False),
    ]


def test_the_best_of_chronys_configurations_is_the_least_wrong_that_mostly_spoke():
    """One that spoke in two windows of ten is not, unless no other spoke; with drift nobody but Foliot runs."""
    peer, sources = rows.of_chrony("peer"), rows.of_chrony("4 sources")
    rare = msgspec.structs.replace(_row(sources, 10.0), windows=2)
    every = [
        _row(rows.FOLIOT, 5.0),
        _row(CHRONY, 300.0),
        _row(peer, 200.0),
        rare,
        _row(rows.FOLIOT, 5.0, drift_ppb=1.0),
    ]
    (found,) = rows.best(every)
    assert (found.tool, found.p99_ns) == (peer, 200.0)
    (found,) = rows.best([_row(rows.FOLIOT, 5.0), rare])
    assert found.tool == sources
    silent = msgspec.structs.replace(rare, p99_ns=None)
    assert rows.best([_row(rows.FOLIOT, 5.0), silent]) == []


def test_windows_that_resemble_their_neighbours_are_worth_fewer():
    """Of autoregressive series of correlation 0.6 a quarter is left; of drawn ones nearly all; too few say nothing."""
    random = np.random.default_rng(3)
    drawn = random.standard_normal(4_000)
    alike = np.zeros(4_000)
    for number in range(1, len(alike)):
        alike[number] = 0.6 * alike[number - 1] + drawn[number]
    assert effective(drawn) == pytest.approx(4_000, rel=0.1)
    assert effective(alike) == pytest.approx(1_000, rel=0.15)
    short = [effective(random.standard_normal(15)) for _ in range(500)]
    assert 8 < np.median(short) <= 15
    assert effective([1.0, 2.0, 1.0]) is None
    assert effective([1.0] * 20) is None
    assert (outside_at_most(None), outside_at_most(30.0), outside_at_most(2.0)) == (None, 0.1, 1.0)


@pytest.mark.parametrize("name", [*chrony.CONFIGURATIONS])
def test_chrony_is_set_up_as_its_name_says(name):
    """Each configuration has its own port, measures without selecting, and sends as many packets for each host."""
    configuration = chrony.CONFIGURATIONS[name]
    plan = network.mesh(6)
    wires = types.SimpleNamespace(plan=plan)
    texts = {host: chrony.text(configuration, wires, host, Path("own"), -5) for host in plan.hosts}
    measuring = [host for host in plan.hosts if chrony.sources(configuration, plan.hosts, host)]
    assert len(measuring) == 6 - configuration.sources
    for host in measuring:
        asked = [line.split() for line in texts[host].splitlines() if line.startswith(configuration.directive)]
        assert [words[1] for words in asked] == [plan.address(each) for each in plan.hosts[: configuration.sources]]
        polls = [int(words[words.index("minpoll") + 1]) for words in asked]
        assert sum(2.0**-poll for poll in polls) == 2.0**5
        assert all(words[-1] == "noselect" and "xleave" in words for words in asked)
        assert all(words[words.index("port") + 1] == str(configuration.port) for words in asked)
    assert "local stratum" in texts[plan.hosts[0]]
    assert len({each.port for each in chrony.CONFIGURATIONS.values()}) == len(chrony.CONFIGURATIONS)
    both = configuration.directive == "peer"
    assert texts[plan.hosts[0]].count("peer ") == (5 if both else 0)


def test_what_several_sources_say_is_their_mean():
    """From when all have spoken."""
    said = [chrony.Estimate(1.0, 4.0, "a"), chrony.Estimate(2.0, 8.0, "b"), chrony.Estimate(3.0, 6.0, "a")]
    assert [(each.at_s, each.error_ns) for each in chrony.combined(said)] == [(2.0, 6.0), (3.0, 7.0)]
    assert [each.error_ns for each in chrony.combined(said[:1])] == [4.0]


def test_the_load_is_as_heavy_as_asked_for():
    """In the mean over many bursts, as long as the kernel cuts them."""
    draw = random.Random(1)
    drawn = np.array([load.bursts(60.0, draw) for _ in range(20_000)])
    wire_bits = drawn[:, 0].sum() * (load.PAYLOAD_BYTES + 42) * 8
    assert wire_bits / drawn[:, 1].sum() == pytest.approx(60e6, rel=0.05)
    assert drawn[:, 0].min() >= 1
    assert drawn[:, 0].max() * load.PAYLOAD_BYTES < 1 << 16


def test_neighbours_are_mutual_and_drifts_reach_as_far_as_said():
    """Sixteen hosts with ten neighbours each; the first runs true."""
    hosts = network.mesh(16).hosts
    for host in hosts:
        assert len(ours.neighbours(hosts, host)) == 10
        assert all(host in ours.neighbours(hosts, other) for other in ours.neighbours(hosts, host))
    assert ours.pairs(hosts) == 80
    assert ours.pairs(("host00", "host01")) == 1
    drifts = [spec.drift_ppb for spec in ours.skews(hosts, 30_000.0, 5.0, 0).values()]
    assert (drifts[0], max(map(abs, drifts))) == (0.0, 30_000.0)
    assert min(drifts) < 0 < max(drifts)


@pytest.fixture(params=["path", "mesh"])
def wires(request):
    """A network of each kind around a control namespace that is not this process's own."""
    if not capabilities.is_privileged():
        pytest.skip("this process may not make network namespaces")
    control = Namespace.make("control")
    built = network.Network(network.path() if request.param == "path" else network.mesh(4), control)
    built.build()
    yield built
    built.close()
    control.close()


@pytest.mark.net
def test_packets_are_counted_once_by_the_tool_that_they_belong_to(wires):
    """On their way through one router or two, and what passed the bottleneck by its bytes."""
    plan = wires.plan
    counters = Counters(wires.doors, {"one": (123,), "two": (319, 320)})
    before = wires.carried_bytes()
    taker = make_socket(wires.namespaces["host01"], socket.AF_INET, socket.SOCK_DGRAM)
    taker.bind((plan.address("host01"), 319))
    taker.settimeout(patience(20.0))
    with inside(wires.namespaces["host00"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for port, count in ((123, 3), (320, 2), (9, 7), (319, 5)):
        for _ in range(count):
            sender.sendto(bytes(100), (plan.address("host01"), port))
    for _ in range(5):
        taker.recv(1_000)
    assert counters.take() == {"one": 3, "two": 7}
    assert counters.take() == {"one": 0, "two": 0}
    carried = [after - first for first, after in zip(before, wires.carried_bytes(), strict=True)]
    assert max(carried) >= 17 * 142
    counters.close()
    sender.close()
    taker.close()
