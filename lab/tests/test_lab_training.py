"""Real PyTorch on two hosts and two wires, without Foliot: the job and the bandwidth test."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest

from foliot_lab.fabric.namespaces import inside
from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.services.forker import Forker
from foliot_lab.workload.train import torchrun
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.places import Place
from foliot_lab.workload.train.ranks import IMPORTED, Ranks, missing
from foliot_lab.workload.train.torchrun import Torchrun
from patience import patience

pytestmark = [pytest.mark.net, pytest.mark.skipif(bool(missing()), reason=missing())]

DEADLINE_S = patience(120.0)
ADDRESSES = {"node0": "10.0.0.1", "node1": "10.0.0.2"}
SMALL = ("--gradient-bytes", "2000000", "--batch", "2")


class Hosts:
    """The wires' two hosts, with a device of Gloo's on each wire."""

    def __init__(self, wires, folder, forker):
        self.places = [
            Place(name, namespace, (f"10.0.0.{number}", f"10.1.0.{number}"))
            for number, (name, namespace) in enumerate(wires.namespaces.items(), start=1)
        ]
        self.folder = folder
        self.forker = forker

    async def start(self, what, *more, program="job", alone=False):
        """The ranks of a program, started; a folder of its own for what they write.

        Parameters:
            alone: another process imports what they need, with chance of its own.
        """
        ranks = Ranks(
            self.folder / what, LabTime.starting_now(), imported=IMPORTED, forker=None if alone else self.forker
        )
        own = "--record" if program == "job" else "--json"
        await ranks.start(
            f"foliot_lab.workload.train.{program}",
            self.places,
            "10.0.0.1",
            lambda node: [own, str(ranks.folder / f"{node}.jsonl"), *more],
        )
        return ranks

    async def through(self, what, *more, program="job", alone=False):
        """The folder of a program that has ended, well."""
        ranks = await self.start(what, *more, program=program, alone=alone)
        try:
            await ranks.finished()
        finally:
            await ranks.stop()
        assert [ended.reason for ended in ranks.ended if ended.status] == []
        return ranks.folder

    def sent(self, place):
        """Bytes out of each of a host's wires, see proc_net(5)."""
        # A calling thread's own.
        with inside(place.namespace), open("/proc/thread-self/net/dev") as file:  # noqa: PTH123
            lines = [line.replace(":", " ").split() for line in file if line.lstrip().startswith("fo")]
        return {words[0]: int(words[9]) for words in lines}


@pytest.fixture(scope="module")
def forker():
    """Imports PyTorch for the ranks and agents of all tests."""
    made = Forker((*IMPORTED, *torchrun.IMPORTED), os.environ)
    yield made
    made.close()


@pytest.fixture
def hosts(wires, tmp_path, forker):
    """Two hosts that are good to each other."""
    return Hosts(wires, tmp_path, forker)


def losses(folder):
    """Each rank's, step by step."""
    return {
        file.stem: [json.loads(line)["loss"] for line in file.read_text().splitlines()]
        for file in folder.glob("*.jsonl")
    }


async def test_two_runs_of_a_seed_give_the_same_losses_to_the_bit(hosts):
    """And another seed others; the model learns, and every rank has data of its own."""
    first = losses(await hosts.through("first", *SMALL, "--steps", "40"))
    again = losses(await hosts.through("again", *SMALL, "--steps", "40", alone=True))
    other = losses(await hosts.through("other", *SMALL, "--steps", "5", "--seed", "8"))
    assert first == again
    assert [len(values) for values in first.values()] == [40, 40]
    assert first["node0"] != first["node1"]
    assert first["node0"][:5] != other["node0"]
    for values in first.values():
        assert sum(values[-5:]) / 5 < values[0] - 0.5


async def test_gradients_go_over_both_wires(hosts):
    """Half of them each: with two ranks, a ring sends every byte once."""
    before = hosts.sent(hosts.places[0])
    await hosts.through("job", *SMALL, "--steps", "10")
    after = hosts.sent(hosts.places[0])
    for wire in ("fo0e0", "fo1e0"):
        assert 0.4 * 20_000_000 < after[wire] - before[wire] < 0.8 * 20_000_000, (before, after)


