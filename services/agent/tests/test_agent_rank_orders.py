"""The verb `replace-rank` on one node: whom it tells what, what it waits for, and what becomes of it."""

from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest
from emulated import Agent, command
from speaking import S, hearing, until, worker, worker_said

from foliot_agent.control import rank_handler
from foliot_agent.control.rank_handler import RankHandler
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.core.job_workers import JobWorkers
from foliot_agent.core.rank_orders import Course, KeptOrder, RankOrders, object_to, packet, part_of
from foliot_agent.ranks import rank_socket
from foliot_schemas import Command, RankChange, ReplaceRank
from foliot_schemas.fault import root_span_id, trace_id
from patience import patience
from virtual_clock import VirtualClock

FAULT = "pretrain/rank2/dead-17"


def change(rank=2, loser=7, taker=9, *, at="node0", to="node0"):
    """A rank that goes from one process to another."""
    return RankChange(rank=rank, node=at, process=loser, to_node=to, to_process=taker)


def order(*changes, **more):
    """An order of the job, by default for process 9 to take rank 2 of process 7."""
    fields = {"job": "pretrain", "generation": 1, "meet": "10.0.0.1:29500", "cause": "dead"}
    return ReplaceRank(changes=changes or (change(),), **fields | more)


def told(rank, generation=1, **more):
    """What a process is told."""
    fields = {"size": 4, "meet": "10.0.0.1:29500", "at_step": 0, "cause": "dead"}
    return {"kind": "replace", "generation": generation, "rank": rank, **fields | more}


def raw_ns():
    """The time of processes."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


# -- in virtual time ---------------------------------------------------------------------------------------------------


@pytest.fixture
def workers():
    """Rank 2 as process 7, rank 3 as process 8, and two spares."""
    made = JobWorkers("node0")
    for process, rank, stage in ((7, 2, "broken"), (8, 3, "broken"), (9, -1, "spare"), (10, -1, "spare")):
        made.take(worker_said(process, rank, stage), 0, S)
    return made


def parts(workers, wanted):
    """The rank that each gets."""
    return {each.process: part_of(wanted, "node0", each) for each in workers.living("pretrain")}


def test_the_loser_the_taker_and_the_others_have_their_parts(workers):
    """A spare that is not named has none; process numbers of other nodes do not count."""
    assert parts(workers, order()) == {7: -1, 8: 3, 9: 2, 10: None}
    assert parts(workers, order(change(0, 8, 10, at="node1", to="node2"))) == {7: 2, 8: 3, 9: None, 10: None}
    assert parts(workers, order(change(0, 8, 10, at="node1"))) == {7: 2, 8: 3, 9: None, 10: 0}


def test_what_a_worker_was_told_counts_until_it_is_there(workers):
    """A second loss may follow the first at once: who has lost its rank gets none back, who was promised one keeps it."""
    for process, rank in ((7, -1), (9, 2)):
        workers.find("pretrain", process).told = (1, rank)
    assert parts(workers, order(change(0, 1, 1, at="node1", to="node1"), generation=2)) == {
        7: None,
        8: 3,
        9: 2,
        10: None,
    }
    workers.take(worker_said(9, 2, "training", generation=1), 0, S)
    assert parts(workers, order(change(2, 9, 10), generation=2)) == {7: None, 8: 3, 9: -1, 10: 2}


def test_an_order_is_passed_on_with_the_receivers_rank():
    """As JSON, which a job's process reads with the standard library alone."""
    assert msgspec.json.decode(packet(order(at_step=7, cause="drain"), 3, 4)) == told(3, at_step=7, cause="drain")


@pytest.mark.parametrize(
    ("wanted", "objection"),
    [
        (order(), ""),
        (order(change(2, 77, 9)), ""),
        (order(change(2, 7, 99)), ""),
        (order(generation=0), "process 7 of rank 2 of pretrain is of generation 0, the order of 0"),
        (order(change(4, 99, 9)), "a rank of the order is not below 4, the size of pretrain"),
        (order(change(1, 7, 9)), "process 7 of pretrain has rank 2, and not 1"),
        (order(change(2, 7, 8)), "process 8 of pretrain cannot take rank 2: it has rank 3"),
        (order(change(2, 7, 11)), "process 11 of pretrain cannot take rank 2: it has ended"),
        (order(change(2, 7, 12)), "process 12 of pretrain cannot take rank 2: it does no more work"),
        (order(change(1, 7, 8, at="node1", to="node2")), ""),
        (order(job="other"), ""),
    ],
)
def test_an_order_that_does_not_fit_is_objected_to(workers, wanted, objection):
    """A doubt does nothing."""
    workers.take(worker_said(11, -1, "spare"), 0, S).ended(S)
    workers.take(worker_said(12, -1, "failed"), 0, S)
    found = object_to(wanted, "node0", workers.living(wanted.job), lambda process: workers.find(wanted.job, process))
    assert found == objection


