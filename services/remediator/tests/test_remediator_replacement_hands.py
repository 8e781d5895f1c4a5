"""Who takes over knows from what nodes tell: what is done is not done again. And what is bounded."""

from __future__ import annotations

import msgspec
import pytest
import replacement_world
from prepared import prepared
from remediator_world import SECOND
from replacement_world import JOB, ReplacementWorld

from foliot.node.shard import Shard
from foliot_remediator.core.remedies.replacement import workers
from foliot_remediator.core.remedies.replacement.workers import TrainingJob, TrainingJobs
from foliot_schemas import WorkerBatch
from foliot_schemas.worker import WorkerState


@pytest.fixture
def world():
    """Four ranks on four nodes, and spares on two others."""
    return prepared(ReplacementWorld)


def remedy(world):
    """The remedy of a world's remediator."""
    return world.core.remedies["replacement"]


# -- hands ------------------------------------------------------------------------------------------------------------


def test_who_takes_over_does_not_replace_again_what_is_done(world):
    """The event is told once more, before and after the words of the nodes."""
    event = world.hang_event(1)
    world.lose(1)
    world.run(3.0)
    world.take_over()
    world.see(event)
    world.run(3.0)
    world.see(event)
    world.run(5.0)
    assert len(world.orders) == 1
    assert world.guards() == []
    assert not remedy(world)._cases


@pytest.mark.parametrize("forms_s", [0.3, 6.0])
def test_who_takes_over_does_not_replace_again_what_is_under_way(world, monkeypatch, forms_s):
    """However long the group takes to form."""
    monkeypatch.setattr(replacement_world, "FORMS_NS", forms_s * SECOND)
    event = world.hang_event(1)
    world.die(1)
    world.see(event)
    world.run(0.1)
    world.take_over()
    world.see(event)
    world.run(10.0)
    assert len(world.orders) == 1
    assert world.guards() == []


def test_who_takes_over_does_what_was_not_done(world):
    """After a second, in which all nodes have told of their workers."""
    world.core.hold(0, world.now_ns, held_by_another=True)
    world.lose(1)
    event = world.hang_event(1)
    world.take_over()
    world.see(event)
    world.run(0.9)
    assert world.orders == []
    world.run(0.5)
    assert [order.generation for order in world.orders] == [1]
    assert {command.lease_revision for command in world.commands} == {8}


def test_who_stood_by_does_what_was_not_done(world):
    """It has heard all of it."""
    world.core.hold(0, world.now_ns, held_by_another=True)
    world.lose(1)
    world.core.hold(9, world.now_ns)
    world.run(1.5)
    assert len(world.orders) == 1


def test_who_takes_over_goes_on_from_the_highest_generation(world):
    """Also where the next loss comes only then."""
    world.lose(1)
    world.run(3.0)
    world.take_over()
    world.run(3.0)
    world.lose(2, number=2)
    assert [order.generation for order in world.orders] == [1, 2]


def test_who_takes_over_counts_what_brings_no_step(world):
    """As far as it has heard of the generations."""
    world.lose(1)
    world.take_over()
    world.run(0.1)
    job = remedy(world)._jobs.get(JOB)
    assert job.fruitless == 1
    world.run(3.0)
    assert job.fruitless == 0


def test_a_shard_refuses(world):
    """A job may have nodes of several, and each commands its own alone."""
    shards = Shard("", "node3"), Shard("node3", "")
    world.take_over(shards[0], shards)
    world.run(3.0)
    world.lose(1)
    assert (world.orders, world.guards()) == ([], ["sharded"])
    assert world.refusals[0].evidence["shards"] == 2


# -- bounds -----------------------------------------------------------------------------------------------------------


def batch(*states, job=JOB, node="node0"):
    """What a node tells."""
    return WorkerBatch(job=job, node=node, at_ns=1, bound_ns=1, size=4, workers=states)


def state(process, rank=-1, **more):
    """A process."""
    more = {"stage": "training" if rank >= 0 else "spare", "alive": "running", "generation": 0, "step": 0, **more}
    return WorkerState(process=process, rank=rank, since_ns=0, heard_ns=0, **more)


def told(job, at_s, *states, node="node0"):
    """A job hears from a node, and forgets what is old."""
    now_ns = round(at_s * SECOND)
    job.take(batch(*states, node=node), lambda _: now_ns, now_ns)
    job.expire(now_ns)


