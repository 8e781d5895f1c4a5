"""Ranks that can be replaced: who is lost, when that is said, and how it ends."""

from __future__ import annotations

import pytest
from prepared import prepared
from told_job import MS, S, node
from told_workers import ReplaceableJob

from foliot_schemas import Job, decode, encode
from foliot_schemas.event import Event


@pytest.fixture
def job():
    """A job that has run for ten seconds."""
    made = prepared(running)
    assert made.take("hang") == []
    return made


def running():
    """As `job` has it."""
    made = ReplaceableJob()
    made.run(10)
    return made


def said(job, kind="hang"):
    """What was said of ranks: (rank, state)."""
    return [(event.who.partition("/")[2], event.state) for event in job.take(kind)]


def test_a_worker_that_is_gone_is_dead_at_once(job):
    """As soon as another misses it; the event says which process, and how many have missed it."""
    job.lose(3)
    job.fail(0)

    (dead,) = job.take("hang")
    assert (dead.who, dead.state, dead.confidence) == ("pretrain/rank3", "dead", 1.0)
    assert dead.related == {"jobs": ("pretrain",), "nodes": ("node3",)}
    assert dead.evidence["broken"] == 1
    assert dead.evidence["process"] == 1_210
    assert dead.evidence["waited_s"] == 0
    assert dead.since_ns == job.now_ns + job.ranks[3].skew_ns


def test_it_is_so_though_nobody_has_missed_it_yet(job):
    """A ring has those that still wait. No more than a look of the detector passes."""
    job.lose(3)
    assert job.take("hang") == []
    job.run(0.5)

    assert said(job) == [("rank3", "dead")]


def test_a_job_that_is_ended_as_a_whole_has_lost_nobody(job):
    """Its processes end within a moment, one after the other."""
    for number in range(4):
        job.lose(number)
    job.run(5)

    assert job.take("hang") == []


def test_a_job_whose_ranks_are_done_one_after_the_other_has_lost_nobody(job):
    """They say that they are over, and end."""
    for number in range(4):
        job.turn(job.ranks[number], "over")
        job.lose(number)
        job.run(0.5)

    assert job.take("hang") == []


def test_a_worker_that_gives_up_is_dead_though_its_process_runs(job):
    """It has said so, and waits for nobody any more."""
    job.fail(0, 1, 2)
    job.turn(job.ranks[3], "failed")

    assert said(job) == [("rank3", "dead")]


def test_a_spare_that_is_gone_is_no_rank(job):
    """Nobody waits for it."""
    job.spares[0].process = "gone"
    job.say(job.spares[0])
    job.run(6)

    assert job.take("hang") == []


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("broken", [(), (0, 1, 2)])
def test_a_node_that_is_cut_off_is_dead_with_a_doubt(broken, recorded):
    """Whether the others wait or their collectives failed, and whether collectives are recorded."""
    job = ReplaceableJob()
    job.is_recorded = recorded
    job.run(10)
    job.ranks[3].halted, job.ranks[3].told = True, False
    job.fail(*broken)
    cut_ns = job.now_ns
    job.run(4)

    (dead,) = job.take("hang")
    assert (dead.who, dead.state, dead.confidence) == ("pretrain/rank3", "dead", 0.5)
    assert dead.evidence["broken"] == len(broken)
    assert dead.at_ns - cut_ns <= 4 * S


def test_a_bus_that_was_away_makes_nobody_silent(job):
    """A rank was lost meanwhile. Then nodes are heard again, one after the other."""
    places = [*job.ranks, *job.spares]
    for place in places:
        place.told = False
    job.lose(2)
    job.fail(0, 1, 3)
    job.run(4)
    for number in (0, 2, 4, 1, 5, 3):
        places[number].told = True
        job.run(0.5)
    job.run(2)

    assert {(hang.who, hang.state, hang.confidence) for hang in job.take("hang")} == {("pretrain/rank2", "dead", 1.0)}


def test_a_node_without_the_bus_is_no_loss(job):
    """The others do their steps."""
    job.ranks[3].told = False
    job.run(20)

    assert job.take("hang") == []


