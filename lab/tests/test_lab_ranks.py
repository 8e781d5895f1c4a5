"""The processes of a job: each on its host, reached by what befalls the host, and started again as spares at most."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from foliot_lab.faults.actions import prepare
from foliot_lab.faults.world import World
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.scenario.spec import FabricSpec, FaultSpec
from foliot_lab.workload.train.places import Place
from foliot_lab.workload.train.ranks import Ranks, last_words

CLOSED = "RuntimeError: Connection closed by peer [10.200.0.4]:41000"


def test_the_last_words_of_a_log(tmp_path):
    """The last words of a traceback are its exception, up to a limit."""
    log = tmp_path / "log"
    log.write_text("x" * 10_000 + f"\nTraceback\n  File\n{CLOSED}\n\n")
    assert last_words(log) == CLOSED
    log.write_text("y" * 1000)
    assert last_words(log) == "y" * 200 + "..."
    log.write_text("")
    assert last_words(log) == "it said nothing"


RANK = """
import os, sys, time
print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"], *sys.argv[1:], flush=True)
if "--fail" in sys.argv:
    raise RuntimeError("no such network")
time.sleep(1000)
"""


@pytest.mark.net
async def test_ranks_run_on_their_hosts_and_are_killed_and_halted_with_them(wires, tmp_path, monkeypatch, until):
    """Faults of all of a host's processes reach its rank, a fault of the probe alone does not; nothing restarts it."""
    (tmp_path / "some_rank.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    ranks = Ranks(tmp_path / "train", LabTime.starting_now())
    places = [
        Place(name, wires.namespaces[name], (f"10.0.0.{number}", f"10.1.0.{number}"))
        for number, name in enumerate(wires.namespaces, start=1)
    ]
    world = World(NoServices(), None, None, None, None)
    world.job = ranks
    try:
        await ranks.start("some_rank", places, "10.0.0.1", lambda node: ["--of", node])
        # Unbuffered, a line comes in pieces.
        await until(lambda: all(ranks.log(place.node).read_text().endswith("\n") for place in places))
        assert ranks.log("node1").read_text() == "1 2 10.0.0.1 --address 10.0.0.2 --address 10.1.0.2 --of node1\n"
        pid = ranks._processes["node1"].pid
        assert network(pid) == os.fstat(wires.namespaces["node1"].fd).st_ino

        world.stop("node1")
        await until(lambda: state(pid) == "T")
        world.resume("node1")
        await until(lambda: state(pid) == "S")
        world.kill("node1/probe")
        world.terminate("node1")
        world.kill("node1")
        await until(lambda: ranks.ended)
        world.restart("node1")
        assert [(ended.node, ended.status, ended.reason) for ended in ranks.ended] == [
            ("node1", -signal.SIGKILL, "killed by SIGKILL")
        ]
    finally:
        await ranks.stop()
    assert len(ranks.ended) == 1


@pytest.mark.net
async def test_faults_of_a_rank_reach_it_alone(wires, tmp_path, monkeypatch, until):
    """It is halted for a share of the time, stopped, and does otherwise; then all of that is over."""
    (tmp_path / "some_rank.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    ranks = Ranks(tmp_path / "train", LabTime.starting_now())
    world = World(NoServices(), None, None, None, None)
    world.job = ranks
    place = Place("node1", wires.namespaces["node1"], ())

    def action(kind, **more):
        fault = FaultSpec(at_s=0.0, kind=kind, where="node1/rank", **more)
        return prepare(fault, FabricSpec(hosts=4, rails=1), None, world)

    throttled = action("throttle", share=0.5)
    throttled.inject()  # there is no such rank yet
    throttled.heal()
    try:
        await ranks.start("some_rank", [place], "10.0.0.1", lambda _: [])
        pid = ranks.pid("node1")
        await until(lambda: state(pid) == "S")
        throttled.inject()
        seen = set()
        await until(lambda: seen.add(state(pid)) or {"S", "T"} <= seen)
        throttled.heal()
        await until(lambda: state(pid) == "S")
        stopped = action("stop")
        stopped.inject()
        await until(lambda: state(pid) == "T")
        stopped.heal()
        await until(lambda: state(pid) == "S")
        late = action("data-slow", ms=40.0)
        late.inject()
        assert ranks.lever("node1").read_text() == "data-slow 40"
        late.heal()
        assert not ranks.lever("node1").exists()
        action("kill").inject()
        await until(lambda: ranks.ended)
    finally:
        await ranks.stop()


@pytest.mark.net
async def test_a_rank_that_fails_says_why(wires, tmp_path, monkeypatch):
    """By the last line of its log."""
    (tmp_path / "some_rank.py").write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    ranks = Ranks(tmp_path / "train", LabTime.starting_now())
    try:
        place = Place("node0", wires.namespaces["node0"], ("10.0.0.1",))
        await ranks.start("some_rank", [place], "10.0.0.1", lambda _: ["--fail"])
        await ranks.finished()
    finally:
        await ranks.stop()
    assert [(ended.status, ended.reason) for ended in ranks.ended] == [(1, "RuntimeError: no such network")]


SPARE = """
import os, sys, time
print(os.environ.get("RANK", "spare"), os.environ.get("FOLIOT_SPARE", ""), flush=True)
time.sleep(1000)
"""


@pytest.mark.net
@pytest.mark.parametrize("returns", [True, False])
async def test_a_process_that_lost_its_rank_is_a_spare_once_its_fault_is_over(
    wires, tmp_path, monkeypatch, until, returns
):
    """A killed one is started again, and its log goes on. One that lives is not; nor is any where no spare is of use."""
    (tmp_path / "some_rank.py").write_text(SPARE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    ranks = Ranks(tmp_path / "train", LabTime.starting_now(), returns=returns)
    world = World(NoServices(), None, None, None, None)
    world.job = ranks

    def action(kind, where):
        fault = FaultSpec(at_s=0.0, kind=kind, where=where, for_s=1.0)
        return prepare(fault, FabricSpec(hosts=4, rails=1), None, world)

    try:
        await ranks.start("some_rank", [Place("node1", wires.namespaces["node1"], ())], "10.0.0.1", lambda _: [])
        first = ranks.pid("node1")
        await until(lambda: ranks.log("node1").read_text() == "0 \n")
        halt = action("stop", "node1/rank")
        halt.inject()
        await until(lambda: state(first) == "T")
        halt.heal()
        await until(lambda: state(first) == "S")
        kill = action("kill", "node1/rank")
        kill.inject()
        await until(lambda: ranks.ended)
        kill.heal()
        kill.heal()
        if returns:
            await until(lambda: ranks.log("node1").read_text() == "0 \nspare 1\n")
        assert bool(ranks.pid("node1")) is returns
    finally:
        await ranks.stop()
    assert [ended.status for ended in ranks.ended] == [-signal.SIGKILL]


class NoServices:
    """A supervisor with nothing to supervise."""

    def names(self):
        """None."""
        return []

    def pid(self, name):
        """None."""
        return 0

    def kill(self, name):
        """Kills nothing."""

    def release(self, name):
        """Releases nothing."""


def state(pid):
    """Of a process, see proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def network(pid):
    """The network namespace of a process, by its inode."""
    return Path(f"/proc/{pid}/ns/net").stat().st_ino
