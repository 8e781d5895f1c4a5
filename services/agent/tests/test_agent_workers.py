"""Workers of replaceable jobs: what is told of them and when, what their processes do, and who is not believed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
import pytest
from speaking import NOW_NS, SPEAKER, S, hearing, until, worker, worker_said
from test_agent_ranks import packet

from foliot_agent.core import job_workers
from foliot_agent.core.job_workers import JobWorkers
from foliot_agent.core.worker_report import read
from foliot_agent.ranks import rank_socket
from foliot_agent.ranks.peer_process import PeerProcess
from foliot_schemas.codec import decode, encode
from foliot_schemas.worker import MOST_WORKERS_OF_A_NODE, WorkerBatch

EPOCH_NS = 10 * S


@pytest.fixture
def workers():
    """Those of a node."""
    return JobWorkers("node0")


def told(workers, at_ns):
    """What is due, by process."""
    return {each.process: each for batch in workers.batches(at_ns, 100) for each in batch.workers}


# -- in virtual time ---------------------------------------------------------------------------------------------------


def test_all_that_a_worker_says_is_told_in_reference_time(workers):
    """Times are dated once: they stay as the node's clock is corrected."""
    said = worker_said(
        rank=2, stage="copying", generation=3, step=40, meet="10.0.0.1:29500", reason="why", left_ns=1, formed_ns=2,
        state_bytes=9, state_from=1, lost_steps=1,
    )  # fmt: skip
    workers.take(said, EPOCH_NS, 20 * S)
    workers.take(msgspec.structs.replace(said, copied_ns=3), EPOCH_NS + 500, 21 * S)
    (batch,) = workers.batches(22 * S, 100)
    (state,) = batch.workers

    assert (batch.job, batch.node, batch.size, batch.at_ns, batch.bound_ns) == ("pretrain", "node0", 4, 22 * S, 100)
    assert (state.process, state.rank, state.generation, state.step, state.stage) == (7, 2, 3, 40, "copying")
    assert (state.alive, state.meet, state.reason) == ("running", "10.0.0.1:29500", "why")
    assert (state.since_ns, state.heard_ns) == (20 * S, 21 * S)
    assert (state.left_ns, state.formed_ns) == (EPOCH_NS + 1, EPOCH_NS + 2)
    assert (state.copied_ns, state.first_step_ns) == (EPOCH_NS + 503, 0)
    assert (state.state_bytes, state.state_from, state.lost_steps) == (9, 1, 1)
    batch.check()


@pytest.mark.parametrize(
    ("change", "is_news"),
    [({"stage": "broken"}, True), ({"generation": 1}, True), ({"rank": 1}, True), ({"step": 9}, False)],
)
def test_news_is_due_at_once_and_all_else_each_second(workers, change, is_news):
    """A step is no news."""
    said = worker_said()
    workers.take(said, 0, S)
    assert list(told(workers, S)) == [7]
    assert told(workers, S + 1) == {}
    workers.take(msgspec.structs.replace(said, **change), 0, S + 2)
    assert bool(told(workers, S + 2)) == is_news
    assert told(workers, S + 3) == {}
    assert list(told(workers, 2 * S + 2)) == [7]


def test_a_process_that_stops_goes_on_and_ends_is_news(workers):
    """Each time, once."""
    seen = workers.take(worker_said(), 0, S)
    told(workers, S)
    states = []
    for moment, change in enumerate(
        (
            lambda: seen.runs(is_stopped=True),
            lambda: seen.runs(is_stopped=True),
            lambda: seen.runs(is_stopped=False),
            lambda: seen.ended(S + 3),
            lambda: seen.ended(S + 4),
        )
    ):
        change()
        states.append([each.alive for each in told(workers, S + moment).values()])
    assert states == [["stopped"], [], ["running"], ["gone"], []]


@pytest.mark.parametrize(("stage", "alive"), [("over", "ended"), ("training", "gone"), ("failed", "gone")])
def test_one_that_ends_with_its_work_done_is_no_loss(workers, stage, alive):
    """It is told for a minute all the same."""
    workers.take(worker_said(stage=stage), 0, S).ended(2 * S)
    assert told(workers, 2 * S)[7].alive == alive
    assert told(workers, 61 * S)[7].alive == alive
    assert told(workers, 62 * S) == {}


def test_one_that_was_believed_gone_and_speaks_lives(workers):
    """As one in a container whose process the agent cannot see, when it connects again."""
    workers.take(worker_said(), 0, S).ended(2 * S)
    told(workers, 2 * S)
    workers.take(worker_said(), 0, 3 * S)
    assert told(workers, 3 * S)[7].alive == "running"