@pytest.mark.parametrize(("sign", "state", "confidence"), [("stopped", "stopped", 1.0), ("mute", "silent", 0.5)])
def test_a_process_that_does_not_do_its_part_is_named_where_nothing_is_recorded(sign, state, confidence):
    """By its node's word of it, as the others do no steps any more."""
    job = ReplaceableJob()
    job.is_recorded = False
    job.run(10)
    rank = job.ranks[2]
    rank.halted, rank.last = True, (job.now_ns,)
    rank.process, rank.heard = ("stopped", True) if sign == "stopped" else ("running", False)
    job.run(6)

    (hang,) = job.take("hang")
    assert (hang.who, hang.state, hang.confidence) == ("pretrain/rank2", state, confidence)


def replaced(job, number, pause_s=2):
    """The course from a loss to the steps of the next generation."""
    job.lose(number)
    job.fail(*({*range(4)} - {number}))
    job.run(0.5)
    job.replace(number)
    job.run(pause_s)
    job.train()
    job.run(3)


def test_another_process_that_goes_on_in_its_place_ends_it(job):
    """Though the loser's node still speaks of it."""
    replaced(job, 3)

    begun, ended = job.take("hang")
    assert (ended.state, ended.cause, ended.fault) == ("replaced", begun.id, begun.fault)


@pytest.mark.parametrize("alive", ["stopped", "running"])
def test_one_that_stands_still_is_replaced_too(job, alive):
    """And it changes nothing that its node speaks of it as before."""
    job.lose(3, alive)
    job.run(6)
    job.replace(3)
    job.run(2)
    job.train()
    job.run(20)

    assert said(job) == [("rank3", {"stopped": "stopped", "running": "absent"}[alive]), ("rank3", "replaced")]


def test_another_run_of_the_detector_ends_it(job):
    """It has the event, which names the process."""
    job.lose(3)
    job.fail(0, 1, 2)
    (dead,) = job.take("hang")
    later = ReplaceableJob()
    later.pipeline.resume(decode(encode(dead), Event))
    later.run(1)
    replaced(later, 3)

    assert said(later) == [("rank3", "replaced")]


def test_the_others_alone_end_nothing(job):
    """They wait for the new one, though the step that they had done before was told late."""
    job.lose(3)
    job.fail(0)
    job.say(job.ranks[1], step=10_000)
    job.run(0.5)
    job.replace(3)
    job.ranks[3].told = False
    job.run(1)
    job.train()
    job.run(3)
    assert said(job) == [("rank3", "dead")]

    job.ranks[3].told = True
    job.run(3)
    assert said(job) == [("rank3", "replaced")]


def test_one_that_is_lost_in_its_turn_is_said_to_be(job):
    """Before it has done a step, so that two processes were lost in one place."""
    job.lose(3)
    job.fail(0, 1, 2)
    job.run(0.5)
    job.replace(3)
    job.run(1)
    job.lose(3)
    job.run(0.5)

    assert said(job) == [("rank3", "dead"), ("rank3", "replaced"), ("rank3", "dead")]


def test_a_pause_is_no_hang_and_makes_nobody_patient(job):
    """Of a planned replacement that takes long: nothing is said, and the next hang is found as soon as ever."""
    job.replace(1)
    job.run(20)
    job.train()
    job.run(10)
    assert job.take("hang") == []

    job.ranks[2].halted = True
    begun_ns = job.now_ns
    job.run(5)
    (hang,) = job.take("hang")
    assert (hang.who, hang.state) == ("pretrain/rank2", "absent")
    assert hang.at_ns - begun_ns < 5 * S


@pytest.mark.parametrize("has_workers", [True, False])
def test_state_that_is_copied_by_collectives_makes_nobody_patient(has_workers):
    """It goes on for a while after the first of these. Without a word of workers, that of the new generation is enough."""
    job = ReplaceableJob(spares=3)
    job.has_workers = has_workers
    job.run(10)
    for number in range(3):
        job.replace(number)
        job.run(10)
        for rank in job.ranks:
            rank.halted = False
            job.turn(rank, "copying")
        if has_workers:
            job.run(0.5)
            for rank in job.ranks:
                rank.halted = True
            job.run(10)
        job.train()
        job.run(3)
    assert job.take("hang") == []

    job.ranks[3].halted = True
    job.run(5)
    assert said(job) == [("rank3", "absent")]


