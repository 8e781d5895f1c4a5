"""The bench of the demo's verdicts, with a stand-in for the demo's own command."""

import json
import os
import sys

import pytest

from bench import demo, place
from bench.demo import Row

REPORT = {
    "verdict": {
        "right": False,
        "outcomes": [
            {"fault": "1", "right": True, "sentence": "all flowed again"},
            {"fault": "", "right": False, "sentence": "2 events that no fault explains"},
        ],
    },
    "unexplained": {"events": 2, "commands": 1},
    "machine": {"idle_cpu": 0.12345},
    "clocks": {"true_error_ns": {"p50": 80.0, "p99": 410.5}, "within_bound": 1.0, "within_hard_bound": 1.0},
    "scenario": {"fabric": {"hosts": 8}},
}
STAND_IN = f"""
import pathlib, sys
where = pathlib.Path(sys.argv[sys.argv.index("--report") + 1])
print(*sys.argv[1:])
if where.name == "run-1.json":
    where.write_text({json.dumps(REPORT)!r})
print("it was too busy")
"""
WRONG = Row(
    run=1, hosts=8, verdict="wrong", reasons=("2 events that no fault explains",), events_false=2, commands_false=1,
    idle_cpu=0.123, clocks_p99_ns=410.5, within_bound=1.0, within_hard_bound=1.0,
)  # fmt: skip


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Runs the bench with these options and the stand-in on a machine that carries all; returns its status and file."""

    def run(*options):
        monkeypatch.setattr(demo, "DEMO", (sys.executable, "-c", STAND_IN))
        file = tmp_path / "demo.json"
        monkeypatch.setattr(sys, "argv", ["demo", "--folder", str(tmp_path), "--json", str(file), *options])
        return demo.main(), json.loads(file.read_text()) if file.exists() else None

    monkeypatch.setattr(place.capabilities, "missing", list)
    monkeypatch.setattr(place, "can_carry", lambda *_: True)
    return run


def test_each_run_has_its_verdict_and_one_without_a_report_its_last_word(ran, tmp_path):
    """A report of an earlier series is not this run's."""
    (tmp_path / "run-2.json").write_text(json.dumps(REPORT))
    status, written = ran("--runs", "2", "--hosts", "8")
    wrong, none = written["rows"]
    assert status == 0
    assert wrong == json.loads(json.dumps(demo.msgspec.to_builtins(WRONG)))
    assert (none["verdict"], none["reasons"], none["events_false"]) == ("none", ["it was too busy"], None)
    assert "--hosts 8" in (tmp_path / "run-2.log").read_text()
    assert written["settings"] == {"runs": 2, "hosts": 8, "hog": False, "speed": 1.0}


def test_the_hog_is_there_for_as_long_as_the_series(ran, monkeypatch):
    """It is ended also where a run cannot be made."""
    hogs = []
    monkeypatch.setattr(demo, "runs", lambda _: hogs.extend(made[0].pids) or iter(()))
    made = [demo.Hog(1.0, processors=1)]
    monkeypatch.setattr(demo, "Hog", lambda *_, **__: made[0])
    assert ran("--hog")[0] == 0
    (pid,) = hogs
    assert made[0].pids == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_does_not_begin_where_the_machine_cannot(ran, monkeypatch, capsys):
    """Neither without the smallest fabric's processors, nor without what any needs of the kernel."""
    monkeypatch.setattr(demo, "runs", lambda _: pytest.fail("it went on"))
    monkeypatch.setattr(place, "can_carry", lambda *_: False)
    assert ran() == (place.CANNOT, None)
    monkeypatch.setattr(place.capabilities, "missing", lambda: ["No veth."])
    assert ran("--hosts", "8") == (place.CANNOT, None)
    assert capsys.readouterr().err == "No veth.\n"