def test_the_later_of_two_that_claim_a_rank_in_a_generation_is_refused(workers):
    """But spares are many, a generation's ranks are its own, and a dead one claims nothing."""
    first = workers.take(worker_said(7, 2), 0, S)
    with pytest.raises(ValueError, match="rank 2 of pretrain is another process in generation 0"):
        workers.take(worker_said(8, 2), 0, S)
    for process in (8, 9):
        workers.take(worker_said(process, -1, "spare"), 0, S)
    workers.take(worker_said(8, 2, "forming", generation=1), 0, S)
    with pytest.raises(ValueError, match="in generation 1"):
        workers.take(worker_said(7, 2, "forming", generation=1), 0, S)
    first.ended(S)
    workers.take(worker_said(10, 2), 0, S)
    states = told(workers, S)

    assert {process: (each.rank, each.generation) for process, each in states.items()} == {
        7: (2, 0), 8: (2, 1), 9: (-1, 0), 10: (2, 0),
    }  # fmt: skip


def test_a_job_has_one_size_until_it_is_started_anew(workers):
    """A batch has one: what ended of another size is forgotten then."""
    old = workers.take(worker_said(7), 0, S)
    with pytest.raises(ValueError, match="pretrain has 4 ranks, and not 8"):
        workers.take(worker_said(8, 5, size=8), 0, S)
    old.ended(S)
    workers.take(worker_said(8, 5, size=8), 0, S)
    (batch,) = workers.batches(S, 100)

    assert (batch.size, [each.process for each in batch.workers]) == (8, [8])
    batch.check()


def test_workers_are_bounded_and_the_dead_give_way(workers):
    """A job that is started again and again does not shut itself out; and a full batch fits into a message."""
    reason, meet = "\N{SNOWMAN}" * 4_096, "\N{SNOWMAN}" * 320
    for process in range(MOST_WORKERS_OF_A_NODE):
        workers.take(worker_said(process, -1, "failed", reason=reason, meet=meet), 0, S)
    (batch,) = workers.batches(S, 100)
    with pytest.raises(ValueError, match="128 workers already"):
        workers.take(worker_said(999), 0, S)
    workers.find("pretrain", 5).ended(S + 1)
    workers.find("pretrain", 4).ended(S + 2)
    workers.take(worker_said(999), 0, S + 3)

    assert len(encode(batch)) < 1_000_000
    assert decode(encode(batch), WorkerBatch) == batch
    assert workers.find("pretrain", 5) is None
    assert workers.find("pretrain", 4) is not None


def test_jobs_are_told_apart(workers):
    """One that has no worker left is told no more."""
    workers.take(worker_said(), 0, S)
    workers.take(worker_said(job="other"), 0, S).ended(S)
    assert {batch.job for batch in workers.batches(S, 100)} == {"pretrain", "other"}
    workers.take(worker_said(stage="over"), 0, 70 * S)
    assert {batch.job for batch in workers.batches(70 * S, 100)} == {"pretrain"}


# -- on the socket -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def heard(tmp_path):
    """The socket, open, with the batches that it has told."""
    async with hearing(tmp_path / "ranks") as ranks:
        yield ranks


def last(ranks):
    """What was told last of each process: stage and state."""
    batches = [each for each in ranks.told if isinstance(each, WorkerBatch)]
    return {each.process: (each.stage, each.alive) for each in batches[-1].workers} if batches else {}


async def test_a_worker_is_told_at_once_when_its_stage_changes(heard, monkeypatch):
    """Long before the next second; and in reference time."""
    monkeypatch.setattr(rank_socket, "_EACH_S", 1_000)
    speaker = heard.speak(worker())
    await until(lambda: last(heard) == {7: ("training", "running")})
    speaker.say(worker(stage="broken", left_ns=5))
    await until(lambda: last(heard) == {7: ("broken", "running")})

    (state,) = heard.told[-1].workers
    assert state.left_ns - NOW_NS < S
    assert abs(state.heard_ns - heard._clock.now_ns()) < 100 * S
    heard.told[-1].check()


async def test_errors_of_gpus_are_told_at_once_with_the_workers_of_each_job(heard, monkeypatch):
    """Each kind once, for an hour; and whose processes the workers are."""
    monkeypatch.setattr(rank_socket, "_EACH_S", 1_000)
    monkeypatch.setattr(job_workers, "_EACH_NS", 1_000 * S)
    heard.note_gpu_error(31)
    heard.speak(worker())
    await until(lambda: last(heard) == {7: ("training", "running")})
    assert heard.told[-1].xids == (31,)
    assert heard.told[-1].workers[0].user == os.getuid()
    heard.note_gpu_error(79)
    await until(lambda: heard.told[-1].xids == (31, 79))
    told = len(heard.told)
    heard.note_gpu_error(31)
    await asyncio.sleep(0.1)
    assert len(heard.told) == told


