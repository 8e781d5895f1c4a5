"""The bench of doing no harm: its rows, and what they come to."""

import asyncio
import json
import random
import sys
from types import SimpleNamespace

import msgspec
import pytest

from bench.quiet import __main__ as command
from bench.quiet import disturbances
from bench.quiet.rows import Row, SilenceRow, silences, summary
from foliot.node.addressing import describe
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_lab.services import deployment
from foliot_lab.simulate.disturbances import KINDS
from foliot_lab.simulate.fleet import Fleet
from foliot_lab.simulate.trials import Lives, retold, retold_silence


def _row(what, events=0, **more):
    return Row(
        what=what, where="cores", seed=1, idle_cpu=None, events_false=events, commands_false=0, moves_false=0, **more
    )


def _silence(moved_ms, what="hog-all"):
    return SilenceRow(
        what=what, where="cores", seed=1, idle_cpu=None, events_false=0, commands_false=0, moves_false=0,
        fault="path", detect_ms=100.0, moved_ms=moved_ms,
    )  # fmt: skip


def test_that_trials_are_counted_by_kind_and_all_together():
    """Each kind has a line, and all of a place have one."""
    table = summary([_row("job"), _row("incast", 3), _row("job", 1)])
    counted = {line["what"]: (line["trials"], line["events_false"]) for line in table}
    assert counted == {"job": (2, 1), "incast": (1, 3), "all": (3, 4)}


def test_that_missed_silences_are_not_left_out_of_percentiles():
    """One of four was missed: it is the p95 and the p99, which then have no number."""
    line = silences([_silence(None), _silence(10.0), _silence(20.0), _silence(30.0)])[0]
    assert line["moved_p50_ms"] == 30.0
    assert line["moved_p99_ms"] is None
    assert (line["moved_missed"], line["detect_missed"]) == (1, 0)


def test_that_the_bench_writes_what_it_found(tmp_path, monkeypatch, capsys):
    """Rows of the kinds asked for, with their seeds, and both tables."""
    file = tmp_path / "quiet.json"
    words = [
        "quiet",
        "--where",
        "cores",
        "--trials",
        "2",
        "--silences",
        "1",
        "--holes",
        "1",
        "--first",
        "7",
        "--only",
        "nothing",
        "--json",
        str(file),
    ]
    monkeypatch.setattr(sys, "argv", words)
    assert command.main() == 0
    written = json.loads(file.read_text())
    assert [(row["what"], row["where"], row["seed"]) for row in written["rows"]] == [
        ("nothing", "cores", 7),
        ("nothing", "cores", 8),
    ]
    assert written["silences"][0]["moved_ms"] is not None
    assert written["holes"][0]["moved_ms"] > written["silences"][0]["moved_ms"]
    assert written["holes_summary"][-1]["trials"] == 1
    assert len(file.read_text().splitlines()) < 150
    assert written["summary"][-1]["trials"] == 2
    assert "nothing" in capsys.readouterr().out


def test_that_written_rows_are_read_as_they_were(tmp_path, monkeypatch):
    """What is as it should be goes unwritten, and is there when pieces are put together; a missed silence stays so."""
    rows = [_row("job"), _row("job", 2, told=("a b",))], [_silence(None)]
    taken = command.Taken(rows=rows[0], silent=rows[1])
    document = json.loads(
        json.dumps({"rows": msgspec.to_builtins(taken.rows), "silences": msgspec.to_builtins(taken.silent)})
    )
    assert "events_false" not in document["rows"][0]
    assert document["silences"][0]["moved_ms"] is None
    merged = command._merged([document])
    assert (merged.rows, merged.silent, merged.holes) == (taken.rows, taken.silent, [])


class _World:
    """Notes what is done to it."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *where: self.done.append((name, *where))


@pytest.fixture
def made_up_lab():
    """The names of a lab of two hosts, and a world that notes what is done to it."""
    fabric = plan(FabricSpec(hosts=2, spines=1), 7)
    processes = [*fabric.central, *(f"{host}/{name}" for host in fabric.hosts for name in ("probe", "agent"))]
    nodes = [describe(deployment.node_settings(fabric, host)) for host in fabric.hosts]
    return SimpleNamespace(
        plan=fabric, world=_World(), supervisor=SimpleNamespace(names=lambda: processes), nodes=nodes,
        scenario=SimpleNamespace(fabric=FabricSpec(hosts=2, spines=1)), fabric=SimpleNamespace(plan=fabric),
    )  # fmt: skip


@pytest.mark.parametrize("kind", disturbances.KINDS)
def test_that_the_same_seed_draws_the_same_disturbance(made_up_lab, kind):
    """In words and times; and the lab's kinds are the simulated fleet's."""
    one, other = (
        [(timed.at_s, timed.for_s, timed.words) for timed in disturbances.draw(kind, made_up_lab, random.Random(3))]
        for _ in "ab"
    )
    assert one == other
    assert bool(one) == (kind != "nothing")
    assert kind in KINDS


def test_that_what_is_begun_is_ended(made_up_lab):
    """A halt is over after its time, and also if the bench is interrupted in the middle of it."""
    timed = disturbances.draw("halt-detector", made_up_lab, random.Random(3))[0]

    async def interrupted():
        task = asyncio.create_task(disturbances.do([timed._replace(at_s=0.0, for_s=3_600.0)]))
        for _ in range(3):  # it begins, sleeps for no time, and injects
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(disturbances.do([timed._replace(at_s=0.0, for_s=0.0)]))
    assert made_up_lab.world.done == [("stop", "detector"), ("resume", "detector")]
    made_up_lab.world.done.clear()
    asyncio.run(interrupted())
    assert made_up_lab.world.done == [("stop", "detector"), ("resume", "detector")]


def test_that_traffic_between_hosts_that_lost_the_other_rail_is_not_expected_to_move():
    """With rail1 lost at either end, what rail0 drops has nowhere to go."""
    assert disturbances.reaches("node0.rail0", {"node2.rail0"}, "node1")
    assert not disturbances.reaches("node0.rail0", {"node1.rail1"}, "node1")
    assert not disturbances.reaches("node0.rail0", {"node0.rail1"}, "node1")


def test_that_a_false_event_can_be_retold(lives_of_a_blind_node):
    """Of each, what the detector had been told of its path by both ends, in order."""
    lines = list(retold(lives_of_a_blind_node, 1, "nothing"))
    assert lines[0].endswith("}")
    assert "path" in lines[0]
    assert any("fell silent" in line for line in lines)
    assert any("sent" in line for line in lines)


@pytest.fixture
def lives_of_a_blind_node():
    """Fleets in which a path is dead of which no trial knows."""

    def make(seed, synchronised):
        fleet = Fleet(seed, synchronised=synchronised)
        fleet.fabric.dead[min(fleet.carried())] = fleet.loop.now_ns
        return fleet

    return Lives(make)


def test_that_a_silence_can_be_retold():
    """With what was said, commanded and moved because of it."""
    lines = list(retold_silence(Lives(), 1, "nothing"))
    assert any("fell silent" in line for line in lines)
    assert any(line.endswith(" silent") for line in lines)
    assert any("reroute" in line for line in lines)
    assert any("moved" in line for line in lines)
