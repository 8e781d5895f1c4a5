"""What ends the waits of a worker whom nobody tells what to do, and how long each of them is."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib.util
import json
import os
import re
import signal
import socket
import textwrap
import threading
import time

import forked_torch
import pytest

from patience import patience

if importlib.util.find_spec("torch") is None:
    pytest.skip("make train installs PyTorch", allow_module_level=True)


def setup_module():
    """Imports PyTorch, which takes seconds: where these tests run, and not wherever tests are collected."""
    global foliot, CollectiveLog, Entry, Group, MeetingError, Program, Worker, Order  # noqa: PLW0603 - as an import does
    import foliot.torch  # noqa: PLC0415 - see above
    from foliot.torch.collective_log import CollectiveLog, Entry, Group  # noqa: PLC0415 - see above
    from foliot.torch.meeting import MeetingError  # noqa: PLC0415 - see above
    from foliot.torch.worker import Program, Worker  # noqa: PLC0415 - see above
    from foliot.torch.worker_link import Order  # noqa: PLC0415 - see above


WAIT_S = 60.0


@pytest.fixture
def worker(monkeypatch):
    """Makes workers of a job of two ranks, without Gloo's groups and without states."""
    made = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.delenv("FOLIOT_SPARE", raising=False)
    monkeypatch.setattr(Worker, "_catch_up", lambda _: None)

    def make(rank=0):
        monkeypatch.setenv("RANK", str(rank))
        program = Program({}, {}, lambda *_: None, None, 0, None, 1, WAIT_S, 1800.0)
        made.append(Worker(program, "job", "/no/agent", CollectiveLog()))
        return made[-1]

    yield make
    for each in made:
        each._link.end()