def test_errors_of_gpus_are_few_and_forgotten(workers):
    """The newest kinds are told, and each for an hour after it was seen last."""
    workers.take(worker_said(), EPOCH_NS, 20 * S)
    for xid in range(20):
        workers.note_gpu_error(xid, (20 + xid) * S)
    workers.note_gpu_error(10, 50 * S)
    (batch,) = workers.batches(60 * S, 100)
    assert batch.xids == (4, 5, 6, 7, 8, 9, *range(11, 20), 10)
    (batch,) = workers.batches((50 + 3_599) * S, 100)
    assert batch.xids == (10,)


async def test_workers_that_change_together_are_told_together(heard):
    """However often they change, the fleet is told a hundred times a second at most."""
    speakers = [heard.speak(worker(process, process)) for process in range(4)]
    for stage in ("forming", "copying", "training") * 10:
        for process, speaker in enumerate(speakers):
            speaker.say(worker(process, process, stage))
    await until(lambda: len(last(heard)) == 4)
    await asyncio.sleep(0.3)

    assert last(heard) == dict.fromkeys(range(4), ("training", "running"))
    assert len(heard.told) < 40


async def started(heard, program=SPEAKER, **more):
    """A process that speaks as a worker."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(heard.path), worker(**more).decode(), start_new_session=True
    )


async def test_a_process_that_is_killed_is_told_at_once(heard, monkeypatch):
    """Nobody looks for it: its handle says it. It is seen to be stopped when processes are looked at."""
    process = await started(heard)
    try:
        await until(lambda: last(heard) == {7: ("training", "running")})
        process.send_signal(signal.SIGSTOP)
        await until(lambda: last(heard) == {7: ("training", "stopped")})
        monkeypatch.setattr(rank_socket, "_EACH_S", 1_000)
        await asyncio.sleep(0.3)
        process.kill()
        await until(lambda: last(heard) == {7: ("training", "gone")})
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_last_words_of_a_process_count(heard):
    """It says that it is over, and ends: both wait to be read together."""
    process = await started(heard, SPEAKER.replace("time.sleep(1000)", ""), stage="over")
    await process.wait()
    await until(lambda: last(heard) == {7: ("over", "ended")})


async def test_a_killed_worker_is_gone_though_its_child_keeps_the_socket(heard):
    """As a loader's process does that it had forked."""
    program = SPEAKER.replace("time.sleep(1000)", "import os\nif not os.fork(): time.sleep(60)\ntime.sleep(1000)")
    process = await started(heard, program)
    try:
        await until(lambda: last(heard) == {7: ("training", "running")})
        process.kill()
        await process.wait()
        await until(lambda: last(heard) == {7: ("training", "gone")})
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def test_without_a_handle_processes_are_looked_at(heard, monkeypatch):
    """A kernel or a filter of system calls may refuse one."""

    def refuses(_pid):
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuses)
    process = await started(heard)
    try:
        await until(lambda: last(heard) == {7: ("training", "running")})
        process.kill()
        await until(lambda: last(heard) == {7: ("training", "gone")})
    finally:
        await process.wait()


