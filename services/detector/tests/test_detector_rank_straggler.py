"""Slow ranks of training jobs: who is named, for which cause, and who is not."""

from __future__ import annotations

import random

import pytest
from prepared import prepared
from told_job import MS, MeshJob, S, ToldJob

from draws import draws
from foliot_schemas import Event


@pytest.fixture
def make_job():
    """Makes a job that has run for some seconds."""

    def make(**more):
        job = prepared(running, **more)
        assert job.take("straggler") == []
        return job

    return make


def running(**more):
    """A job that has run for some seconds."""
    job = ToldJob(**more)
    job.run(6)
    return job


def test_a_rank_that_computes_longer_is_named(make_job):
    """With its node, and what it costs: a quarter of the time. Steps took 120 ms, and take 160 ms."""
    job = make_job()
    job.ranks[2].compute_ns += 40 * MS
    begun_ns = job.now_ns
    job.run(6)

    (slow,) = job.take("straggler")
    assert (slow.who, slow.state) == ("pretrain/rank2", "compute")
    assert slow.related == {"jobs": ("pretrain",), "nodes": ("node2",)}
    assert slow.evidence["share"] == pytest.approx(0.24, abs=0.05)
    assert slow.at_ns - job.ranks[2].skew_ns - begun_ns <= 4 * S


def test_a_rank_that_was_much_slower_is_in_step_again_and_the_next_is_named(make_job):
    """What was long before is no measure of what comes after it."""
    job = make_job()
    for number in (2, 0):
        job.ranks[number].data_ns = 250 * MS
        job.run(6)
        job.ranks[number].data_ns = 0
        job.run(6)

    found = [(event.who, event.state) for event in job.take("straggler")]
    assert found == [(f"pretrain/rank{number}", state) for number in (2, 0) for state in ("data", "in-step")]


def test_a_slow_rank_of_long_steps_is_named(make_job):
    """Of two seconds, with a single collective that follows a long time of computing."""
    job = ToldJob(comm_ms=50.0)
    for rank in job.ranks:
        rank.compute_ns = 2 * S
    job.run(60)
    assert job.take("straggler") == []

    job.ranks[1].compute_ns += S
    job.run(60)
    assert [event.who for event in job.take("straggler")] == ["pretrain/rank1"]


def test_it_is_in_step_again(make_job):
    """One event, and one that ends it."""
    job = make_job()
    job.ranks[2].compute_ns += 40 * MS
    job.run(6)
    job.ranks[2].compute_ns -= 40 * MS
    job.run(6)

    begun, ended = job.take("straggler")
    assert (ended.state, ended.cause, ended.fault) == ("in-step", begun.id, begun.fault)


def test_a_rank_that_waits_for_its_data_is_told_apart(make_job):
    """By how long its loader says that it waited."""
    job = make_job()
    for rank in job.ranks:
        rank.data_ns = 3 * MS
    job.ranks[1].data_ns = 50 * MS
    job.run(6)

    (slow,) = job.take("straggler")
    assert (slow.who, slow.state) == ("pretrain/rank1", "data")


@pytest.mark.parametrize(
    ("alone", "loads", "state"),
    [(True, False, "processor"), (True, True, "processor"), (False, False, "compute")],
)
def test_a_rank_that_has_no_processor_is_told_apart(make_job, alone, loads, state):
    """By what the kernel counts, also where its program loads data then. Its peers may wait as long: that is no reason."""
    job = make_job()
    for rank in job.ranks if not alone else [job.ranks[1]]:
        rank.delay_ns = 50 * MS
        rank.is_loading = loads
    if not alone:
        job.ranks[1].compute_ns += 50 * MS
    job.run(8)

    (slow,) = job.take("straggler")
    assert (slow.who, slow.state) == ("pretrain/rank1", state), slow.evidence


def test_all_ranks_that_get_slow_are_none(make_job):
    """Nobody waits for anybody."""
    job = make_job()
    for rank in job.ranks:
        rank.compute_ns *= 3
    job.run(12)

    assert job.take("straggler") == []


def test_one_long_step_is_none(make_job):
    """A rank that collects its garbage."""
    job = make_job()
    for _ in range(5):
        job.ranks[0].compute_ns += 400 * MS
        job.run(0.25)
        job.ranks[0].compute_ns -= 400 * MS
        job.run(6)

    assert job.take("straggler") == []


def test_a_slow_network_is_no_slow_rank(make_job):
    """The collectives take longer, for all."""
    job = make_job()
    job.comm_ns *= 4
    job.run(12)

    assert job.take("straggler") == []


