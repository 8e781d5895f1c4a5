"""The socket of ranks: what is told of them, what their processes do, and who is not believed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from speaking import NOW_NS, SPEAKER, Clock, S, hearing, until, worker

from foliot_agent.core.job_ranks import JobRanks
from foliot_agent.core.rank_report import RankReport, read
from foliot_agent.ranks import rank_socket
from foliot_agent.ranks.rank_socket import RankSocket
from foliot_schemas.collective import MOST_RANKS_OF_A_NODE


def row(number, ended=True, **more):
    """A collective of the group 0, as `foliot.torch` writes it."""
    fields = {
        "group": "0", "operation": "all_reduce", "number": number, "order": number, "peer": -1,
        "began_ns": 1_000 * number, "ended_ns": 1_000 * number + 500 if ended else 0, "elements_in": 10,
        "elements_out": 10, "type": "float32", "bytes": 40,
    }  # fmt: skip
    return [*(fields | more).values()]


def packet(rank=0, **more):
    """A report."""
    fields = {
        "job": "pretrain", "rank": rank, "size": 4, "began_ns": 7, "data_ns": 5, "cpu_delay_ns": 6,
        "progress": [["0", 3, 2]], "groups": [["0", "default_pg", [[0, 1, 4]]]], "open": [row(3, ended=False)],
        "done": [row(1), row(2)],
    }  # fmt: skip
    return msgspec.json.encode(fields | more)


@pytest.fixture
async def heard(tmp_path, monkeypatch):
    """The socket, open, with the batches that it has told."""
    monkeypatch.setattr(rank_socket, "_EACH_S", 0.02)
    async with hearing(tmp_path / "ranks") as ranks:
        yield ranks


def state(ranks):
    """What was told last of the first rank's process."""
    return ranks.told[-1].ranks[0].process if ranks.told else ""


async def test_what_a_rank_says_is_told_in_reference_time(heard):
    """What is done is told once, what is not in every batch."""
    rank = heard.speak()
    rank.say(packet())
    await until(lambda: len(heard.told) > 2)

    first, *later = heard.told
    assert (first.job, first.node, first.size, first.bound_ns) == ("pretrain", "node0", 4, 400)
    assert first.rows()["number"].tolist() == [1, 2, 3]
    offsets = first.rows()["began_ns"] - [1_000, 2_000, 3_000]
    assert abs(offsets - NOW_NS).max() < S
    assert [ended_ns > 0 for ended_ns in first.rows()["ended_ns"].tolist()] == [True, True, False]
    assert first.progress().tolist() == [(0, 0, 3, 2)]
    assert [(group.name, group.members) for group in first.members] == [("0", ((0, 1, 4),))]
    assert all(batch.rows()["number"].tolist() == [3] and not batch.members for batch in later)
    rank.close()


async def test_ranks_of_one_job_are_told_together(heard):
    """A node has eight of them, mostly."""
    ranks = [heard.speak() for _ in range(3)]
    for number, rank in enumerate(ranks):
        rank.say(packet(number))
    await until(lambda: heard.told and len(heard.told[-1].ranks) == 3)

    assert [each.rank for each in heard.told[-1].ranks] == [0, 1, 2]
    heard.told[-1].check()
    for rank in ranks:
        rank.close()


