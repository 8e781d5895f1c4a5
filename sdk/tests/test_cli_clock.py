"""``foliot clock``, as a person or a script runs it."""

from __future__ import annotations

import json
import time

import pytest

from foliot.cli import main
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
            "clock": "node3", "reference": "node0", "offset_ns": AT - local_ns, "drift_ppb": 1_250.0, "hard_bound_ns": 12_000, "bound_ns": 400,
            "growth_ppb": 0.0, "as_of_ns": local_ns, "void_after_ns": local_ns + 600 * SECOND, "status": "synchronised", "window": 7,
        }  # fmt: skip
        writer.write(ClockState(**{**known, **changes}), local_ns)

    yield say
    writer.close()


def test_a_person_sees_the_time_and_how_far_to_trust_it(write, capsys):
    """And what it is the time of."""
    write()

    assert main(["clock"]) == 0
    first, when, *rest = capsys.readouterr().out.splitlines()
    assert first == "node3  synchronised"
    assert when.startswith("  time       2026-09-21 14:13:2")
    assert when.endswith(" ± 400 ns, ± 12 µs whatever the paths' asymmetry")
    assert rest[0] == "  follows    all clocks of the fleet, and not UTC"
    assert rest[1] == "  drift      this clock runs 1.250 ppm too slow"
    assert rest[2].startswith("  said       0.")
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