@pytest.mark.parametrize(
    ("stat", "seen"),
    [
        ("R 1 1 1 0 -1 4194304 0 0", "running"),
        ("T 1 1 1 0 -1 4194304 0 0", "stopped"),
        ("t 1 1 1 0 -1 4194304 0 0", "stopped"),
        ("R 1 1 1 0 -1 4194308 0 0", "gone"),
        ("", "running"),
    ],
)
def test_a_process_whose_end_has_begun_is_gone(monkeypatch, stat, seen):
    """Its memory may take seconds to be taken back. Of one that is hidden, the agent knows only its end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = PeerProcess(ours)
    monkeypatch.setattr(process, "_stat", lambda: stat)
    assert process.pid == os.getpid()
    assert process.look() == seen
    process.close()
    ours.close()
    theirs.close()


async def test_a_worker_that_connects_again_goes_on(heard):
    """Its process lives: it is not gone meanwhile, and its new connection counts."""
    first = heard.speak(worker())
    await until(lambda: last(heard) == {7: ("training", "running")})
    first.close()
    await asyncio.sleep(0.1)
    assert last(heard) == {7: ("training", "running")}
    second = heard.speak(worker(stage="forming"))
    await until(lambda: last(heard) == {7: ("forming", "running")})
    heard.speak(worker(stage="copying"))  # before the end of the second was read
    await until(lambda: last(heard) == {7: ("copying", "running")})
    (known,) = heard.workers("pretrain")

    assert heard.rejected == 0
    assert heard.send(known, b"{}") == ""
    second.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"kind":', "truncated"),
        (b'{"kind":"worker"}', "job"),
        (worker(kind="recorder"), "kind"),
        (worker(rank=4), "rank 4 of 4"),
        (worker(rank=-2), ">= -1"),
        (worker(size=0), ">= 1"),
        (worker(size=1 << 40), "<= 262144"),
        (worker(job="a/b"), "cannot be a name"),
        (worker(job=""), "length"),
        (worker(process=-1), ">= 0"),
        (worker(process=1 << 61), "2305843009213693951"),
        (worker(process=1.5), "int"),
        (worker(stage="dancing"), "dancing"),
        (worker(stage="spare"), "a spare that has rank 0"),
        (worker(generation=1 << 62), "2305843009213693951"),
        (worker(left_ns=1 << 63), "2305843009213693951"),
        (worker(state_from=1 << 30), "state_from"),
        (worker(meet="x" * 321), "320"),
        (worker(reason="x" * 5_000), "4096"),
        (b'{"kind":"worker","x":' + b"[" * 100_000, "recursion"),
    ],
)
async def test_what_is_no_report_is_refused_and_counted(heard, data, reason):
    """The next worker is heard all the same."""
    heard.speak(data).close()
    heard.speak(worker(8))
    await until(lambda: list(last(heard)) == [8])

    assert heard.rejected == 1
    with pytest.raises(ValueError, match=reason):
        read(data)


async def test_a_connection_speaks_for_one_process_of_one_job_in_one_way(heard):
    """Neither for another, nor as a recorder; and no recorder becomes a worker."""
    speaker = heard.speak(worker())
    recorder = heard.speak(packet(3))
    await until(lambda: heard.told and last(heard))
    for said in (worker(8), worker(job="other"), packet(1)):
        speaker.say(said)
    recorder.say(worker(9, 3))
    await until(lambda: heard.rejected == 4)
    speaker.say(worker(stage="broken"))
    await until(lambda: last(heard) == {7: ("broken", "running")})

    assert len(heard.workers("pretrain")) == 1
    assert heard.workers("other") == []
    recorder.close()


@pytest.mark.parametrize("then", ["", "rank.close();"])
async def test_nobody_takes_the_name_of_a_process_that_lives(heard, then):
    """Whether it is connected or not."""
    process = await started(heard, SPEAKER.replace("time.sleep(1000)", then + "time.sleep(1000)"))
    try:
        await until(lambda: last(heard) == {7: ("training", "running")})
        heard.speak(worker(stage="over"))
        await until(lambda: heard.rejected == 1)
    finally:
        process.kill()
        await process.wait()
    assert heard.last_rejected[2] == "process 7 of pretrain is another process"
    await until(lambda: last(heard) == {7: ("training", "gone")})


async def test_recorders_and_workers_share_the_socket(heard):
    """Each process of a job has a connection of either kind."""
    both = [heard.speak(worker(), packet()) for _ in range(1)]
    heard.speak(packet())
    await until(lambda: {type(batch).__name__ for batch in heard.told} == {"WorkerBatch", "CollectiveBatch"})
    assert heard.rejected == 1  # the report of a recorder that came by the worker's connection
    both[0].close()


async def test_sending_never_waits(heard):
    """Of a process that does not read, the socket fills up: that is said."""
    speaker = heard.speak(worker())
    await until(lambda: heard.workers("pretrain"))
    (known,) = heard.workers("pretrain")
    failures = {heard.send(known, b"x" * 10_000) for _ in range(1_000)}
    assert failures == {"", "does not read its socket, which is full"}
    speaker.close()
    await until(lambda: heard.send(known, b"{}") == "is not connected")


async def test_more_connections_than_there_can_be_are_refused(heard, monkeypatch):
    """One that leaves makes room."""
    monkeypatch.setattr(rank_socket, "_MOST_CONNECTIONS", 2)
    first = heard.speak(worker(7))
    heard.speak(worker(8, 1))
    await until(lambda: len(last(heard)) == 2)
    heard.speak()
    await until(lambda: heard.rejected == 1)
    first.close()
    await asyncio.sleep(0.05)
    heard.speak(worker(9, 2))
    await until(lambda: len(last(heard)) == 3)


def opened():
    """How many files this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


async def test_nothing_is_left_open(tmp_path):
    """Neither sockets nor handles of processes."""
    before = opened()
    async with hearing(tmp_path / "ranks") as ranks:
        ranks.speak(worker())
        ranks.speak(worker(8, 1)).close()
        ranks.speak(b"{}")
        ranks.speak()
        await until(lambda: len(ranks.workers("pretrain")) == 2)
    assert opened() == before