def test_an_order_may_say_again_what_an_earlier_one_did(workers):
    """A second rank was lost before the first one's group had formed: the next order has both."""
    for process, rank in ((7, -1), (9, 2)):
        workers.find("pretrain", process).told = (1, rank)
    wanted = order(change(), change(3, 8, 10), generation=2)

    assert not object_to(wanted, "node0", workers.living("pretrain"), lambda each: workers.find("pretrain", each))
    assert parts(workers, wanted) == {7: -1, 8: -1, 9: 2, 10: 3}


def test_orders_are_kept_for_a_minute_for_those_who_were_there(workers):
    """A process that began later belongs to a job that was started anew. The newest of a job counts alone."""
    orders = RankOrders()
    late = workers.take(worker_said(70 * S, 1), 0, S)
    first = workers.find("pretrain", 7)
    kept = orders.keep(KeptOrder(order=order(), at_ns=50 * S))

    assert orders.missed(first, 60 * S).order == order()
    assert orders.missed(late, 71 * S) is None
    assert orders.missed(first, 111 * S) is None
    assert RankOrders(kept).missed(first, 60 * S).order == order()
    orders.keep(KeptOrder(order=order(generation=2), at_ns=51 * S))
    assert orders.missed(first, 60 * S).order.generation == 2
    assert "generation 2 before" in orders.object_to(order(), [], 60 * S)
    assert orders.object_to(order(), [late], 71 * S) == ""
    assert orders.object_to(order(generation=3), [], 60 * S) == ""
    first.told = (2, 2)
    assert orders.missed(first, 60 * S) is None


def test_kept_orders_are_bounded():
    """The oldest give way."""
    orders = RankOrders()
    for job in range(100):
        kept = orders.keep(KeptOrder(order=order(job=f"j{job}"), at_ns=job))
    assert [each.order.job for each in kept] == [f"j{job}" for job in range(68, 100)]


def test_the_course_of_a_replacement_has_four_parts():
    """Each once, as it is told; a part that a worker does not have is left out."""
    workers = JobWorkers("node0")
    seen = workers.take(worker_said(left_ns=3, formed_ns=4), 1_000, S)
    course = Course(KeptOrder(order=order(), at_ns=9), 10, 1_000)
    found = [*course.take(seen, 100)]
    workers.take(worker_said(stage="forming", generation=1, left_ns=12, formed_ns=4), 1_000, S)
    found += course.take(seen, 100)
    workers.take(worker_said(generation=1, left_ns=12, formed_ns=20, first_step_ns=120), 1_000, S)
    found += course.take(seen, 100)
    assert not course.is_over
    found += [*course.take(seen, 130), *course.take(seen, 140)]

    assert found == [("leave group", 1_010, 1_012), ("form group", 1_012, 1_020), ("first step", 1_020, 1_120)]
    assert course.is_over


# -- with processes ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def heard(tmp_path, monkeypatch):
    """The socket, open for long."""
    monkeypatch.setattr(rank_handler, "_CONNECTS_S", patience(20))
    monkeypatch.setattr(rank_handler, "_ANSWERS_S", patience(20))
    monkeypatch.setattr(rank_socket, "_CONNECTS_ANEW_S", 0.0)
    async with hearing(tmp_path / "ranks") as ranks:
        yield ranks


@pytest.fixture
def impatient(monkeypatch, heard):
    """Nobody is waited for for long."""
    monkeypatch.setattr(rank_handler, "_CONNECTS_S", 0.2)
    monkeypatch.setattr(rank_handler, "_ANSWERS_S", 0.2)


@pytest.fixture
def cache(tmp_path):
    """What the agent remembers."""
    return RestartCache(str(tmp_path / "memory"), "node0", "boot")


@pytest.fixture
def handler(heard, cache):
    """The handler of the verb."""
    return RankHandler("node0", heard, VirtualClock(), cache)


async def spoken(heard, *said):
    """Processes, each with what it says first; once all of them are heard."""
    speakers = [heard.speak(each) for each in said]
    await until(lambda: len(heard.workers("pretrain")) == len(said))
    return speakers


