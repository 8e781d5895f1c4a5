"""Slow ranks of training jobs: who is named, for which cause, and who is not."""

from __future__ import annotations

import pytest
from told_job import MS, S, ToldJob


@pytest.fixture
def make_job():
    """Makes a job that has run for some seconds."""

    def make(**more):
        job = ToldJob(**more)
        job.run(6)
        assert job.take("straggler") == []
        return job

    return make


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


@pytest.mark.parametrize("seed", range(5))
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
    """Nodes whose clocks are seconds apart, and one that steps meanwhile."""
    job = make_job()
    job.ranks[3].skew_ns -= S // 2
    job.run(8)

    assert job.take("straggler") == []


def test_a_job_that_is_over_ends_what_was_said_of_it(make_job):
    """No rank is slow for ever."""
    job = make_job()
    job.ranks[2].compute_ns += 40 * MS
    job.run(6)
    for rank in job.ranks:
        rank.process = "ended"
    job.run(1)

    assert [slow.state for slow in job.take("straggler")] == ["compute", "over"]
