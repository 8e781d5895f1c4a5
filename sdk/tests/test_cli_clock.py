"""``foliot clock``, as a person or a script runs it."""

from __future__ import annotations

import json
import time

import pytest

from foliot.cli import main
from foliot.cli.clock import _utc_lines
from foliot.clock import reader as clock_reader
from foliot.clock.writer import PageWriter
from foliot_schemas import ClockState

SECOND = 10**9
AT = 1_790_000_000 * SECOND


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the node's page."""
    monkeypatch.setenv("FOLIOT_CLOCK__PAGE", str(tmp_path / "clock"))
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)
    writer = PageWriter(str(tmp_path / "clock"), "node3")

    def say(**changes):
        local_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        known = {
            "clock": "node3", "reference": "node0", "offset_ns": AT - local_ns, "drift_ppb": 1_250.0,
            "hard_bound_ns": 12_000, "bound_ns": 400, "growth_ppb": 0.0, "as_of_ns": local_ns,
            "void_after_ns": local_ns + 600 * SECOND, "status": "synchronised", "window": 7,
        }  # fmt: skip
        writer.write(ClockState(**{**known, **changes}), local_ns)

    yield say
    writer.close()


def test_a_person_sees_the_time_and_how_far_to_trust_it(write, capsys, monkeypatch):
    """And what it is the time of."""
    local_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    write(as_of_ns=local_ns, offset_ns=AT - local_ns)
    monkeypatch.setattr(clock_reader, "clock_gettime_ns", lambda _clock: local_ns + SECOND // 4)

    assert main(["clock"]) == 0
    first, when, *rest = capsys.readouterr().out.splitlines()
    assert first == "node3  synchronised"
    assert when.startswith("  time       2026-09-21 14:13:20.25")
    assert when.endswith(" ± 400 ns, ± 12 µs whatever the paths' asymmetry")
    assert rest[0] == "  follows    all clocks of the fleet, and not UTC"
    assert rest[1] == "  drift      this clock runs 1.250 ppm too slow"
    assert rest[2].startswith("  said       0.2 s ago")
    assert rest[3] == "  reference  node0"


def test_noise_and_wander_are_shown_as_sync_measured_them(write, capsys):
    """In lines of their own, that a word without them has not."""
    write(stamp_noise_ns=25.4, rate_wander_ppb=7.25)
    assert main(["clock"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  noise      stamps repeat to 25 ns, as sync measures them",
        "  wander     7.2 ppb/√s against the reference",
    ]
    assert main(["clock", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stamp_noise_ns"], found["rate_wander_ppb"]) == (25.4, 7.25)


def test_a_script_gets_json(write, capsys):
    """An object a line; what is not to be trusted has no time in it."""
    write(timescale="utc")
    assert main(["clock", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trusted"]
    assert (found["bound_ns"], found["hard_bound_ns"], found["timescale"], found["window"]) == (400, 12_000, "utc", 7)
    assert found["latest_ns"] - found["earliest_ns"] == 800
    assert 0 <= found["at_ns"] - AT < 60 * SECOND

    write(status="disrupted")
    assert main(["clock", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["trusted"], found["why"], found["status"]) == (False, "disrupted", "disrupted")
    assert "at_ns" not in found


MIDNIGHT = 1_790_035_200 * SECOND
"""The end of a UTC day."""
KNOWN = {"timescale": "tai", "utc_offset_s": 37, "tai_offset_s": 37, "utc_offset_error_ns": 3_000}


@pytest.mark.parametrize(
    ("leap_s", "at_s", "utc", "leap"),
    [
        (0, -10.25, "2026-09-21 23:59:49.750000000 ± 3 µs, 37", None),
        (1, -300.0, "2026-09-21 23:55:00.000000000 ± 3 µs, 37", "is inserted in 300 s"),
        (1, 0.0, "2026-09-21 23:59:60.000000000 ± 3 µs, 38", "was inserted 0 ns ago"),
        (1, 0.75, "2026-09-21 23:59:60.750000000 ± 3 µs, 38", "was inserted 750 ms ago"),
        (1, 1.0, "2026-09-22 00:00:00.000000000 ± 3 µs, 38", "was inserted 1 s ago"),
        (-1, -0.5, "2026-09-21 23:59:58.500000000 ± 3 µs, 37", "is deleted in 500 ms"),
        (-1, 0.5, "2026-09-22 00:00:00.500000000 ± 3 µs, 36", "was deleted 500 ms ago"),
    ],
)
def test_a_person_sees_utc_tai_and_the_leap_second(leap_s, at_s, utc, leap):
    """As they are at this common time; an inserted second has the number 60."""
    leap_at_ns = MIDNIGHT + (37 - (leap_s < 0)) * SECOND
    state = ClockState(
        clock="node3", reference="node0", offset_ns=0, drift_ppb=0.0, hard_bound_ns=9, bound_ns=9, growth_ppb=0.0,
        as_of_ns=0, void_after_ns=0, status="synchronised", leap_s=leap_s, leap_at_ns=leap_s and leap_at_ns, **KNOWN,
    )  # fmt: skip

    assert _utc_lines(state, leap_at_ns + round(at_s * SECOND)) == [
        f"  UTC        {utc} s behind the time",
        f"  TAI        {utc[-2:]} s ahead of UTC, as the reference's kernel has it",
        *([f"  leap       a second {leap}, at the end of 2026-09-21 (UTC)"] if leap else []),
    ]


def test_a_person_sees_that_the_kernel_contradicts(write, capsys):
    """What it has otherwise than the reference's, below what is published."""
    write(**KNOWN, utc_disagreement="offset")
    main(["clock"])
    _, _, utc, tai, kernel, follows, *_ = capsys.readouterr().out.splitlines()
    assert utc.startswith("  UTC        2026-09-21 14:1")
    assert tai.startswith("  TAI        37 s")
    assert kernel == "  kernel     this host's has another offset from TAI"
    assert follows == "  follows    TAI, as chosen nodes have it"


def test_a_script_gets_utc(write, capsys):
    """Made of the time, with what it was made by; and no time where no node has UTC."""
    write(**KNOWN, leap_s=1, leap_at_ns=AT - SECOND)
    main(["clock", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["at_ns"] - found["utc_ns"] == 38 * SECOND
    names = ("utc_offset_s", "tai_offset_s", "leap_s", "leap_at_ns", "utc_offset_error_ns", "utc_disagreement")
    assert [found[name] for name in names] == [37, 37, 1, AT - SECOND, 3_000, "none"]
    write()
    main(["clock", "--json"])
    assert "utc_ns" not in json.loads(capsys.readouterr().out)


def test_without_a_page_it_says_why(write, tmp_path, capsys):
    """Not as an error of its own: that is how things are."""
    assert main(["clock", "--page", str(tmp_path / "none")]) == 1
    assert "is not there: no probe runs on this node" in capsys.readouterr().out
    assert main(["clock"]) == 1
    assert "sync has not yet said anything" in capsys.readouterr().out


def test_the_exit_status_gates_a_start(write, capsys):
    """With a bound that is wanted, and a time that is waited for it."""
    write()
    assert main(["clock", "--within", "500"]) == 0
    assert main(["clock", "--within", "100"]) == 1
    assert main(["clock", "--wait", "0.01", "--within", "100"]) == 1
    assert "not within 0.01 s: the bound is" in capsys.readouterr().err
    assert main(["clock", "--wait", "60", "--within", "500"]) == 0


def test_a_wrong_setting_is_said(tmp_path, monkeypatch, capsys):
    """In one line, with its key."""
    monkeypatch.delenv("FOLIOT_CLOCK__PAGE", raising=False)
    (tmp_path / "foliot.toml").write_text("[clock]\npages = 1\n")
    monkeypatch.setenv("FOLIOT_CONFIG", "")

    assert main(["clock", "--config", str(tmp_path / "foliot.toml")]) == 1
    assert "pages" in capsys.readouterr().err