async def test_a_process_that_is_stopped_goes_on_and_is_killed(heard):
    """The kernel says so; its own word is not needed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SPEAKER, str(heard.path), packet().decode())
    try:
        await until(lambda: state(heard) == "running")
        process.send_signal(signal.SIGSTOP)
        await until(lambda: state(heard) == "stopped")
        process.send_signal(signal.SIGCONT)
        await until(lambda: state(heard) == "running")
        process.kill()
        await until(lambda: state(heard) == "gone")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_process_that_says_that_it_is_over_has_ended(heard):
    """It is no loss."""
    rank = heard.speak()
    rank.say(packet(over=True))
    await until(lambda: state(heard) == "ended")
    rank.close()
    await asyncio.sleep(0.1)

    assert state(heard) == "ended"


async def test_a_rank_that_connects_again_goes_on(heard):
    """As after a restart of the agent: its process lives, so it is not gone."""
    rank = heard.speak()
    rank.say(packet())
    await until(lambda: state(heard) == "running")
    rank.close()
    await asyncio.sleep(0.1)
    again = heard.speak()
    again.say(packet(progress=[["0", 9, 9]]))
    await until(lambda: heard.told[-1].progress()["begun"].tolist() == [9])

    assert state(heard) == "running"
    again.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", None),
        (b"\x80\x04.", "JSON"),
        (b"{}", "job"),
        (packet(rank=4), "rank 4 of 4"),
        (packet(rank=-1), ">= 0"),
        (packet(job="a/b"), "cannot be a name"),
        (packet(progress=[["0", 1, 2]]), "more is done than begun"),
        (packet(groups=[["0", "", [[0, 1, 5]]]]), "members that the job does not have"),
        (packet(groups=[["0", "", [[0, 0, 100_000]]]]), "members that the job does not have"),
        (packet(done=[row(1, began_ns=1 << 63)]), "< 2305843009213693952|<= 2305843009213693951"),
        (packet(done=[row(-1)]), "number|>= 0"),
        (packet(data_ns=1 << 62), "2305843009213693951"),
        (packet(progress=[["0", 1 << 62, 0]]), "2305843009213693951"),
        (packet(groups=[["0", "", [[0, 0, 4]]]]), "members that the job does not have"),
        (b'{"x":' + b"[" * 100_000, "recursion"),
        (packet(done=[row(1)] * 2_000), "length"),
    ],
)
async def test_what_is_no_report_is_refused_and_counted(heard, data, reason):
    """The next process is heard all the same."""
    stranger = heard.speak()
    with contextlib.suppress(OSError):
        stranger.say(data)
    stranger.close()
    rank = heard.speak()
    rank.say(packet(rank=3))
    await until(lambda: heard.told and heard.told[-1].ranks[-1].rank == 3)

    assert heard.rejected == (reason is not None)
    assert [each.rank for each in heard.told[-1].ranks] == [3]
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            read(data)
    rank.close()


async def test_a_process_speaks_for_one_rank(heard):
    """And nobody else for that, while it lives."""
    rank = heard.speak()
    rank.say(packet())
    await until(lambda: state(heard) == "running")
    rank.say(packet(rank=1))
    liar = heard.speak()
    liar.say(packet(progress=[["0", 99, 99]]))
    await until(lambda: heard.rejected == 2)
    await asyncio.sleep(0.1)

    assert [each.rank for each in heard.told[-1].ranks] == [0]
    assert heard.told[-1].progress()["begun"].tolist() == [3]
    assert str(os.getpid()) in heard.last_rejected[0]
    rank.close()
    liar.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root speaks as another user")
async def test_a_job_is_one_users():
    """Another user's process is neither a rank nor a spare of it, and may be in one of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101 - the other user is to get there
        async with hearing(f"{folder}/ranks") as ranks:
            ranks.speak(packet())
            await until(lambda: ranks.told)
            os.seteuid(65534)
            try:
                other, spare, own = ranks.speak(packet(1)), ranks.speak(worker(9, -1, "spare")), ranks.speak()
            finally:
                os.seteuid(0)
            own.say(packet(1, job="another"))
            await until(lambda: ranks.rejected == 2 and {each.job for each in ranks.told} == {"pretrain", "another"})

            assert ranks.last_rejected[2] == "pretrain is user 0's here, and not user 65534's"
            assert {each.rank for batch in ranks.told if batch.job == "pretrain" for each in batch.ranks} == {0}
            assert not ranks.workers("pretrain")
            assert [each.is_cut_off() for each in (other, spare, own)] == [True, True, False]


async def test_a_socket_that_cannot_be_made_stops_nothing(tmp_path):
    """The agent moves traffic all the same."""
    (tmp_path / "file").write_text("")
    ranks = RankSocket(str(tmp_path / "file" / "ranks"), "node0", Clock(), print)
    ranks.open()
    await ranks.tell()
    ranks.close()


def report(rank=0, **more):
    """A report, as it was read."""
    return msgspec.json.decode(packet(rank, **more), type=RankReport)


def test_a_rank_that_was_started_anew_begins_anew():
    """By the time at which it began to record."""
    ranks = JobRanks("node0")
    ranks.take(report(done=[row(1)]), 0, S).ended(S)
    ranks.take(report(began_ns=8, done=[row(5)]), 0, 2 * S)
    (batch,) = ranks.batches(3 * S, 0)

    assert batch.ranks[0].since_ns == 8
    assert batch.rows()["number"].tolist() == [5, 3]


def test_of_too_many_collectives_the_oldest_are_dropped_and_counted():
    """A rank that begins ten thousand in a quarter of a second is told as far as there is room."""
    ranks = JobRanks("node0")
    for first in range(0, 10_000, 1_000):
        ranks.take(report(done=[row(1 + first + each) for each in range(1_000)]), 0, S)
    (batch,) = ranks.batches(2 * S, 0)

    assert batch.ranks[0].dropped == 10_000 - 2_048
    assert batch.rows()["number"].max() == 10_000


def test_many_busy_ranks_are_told_in_several_batches():
    """Each fits into a message of NATS."""
    ranks = JobRanks("node0")
    for rank in range(8):
        done = [row(1 + each) for each in range(1_000)]
        ranks.take(report(rank, size=8, done=done, open=[row(1_000 + each, ended=False) for each in range(256)]), 0, S)
    told = []
    for second in range(2, 8):
        batches = [*ranks.batches(second * S, 0)]
        assert sorted(each.rank for batch in batches for each in batch.ranks) == [*range(8)]
        assert max(len(msgspec.msgpack.encode(batch)) for batch in batches) < 1_000_000
        told.append(sum(int((batch.rows()["ended_ns"] != 0).sum()) for batch in batches))

    assert (max(told), sum(told)) == (4_096, 8_000)