@pytest.mark.parametrize("seed", draws(2))
def test_uneven_ranks_are_none(make_job, seed):
    """Each step's times differ by a tenth from rank to rank."""
    job = make_job(jitter=0.1, seed=seed)
    job.run(60)

    assert job.take("straggler") == []


def test_of_two_ranks_the_slow_one_is_named(make_job):
    """There is one peer to compare with."""
    job = make_job(ranks=2)
    job.ranks[1].compute_ns += 40 * MS
    job.run(6)

    assert [slow.who for slow in job.take("straggler")] == ["pretrain/rank1"]


def test_two_slow_ranks_of_eight_are_both_named(make_job):
    """The median of the others is not slow."""
    job = make_job(ranks=8)
    for number in (1, 6):
        job.ranks[number].compute_ns += 40 * MS
    job.run(8)

    assert {slow.who for slow in job.take("straggler")} == {"pretrain/rank1", "pretrain/rank6"}


def test_clocks_do_not_matter(make_job):
    """Nodes whose clocks are seconds apart, and one that steps meanwhile; who is slow is named all the same."""
    job = make_job()
    job.bound_ns = -1
    for number, rank in enumerate(job.ranks):
        rank.skew_ns = number * 7 * S
    job.run(6)
    job.ranks[3].skew_ns -= S // 2
    job.run(8)
    assert job.take("straggler") == []

    job.ranks[2].compute_ns += 40 * MS
    job.run(8)
    assert [slow.who for slow in job.take("straggler")] == ["pretrain/rank2"]


def test_a_process_that_is_stopped_again_and_again_is_named_by_that(make_job):
    """It slows the collectives themselves, which all end together. A single stop is none."""
    job = make_job()
    job.ranks[1].process = "stopped"
    job.run(0.25)
    job.ranks[1].process = "running"
    job.run(5)
    assert job.take("straggler") == []

    job.comm_ns *= 2
    for count in range(20):
        job.ranks[1].process = "stopped" if count % 2 else "running"
        job.run(0.25)
    job.comm_ns //= 2
    job.ranks[1].process = "running"
    job.run(6)

    slow, again = job.take("straggler")
    assert (slow.who, slow.state, again.state) == ("pretrain/rank1", "halted", "in-step")
    assert slow.evidence["share"] > 0.2


@pytest.mark.parametrize("starved", [(1,), (0, 1, 2, 3)])
def test_a_process_whose_threads_have_no_processor_slows_the_collectives(make_job, starved):
    """It is named by what the kernel counts, unless all ranks have too few processors."""
    job = make_job()
    job.run(5)
    job.comm_ns *= 2
    for _ in range(20):
        for number in starved:
            job.ranks[number].delayed_ns += 100 * MS
        job.run(0.25)
    job.comm_ns //= 2
    job.run(6)

    told = [(slow.who, slow.state) for slow in job.take("straggler")]
    assert told == ([("pretrain/rank1", "processor"), ("pretrain/rank1", "in-step")] if len(starved) == 1 else [])


@pytest.mark.parametrize("seed", draws(2))
def test_a_halted_process_waits_for_its_data_no_longer_than_it_is_halted(make_job, seed):
    """Most of what a step takes is the making of its data, which halts lengthen as they do all else."""
    chance, job = random.Random(seed), make_job()
    for rank in job.ranks:
        rank.data_ns = 60 * MS
    job.run(6)
    halted = chance.uniform(0.6, 0.8)
    job.ranks[1].data_ns, job.ranks[1].compute_ns = (
        round(took_ns / (1 - halted)) for took_ns in (job.ranks[1].data_ns, job.ranks[1].compute_ns)
    )
    for _ in range(40):
        job.ranks[1].process = "stopped" if chance.random() < halted else "running"
        job.run(0.25)

    slow = job.take("straggler")[0]
    assert (slow.who, slow.state) == ("pretrain/rank1", "halted"), slow.evidence


def test_a_job_that_is_over_ends_what_was_said_of_it(make_job):
    """No rank is slow for ever."""
    job = make_job()
    job.ranks[2].compute_ns += 40 * MS
    job.run(6)
    for rank in job.ranks:
        rank.process = "ended"
    job.run(2)

    assert [slow.state for slow in job.take("straggler")] == ["compute", "over"]


TENSOR_BY_DATA = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}