def test_a_job_that_nobody_speaks_of_is_forgotten_after_a_minute(world):
    """With what was said of it."""
    world.lose(1)
    world.mates.clear()
    world.run(62.0)
    assert remedy(world)._jobs.get(JOB) is None
    world.run(62.0)
    assert not remedy(world)._cases


def test_a_batch_counts_only_if_its_node_is_in_the_inventory(world):
    """Others can make up what they like."""
    world.see(batch(state(1, 0), job="other", node="stranger"))
    assert remedy(world)._jobs.get("other") is None


def test_so_many_jobs_are_remembered():
    """The one that was told of longest ago goes first."""
    jobs = TrainingJobs()
    for number in range(workers._MOST_JOBS + 2):
        jobs.take(batch(state(1, 0), job=f"job{number}"), lambda at_ns: at_ns, 1)
    assert len([*jobs]) == workers._MOST_JOBS
    assert jobs.get("job1") is None
    assert jobs.get("job2") is not None


def test_processes_that_are_told_no_more_are_forgotten():
    """But for who has a rank, which may be replaced yet. A node cannot make up any number of them."""
    job = TrainingJob(JOB, 0)
    told(job, 0, state(1, 0), state(2))
    told(job, 61, state(3))
    assert {worker.state.process for worker in job} == {1, 3}
    for number in range(10, 1_000):
        told(job, 62, state(number))
    assert len([*job]) == workers._MOST_OF_A_NODE
    job.forget_node("node0")
    assert not [*job]


def test_of_two_that_say_that_they_have_a_rank_the_later_has_it():
    """By its generation, and then by whether it lives."""
    job = TrainingJob(JOB, 0)
    told(job, 0, state(1, 0, alive="gone"), state(2, 1, generation=1))
    told(job, 0, state(1, 0), state(2, 1), node="node1")
    assert {rank: (each.node, each.state.process) for rank, each in job.ranks().items()} == {
        0: ("node1", 1),
        1: ("node0", 2),
    }


def test_a_generation_that_is_made_up_is_not_believed():
    """The next one must have a number."""
    job = TrainingJob(JOB, 0)
    told(job, 0, state(1, 0, generation=(1 << 63) - 1))
    assert (job.generation, job.ranks()) == (0, {})


def test_a_step_takes_what_it_takes_mostly():
    """Not what it takes while the job stands."""
    job = TrainingJob(JOB, 0)
    for at_s, step in ((0, 0), (1, 4), (2, 8), (3, 12), (60, 13), (61, 17), (62, 21)):
        now_ns = at_s * SECOND
        job.take(batch(state(1, 0, step=step)), lambda _, now_ns=now_ns: now_ns, now_ns)
    assert job.step_ns == SECOND // 4
    assert job.step_at(now_ns) == 21
    assert job.step_at(now_ns + SECOND) == 25
    assert job.step_at(now_ns + 60 * SECOND) == 29, "nobody tells of it any more"


def test_a_drain_without_an_end_is_kept_and_one_that_is_over_is_not(world):
    """A node that is to be left and left the fleet is still to be left when it comes back."""
    world.drain(4)
    remedy(world).forget_node("node4")
    assert remedy(world)._troubled.wish("node4") is not None
    world.drain(4, over=True)
    assert remedy(world)._troubled.wish("node4") is None


def test_the_worse_fault_of_a_node_stands():
    """Whichever came first; one from before counts no more."""
    world = prepared(ReplacementWorld, spares=())
    troubled = remedy(world)._troubled
    world.hardware(1, "failed")
    world.now_ns += 1
    world.hardware(1, "degraded")
    assert troubled.wish("node1").is_urgent
    world.now_ns += 1
    world.hardware(1, "restarted")
    world.now_ns -= 2
    world.hardware(1, "failed")
    assert troubled.wish("node1") is None


def test_old_events_are_not_acted_upon(world):
    """One of more than an hour ago is the stream's, not the job's."""
    event = msgspec.structs.replace(world.hang_event(1), at_ns=world.now_ns - 3_601 * SECOND)
    world.die(1)
    world.see(event)
    world.run(1.0)
    assert world.orders == []
