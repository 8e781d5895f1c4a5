"""A real agent on the real bus: it tells of workers and of errors of GPUs, and passes on an order over its restart."""

from __future__ import annotations

import os

import pytest
from speaking import Spoken, worker
from test_agent_fleet import Remediator, now_ns

from foliot_schemas import Command, RankChange, ReplaceRank
from foliot_schemas.subjects import COMMAND, GPU, WORKER

pytestmark = [pytest.mark.net, pytest.mark.nats]

ORDER = ReplaceRank(
    job="pretrain", generation=1, meet="10.0.0.1:29500", cause="dead",
    changes=(RankChange(rank=2, node="node0", process=7, to_node="node1", to_process=9),),
)  # fmt: skip


@pytest.mark.parametrize("fleet", ["off"], indirect=True)
async def test_workers_are_told_and_an_order_reaches_them(fleet, bus, tmp_path, monkeypatch):
    """The process connects to the agent's next run, and is told there what it had not read."""
    host, path, log, told = fleet.hosts[0], tmp_path / "ranks", tmp_path / "kmsg", {WORKER: [], GPU: []}
    os.mkfifo(log)
    monkeypatch.setenv("FOLIOT_AGENT__RANK_SOCKET", str(path))
    monkeypatch.setenv("FOLIOT_AGENT__KERNEL_LOG", str(log))

    async def hear(message, _subject):
        told[WORKER if hasattr(message, "workers") else GPU].append(message)

    for channel in told:
        await bus.subscribe(channel, hear, *(["", "node0"] if channel is WORKER else ["node0"]))
    remediator = Remediator(fleet, bus)
    await remediator.begin()
    await host.start()
    await host.ready()

    first = Spoken(path)
    first.say(worker(8, 3, "broken"))
    await fleet.until(lambda: told[WORKER], "the worker is told")
    assert [(each.process, each.alive) for each in told[WORKER][0].workers] == [(8, "running")]
    log.write_text("3,1,2,-;NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n")
    await fleet.until(lambda: told[GPU], "the error is told")
    assert (told[GPU][0].xid, told[GPU][0].device) == (79, "0000:65:00")

    command = Command.of(
        ORDER, id="c1", node="node0", cause="e1", issued_ns=now_ns(), deadline_ns=now_ns() + 10**13, lease_revision=1,
        fault="pretrain/rank2/dead-1",
    )  # fmt: skip
    bus.publish_kept(COMMAND, command, command.verb, "node0")
    await fleet.until(lambda: heard(first), "the worker is told the order")
    assert heard(first)[0]["rank"] == 3
    first.say(worker(8, 3, "forming", generation=1))
    assert (await remediator.outcome("node0", "c1")).status == "done"

    await host.stop()
    first.close()
    await host.start()
    await host.ready(2)
    second = Spoken(path)
    second.say(worker(8, 3, "broken"))
    await fleet.until(lambda: heard(second), "the worker is told again")
    assert heard(second)[0]["generation"] == 1
    second.close()


def heard(speaker):
    """All that a process was told."""
    speaker.heard = [*getattr(speaker, "heard", ()), *speaker.hear()]
    return speaker.heard