def mesh(slow, times=1.8):
    """Ranks that wait eight times for a peer of their tensor group, and then for one of their data group."""
    programs = []
    for rank in range(4):
        own_ms = 5.0 * (times if rank in slow else 1.0)
        programs.append([*((own_ms, f"tp{rank // 2}") for _ in range(8)), (own_ms, f"dp{rank % 2}")])
    return programs


@pytest.mark.parametrize("slow", [(), (3,), (0,), (2, 3), (0, 1)])
def test_of_a_job_of_several_groups_the_slow_ranks_are_named_alone(slow):
    """Not those that wait for them in another group. Two on one node are slow among their data peers alone."""
    job = MeshJob(mesh(slow), TENSOR_BY_DATA)
    job.run(20)

    assert {event.who for event in job.events} == {f"mesh/rank{rank}" for rank in slow}
    assert all(event.state == "compute" for event in job.events)


def test_a_job_that_was_started_anew_is_watched_at_once(make_job):
    """Its ranks count their collectives from the first again."""
    job = make_job()
    job.run(30)
    for rank in job.ranks:
        rank.since_ns = rank.ended_ns = job.now_ns
        rank.begun = rank.through = rank.began_ns = 0
        rank.done.clear()
    job._due = None
    job.ranks[3].compute_ns *= 2
    job.run(6)

    assert [event.who for event in job.take("straggler")] == ["pretrain/rank3"]


def test_what_is_said_of_a_rank_ends_when_nothing_is_known_any_more(make_job):
    """Another rank of the group is not heard, so that nobody knows who waits for whom."""
    job = make_job()
    job.ranks[2].compute_ns *= 2
    job.run(6)
    job.ranks[0].told = False
    job.run(70)

    assert [event.state for event in job.take("straggler")] == ["compute", "unknown"]


def test_a_rank_that_another_run_named_is_not_slow_for_ever():
    """Its job was over before this run began."""
    job = ToldJob()
    job.ranks[2].compute_ns *= 2
    job.run(8)
    (begun,) = job.take("straggler")
    later = ToldJob()
    later.name = "other"
    later.pipeline.resume(begun)
    later.run(70)

    assert [event.state for event in later.take("straggler")] == ["unknown"]


def contention(state="reduced-rate", who="node2.rail0", flows=("node2.rail0>node3.rail0",), **more):
    """What the detector says of contention."""
    return Event(id=f"{who}/{state}", kind="contention", who=who, state=state, at_ns=5, since_ns=4, fault="f",
                 related={"flows": flows, "links": ("in:node2.rail0",)}, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("trouble", "who", "nodes"),
    [
        (contention(), "pretrain/rank2", ("node2",)),
        (contention("slow-receiver", "node2.rail0>node3.rail0"), "pretrain/rank3", ("node3",)),
        (contention("fabric-contention", "10.1.0.0"), "pretrain", ("node0", "node1", "node2", "node3")),
    ],
)
def test_longer_collectives_are_the_networks_where_something_is_said_of_its_flows(make_job, trouble, who, nodes):
    """The event follows from that, and ends when the collectives are as before."""
    job = make_job()
    job.pipeline.inventory.learn_event(trouble)
    job.run(6)
    assert job.take("straggler") == []  # nothing takes longer yet
    job.comm_ns *= 3
    job.run(6)
    job.comm_ns //= 3
    job.run(6)

    slow, again = job.take("straggler")
    assert (slow.who, slow.state, slow.cause, slow.fault) == (who, "network", trouble.id, "f")
    assert (slow.related["nodes"], slow.related["flows"]) == (nodes, ("node2.rail0>node3.rail0",))
    assert slow.evidence["share"] > 0.2
    assert (again.state, again.cause) == ("in-step", slow.id)


def test_what_is_said_of_other_flows_is_no_cause(make_job):
    """Of nodes that have no rank, or of what is over."""
    job = make_job()
    job.pipeline.inventory.learn_event(contention(flows=("node2.rail0>node9.rail0",)))
    job.pipeline.inventory.learn_event(contention(who="node1.rail0", flows=("node1.rail0>node3.rail0",)))
    job.pipeline.inventory.learn_event(contention("clear", "node1.rail0", ()))
    job.comm_ns *= 3
    job.run(8)

    assert job.take("straggler") == []


def test_a_slow_rank_is_no_slow_network(make_job):
    """Though something is said of its flows, which wait for it."""
    job = make_job()
    job.pipeline.inventory.learn_event(contention())
    job.ranks[2].compute_ns += 100 * MS
    job.run(8)

    assert [(event.who, event.state) for event in job.take("straggler")] == [("pretrain/rank2", "compute")]
