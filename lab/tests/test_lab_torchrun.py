"""A job under torchrun: on which hosts its agents are started, and again when a host is lost."""

import asyncio

import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.workload.train import torchrun
from foliot_lab.workload.train.places import Place
from foliot_lab.workload.train.torchrun import Torchrun


class Agent:
    """A process that ends when it is asked to."""

    pid = 0
    returncode = None

    async def wait(self):
        """At once."""
        await asyncio.sleep(0)
        return 0

    def send_signal(self, number):
        """Takes no notice."""

    def terminate(self):
        """Likewise."""


@pytest.fixture
def started(monkeypatch):
    """What was started, as the words of each agent's command line."""
    found = []

    async def spawn(namespace, environment, words, log):
        await asyncio.sleep(0)
        found.append(words)
        return Agent()

    monkeypatch.setattr(torchrun, "spawn", spawn)
    monkeypatch.setattr(torchrun, "ended", lambda *_: None)
    return found


def option(words, name):
    """The value of an option."""
    return words[words.index(name) + 1]


def fronts(started):
    """The addresses of the agents."""
    return [option(words, "--local-addr") for words in started]


async def test_a_lost_host_is_replaced_by_one_that_stands_by(tmp_path, started):
    """All agents are started again, and meet at a host that is left. Without a spare, nothing can be done."""
    running = Torchrun(tmp_path, LabTime.starting_now(), "front-{}".format)
    places = [
        Place(f"node{host}", None, ("10.0.0.1",), local, host == 2) for host in range(3) for local in range(2)
    ]  # fmt: skip
    await running.start("some.job", places, lambda name: ["--record", name])
    assert fronts(started) == ["front-node0", "front-node1"]
    assert {option(words, "--nnodes") for words in started} == {"2"}
    assert {option(words, "--nproc-per-node") for words in started} == {"2"}
    assert {option(words, "--rdzv-endpoint") for words in started} == {"front-node0:29500"}
    assert {option(words, "--log-dir") for words in started} == {str(tmp_path / "torchrun")}
    assert [option(words, "--record") for words in started] == ["node0/rank{local}", "node1/rank{local}"]
    started.clear()
    running.lose_host("node2")
    running.lose_host("node0/probe")
    assert running._again is None
    running.lose_host("node0")
    await running._again
    assert fronts(started) == ["front-node1", "front-node2"]
    assert {option(words, "--rdzv-endpoint") for words in started} == {"front-node1:29500"}
    started.clear()
    running.lose_host("node1")
    await running._again
    assert started == []
    await running.stop()