def test_a_rank_that_was_replaced_never_has_its_place_back(job):
    """Its process still runs when the one is gone that took its place."""
    job.lose(3, "running")
    job.replace(3)
    job.run(1)
    known = job.pipeline.inventory.training.get("pretrain")
    holder, starts = known.ranks[3], known.starts
    assert holder.node == "spare0"
    job.lose(3)
    job.run(1)

    assert (known.ranks[3], known.starts) == (holder, starts)


def test_workers_that_wait_for_an_order_do_not_wait_in_collectives(job):
    """Those that they began side by side with the one that failed may never end."""
    job.comm_ns = 1_000 * S
    job.run(1)
    for rank in job.ranks:
        job.turn(rank, "broken")
    job.run(10)

    assert said(job) == [("", "broken")]


def test_what_was_left_in_the_last_generation_is_waited_for_by_nobody(job):
    """Though its recorder tells of it for ever."""
    job.comm_ns = 1_000 * S
    job.run(1)
    job.replace(1)
    job.comm_ns = 20 * MS
    job.run(1)
    job.train()
    assert all(rank.left for rank in job.ranks if rank.number != 1)
    job.run(20)

    assert job.take("hang") == []


def test_a_rank_that_was_replaced_excuses_nobody_in_its_place(job):
    """It did not go on by itself."""
    for number in (3, 3):
        job.lose(number, "running")
        job.run(5)
        job.replace(number)
        job.run(1)
        job.train()
        job.run(8)

    assert said(job) == [("rank3", "absent"), ("rank3", "replaced")] * 2


@pytest.mark.parametrize(("takes_s", "named"), [(40, []), (80, [("rank3", "absent")])])
def test_a_process_that_has_just_come_may_set_itself_up(job, takes_s, named):
    """Its first step takes longer than that of the others, as it compiles; it has a minute."""
    job.lose(3)
    job.fail(0)
    job.replace(3)
    job.run(1)
    job.train()
    assert said(job) == [("rank3", "dead")]
    job.ranks[3].halted = True
    job.run(takes_s)
    assert [each for each in said(job) if each[1] != "replaced"] == named
    job.ranks[3].halted = False
    job.run(10)
    job.ranks[3].halted = True
    job.run(8)
    assert said(job)[-1] == ("rank3", "moving" if named else "absent"), "a pause of its own is learnt"


def test_those_whose_collective_failed_are_not_blamed(job):
    """They begin nothing more, as they wait for an order; another of the ring still waits for them."""
    job.lose(3)
    job.fail(0, 2)
    job.ranks[1].begun, job.ranks[1].began_ns = job.ranks[1].through + 1, job.now_ns
    job.run(8)

    assert said(job) == [("rank3", "dead")]


def test_a_job_that_is_started_anew_has_lost_nobody(job):
    """Nodes still speak of the processes of its last run, some of which were of a higher generation."""
    replaced(job, 3)
    for number in range(4):
        job.lose(number)
    job.run(4)
    job.take("hang")
    former, again = list(job.ranks), ReplaceableJob()
    job.former, job.ranks, job.stages = job.former + former, again.ranks, job.stages
    for rank in job.ranks:
        rank.node, rank.since_ns, rank.ended_ns = f"again{rank.number}", job.now_ns, job.now_ns
        job.stages[rank.node] = "training"
        job.pipeline.observe(node(rank.node))
    job.failed_step = job._due = 0
    job._due = None
    job.run(10)
    assert job.take("hang") == []

    job.lose(2)
    job.fail(0, 1, 3)
    assert said(job) == [("rank2", "dead")]


def test_no_straggler_comes_from_a_replacement(job):
    """A process that comes new into a job needs longer for its first steps."""
    job.replace(2)
    job.run(3)
    job.ranks[2].compute_ns += 200 * MS
    job.train()
    job.run(3.5)
    job.ranks[2].compute_ns -= 200 * MS
    job.run(10)

    assert job.take("straggler") == []


def test_a_straggler_that_is_replaced_is_in_step(job):
    """Its event ends by what the new process does."""
    job.ranks[2].compute_ns += 60 * MS
    job.run(8)
    assert said(job, "straggler") == [("rank2", "compute")]
    job.replace(2)
    job.run(1)
    job.train()
    job.run(12)

    assert said(job, "straggler") == [("rank2", "in-step")]


