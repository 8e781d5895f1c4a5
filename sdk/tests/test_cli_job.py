"""``foliot job``: what it registers, for how long, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from foliot import cli
from foliot.cli import job
from foliot.cli.job import JobError, Registration, Wish, admitted, nics_of
from foliot_schemas import Job, Nic, Node
from foliot_schemas.subjects import INVENTORY, JOBS
from patient_bus import connected


def node(index, rails=("rail0", "rail1")):
    """A node."""
    return Node(
        name=f"node{index}",
        nics=tuple(
            Nic(
                name=f"node{index}.{rail}", rail=rail, device="eth0", address=f"10.0.{number}.{index}",
                clock=f"node{index}", service_address=f"10.200.{number}.{index}", path_addresses=(), entropies=(),
            )
            for number, rail in enumerate(rails)
        ),
    )  # fmt: skip


FLEET = {each.name: each for each in (node(0), node(1), node(2, ("rail0",)))}


@pytest.mark.parametrize(
    ("wish", "nics"),
    [
        (Wish("a", ("node1", "node0")), ("node0.rail0", "node0.rail1", "node1.rail0", "node1.rail1")),
        (Wish("a", ("node0", "node2"), ("rail1",)), ("node0.rail1",)),
        (Wish("a", addresses=("10.200.1.1", "10.200.0.2")), ("node1.rail1", "node2.rail0")),
    ],
)
def test_a_job_has_the_nics_of_its_nodes_and_rails_or_of_its_addresses(wish, nics):
    """By name."""
    assert nics_of(wish, FLEET) == nics


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish("a", ("node0", "node9")), "the fleet has no node node9"),
        (Wish("a", ("node0",), ("rail7",)), "none of these nodes has a NIC on rail7"),
        (Wish("a", addresses=("10.200.0.9",)), "10.200.0.9 is no service address of the fleet"),
    ],
)
def test_addresses_of_others_are_refused(wish, why):
    """By what the fleet does not have."""
    with pytest.raises(JobError, match=why):
        nics_of(wish, FLEET)


def test_a_job_is_admitted_beside_others():
    """Not with a NIC of another, nor under a name that is taken; a renewal is as old as what it renews."""
    present = {"b": Job(name="b", nics=("node1.rail0",), since_ns=5)}
    assert admitted(Job(name="a", nics=("node0.rail0",), since_ns=7), present).since_ns == 7
    assert admitted(Job(name="b", nics=("node1.rail0",), since_ns=7), present).since_ns == 5
    for name, nic, why in (
        ("a", "node1.rail0", "node1.rail0 is of the job b"),
        ("b", "node0.rail0", "there is a job b with other NICs"),
        ("found:x", "node0.rail0", "nobody has registered"),
    ):
        with pytest.raises(JobError, match=why):
            admitted(Job(name=name, nics=(nic,), since_ns=1), present)


@pytest.mark.parametrize("words", [["a"], ["--for", "2h", "a", "--", "true"]])
def test_it_lasts_for_a_time_or_for_a_command(words, capsys):
    """One of the two is needed."""
    assert cli.main(["job", "--nodes", "node0", *words]) == 2
    assert "give either --for AGE or -- COMMAND" in capsys.readouterr().err


def test_the_command_runs_also_where_no_bus_answers(kept_port, capsys):
    """Nothing of Foliot's keeps a job from running; its status is the command's."""
    code = "import os, sys; sys.exit(7 if os.environ['FOLIOT_JOB'] == 'a' else 1)"
    bus = f"nats://127.0.0.1:{kept_port}"
    assert cli.main(["job", "--nodes", "node0", "--bus", bus, "a", "--", sys.executable, "-c", code]) == 7
    assert cli.main(["job", "--nodes", "node0", "--bus", bus, "a", "--", "no-such-command"]) == 127
    assert "there is no command no-such-command" in capsys.readouterr().err


@pytest.fixture
async def fleet(bus_settings):
    """A bus with an inventory."""
    async with connected(bus_settings) as bus:
        for each in FLEET.values():
            await bus.put(INVENTORY, each.name, each)
        yield bus


@pytest.mark.nats
async def test_a_job_is_registered_while_its_command_runs(fleet, bus_settings, tmp_path, until):
    """It is there when the command has begun, is written again, and is gone after it."""
    told = []

    async def hear(name, message):
        told.append((name, message))

    await fleet.watch(JOBS, hear)
    stop = tmp_path / "stop"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.02)"
    registration = Registration(bus_settings, Wish("a", ("node0",), priority=5))
    running = asyncio.ensure_future(job._beside(registration, [sys.executable, "-c", code], "a"))
    await until(lambda: told)
    name, said = told[0]
    assert (name, said.nics, said.priority) == ("a", ("node0.rail0", "node0.rail1"), 5)
    await registration.write()
    await until(lambda: len(told) >= 2)
    assert told[1] == ("a", said), "a renewal says the same"
    stop.touch()
    assert await running == 0
    await until(lambda: told[-1] == ("a", None))


@pytest.mark.nats
async def test_a_registration_says_once_what_forbids_it(fleet, bus_settings, capsys, monkeypatch, until):
    """And goes on trying: the other job ends some time."""
    monkeypatch.setattr(job, "_RENEWED_EACH_S", 0.01)
    await Registration(bus_settings, Wish("b", ("node0",), ("rail1",))).write()
    registration = Registration(bus_settings, Wish("a", ("node0",)))
    keeping = asyncio.ensure_future(registration.keep())
    await until(lambda: registration._said)
    await (await fleet.store(JOBS)).delete("b")

    async def is_there():
        return await fleet.get(JOBS, "a") is not None

    while not await is_there():  # noqa: ASYNC110 - it looks at the server, which sets no event
        await asyncio.sleep(0.01)
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    assert capsys.readouterr().err == "foliot job: the job is not registered: node0.rail1 is of the job b\n"


@pytest.mark.nats
async def test_a_job_for_a_while_is_registered_or_refused_at_once(fleet, bus_settings, capsys, until):
    """It is taken out at its end; one that the fleet cannot have is a status and a sentence."""
    told = []

    async def hear(_, message):
        told.append(message and message.nics)

    await fleet.watch(JOBS, hear)

    async def run(node):
        words = ["job", "--nodes", node, "--rails", "rail0", "--for", "1s", "--bus", bus_settings.url, "a"]
        return await asyncio.to_thread(cli.main, words)

    assert await run("node9") == 2
    assert "foliot job: the fleet has no node node9" in capsys.readouterr().err
    assert await run("node0") == 0
    await until(lambda: told and told[-1] is None)
    assert told[0] == ("node0.rail0",)


@pytest.mark.nats
async def test_a_signal_that_ends_the_wrapper_ends_the_command(fleet, bus_settings, until):
    """A scheduler ends a job so; the wrapper waits for it, and says which signal it was."""
    told = []

    async def hear(_, message):
        told.append(message)

    await fleet.watch(JOBS, hear)
    registration = Registration(bus_settings, Wish("a", ("node0",)))
    running = asyncio.ensure_future(
        job._beside(registration, [sys.executable, "-c", "import time; time.sleep(3600)"], "a")
    )
    await until(lambda: told)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 128 + signal.SIGTERM
    await until(lambda: told[-1] is None)