@pytest.fixture
def mute(monkeypatch):
    """A place of meeting whose host takes connections and answers nothing, as that of a process that is stopped."""
    monkeypatch.setattr("foliot.torch.worker._ANSWER_S", 0.5, raising=False)
    monkeypatch.setattr("foliot.torch.meeting._TIMEOUT", dt.timedelta(seconds=1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def outcome(work):
    """Begins it in a thread. Its error, or None, comes into the list that is returned with the thread."""
    ends = []

    def run():
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ends.append(error)
        else:
            ends.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ends


def test_ranks_that_compute_for_long_still_find_the_others_there(worker, monkeypatch):
    """A spare is there at once. Others come when their next collective fails."""
    monkeypatch.setattr("foliot.torch.worker._MEET_S", 0.1)
    workers = worker(0), worker(1)
    place = workers[0]._store.place
    first, of_first = outcome(lambda: workers[0]._form_once(Order(1, 0, 2, place, 0, "dead")))
    time.sleep(0.5)
    assert not of_first

    workers[1]._form_once(Order(1, 1, 2, place, 0, "dead"))

    first.join(patience(60))
    assert of_first == [None]


def test_a_later_order_ends_the_wait_for_others(worker):
    """However long it may be."""
    waiting = worker(0)
    thread, ends = outcome(lambda: waiting._form_once(Order(1, 0, 2, waiting._store.place, 0, "dead")))
    while not waiting.generation:
        time.sleep(0.01)

    waiting._obey(Order(2, 0, 2, waiting._store.place, 0, "dead"))

    thread.join(patience(60))
    assert isinstance(ends[0], RuntimeError)


def test_an_order_ends_the_wait_for_a_place_of_which_the_rank_has_died(worker, monkeypatch):
    """Rank 0 has left its store before rank 1 came there. PyTorch would try to connect until its time limit."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        monkeypatch.setenv("MASTER_PORT", str(nobody.getsockname()[1]))
    waiting = worker(1)
    formed = []
    monkeypatch.setattr(waiting, "_form", formed.append)
    thread, ends = outcome(waiting.enter_first)
    time.sleep(0.5)
    assert not ends

    order = Order(1, 1, 2, "127.0.0.1:1", 0, "dead")
    waiting._obey(order)
    with waiting._link._news:
        waiting._link._order = order
        waiting._link._news.notify_all()

    thread.join(patience(60))
    assert (ends, formed) == ([None], [order])


DIES = textwrap.dedent(
    """
    import datetime as dt, os, sys, threading
    import torch.distributed as dist
    from foliot.torch import process_groups

    rank = int(sys.argv[1])
    told, tells = os.pipe()
    if not (dies := os.fork()):
        store = dist.TCPStore("127.0.0.1", int(os.read(told, 16)), is_master=False)
        store.add("joins", 1)
        threading.Timer(1.0, os._exit, (0,)).start()
        dist.init_process_group("gloo", store=store, rank=1 - rank, world_size=2)
        os._exit(1)
    process_groups._CONNECTS = dt.timedelta(seconds=0.3)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(tells, str(store.port).encode())
    if os.waitpid(dies, 0)[1]:
        os._exit(2)
    try:
        process_groups.default_join(store, rank, 2)
    except RuntimeError:
        os._exit(0)
    os._exit(1)
    """
)


@pytest.mark.parametrize("rank", [0, 1])
async def test_a_rank_that_died_after_it_was_to_be_connected_is_given_up(tmp_path, rank):
    """It has said where it is. Of the two, one connects and the other waits for that."""
    (tmp_path / "waits.py").write_text(DIES)
    waits = forked_torch.start(
        tmp_path / "waits.py", str(rank), env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, stderr=2
    )
    try:
        async with asyncio.timeout(patience(120)):
            assert await waits.wait() == 0
    finally:
        waits.send_signal(signal.SIGKILL)


def test_after_each_failed_attempt_a_worker_waits_as_long_as_after_the_first(worker, monkeypatch):
    """A second order may fail late, and the third one needs its time too."""
    waited = []

    class Link:
        def say(self, **_):
            """Nobody listens."""

        def end(self):
            """Nor now."""

        def wait_for_order(self, *, above, within_s):
            waited.append(within_s)
            time.sleep(0.02)
            return Order(above + 1, 0, 2, "a:1", 0, "dead") if above < 3 else None

    def fail(_):
        raise MeetingError("others did not come")

    failing = worker(0)
    failing._link.end()
    failing._link = Link()
    monkeypatch.setattr(failing, "_form_once", fail)

    with pytest.raises(MeetingError):
        failing._form(Order(1, 0, 2, "a:1", 0, "dead"))

    assert waited == [WAIT_S] * 3


def test_a_place_of_meeting_that_does_not_answer_is_given_up(worker, mute):
    """PyTorch's store would wait for its answer for ever."""
    thread, ends = outcome(lambda: worker()._form_once(Order(1, 0, 2, mute, 0, "dead")))

    thread.join(patience(30))

    assert [str(end) for end in ends] == ["the place of meeting gave no answer in 0.5 s"]


def test_nor_does_it_keep_a_rank_in_the_group_that_is_left(worker, mute):
    """Ranks that have done the last step tell each other so at the place of the next group."""
    leaving = worker()
    leaving.step, leaving._link._order = 5, Order(1, 0, 2, mute, 5, "drain")
    left = []
    leaving._leave = lambda: left.append(leaving.step)
    thread, ends = outcome(leaving._leave_together)

    thread.join(patience(30))

    assert (left, ends) == ([5], [None])


@pytest.mark.parametrize("in_connections", [True, False])
def test_a_collective_that_takes_too_long_is_broken_off(worker, monkeypatch, in_connections):
    """Where it waits in connections: NCCL's have a limit of their own."""
    broken = threading.Event()
    late = worker()
    monkeypatch.setattr("foliot.torch.worker.waits_in_connections", lambda: in_connections)
    monkeypatch.setattr(late, "_break_off", broken.set)
    late._program = late._program._replace(timeout_s=0.1)
    late._log.begin(Entry(Group("0"), "all_reduce", -1))
    time.sleep(0.2)

    late._look()

    assert broken.is_set() == in_connections
    said = r"all_reduce 1 of the group 0 had not ended after \d+\.\d s" if in_connections else ""
    assert re.fullmatch(said, late._overdue)


def test_a_transfer_counts_only_where_nothing_else_goes_on(monkeypatch):
    """Gloo's looks as if it went on until the program waits for it, which it may never do."""
    now_ns = 0
    monkeypatch.setattr("foliot.torch.collective_log.now_ns", lambda: now_ns)
    log = CollectiveLog()
    transfer, collective = Entry(Group("0"), "send", 1), Entry(Group("0"), "all_reduce", -1)
    log.begin(transfer)
    assert log.overdue(0.05) is None
    now_ns += 100_000_000
    assert log.overdue(0.05) is transfer
    log.begin(collective)
    assert log.overdue(0.05) is None
    log.end(collective)
    assert log.overdue(0.05) is None
    now_ns += 100_000_000
    assert log.overdue(0.05) is transfer


@pytest.mark.parametrize(("limit_s", "said"), [(0.0, "not 0 s"), (float("nan"), "not nan s")])
def test_a_limit_of_nothing_is_refused(limit_s, said):
    """Every collective would take longer; and what is no number is no limit."""
    with pytest.raises(ValueError, match=said):
        foliot.torch.groups({}, timeout_s=limit_s)


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    import torch
    from torch.nn.parallel import DistributedDataParallel
    import foliot.torch

    torch.set_num_threads(1)
    limit_s = float(sys.argv[2])
    model = torch.nn.Linear(4, 4)
    (Path(sys.argv[1]) / os.environ["RANK"]).touch()
    while not all((Path(sys.argv[1]) / rank).exists() for rank in "01"):
        time.sleep(0.01)
    for group in foliot.torch.groups({"model": model}, job="late", socket="/no/agent", wait_s=0.5, timeout_s=limit_s):
        with group:
            parallel = DistributedDataParallel(model)
            for _ in range(2):
                parallel(torch.ones(1, 4)).sum().backward()
            if group.rank:
                os.kill(os.getpid(), signal.SIGSTOP)
            parallel(torch.ones(1, 4)).sum().backward()
    """
)


async def test_a_job_whose_rank_stands_still_ends_though_nobody_tells_it_so(tmp_path, kept_port):
    """No agent, no spare: the error says which collective took too long, and how long."""
    (tmp_path / "rank.py").write_text(PROGRAM)
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(kept_port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank in "01":
        with (tmp_path / f"{rank}.log").open("wb") as log:
            ranks.append(
                forked_torch.start(
                    tmp_path / "rank.py", str(tmp_path), str(patience(3)), env={**os.environ, **meet, "RANK": rank},
                    stderr=log.fileno(),
                )
            )  # fmt: skip
    try:
        async with asyncio.timeout(patience(90)):
            status = await ranks[0].wait()
    finally:
        for each in ranks:
            each.send_signal(signal.SIGKILL)
            await each.wait()

    told = (tmp_path / "0.log").read_text()
    assert status == 1, told
    said = "RuntimeError: nobody took the lost rank's place in 0.5 s: all_reduce"
    assert said in told, told
    assert re.search(r" of the group 0 had not ended after \d+\.\d s", told), told


def test_a_first_group_that_connects_once_more_is_left_for_the_next_one(worker, monkeypatch):
    """PyTorch does so where a store's connection ends: an order may come in that very moment."""
    order = Order(1, 0, 2, "127.0.0.1:1", 0, "dead")
    formed = []
    monkeypatch.setattr(Worker, "_form", lambda _, given: formed.append(given))
    monkeypatch.setattr("foliot.torch.meeting.FirstMeeting.wait", lambda _: None)
    made = worker()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def join(*_):
            for _ in range(3):
                with socket.create_connection(server.getsockname()) as store:
                    waiting.release()
                    store.recv(1)
            raise RuntimeError("the store is gone")

        waiting = threading.Semaphore(0)
        made._program = made._program._replace(join=join)
        thread, ends = outcome(made._form_first)
        assert waiting.acquire(timeout=patience(20))
        made._link._take(json.dumps(order._asdict() | {"kind": "replace"}).encode())
        thread.join(patience(20))
    assert (ends, formed) == ([None], [order])
