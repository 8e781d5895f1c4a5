"""Training jobs that hang: who is named, when, and what is no hang."""

from __future__ import annotations

import numpy as np
import pytest
from prepared import prepared
from told_job import S, ToldJob

from foliot_schemas import CollectiveBatch, CollectiveGroup, CollectiveRow, Job, ProgressRow, RankState


@pytest.fixture
def job():
    """A job that has run for ten seconds."""
    made = prepared(running)
    assert made.take("hang") == []
    return made


def running():
    """As `job` has it."""
    made = ToldJob()
    made.run(10)
    return made


def test_a_rank_that_begins_no_more_is_named_alone(job):
    """It is absent; the event says in which collective the others wait, and where the rank runs."""
    job.ranks[2].halted = True
    begun_ns = job.now_ns
    job.run(5)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state, hang.confidence) == ("pretrain/rank2", "absent", 1.0)
    assert hang.related == {"jobs": ("pretrain",), "nodes": ("node2",)}
    assert hang.evidence["collective"] == "all_reduce"
    assert hang.evidence["waiting"] == 3
    assert hang.at_ns - job.ranks[2].skew_ns - begun_ns < 5 * S
    assert abs(hang.since_ns - job.ranks[2].skew_ns - begun_ns) < S


def test_it_goes_on_when_the_rank_does(job):
    """One event, and one that ends it."""
    job.ranks[2].halted = True
    job.run(8)
    job.ranks[2].halted = False
    job.run(2)

    begun, ended = job.take("hang")
    assert (ended.state, ended.cause, ended.fault) == ("moving", begun.id, begun.fault)


def test_a_stopped_process_is_named_though_it_has_begun_all(job):
    """By its count it is where all are, so that the counts blame nobody."""
    rank = job.ranks[1]
    rank.process, job.comm_ns = "stopped", 1_000 * S
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state) == ("pretrain/rank1", "stopped")


def test_a_process_that_is_gone_is_dead(job):
    """And all others, which wait for it, are not."""
    job.ranks[3].halted, job.ranks[3].process = True, "gone"
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state, hang.confidence) == ("pretrain/rank3", "dead", 1.0)


def test_a_rank_of_which_nothing_is_heard_is_dead_with_a_doubt(job):
    """Its node may be cut off the bus."""
    job.ranks[3].halted, job.ranks[3].told = True, False
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state, hang.confidence) == ("pretrain/rank3", "dead", 0.5)


def test_a_network_that_stands_names_no_rank(job):
    """All have begun the collective, so the job is stuck."""
    job.comm_ns = 1_000 * S
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state) == ("pretrain", "stuck")
    assert hang.related["nodes"] == ("node0", "node1", "node2", "node3")


@pytest.mark.parametrize(("field", "value"), [("operation", "barrier"), ("elements", 7)])
def test_a_rank_that_begins_something_else_is_a_mismatch(job, field, value):
    """By the operation, or by the size of its tensors."""
    setattr(job.ranks[1], field, value)
    job.comm_ns = 1_000 * S
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state) == ("pretrain/rank1", "mismatch")


def test_a_node_without_the_bus_makes_no_hang(job):
    """The job goes on, and so do the words of the others."""
    job.ranks[0].told = False
    job.run(20)

    assert job.take("hang") == []


def test_two_ranks_that_stand_are_both_named(job):
    """Neither waits for the other in a collective."""
    job.ranks[0].halted = job.ranks[3].halted = True
    job.run(6)

    assert {hang.who for hang in job.take("hang")} == {"pretrain/rank0", "pretrain/rank3"}


def test_long_steps_are_no_hang():
    """Steps of two seconds, and a rank that once takes three times as long."""
    job = ToldJob(comm_ms=100.0)
    for rank in job.ranks:
        rank.compute_ns = 2 * S
    job.run(60)
    job.ranks[1].compute_ns = 6 * S
    job.run(9)
    job.ranks[1].compute_ns = 2 * S
    job.run(30)

    assert job.take("hang") == []