async def four(heard):
    """Two ranks and two spares."""
    return await spoken(
        heard, worker(7, 2, "broken"), worker(8, 3, "broken"), worker(9, -1, "spare"), worker(10, -1, "spare")
    )


def asked(wanted):
    """The command that carries an order."""
    return Command.of(wanted, id="c1", node="node0", cause="e1", issued_ns=1, deadline_ns=2, lease_revision=1)


async def test_every_worker_is_told_its_part_and_its_word_confirms_it(heard, handler):
    """A loser need not answer."""
    loser, survivor, taker, spare = await four(heard)
    assert handler.check(order(), asked(order())) == ""
    result = await handler.apply(order())
    assert [each.hear() for each in (loser, survivor, taker, spare)] == [[told(-1)], [told(3)], [told(2)], []]
    assert (result.status, result.reason, result.done, result.undo) == ("done", "", order(), None)
    assert result.changed_ns > 0

    confirming = asyncio.create_task(handler.confirm(result, FAULT))
    survivor.say(worker(8, 3, "forming", generation=1))
    await asyncio.sleep(0.05)
    assert not confirming.done()
    taker.say(worker(9, 2, "forming", generation=1))
    confirmed = await confirming
    assert (confirmed.expected, confirmed.reason, confirmed.at_ns > 0) == (2, "", True)


async def test_the_same_order_twice_is_done_once(heard, handler):
    """It is confirmed both times; who was not told is told."""
    loser, survivor, taker, _ = await four(heard)
    await handler.apply(order())
    assert handler.check(order(), asked(order())) == ""
    again = await handler.apply(order())
    assert (again.status, again.changed_ns) == ("already", 0)
    for process, rank, speaker in ((8, 3, survivor), (9, 2, taker)):
        speaker.say(worker(process, rank, "training", generation=1))
    assert (await handler.confirm(again, FAULT)).at_ns > 0
    assert [each.hear() for each in (loser, survivor, taker)] == [[told(-1)], [told(3)], [told(2)]]


async def test_what_is_missing_is_said(heard, handler, impatient):
    """One has ended, one gives up, one says nothing of it: that one is named."""
    await four(heard)
    other, failing = heard.speak(worker(11, 0, "broken")), heard.speak(worker(12, 1, "broken"))
    await until(lambda: len(heard.workers("pretrain")) == 6)
    result = await handler.apply(order())
    failing.say(worker(12, 1, "failed"))
    heard.worker("pretrain", 8).ended(S)
    other.say(worker(11, 0, "forming", generation=1))
    confirmed = await handler.confirm(result, FAULT)

    assert (confirmed.expected, confirmed.at_ns) == (3, 0)
    assert confirmed.reason == "process 9 does not answer"


@pytest.mark.parametrize(
    ("wanted", "objection"),
    [
        (order(change(at="node1", to="node1"), job="other"), "no process of other runs here"),
        (order(job="other"), ""),
        (order(change(at="node1"), job="other"), ""),
        (order(change(at="node1", to="node1")), ""),
        (order(generation=0), "process 7 of rank 2 of pretrain is of generation 0, the order of 0"),
    ],
)
async def test_who_is_not_concerned_objects(heard, handler, wanted, objection):
    """A node is where the job has workers here, or the order names it."""
    await four(heard)
    assert handler.check(wanted, asked(wanted)) == objection


async def test_an_order_that_comes_after_a_newer_one_is_refused(heard, handler, impatient):
    """Also where the newer one reached nobody yet."""
    await handler.apply(order(generation=5))
    assert handler.check(order(generation=4), asked(order())) == "pretrain was ordered to form generation 5 before"


async def test_a_process_that_connects_within_seconds_is_waited_for(heard, handler):
    """As after a restart of the agent."""
    loser, survivor = await spoken(heard, worker(7, 2, "broken"), worker(8, 3, "broken"))
    survivor.close()
    await asyncio.sleep(0.05)
    applying = asyncio.create_task(handler.apply(order()))
    await asyncio.sleep(0.05)
    assert not applying.done()
    taker, survivor = heard.speak(worker(9, -1, "spare")), heard.speak(worker(8, 3, "broken"))
    result = await applying

    assert (result.status, result.reason) == ("done", "")
    assert [each.hear() for each in (loser, survivor, taker)] == [[told(-1)], [told(3)], [told(2)]]