def test_words_of_nodes_without_a_nic_of_the_job_are_refused(job):
    """A registered job is believed only of its own nodes."""
    job.pipeline.observe(Job(name="pretrain", nics=("node0.rail0", "node1.rail0"), since_ns=1))
    job.lose(3)
    job.run(1)

    assert job.pipeline.counts["workers_refused"] > 0


def test_words_that_contradict_themselves_are_counted(job):
    """And change nothing."""
    job.say(job.ranks[3], rank=4)

    assert job.pipeline.counts["workers_broken"] == 1


def test_a_large_job_is_looked_at_less_often(job, monkeypatch):
    """Once a second, as it takes a while: whoever is gone is named by then."""
    monkeypatch.setattr("foliot_detector.core.detectors.job_hang.detector._LARGE", 3)
    job.run(1)
    job.lose(2)
    job.fail(0)
    job.lose(3)
    job.run(1.25)

    assert sorted(said(job)) == [("rank2", "dead"), ("rank3", "dead")]


def test_a_group_that_broke_without_a_loss_is_told_of_as_one(job):
    """Connections were reset. All ranks are there, which is known once a node that is cut off would have been named."""
    job.fail(0, 1, 2, 3)
    job.run(3)
    assert job.take("hang") == []
    job.run(2)

    (broken,) = job.take("hang")
    assert (broken.who, broken.state, broken.confidence) == ("pretrain", "broken", 1.0)
    assert {*broken.related["nodes"]} == {"node0", "node1", "node2", "node3"}
    assert (broken.evidence["broken"], broken.evidence["size"], broken.evidence["generation"]) == (4, 4, 0)
    job.run(10)
    assert job.take("hang") == []


def test_it_is_told_though_others_have_not_missed_anybody_yet(job):
    """They stand in collectives, whose connections are well. It takes no longer."""
    job.fail(1)
    job.run(3)
    assert job.take("hang") == []
    job.run(1)

    assert said(job) == [("", "broken")]


def test_a_group_that_is_formed_anew_ends_it(job):
    """When the first step is done."""
    job.fail(0, 1, 2, 3)
    job.run(6)
    job.form()
    job.run(1)
    assert said(job) == [("", "broken")]
    job.train()
    job.run(3)

    assert said(job) == [("", "moving")]


@pytest.mark.parametrize("alive", ["gone", "stopped"])
def test_a_rank_that_is_lost_is_named_and_not_the_group(job, alive):
    """Those that missed it are broken, too."""
    job.lose(3, alive)
    job.fail(0, 1, 2)
    job.run(8)

    assert said(job) == [("rank3", "dead" if alive == "gone" else "stopped")]


def test_a_node_that_is_cut_off_is_named_and_not_the_group(job):
    """The others' collectives failed at once."""
    job.ranks[3].told = False
    job.ranks[3].halted = True
    job.fail(0, 1, 2)
    job.run(8)

    assert said(job) == [("rank3", "dead")]


def test_a_rank_of_which_no_node_tells_breaks_no_group(job):
    """Whether it lives is not known. Its node was forgotten long before."""
    job.ranks[2].told = False
    job.run(70)
    job.take("hang")
    job.fail(0, 1, 3)
    job.run(8)

    assert ("", "broken") not in said(job)


def test_a_later_group_that_breaks_before_its_first_step_is_told_of_again(job):
    """It is the same fault, which ends when a group does steps. Of one group it is told once."""
    job.fail(0, 1, 2, 3)
    job.run(6)
    for _ in range(2):
        job.form()
        job.run(2)
        job.fail(0, 1, 2, 3)
        job.run(6)
    broken = job.take("hang")
    assert [(each.state, each.evidence["generation"]) for each in broken] == [("broken", number) for number in range(3)]
    assert len({each.id for each in broken}) == 3
    assert len({each.fault for each in broken}) == 1
    job.form()
    job.run(1)
    job.train()
    job.run(3)

    (moving,) = job.take("hang")
    assert (moving.state, moving.fault) == ("moving", broken[0].fault)