def test_a_rank_that_pauses_from_time_to_time_is_named_the_first_time_alone(job):
    """As one does that writes checkpoints."""
    for _ in range(4):
        job.ranks[0].halted = True
        job.run(8)
        job.ranks[0].halted = False
        job.run(20)

    assert [hang.state for hang in job.take("hang")] == ["absent", "moving"]


def test_a_job_that_sets_itself_up_is_given_time():
    """Its first collectives wait for the slowest import or compilation."""
    job = ToldJob()
    job.ranks[2].halted = True
    job.run(20)

    assert job.take("hang") == []


def test_a_job_that_is_over_ends_what_was_said_of_it(job):
    """Whoever watches the event must not wait for ever."""
    job.ranks[2].halted = True
    job.run(6)
    for rank in job.ranks:
        rank.process = "ended"
    job.run(1)

    assert [hang.state for hang in job.take("hang")] == ["absent", "over"]


def test_another_run_of_the_detector_ends_what_one_began(job):
    """It has the event, and sees the job move."""
    job.ranks[2].halted = True
    job.run(6)
    (begun,) = job.take("hang")
    later = ToldJob()
    later.pipeline.resume(begun)
    later.run(3)

    (ended,) = later.take("hang")
    assert (ended.state, ended.cause) == ("moving", begun.id)


def test_ranks_of_a_job_that_is_registered_elsewhere_are_not_believed(job):
    """A node that has no NIC of the job cannot speak of it."""
    job.pipeline.observe(Job(name="pretrain", nics=("node0.rail0", "node1.rail0"), since_ns=1))
    job.run(3)

    assert job.pipeline.counts["collectives_refused"] > 0


def test_a_rank_that_pauses_excuses_no_other(job):
    """The patience with it is not had with the others."""
    job.ranks[0].halted = True
    job.run(12)
    job.ranks[0].halted = False
    job.run(10)
    job.ranks[1].halted = True
    job.run(5)

    assert [hang.who for hang in job.take("hang")] == ["pretrain/rank0", "pretrain/rank0", "pretrain/rank1"]


def test_a_node_that_is_gone_with_all_its_ranks_is_named_by_them(job):
    """With a doubt: it may be cut off the bus."""
    for number in (2, 3):
        job.ranks[number].node = "node2"
    job.run(10)
    for number in (2, 3):
        job.ranks[number].halted, job.ranks[number].told = True, False
    job.run(6)

    found = {(hang.who, hang.state, hang.confidence) for hang in job.take("hang")}
    assert found == {("pretrain/rank2", "dead", 0.5), ("pretrain/rank3", "dead", 0.5)}


@pytest.mark.parametrize("numbers", [(1,), (1, 2)])
def test_ranks_whose_program_ended_are_dead_to_those_that_wait(job, numbers):
    """As by an exception: they said that they were over."""
    for number in numbers:
        job.ranks[number].halted, job.ranks[number].process = True, "ended"
    job.run(6)

    found = {(hang.who, hang.state, hang.confidence) for hang in job.take("hang")}
    assert found == {(f"pretrain/rank{number}", "dead", 1.0) for number in numbers}


def test_a_bus_that_is_away_does_not_make_a_job_go_on(job):
    """Nothing is heard for a while, and then the same as before."""
    job.ranks[2].halted = True
    job.run(6)
    for rank in job.ranks:
        rank.told = False
    job.run(4)
    for rank in job.ranks:
        rank.told = True
    job.run(6)

    assert [hang.state for hang in job.take("hang")] == ["absent"]


def test_agents_that_are_started_anew_do_not_make_a_job_go_on(job):
    """They date the beginning of the processes anew, by a little."""
    job.ranks[2].halted = True
    job.run(6)
    for rank in job.ranks:
        rank.since_ns += 40_000
    job.run(6)

    assert [hang.state for hang in job.take("hang")] == ["absent"]