async def test_who_does_not_connect_is_named_and_the_others_are_told(heard, handler, impatient):
    """The order has failed here then."""
    loser, survivor = await spoken(heard, worker(7, 2, "broken"), worker(8, 3, "broken"))
    survivor.close()
    await asyncio.sleep(0.05)
    result = await handler.apply(order())

    assert result.status == "failed"
    assert result.reason == (
        "process 8 of rank 3 is not connected, process 9, which is to take rank 2, is not connected"
    )
    assert loser.hear() == [told(-1)]


async def test_a_taker_that_has_ended_is_named(heard, handler):
    """Nobody waits for it."""
    await four(heard)
    heard.worker("pretrain", 9).ended(S)
    result = await handler.apply(order())
    assert (result.status, result.reason) == ("failed", "process 9, which is to take rank 2, has ended")


async def test_a_full_socket_is_a_failure_that_is_said(heard, handler, impatient):
    """It is told when it speaks again and has room."""
    (survivor,) = await spoken(heard, worker(8, 3, "broken"))
    known = heard.worker("pretrain", 8)
    wanted = order(change(at="node1", to="node1"))
    while not heard.send(known, b'{"x":"' + b"x" * 10_000 + b'"}'):
        pass
    result = await handler.apply(wanted)
    assert (result.status, result.reason) == (
        "failed", "process 8 of rank 3 does not read its socket, which is full",
    )  # fmt: skip
    survivor.hear()
    survivor.say(worker(8, 3, "broken"))
    await until(lambda: known.told == (1, 3))
    assert survivor.hear() == [told(3)]


async def test_an_order_reaches_those_who_connect_later(heard, handler, cache, impatient):
    """Once on each connection, until they are of its generation; also from the next run of the agent."""
    await handler.apply(order(change(at="node1", to="node1")))
    survivor, spare = heard.speak(worker(8, 3, "broken")), heard.speak(worker(9, -1, "spare"))
    fresh = heard.speak(worker(raw_ns() + 60 * S, 0, "training"))
    await until(lambda: len(heard.workers("pretrain")) == 3)
    survivor.say(worker(8, 3, "broken", step=5))
    await until(lambda: heard.worker("pretrain", 8).report.step == 5)
    assert [each.hear() for each in (survivor, spare, fresh)] == [[told(3)], [], []]
    survivor.close()
    await asyncio.sleep(0.05)
    again = heard.speak(worker(8, 3, "broken"))
    await until(lambda: again.hear() == [told(3)])

    RankHandler("node0", heard, VirtualClock(), RestartCache(str(cache._path.parent), "node0", "boot"))
    heard.worker("pretrain", 8).told = None
    again.say(worker(8, 3, "broken"))
    await until(lambda: again.hear() == [told(3)])
    RankHandler("node0", heard, VirtualClock(), RestartCache(str(cache._path.parent), "node0", "another boot"))
    heard.worker("pretrain", 8).told = None
    again.say(worker(8, 3, "broken", step=6))
    await until(lambda: heard.worker("pretrain", 8).report.step == 6)
    assert again.hear() == []


async def test_an_agent_that_has_just_begun_waits_before_it_objects(heard, handler, monkeypatch, impatient):
    """Processes connect within two seconds."""
    monkeypatch.setattr(rank_socket, "_CONNECTS_ANEW_S", 1_000)
    wanted = order(change(at="node1", to="node1"))
    assert handler.check(wanted, asked(wanted)) == ""
    assert (await handler.apply(wanted)).reason == "no process of pretrain runs here"
    survivor = heard.speak(worker(8, 3, "broken"))
    await until(lambda: survivor.hear() == [told(3)])


async def test_a_planned_order_has_the_time_of_a_step(heard, handler, impatient):
    """Workers leave when the step is done, and not before."""
    (survivor,) = await spoken(heard, worker(8, 3))
    wanted = order(change(at="node1", to="node1"), at_step=100, cause="drain")
    result = await handler.apply(wanted)
    confirming = asyncio.create_task(handler.confirm(result, FAULT))
    await asyncio.sleep(0.4)
    assert survivor.hear() == [told(3, at_step=100, cause="drain")]
    survivor.say(worker(8, 3, "forming", generation=1, step=100))
    assert (await confirming).reason == ""


# -- by command --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def agent(heard, free_port):
    """One that has the handler, and whose clock is not the processes'."""
    made = Agent(0, free_port(socket.SOCK_DGRAM), VirtualClock())
    made.handlers.append(RankHandler("node0", heard, made.clock, made.restart_cache))
    made.arm("off")
    yield made
    made.exchange.close()


