"""Where benches of a lab run, and where they do not begin."""

from __future__ import annotations

import contextlib
import sys

import pytest

import bench.clock_scale.__main__ as clock_scale
import bench.studies.clock_peers.__main__ as clock_peers
import bench.studies.failover_peers.__main__ as failover_peers
from bench import fleet, place, probe_cost
from bench.quiet import __main__ as quiet
from foliot_lab.demo import demo
from foliot_lab.measure import budget
from foliot_lab.measure.budget import Now
from foliot_lab.measure.quota import QuotaError
from foliot_lab.services.readiness import NotReadyError


@pytest.fixture
def slow(monkeypatch):
    """A tenth as fast as the costs' machine, with all that benches need of a kernel, which none of them may touch."""
    now = Now(idle_cpu=1.0, stolen_cpu=0.0, fixed_work_s=2.13, processors=2)
    monkeypatch.setattr(budget.Now, "look", lambda _: now)
    monkeypatch.setattr(place.capabilities, "is_privileged", lambda: True)
    monkeypatch.setattr(place.capabilities, "missing", list)
    monkeypatch.setattr(place.capabilities, "enter", lambda: pytest.fail("it went on"))


@pytest.mark.usefixtures("slow")
def test_a_bench_does_not_begin_where_its_lab_is_not_carried(capsys):
    """It says what is lacking and ends with the status for what cannot be done, before it has made anything."""
    assert place.enter(carries=demo(8)) is False
    said = capsys.readouterr().err
    assert said.startswith(
        "A fabric of 8 hosts on 2 rails would keep 10 of this machine's 2 processors busy, and 5% must be left"
    )
    assert place.CANNOT == 77


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("bench", "name", "arguments"),
    [
        (clock_peers, "Foliot, chrony and ptp4l on 16 hosts", []),
        (clock_peers, "Foliot, chrony and ptp4l on 2 hosts", ["--topologies", "path"]),
        (failover_peers, "A fabric of 4 hosts on 2 rails", []),
        (probe_cost, "A probe with 8 NICs and 10 peers", []),
        (fleet, "A storm of 300 events a second, and 4 of 4 pairs of services", ["--shards", "4"]),
        (fleet, "A storm of 300 events a second, and 1 of 4 pairs of services", ["--shards", "4", "--only", "0"]),
        (clock_scale, "A generator, and one stage of sync at a time", []),
    ],
)
def test_benches_without_a_lab_do_not_begin_either(monkeypatch, capsys, bench, name, arguments):
    """Each says what it would take."""
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    monkeypatch.setattr(clock_peers, "_find", lambda _: (None, []))
    for module in (clock_peers, failover_peers, probe_cost, fleet, clock_scale):
        monkeypatch.setattr(module, "Document", lambda *_, **__: pytest.fail("it went on"))
    assert bench.main() == place.CANNOT
    assert capsys.readouterr().err.startswith(f"{name} would keep ")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("bench", [probe_cost, fleet])
def test_who_wants_to_see_the_limit_begins_anyway(monkeypatch, bench):
    """Where the machine cannot carry it."""
    monkeypatch.setattr(sys, "argv", ["bench", "--anyway"])
    for where, what in ((place.capabilities, "enter"), (bench, "Document")):
        monkeypatch.setattr(where, what, lambda *_, **__: sys.exit(3))
    with pytest.raises(SystemExit, match="3"):
        bench.main()


def test_a_bench_is_kept_to_its_share_before_it_is_asked_what_the_machine_has(monkeypatch):
    """And what it asks is whether the share is enough; the quota is there until the program ends."""
    asked, quota = [], []

    @contextlib.contextmanager
    def limited(share):
        quota.append(share)
        yield
        quota.remove(share)

    monkeypatch.setattr(place, "_left_at_end", contextlib.ExitStack())
    monkeypatch.setattr(place, "limited", limited)
    monkeypatch.setattr(place, "affordable", lambda _, speed: asked.append((speed, list(quota))))
    monkeypatch.setattr(place.capabilities, "is_privileged", lambda: True)
    monkeypatch.setattr(place.capabilities, "missing", list)
    monkeypatch.setattr(place.capabilities, "enter", lambda: None)
    monkeypatch.setattr(place.structlog, "configure", lambda **_: None)
    assert place.enter(carries=demo(2), speed=0.5)
    assert asked == [(0.5, [0.5])]
    assert quota == [0.5]
    place._left_at_end.close()
    assert quota == []


def test_a_bench_without_the_right_to_a_quota_does_not_begin(monkeypatch, capsys):
    """It says why, with the status for what cannot be done."""

    def limited(share):
        raise QuotaError(f"No right to {share}.")

    monkeypatch.setattr(place, "limited", limited)
    monkeypatch.setattr(place.capabilities, "is_privileged", lambda: True)
    monkeypatch.setattr(place.capabilities, "missing", list)
    monkeypatch.setattr(place.capabilities, "enter", lambda: pytest.fail("it went on"))
    assert place.enter(speed=0.5) is False
    assert capsys.readouterr().err == "No right to 0.5.\n"


def test_virtual_time_has_no_speed(monkeypatch, capsys):
    """Who asks for half of the machine and for no lab is told that this is nothing."""
    monkeypatch.setattr(sys, "argv", ["bench.quiet", "--where", "cores", "--speed", "0.5"])
    with pytest.raises(SystemExit):
        quiet.main()
    assert "--speed is of the lab alone" in capsys.readouterr().err


def test_a_lab_that_never_gets_ready_has_begun(monkeypatch, capsys):
    """So it fails, and is not left out as on a machine that cannot carry it."""

    async def never(*_):
        raise NotReadyError("no path was heard")

    monkeypatch.setattr(sys, "argv", ["bench.quiet", "--where", "lab"])
    monkeypatch.setattr(place, "enter", lambda **_: True)
    monkeypatch.setattr(quiet, "_in_lab", never)
    assert quiet.main() == 1
    assert capsys.readouterr().err == "no path was heard\n"
