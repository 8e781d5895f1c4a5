"""The bench of three days of clocks, in six minutes.

What befalls clocks is made, what hosts read is judged, and lapses are told of with their cause.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.clock_days import __main__ as clock_days
from bench.clock_days.causes import Causes
from bench.clock_days.recoveries import MOMENTS, Recoveries
from bench.clock_days.rows import Hour, kinds, verdicts
from bench.clock_days.upsets import LIES, Load, Plan, Upset, draw
from bench.clock_days.world import MIDNIGHT_NS, World
from bench.document import HEAD
from foliot_lab.simulate.clocks.oscillators import SECOND_NS
from foliot_sync.core.track.statistical_bound import StatisticalBound

SHORT = ["--hours", "0.11", "--hosts", "4", "--seed", "2"]
KINDS = {
    "suspended", "stepped", "rebooted", "date set", "cut off", "uplink lost", "fan", "leader goes on",
    "leader knows nothing", "leap second", LIES,
}  # fmt: skip


def planned(*upsets, leap_at_s=1e6):
    """A plan of these upsets alone, without load."""
    return Plan(600.0, upsets, (Load(0.0, 0.0),), leap_at_s)


def worlds(plan, windows):
    """A world after so many windows, and the batches of the last, by node."""
    world = World(plan, 4, 1, 3)
    for number in range(windows):
        batches = {batch.node: batch for batch, _ in world.window(number)}
    return world, batches


def local_ns(world, host, at_s):
    """What a host's clock shows at a true time."""
    return int(world.clocks.local_ns(np.array([host]), np.array([round(at_s * SECOND_NS)]))[0])


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_short_run_has_one_upset_of_each_kind_and_keeps_its_promises(tmp_path):
    """The file has an hour, each upset with the time it cost, the errors of each regime, and every lapse.

    Each lapse has a cause that is permitted.
    """
    file = tmp_path / "days.json"
    assert clock_days.main([*SHORT, "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert list(document)[: len(HEAD)] == list(HEAD)
    assert {each["kind"] for each in document["upsets"]} == {each["kind"] for each in document["kinds"]} == KINDS
    [row] = document["rows"]
    assert row["windows"] == 198
    assert row["values"] == document["values"] > 1_500
    assert 0 < row["p50_ns"] < 50
    assert row["rss_mb"] > 1
    assert document["given_up"] == []
    assert document["utc"]["outside"] == 0
    assert {each["regime"] for each in document["regimes"]} > {"after an upset of its own", "after a change of leaders"}
    # The clock that is stepped is read until it is heard, and nothing can know that it is wrong.
    stepped = [each for each in document["outside"] if each["cause"] == "stepped"]
    assert {each["bound"] for each in stepped} == {"statistical", "hard"}
    assert [each for each in document["outside"] if not each["permitted"]] == []
    assert {each["figure"]: each["met"] for each in document["verdicts"] if "bound" in each["figure"]} == dict.fromkeys(
        [each["figure"] for each in document["verdicts"] if "bound" in each["figure"]], True
    )


def test_bounds_that_are_too_narrow_are_found(monkeypatch):
    """With a hundredth of the bound that sync would state, values are outside where nothing has befallen anybody."""
    from foliot_sync.core import synchroniser  # noqa: PLC0415 - only to be changed

    whole = synchroniser.promise

    def narrow(tracks, settings):
        return StatisticalBound(*(each / 100 for each in whole(tracks, settings)))

    monkeypatch.setattr(synchroniser, "promise", narrow)
    arguments = clock_days.parser().parse_args(SHORT)
    run = clock_days.Run(planned(), arguments)
    hour = Hour(run.judge)
    for number in range(20):
        run._window(number, hour)
    assert run.judge.not_permitted["statistical"] > 20
    assert run.judge.lapses[-1].cause == "load 0% alone"
    row = hour.row(0, run.errors.between(0, 20))
    assert {each.figure: each.met for each in verdicts(run.judge, [row]) if "statistical" in each.figure} == {
        "values outside of their statistical bound, where it permits none": False
    }


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_plan():
    """The same each time; another seed is another plan; upsets lie within the run, by time."""
    plan = draw(72, 5, 1)
    assert plan == draw(72, 5, 1) != draw(72, 5, 2)
    assert [each.at_s for each in plan.upsets] == sorted(each.at_s for each in plan.upsets)
    assert {each.kind for each in plan.upsets} == KINDS
    assert all(each.at_s >= 60 and each.ends_s <= plan.seconds for each in plan.upsets)
    assert {each.share for each in plan.loads} == {0.0, 0.2, 0.4, 0.6, 0.8}
    with pytest.raises(ValueError, match=r"0\.05 hours have no room"):
        draw(0.05, 5, 1)


# -- what befalls clocks ----------------------------------------------------------------------------------------------


def test_a_suspended_host_is_not_heard_and_its_clock_has_not_counted():
    """It lacks the time of its sleep, and nothing of it is lost before that."""
    world, batches = worlds(planned(Upset(kind="suspended", at_s=9.0, lasts_s=6.0, host=1)), 7)
    before_ns = local_ns(world, 1, 14.5)
    assert "node1" not in batches
    assert abs(local_ns(world, 1, 15.5) - before_ns + 5 * SECOND_NS) < 1_000_000


def test_a_rebooted_host_counts_from_its_start():
    """Its local time is small, and its system clock goes on as it was."""
    upset = Upset(kind="rebooted", at_s=9.0, lasts_s=8.0, host=2)
    world, batches = worlds(planned(upset), 10)
    assert 15 * SECOND_NS < local_ns(world, 2, 20.0) < 19 * SECOND_NS
    batch = batches["node2"]
    assert batch.until_ns < 25 * SECOND_NS
    assert abs(batch.until_ns + batch.epoch_ns - batches["node0"].until_ns - batches["node0"].epoch_ns) < SECOND_NS


def test_hosts_step_over_a_leap_second_that_they_have_announced():
    """Before it all announce it; after it the second before midnight has come twice."""
    said = []
    for windows in (2, 6):
        _, batches = worlds(planned(leap_at_s=9.0), windows)
        said.append(batches["node0"])
    assert [(each.leap_s, each.tai_offset_s, each.leap_utc_ns) for each in said] == [(1, 37, MIDNIGHT_NS), (0, 38, 0)]
    # 9 s after the start was midnight: 12 s after it, only two seconds of the new day have passed.
    after_ns = said[1].until_ns + said[1].epoch_ns - MIDNIGHT_NS
    assert abs(after_ns - 2 * SECOND_NS) < 0.3 * SECOND_NS


def test_a_node_that_lies_has_worse_stamps_of_the_same_kind():
    """The least delays of its streams spread by what it does not tell of."""
    spreads = []
    for upsets in ((), (Upset(kind=LIES, at_s=0.0, lasts_s=60.0, host=1, size=2_000.0),)):
        _, batches = worlds(planned(*upsets), 3)
        batch = batches["node1"]
        rows = batch.rows()
        delay_ns = (rows["receive_ns"] - rows["transmit_ns"])[(rows["stream"] == 0) & (rows["direction"] == 0)]
        # Of two clocks that run apart by up to 60 ppm, delays change by 120 us in a window.
        line = np.polyfit(rows["transmit_ns"][: len(delay_ns)] - rows["transmit_ns"][0], delay_ns - delay_ns[0], 1)
        left = delay_ns - delay_ns[0] - np.polyval(line, rows["transmit_ns"][: len(delay_ns)] - rows["transmit_ns"][0])
        spreads.append(float(left.std()))
        assert {stream.kind for stream in batch.streams} == {"hardware"}
    assert spreads[0] < 100
    assert spreads[1] > 500


# -- the judgement ----------------------------------------------------------------------------------------------------

STEP = Upset(kind="stepped", at_s=100.5, host=1, size=1e6, promised_s=8.0)
FAN = Upset(kind="fan", at_s=200.0, host=2, size=100.0, promised_s=4.0)
LIE = Upset(kind=LIES, at_s=300.0, lasts_s=50.0, host=3, size=500.0, promised_s=None)


@pytest.mark.parametrize(
    ("bound", "where", "cause", "permitted"),
    [
        ("hard", (1, 0, 103.0), "stepped", True),
        ("hard", (1, 0, 106.0), "stepped", False),
        ("hard", (0, 1, 103.0), "stepped, node1", True),
        ("hard", (2, 0, 103.0), "load 0% alone", False),
        ("statistical", (2, 0, 203.0), "fan", True),
        ("hard", (2, 0, 203.0), "fan", False),
        ("hard", (3, 0, 310.0), LIES, True),
        ("hard", (2, 0, 310.0), f"{LIES}, node3", False),
        ("statistical", (2, 0, 500.0), "load 0% alone", False),
    ],
)
def test_what_a_lapse_comes_of(bound, where, cause, permitted):
    """Of the clock's own upset first; and what docs/clock.md tells of is permitted, no more."""
    causes = Causes(planned(STEP, FAN, LIE), 4)
    assert causes.cause(*where) == cause
    assert causes.permits(bound, *where) is permitted


def test_the_time_without_a_valid_state_is_counted_from_the_upset_on():
    """Of the host that it befell and of the others, in a row; not while nothing runs there, nor of a node that lies."""
    reboot = Upset(kind="rebooted", at_s=20.0, lasts_s=4.0, host=0, promised_s=8.0)
    recoveries = Recoveries(planned(reboot, Upset(kind=LIES, at_s=0.0, lasts_s=90.0, host=3)), 4)
    for number in range(30):
        now_s = 2.0 * number
        valid, halted, wrong = np.ones((MOMENTS, 4), bool), np.zeros((MOMENTS, 4), bool), np.zeros((MOMENTS, 4), bool)
        valid[:, 0] = not 20 <= now_s < 30
        halted[:, 0] = 20 <= now_s < 24
        valid[:2, 1] = now_s != 26
        valid[:, 3] = False
        recoveries.window(now_s, valid, halted, wrong, 5.0 if now_s == 22 else 0.0)
    recoveries.close()
    found = {each.kind: each for each in recoveries.found}
    assert (found["rebooted"].own_s, found["rebooted"].others_s, found["rebooted"].jump_ns) == (6.0, 1.0, 5.0)
    [summary] = [each for each in kinds(recoveries.found) if each.kind == "rebooted"]
    # Its own six seconds are promised; that another host had none for one is not.
    assert (summary.promised_s, summary.longer) == (8.0, 1)