async def test_a_record_has_every_step_as_it_ends(hosts, until):
    """So that a job which is killed has told all it did; its other ranks die of the closed connection, and say so."""
    ranks = await hosts.start("job", *SMALL)
    try:
        file = ranks.folder / "node1.jsonl"
        await until(lambda: file.exists() and file.read_text().count("\n") > 3, DEADLINE_S)
        ranks.signal("node1", signal.SIGKILL)
        await ranks.finished()
        steps = [json.loads(line) for line in file.read_text().splitlines()]
    finally:
        await ranks.stop()
    assert [step["step"] for step in steps] == list(range(len(steps)))
    for one, following in itertools.pairwise(steps):
        assert one["began_ns"] < one["ended_ns"] == following["began_ns"]
        assert 0 < following["comm_ns"] < following["ended_ns"] - following["began_ns"]
    reasons = {ended.node: ended.reason for ended in ranks.ended}
    assert reasons["node1"] == "killed by SIGKILL"
    assert "Connection closed by peer" in reasons["node0"] or "Connection reset by peer" in reasons["node0"], reasons


async def test_torchrun_starts_a_job_again_from_its_checkpoint(hosts, wires, until):
    """On the same hosts, when a rank is lost. What it does again gives the same losses to the bit."""
    folder = hosts.folder / "again"
    running = Torchrun(folder, LabTime.starting_now(), ADDRESSES.get, hosts.forker)

    def arguments(name):
        return ["--record", str(folder / f"{name}.jsonl"), "--lever", str(running.lever(name)), *lines]

    lines = ["--checkpoints", str(folder), "--checkpoint-steps", "10", "--steps", "20", *SMALL]
    try:
        running.lever("node1").parent.mkdir(parents=True)
        running.lever("node1").write_text("data-slow 300")  # three seconds from one checkpoint to the next
        await running.start("foliot_lab.workload.train.job", hosts.places, arguments)
        await until(lambda: max(steps_of(folder / "node1.jsonl"), default=0) >= 11, DEADLINE_S)
        first = running.pid("node1/rank")
        running.signal("node1/rank", signal.SIGKILL)
        running.lever("node1").unlink()
        await until(lambda: len(running.ended) == 2, DEADLINE_S)
    finally:
        await running.stop()
    assert first
    assert [ended.status for ended in running.ended] == [0, 0], running.ended
    done = steps_of(folder / "node0.jsonl")
    assert done[-1] == 19
    assert 10 in done[done.index(10) + 1 :], "the step after the checkpoint was done again"
    assert 9 not in done[10:]
    whole = merge({name: read_lines(folder / f"{name}.jsonl", 0) for name in ADDRESSES}, 2)
    assert len(whole.again_ns) > 0
    assert not list(folder.glob("*.new"))
    undisturbed = await hosts.through("undisturbed", *SMALL, "--steps", "20")
    other = merge({name: read_lines(undisturbed / f"{name}.jsonl", 0) for name in ADDRESSES}, 2)
    assert whole.loss_sha256(None) == other.loss_sha256(None)


def steps_of(file):
    """The numbers of the steps that a rank has ended, in its order."""
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    return [line["step"] for line in lines if "ended_ns" in line]


async def test_the_bandwidth_test_sums_rightly_and_says_how_fast(hosts):
    """The sums of every size, and busbw as nccl-tests defines it: with two ranks the same as algbw."""
    sizes = ("--least", "4000", "--most", "64000")
    folder = await hosts.through("allreduce", *sizes, program="allreduce")
    rows = json.loads((folder / "node0.jsonl").read_text())
    assert [row["bytes"] for row in rows] == [4000, 16000, 64000]
    assert [row["wrong"] for row in rows] == [0, 0, 0]
    for row in rows:
        assert row["busbw_mb_s"] == row["algbw_mb_s"] == pytest.approx(row["bytes"] * 1e-3 / row["time_ms"], rel=0.05)