def test_those_that_give_up_waiting_are_no_culprits(job):
    """They abort, one after the other, as by a timeout; or a debugger looks at one."""
    job.ranks[2].halted = True
    job.run(6)
    job.ranks[0].process = "stopped"
    job.run(3)
    job.ranks[1].process = "gone"
    job.run(5)

    assert [(hang.who, hang.state) for hang in job.take("hang")] == [("pretrain/rank2", "absent")]


def test_a_program_that_says_nothing_any_more_is_named_with_a_doubt(job):
    """It holds the interpreter's lock, and its last word was that it waits like all others."""
    job.comm_ns = 1_000 * S
    job.run(1)
    job.ranks[3].heard = False
    job.run(7)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state, hang.confidence) == ("pretrain/rank3", "silent", 0.5)


def test_a_rank_whose_words_do_not_come_through_makes_no_hang(job):
    """The job goes on, as the others say."""
    job.ranks[3].heard = False
    job.run(20)

    assert job.take("hang") == []


def word(job, rows, progress=()):
    """What node0 says of rank 0, in any words."""
    at_ns = job.now_ns
    return CollectiveBatch.of(
        np.array(rows, CollectiveRow), np.array([*progress], ProgressRow), job="other", node="node0", at_ns=at_ns,
        bound_ns=9, size=2, ranks=(RankState(rank=0, process="running", since_ns=5, heard_ns=at_ns),), groups=("g", "h"),
        operations=("recv",), types=("x",),
    )  # fmt: skip


def test_a_rank_that_waits_in_a_group_of_which_it_does_not_say_how_far_it_is_stops_nothing(job):
    """Whoever may write to a socket may say so; and the job of others is watched all the same."""
    for _ in range(400):
        job.pipeline.observe(word(job, [(0, 0, 0, 0, 3, 3, -1, 1, 0, 1, 1, 1)]))
        job.run(0.25)
    job.ranks[2].halted = True
    job.run(6)

    assert [hang.who for hang in job.take("hang") if hang.who.startswith("pretrain")] == ["pretrain/rank2"]


def test_transfers_are_moves(job):
    """A pipeline's stage that sends and receives, and has collectives at the end of a long step alone."""
    for order in range(200):
        rows = [(0, 0, 0, 0, 1, order, 1, 1, 9, 1, 1, 1), (0, 0, 0, 0, 1, order + 1, 1, 1, 0, 1, 1, 1)]
        job.pipeline.observe(word(job, rows, [(0, 0, 1, 1)]))
        job.run(0.25)

    assert job.take("hang") == []


def test_a_failure_of_this_detector_stops_no_other(job, monkeypatch):
    """It is counted and told, and tried again."""
    monkeypatch.setattr("foliot_detector.core.detectors.job_hang.blame.judge", lambda *_: 1 / 0)
    job.ranks[2].halted = True
    job.run(6)

    assert job.pipeline.counts["detectors_failed"] > 0
    assert job.pipeline.failures()[0].part == "job-hang"
    assert job.take("hang") == []


def test_those_for_which_collectives_did_not_end_are_not_behind(job):
    """Two run side by side when a process is stopped, and both end for one rank alone, which had all its data."""
    at_ns = job.now_ns

    def said(rank, process, through):
        rows = [(0, 0, 0, 0, number, number, -1, 1, 2 if number <= through else 0, 9, 9, 9) for number in (80, 81)]
        return CollectiveBatch.of(
            np.array(rows, CollectiveRow), np.array([(0, 0, 81, through)], ProgressRow), job="side", node=f"node{rank}",
            at_ns=at_ns, bound_ns=9, size=4, ranks=(RankState(rank=rank, process=process, since_ns=5, heard_ns=at_ns),),
            groups=("0",), members=(CollectiveGroup(name="0", members=((0, 1, 4),)),), operations=("all_reduce",),
            types=("x",),
        )  # fmt: skip

    for _ in range(280):
        at_ns = job.now_ns
        for rank, through in enumerate((79, 79, 81, 79)):
            job.pipeline.observe(said(rank, "stopped" if rank == 0 else "running", through))
        job.run(0.25)

    assert [(hang.who, hang.state) for hang in job.take("hang")] == [("side/rank0", "stopped")]
