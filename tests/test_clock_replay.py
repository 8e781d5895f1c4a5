"""The replay of recorded stamps, on recordings that the tests write."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from bench.clock_replay import __main__ as command
from bench.clock_replay.recording import BadRecordingError, read, recorded, windows
from bench.clock_replay.regimes import REGIMES, simulate
from bench.clock_replay.rows import CHRONY, FOLIOT, MIDDLE, MINIMUM, NOW, replay, summaries
from bench.clock_sim import Tool
from bench.studies import clock_order, clock_regimes
from bench.studies.clock_regimes import VARIANTS, told

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.clock_replay.recording import Recording
    from bench.clock_replay.rows import Summary

    Arrays = dict[str, NDArray[Any]]

WINDOW_NS = 2_000_000_000
FLOOR_NS = 5_000


def stamps(
    seconds: float = 24.0, *, drift_ppb: float = 0.0, ahead_ns: int = 0, noise_ns: float = 10.0, seed: int = 1
) -> Arrays:
    """A probe each way every ten milliseconds over paths of one length, of which half met no queue.

    Clock b is ahead of a by so much and more.
    """
    random = np.random.default_rng(seed)
    sent_ns = (np.arange(int(seconds * 100)) * 10_000_000).astype(np.int64) + 1_000_000
    found: Arrays = {}
    for name, after_ns in (("ab", 0), ("ba", 300_000)):
        waits = np.where(random.random(len(sent_ns)) < 0.5, random.exponential(20_000, len(sent_ns)), 0.0)
        left = sent_ns + after_ns
        came = left + FLOOR_NS + np.rint(waits + np.abs(random.normal(0, noise_ns, len(left)))).astype(np.int64)
        b_sends = name == "ba"
        found[f"{name}_tx"] = left + (_gained(left, drift_ppb) + ahead_ns) * b_sends
        found[f"{name}_rx"] = came + (_gained(came, drift_ppb) + ahead_ns) * (not b_sends)
    return found


def _gained(at_ns: NDArray[np.int64], drift_ppb: float) -> NDArray[np.int64]:
    return np.rint(at_ns * (drift_ppb * 1e-9)).astype(np.int64)


def judged(recording: Recording) -> dict[tuple[str, str], Summary]:
    """What each tool comes to."""
    return {(each.tool, each.of): each for each in summaries(recording, replay(recording, WINDOW_NS, "kernel", 4))}


def test_one_clock_is_judged_against_nought() -> None:
    """Two ends on one clock have a true offset of 0, and every tool finds it."""
    found = judged(recorded("made", stamps()))
    assert {summary.truth for summary in found.values()} == {"one clock"}
    assert set(found) == {(tool, of) for tool in (FOLIOT, MINIMUM, CHRONY) for of in (MIDDLE, NOW)}
    for summary in found.values():
        assert summary.windows == 7
        assert summary.silent == 0
        assert summary.max_ns is not None
        assert summary.max_ns < 100
    assert found[FOLIOT, NOW].within_bound == 1.0
    assert found[MINIMUM, MIDDLE].median_bound_ns is None


def test_a_drifting_clock_is_judged_by_the_truth_of_its_file() -> None:
    """With 30 ppm the chain follows the true offset that the recording has."""
    made = stamps(drift_ppb=30_000.0, ahead_ns=70_000_000)
    # Of the line through both ends, as a's clock is the true time here.
    at_ns = np.array([0, 30_000_000_000], np.int64)
    truth = {"offset_ns": 70_000_000 + at_ns * 30e-6, "offset_at_ns": at_ns}
    found = judged(recorded("made", made | truth))
    assert {summary.truth for summary in found.values()} == {"file"}
    for tool in ((FOLIOT, MIDDLE), (FOLIOT, NOW), (MINIMUM, MIDDLE)):
        most_ns = found[tool].max_ns
        assert most_ns is not None
        assert most_ns < 100


def test_without_truth_bounds_are_told_and_no_errors() -> None:
    """A probe that seems to come before it left shows two clocks: nobody knows the truth."""
    rows = replay(recorded("made", stamps(ahead_ns=70_000_000)), WINDOW_NS, "kernel", 4)
    assert all(row.error_ns is None for row in rows)
    assert all(row.bound_ns is not None for row in rows if (row.tool, row.of) == (FOLIOT, NOW))
    assert all(row.said and row.bound_ns is None for row in rows if (row.tool, row.of) == (FOLIOT, MIDDLE))
    summary = judged(recorded("made", stamps(ahead_ns=70_000_000)))[FOLIOT, NOW]
    assert summary.truth is None
    assert summary.p50_ns is None
    assert summary.silent == 0


def test_a_given_offset_is_the_truth() -> None:
    """Whoever knows the offset can say it."""
    summary = judged(recorded("made", stamps(ahead_ns=70_000_000), 70_000_000.0))[MINIMUM, MIDDLE]
    assert summary.truth == "given"
    assert summary.max_ns is not None
    assert summary.max_ns < 50


def test_unsorted_stamps_are_sorted() -> None:
    """The order of probes in the file changes nothing."""
    made = stamps()
    order = np.random.default_rng(3).permutation(len(made["ab_tx"]))
    mixed = made | {key: made[key][order] for key in ("ab_tx", "ab_rx")}
    assert replay(recorded("made", mixed), WINDOW_NS, "kernel", 4) == replay(
        recorded("made", made), WINDOW_NS, "kernel", 4
    )


def test_a_gap_leaves_out_its_windows() -> None:
    """Windows without any probe are not judged; the chain goes on after them."""
    made = stamps(40.0)
    for key, stamped in made.items():
        made[key] = stamped[(stamped < 14_000_000_000) | (stamped > 22_000_000_000)]
    rows = replay(recorded("made", made), WINDOW_NS, "kernel", 4)
    numbers = {row.window for row in rows}
    assert not numbers & {8, 9, 10}
    assert {12, 18} <= numbers
    errors = [abs(row.error_ns) for row in rows if row.error_ns is not None and row.window > 13]
    assert errors
    assert max(errors) < 100


def test_a_window_of_one_direction_is_silent_for_the_minimum_filter() -> None:
    """Where nothing came back for a window, a minimum filter has nothing to say."""
    made = stamps()
    kept = (made["ba_rx"] < 12_001_000_000) | (made["ba_rx"] > 14_001_000_000)
    made |= {key: made[key][kept] for key in ("ba_tx", "ba_rx")}
    rows = replay(recorded("made", made), WINDOW_NS, "kernel", 4)
    silent = [row.window for row in rows if row.tool == MINIMUM and row.error_ns is None]
    assert silent == [6, 6]


def test_a_step_is_not_hidden() -> None:
    """Once it has heard of a step of b by a millisecond, the chain says nothing to believe, or is within its bound."""
    made = stamps(40.0)
    made["ab_rx"] += 1_000_000 * (made["ab_rx"] > 20_001_000_000)
    made["ba_tx"] += 1_000_000 * (made["ba_tx"] > 20_001_000_000)
    at_ns = np.array([0, 20_001_000_000, 20_001_000_001, 40_000_000_000], np.int64)
    truth = {"offset_ns": np.array([0, 0, 1_000_000, 1_000_000]), "offset_at_ns": at_ns}
    rows = [
        row
        for row in replay(recorded("made", made | truth), WINDOW_NS, "kernel", 4)
        if row.tool == FOLIOT and row.of == NOW
    ]
    heard = [row for row in rows if row.window >= 10]
    assert any(row.error_ns is None for row in heard)
    assert all(
        abs(row.error_ns) <= row.bound_ns for row in heard if row.error_ns is not None and row.bound_ns is not None
    )
    assert rows[-1].error_ns is not None
    assert abs(rows[-1].error_ns) < 200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ba_tx": None}, "lacks ba_tx"),
        ({"ba_tx": np.zeros(0, np.int64), "ba_rx": np.zeros(0, np.int64)}, "one direction alone"),
        ({"ab_rx": np.zeros(3, np.int64)}, "each probe has both"),
        ({"ab_tx": np.zeros(2400, np.float64)}, "whole nanoseconds"),
        ({"ab_tx": np.zeros((2, 1200), np.int64)}, "dimensions"),
        ({"ab_tx": np.full(2400, 1 << 62)}, "73 years"),
        ({"offset_ns": np.array([np.nan])}, "no row of numbers"),
        ({"offset_ns": np.array([1, 2])}, "does not rise"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused(change: dict[str, Any], why: str) -> None:
    """Whatever makes no recording is named."""
    made = {key: value for key, value in (stamps() | change).items() if value is not None}
    with pytest.raises(BadRecordingError, match=why):
        recorded("made", made)


def test_too_short_a_recording_is_refused() -> None:
    """Less than a window, or less than the tools need to settle, judges nobody."""
    with pytest.raises(BadRecordingError, match="shorter than a window"):
        windows(recorded("made", stamps(1.0)), WINDOW_NS)
    with pytest.raises(BadRecordingError, match="no window after"):
        replay(recorded("made", stamps(7.0)), WINDOW_NS, "kernel", 4)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """Text, a file that is not there, and arrays of objects are no recordings."""
    text, objects = tmp_path / "text.npz", tmp_path / "objects.npz"
    text.write_text("ab_tx")
    np.savez(objects, ab_tx=np.array([{}], dtype=object))
    for file in (text, objects, tmp_path / "nothing.npz"):
        with pytest.raises(BadRecordingError, match="is no npz file"):
            read(file)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A block that cannot be unpacked and a header whose bracket is never closed are told as any other bad file is."""
    block, header = tmp_path / "block.npz", tmp_path / "header.npz"
    np.savez_compressed(block, ab_tx=np.arange(1_000))
    damaged = bytearray(block.read_bytes())
    with zipfile.ZipFile(block) as kept:
        local = kept.infolist()[0].header_offset
    # Behind the local header, its name and its extra field; no block of DEFLATE is of type 3.
    damaged[local + 30 + sum(struct.unpack_from("<HH", damaged, local + 26))] = 0xFF
    block.write_bytes(damaged)
    text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,\n"
    with zipfile.ZipFile(header, "w") as made:
        made.writestr("ab_tx.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    for file in (block, header):
        with pytest.raises(BadRecordingError, match="is no npz file"):
            read(file)


def test_the_command_writes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row has the file, the tool, the window, the error and the bound; the document has settings and machine."""
    file, out = tmp_path / "made.npz", tmp_path / "out.json"
    np.savez_compressed(file, **stamps(14.0))  # type: ignore[arg-type]  # numpy's stub takes its own options for arrays
    monkeypatch.setattr(sys, "argv", ["clock_replay", str(file), "--json", str(out)])
    assert command.main() == 0
    document = json.loads(out.read_text())
    assert document["bench"] == "clock-replay"
    assert document["settings"]["kind"] == "kernel"
    assert "machine" in document
    rows = document["rows"]
    assert {"file", "tool", "window", "error_ns", "bound_ns"} <= set(rows[0])
    assert {row["file"] for row in rows} == {"made.npz"}
    assert "minimum filter" in capsys.readouterr().out


def test_the_command_refuses_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and why."""
    file = tmp_path / "one-way.npz"
    np.savez(file, ab_tx=np.arange(3), ab_rx=np.arange(3))
    monkeypatch.setattr(sys, "argv", ["clock_replay", str(file)])
    assert command.main() == 2
    assert capsys.readouterr().err == "one-way.npz lacks ba_tx, ba_rx: a recording has both stamps of both directions\n"


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_a_regime_is_what_it_says(regime):
    """Its truth is exact: the least delays of both ways lie about the floor, and it is the same for the same seed."""
    recording, again = (simulate(regime, 8.0, 3) for _ in range(2))
    assert all((one == other).all() for one, other in zip(recording.forth, again.forth, strict=True))
    forth = recording.forth.delay_ns - recording.truth.at(recording.forth.transmit_ns)
    back = recording.back.delay_ns + recording.truth.at(recording.back.receive_ns)
    for delay in (forth, back):
        assert 2_000 - 250 < delay.min() < 2_000 + 500
        assert len(delay) == 16 * regime.pairs_hz
    if regime.forth.share:
        assert np.percentile(forth, 90) > 10_000
    if not regime.back.share and not regime.asleep:
        assert np.percentile(back, 90) < 8_000


def test_stamps_in_ticks_are_whole_ticks():
    """Of a coarse counter, and not of one that counts nanoseconds."""
    fine, coarse = (
        simulate(named("quick kernel, idle"), 4.0, 3),
        simulate(named("quick kernel, ticks of 40 ns"), 4.0, 3),
    )
    assert not any((stamps % 40).any() for direction in (coarse.forth, coarse.back) for stamps in direction)
    assert (fine.forth.transmit_ns % 40).any()


def test_bursts_that_come_together_stand_longer_at_the_same_load():
    """The link is as busy as before: most probes that wait at all wait for longer."""
    regime = named("NIC, incast")
    alone = msgspec.structs.replace(regime, forth=msgspec.structs.replace(regime.forth, incast=1))
    together, singly = (simulate(each, 20.0, 3) for each in (regime, alone))
    busy, wait = zip(*(waits(each) for each in (together, singly)), strict=True)
    assert busy[0] == pytest.approx(busy[1], abs=0.1)
    assert wait[0] > 3 * wait[1]


def waits(recording):
    """The share of probes forth that waited, and their median wait in ns."""
    wait = recording.forth.delay_ns - recording.truth.at(recording.forth.transmit_ns) - 2_000
    waited = wait[wait > 200]
    return len(waited) / len(wait), np.median(waited)


def test_an_asymmetry_shows_in_no_stamp_and_goes_where_sync_is_told_of_it():
    """Half of it is the error of every tool; told of it, Foliot is off by little."""
    error = {}
    for name in ("NIC, 300 ns longer one way", "NIC, 300 ns longer, told"):
        regime = named(name)
        rows = replay(simulate(regime, 20.0, 1), WINDOW_NS, regime.kind, 6, (told(Tool(), regime),))
        middle = [row for row in rows if row.of == MIDDLE]
        error[name] = {
            tool: np.mean([row.error_ns for row in middle if row.tool == tool]) for tool in (FOLIOT, MINIMUM)
        }
    untold, known = error.values()
    assert untold[MINIMUM] == pytest.approx(150, abs=60)
    assert untold[FOLIOT] == pytest.approx(150, abs=20)
    assert abs(known[FOLIOT]) < 20
    assert known[MINIMUM] == untold[MINIMUM]


def named(name):
    """The regime of a name."""
    return next(each for each in REGIMES if each.name == name)


@pytest.mark.parametrize(
    ("name", "most"), [("NIC, 90 % one way", 0.5), ("quick kernel, idle", 1.1), ("slow kernel, 80 % one way", 1.1)]
)
def test_foliot_is_not_worse_than_a_minimum_filter(name, most):
    """On the same stamps of fixed seeds, by mean and p99, of the middle and now, as the goals have it.

    Of NICs under load, half.
    """
    regime = named(name)
    rows = [row for seed in (1, 2) for row in replay(simulate(regime, 60.0, seed), WINDOW_NS, regime.kind, 6)]
    reached = clock_regimes.verdicts(clock_regimes.cells(name, rows))
    shares = [each.measured for each in reached if "minimum filter" in each.figure]
    assert len(shares) >= 4
    assert max(shares) <= most


def test_load_of_one_direction_leaves_less_bias_than_least_delays_have():
    """Fewer of its probes come near the floor, so a minimum filter has half of what that is worth as a bias."""
    regime = named("quick kernel, 80 % one way")
    rows = [row for seed in (1, 2, 3) for row in replay(simulate(regime, 60.0, seed), WINDOW_NS, regime.kind, 6)]
    bias = {
        tool: np.mean([row.error_ns for row in rows if (row.tool, row.of) == (tool, MIDDLE)])
        for tool in (FOLIOT, MINIMUM)
    }
    assert bias[MINIMUM] > 5
    assert abs(bias[FOLIOT]) < 0.6 * bias[MINIMUM]


def test_chrony_is_given_no_drift_as_a_round_trip():
    """Clocks that run apart by 30 ppm and exchanges of milliseconds: the model finds the offset all the same."""
    made = stamps(60.0, drift_ppb=30_000.0)
    at_ns = np.array([0, 70_000_000_000], np.int64)
    found = judged(recorded("made", made | {"offset_ns": at_ns * 30e-6, "offset_at_ns": at_ns}))[CHRONY, MIDDLE]
    assert found.silent < found.windows / 2
    assert found.max_ns is not None
    assert found.max_ns < 100


def test_goals_name_the_regime_that_is_furthest_from_them():
    """By mean and p99, the stricter goal where anything queues, and the bound over the p99."""
    idle, loaded = "NIC, idle", "NIC, 60 %"
    every = [
        cell(idle, MINIMUM, 10.0, 30.0), cell(idle, FOLIOT, 9.0, 36.0, 90.0),
        cell(loaded, MINIMUM, 10.0, 30.0), cell(loaded, FOLIOT, 6.0, 12.0, 60.0),
        cell("silent.npz", MINIMUM, None, None), cell("silent.npz", FOLIOT, None, None),
    ]  # fmt: skip
    assert [(each.figure, each.regime, each.measured, each.met) for each in clock_regimes.verdicts(every)] == [
        ("error over a minimum filter's, now, mean", idle, 0.9, True),
        ("error over a minimum filter's, now, p99", idle, 1.2, False),
        ("bound over the p99", loaded, 5.0, False),
        ("error over a minimum filter's, now, mean, hardware, queues", loaded, 0.6, False),
        ("error over a minimum filter's, now, p99, hardware, queues", loaded, 0.4, True),
    ]


def cell(regime, tool, mean_ns, p99_ns, bound_ns=None):
    """Of the value used now."""
    return clock_regimes.Cell(
        regime=regime, tool=tool, of=NOW, windows=20, silent=0, mean_ns=mean_ns, p50_ns=None, p99_ns=p99_ns,
        bias_ns=None,
        median_bound_ns=bound_ns, within_bound=None,
    )  # fmt: skip


def test_a_part_put_back_is_another_chain_on_the_same_stamps():
    """The minimum filter beside it says the same.

    The chain that sifts pairs always does not, where they do not stand apart.
    """
    recording = simulate(named("slow kernel, idle"), 24.0, 1)
    whole, always = (
        {
            (row.tool, row.window): row.error_ns
            for row in replay(recording, WINDOW_NS, "kernel", 6, (tool,))
            if row.of == MIDDLE
        }
        for tool in (Tool(), next(each for each in VARIANTS if each.name == "foliot, pairs always"))
    )
    assert {key: value for key, value in whole.items() if key[0] == MINIMUM} == {
        key: value for key, value in always.items() if key[0] == MINIMUM
    }
    mean = [
        np.mean([abs(value) for (tool, _), value in each.items() if tool.startswith("foliot")])
        for each in (whole, always)
    ]
    assert mean[0] < mean[1] / 1.5


def test_the_table_of_regimes_has_a_row_each(tmp_path, monkeypatch, capsys):
    """A cell for each tool, and the settings that made it."""
    out = tmp_path / "out.json"
    monkeypatch.setattr(
        sys, "argv", ["clock_regimes", "--only", "NIC, idle", "--seeds", "1", "--seconds", "20", "--json", str(out)]
    )
    assert clock_regimes.main() == 0
    document = json.loads(out.read_text())
    assert {(row["tool"], row["of"]) for row in document["rows"]} == {
        (tool, of) for tool in (FOLIOT, MINIMUM, CHRONY) for of in (MIDDLE, NOW)
    }
    assert document["rows"][0]["regime"] == "NIC, idle"
    assert {row["regime"] for row in document["verdicts"]} == {"NIC, idle"}
    printed = capsys.readouterr().out
    assert "NIC, idle" in printed
    assert "error over a minimum filter's, now, p99: " in printed


def test_the_table_of_orders_has_a_row_each(tmp_path, monkeypatch, capsys):
    """Of each order of sockets a cell for the minimum filter and for all probes or pure pairs alone."""
    out = tmp_path / "out.json"
    for name, wanted in (("MACHINES", "quick"), ("SENDERS", "first and last socket")):
        monkeypatch.setattr(clock_order, name, {wanted: getattr(clock_order, name)[wanted]})
    monkeypatch.setattr(
        sys, "argv", ["clock_order", "--seeds", "1", "--seconds", "14", "--settle", "4", "--json", str(out)]
    )
    assert clock_order.main() == 0
    regimes = [f"quick, first and last socket, sockets {order}" for order in ("by number", "from any")]
    document = json.loads(out.read_text())
    assert [(row["regime"], row["tool"], row["of"]) for row in document["rows"]] == [
        (regime, tool, of)
        for regime in regimes
        for tool in (FOLIOT, clock_order.SIEVED, MINIMUM)
        for of in (MIDDLE, NOW)
    ]
    assert {"error over a minimum filter's, now, mean", "bound over the p99"} <= {
        row["figure"] for row in document["verdicts"]
    }
    assert all(regime in capsys.readouterr().out for regime in regimes[:1])