async def carried_out(agent, wanted, name="c1"):
    """The outcome of a command."""
    shell = command(agent, name)
    fields = {
        field: getattr(shell, field) for field in ("id", "node", "cause", "issued_ns", "deadline_ns", "lease_revision")
    }
    await agent.commands.on_command(Command.of(wanted, fault=FAULT, **fields))
    return agent.outcomes[-1]


async def test_a_command_is_answered_by_what_its_workers_did(heard, agent, monkeypatch):
    """Done, already, refused, and failed with what is missing."""
    _, survivor, taker, _ = await four(heard)
    answering = asyncio.create_task(carried_out(agent, order()))
    await until(lambda: heard.worker("pretrain", 9).told)
    for process, rank, speaker in ((8, 3, survivor), (9, 2, taker)):
        speaker.say(worker(process, rank, "forming", generation=1))
    done = await answering
    assert (done.verb, done.status, done.reason, done.expected) == ("replace-rank", "done", "", 2)
    assert (done.order(), done.undo_order(), done.confirmed_ns > 0, done.moved_ns > 0) == (order(), None, True, True)

    assert (await carried_out(agent, order(), "c2")).status == "already"
    old = await carried_out(agent, order(change(3, 8, 10)), "c3")
    assert (old.status, "generation" in old.reason) == ("refused", True)
    monkeypatch.setattr(rank_handler, "_ANSWERS_S", 0.2)
    failed = await carried_out(agent, order(change(3, 8, 10), generation=2), "c4")
    assert (failed.status, failed.confirmed_ns) == ("failed", 0)
    assert failed.reason == "process 9 of rank 2 does not answer, process 10 does not answer"


async def test_the_trace_of_a_command_goes_on_to_the_first_step(heard, agent, spans):
    """Below its span, with the times that the worker told; what was before the order is not in it."""
    (survivor,) = await spoken(heard, worker(8, 3, "broken", left_ns=1, formed_ns=2))
    answering = asyncio.create_task(carried_out(agent, order(change(at="node1", to="node1"))))
    await until(survivor.hear)
    left_ns = raw_ns()
    survivor.say(worker(8, 3, "forming", generation=1, left_ns=left_ns, formed_ns=2))
    assert (await answering).status == "done"
    formed_ns, copied_ns, stepped_ns = raw_ns(), raw_ns() + 1, raw_ns() + 2
    times = {"left_ns": left_ns, "formed_ns": formed_ns, "copied_ns": copied_ns, "first_step_ns": stepped_ns}
    for _ in range(2):
        survivor.say(worker(8, 3, generation=1, state_bytes=99, lost_steps=1, **times))
    await until(lambda: spans("first step"))
    survivor.say(worker(8, 3, generation=1, step=9, **times))
    await until(lambda: heard.worker("pretrain", 8).report.step == 9)

    (above,) = spans("apply command")
    made = [spans(name) for name in ("leave group", "form group", "copy state", "first step")]
    assert [len(each) for each in made] == [1, 1, 1, 1]
    epoch_ns = heard.worker("pretrain", 8).epoch_ns
    ends = [span.end_time for (span,) in made]
    assert max(abs(end - told_ns - epoch_ns) for end, told_ns in zip(ends, times.values(), strict=True)) < S
    assert [span.start_time for (span,) in made[1:]] == ends[:-1]
    for (span,) in made:
        assert span.context.trace_id == trace_id(FAULT)
        assert span.parent.span_id == above.context.span_id
        assert span.attributes["foliot.job"] == "pretrain"
    assert made[2][0].attributes["foliot.state_bytes"] == 99
    assert above.parent.span_id == root_span_id(FAULT)


async def test_a_trace_that_breaks_keeps_nobody_from_being_heard(heard, agent, monkeypatch):
    """It ends there."""

    def breaks(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(rank_handler.tracing, "past", breaks)
    (survivor,) = await spoken(heard, worker(8, 3, "broken"))
    answering = asyncio.create_task(carried_out(agent, order(change(at="node1", to="node1"))))
    await until(survivor.hear)
    survivor.say(worker(8, 3, "forming", generation=1, left_ns=raw_ns()))
    assert (await answering).status == "done"
    survivor.say(worker(8, 3, "copying", generation=1, left_ns=raw_ns()))
    await until(lambda: heard.worker("pretrain", 8).report.stage == "copying")