def test_ranks_are_bounded_and_forgotten():
    """A process that starts ranks without end fills nothing."""
    ranks = JobRanks("node0")
    for rank in range(MOST_RANKS_OF_A_NODE):
        ranks.take(report(rank, size=1_000), 0, S).ended(S)
    with pytest.raises(ValueError, match="already"):
        ranks.take(report(100, size=1_000), 0, S)
    assert [*ranks.batches(S, 0)]
    assert [*ranks.batches(62 * S, 0)] == []

    ranks.take(report(100, size=1_000), 0, 62 * S)


def test_groups_of_a_rank_are_bounded():
    """A process that tells of groups without end fills nothing; those that fit are told, each once."""
    ranks = JobRanks("node0")
    runs = [[each, 0, 1] for each in range(1_000)]
    for first in range(0, 1_000, 100):
        groups = [[f"g{first + each}", "", runs] for each in range(100)]
        ranks.take(report(size=5_000, groups=groups, progress=[], done=[]), 0, S)
    told = [group.name for second in range(1, 9) for batch in ranks.batches(S + second, 0) for group in batch.members]

    assert told == ["g0", "g1", "g2", "g3"]


async def test_a_process_that_floods_is_read_in_portions(heard):
    """The loop turns meanwhile, and another rank is heard."""
    flood, rank = heard.speak(), heard.speak()
    flood.say(packet(1))
    rank.say(packet(0))
    for _ in range(40):
        with contextlib.suppress(BlockingIOError):
            for _ in range(200):
                flood.say(b"x" * 1_000)
        await asyncio.sleep(0.005)

    await until(lambda: heard.told and {each.rank for each in heard.told[-1].ranks} == {0, 1})
    assert 0 < heard.rejected < 4_000


async def test_connections_that_say_nothing_are_closed(heard, monkeypatch):
    """They would keep ranks out."""
    monkeypatch.setattr(rank_socket, "_SAYS_NOTHING_S", 0.1)
    monkeypatch.setattr(rank_socket, "_MOST_CONNECTIONS", 4)
    silent = [heard.speak() for _ in range(4)]
    await until(lambda: all(each.is_cut_off() for each in silent))
    heard.speak(packet())

    await until(lambda: state(heard) == "running")


async def test_a_killed_process_is_gone_though_its_child_keeps_the_socket(heard):
    """As a loader's worker does that it had forked; and the rank may be started anew."""
    program = SPEAKER.replace("time.sleep(1000)", "import os\nif not os.fork(): time.sleep(60)\ntime.sleep(1000)")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(heard.path), packet().decode(), start_new_session=True
    )
    try:
        await until(lambda: state(heard) == "running")
        await asyncio.sleep(0.2)
        process.kill()
        await process.wait()
        await until(lambda: state(heard) == "gone")
        heard.speak(packet(began_ns=8))
        await until(lambda: state(heard) == "running")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("fields", [{}, {"sent_ns": 9}, {"something": [1]}])
def test_fields_that_nobody_needs_are_tolerated(fields):
    """Older and newer recorders say more."""
    assert read(packet(**fields)).generation == 0


def test_what_a_generation_left_undone_is_forgotten_with_its_groups():
    """They are no more: nobody waits in them."""
    ranks = JobRanks("node0")
    ranks.take(report(), 0, S)
    ranks.take(report(generation=1, groups=[], progress=[], open=None, done=[]), 0, 2 * S)
    (batch,) = ranks.batches(3 * S, 0)

    assert [(each.rank, each.generation) for each in batch.ranks] == [(0, 1)]
    assert (batch.rows()["number"].tolist(), batch.members) == ([1, 2], ())


def opened():
    """How many files this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


async def test_claims_one_after_the_other_leave_nothing_open(heard):
    """Any process may make them. Each takes the rank from the one before."""
    heard.speak(packet())
    await until(lambda: state(heard) == "running")
    before = opened()
    for generation in range(1, 100):
        heard.speak(packet(began_ns=7 + generation, generation=generation)).close()
    await until(lambda: heard.told[-1].ranks[0].generation == 99)
    await until(lambda: opened() <= before + 3)


async def test_of_two_that_claim_a_rank_the_one_of_the_higher_generation_has_it(heard):
    """The other may be stopped, and has not heard that it has lost it."""
    old = heard.speak(packet())
    await until(lambda: state(heard) == "running")
    heard.speak(packet(began_ns=8, generation=1, progress=[["0", 7, 7]]))
    await until(lambda: heard.told[-1].progress()["begun"].tolist() == [7])
    old.say(packet(progress=[["0", 9, 9]]))
    await until(lambda: heard.rejected == 1)
    late = heard.speak(packet(began_ns=9, generation=1))
    await until(lambda: heard.rejected == 2)
    old.close()
    await asyncio.sleep(0.1)

    assert heard.last_rejected[2] == "rank 0 of pretrain is another process"
    assert [(each.rank, each.generation, each.process) for each in heard.told[-1].ranks] == [(0, 1, "running")]
    assert heard.told[-1].progress()["begun"].tolist() == [7]
    late.close()
