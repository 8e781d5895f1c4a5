"""Who is blamed for a hang, in drawn jobs whose faults are known."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from draws import draws
from foliot.analysis.collectives import Group, Operation, Progress, RankRecord
from foliot.analysis.hang import Verdict, judge
from hung_job import HungJob


def hung(seed, faults, world=8):
    """A job with drawn faults of a kind, that came so far as to meet one."""
    rng = random.Random(seed)
    for attempt in itertools.count():
        ranks = rng.sample(range(world), rng.choice([1, 1, 2]))
        at = rng.randrange(8, 20)
        job = HungJob(seed + 1000 * attempt, world, **{faults: {rank: at + rng.randrange(3) for rank in ranks}})
        if job.at_fault() and not job.anybody_ended():
            return job
    raise AssertionError


def blamed(verdict):
    """Ranks with the reason."""
    return {each.rank: each.why for each in verdict.blamed}


@pytest.mark.parametrize("seed", draws(60))
def test_the_ranks_that_stopped_are_named_and_no_other(seed):
    """Each that came to where it stops; others wait for it, or for who waits for it."""
    job = hung(seed, "stopped")

    verdict = judge(job.records(), job.world)

    assert blamed(verdict) == dict.fromkeys(job.at_fault(), "absent")
    assert verdict.is_certain


@pytest.mark.parametrize("seed", draws(60))
def test_a_rank_whose_gpu_is_broken_is_named_if_others_are_further(seed):
    """It took part in what it does not know of. Nobody else is blamed, whether or not that shows."""
    job = hung(seed, "broken")

    found = blamed(judge(job.records(), job.world))

    assert set(found) <= job.at_fault()
    assert set(found.values()) <= {"behind"}
    shows = {rank for rank in job.at_fault() if _is_shown(job, rank)}
    assert shows <= set(found)


def _is_shown(job, rank):
    """Whether others noticed the ends of two all-reduces of a group of which this rank did not."""
    own = job.ranks[rank]
    unnoticed = [step for step in own.steps[own.seen : own.done] if step.transfer is None and step.name == "all_reduce"]
    noticed = {id(step): step for other in job.ranks for step in other.steps[: other.seen]}
    groups = Counter(step.group for step in unnoticed if id(step) in noticed)
    return max(groups.values(), default=0) >= 2


@pytest.mark.parametrize("faults", ["stopped", "broken", "differing"])
@pytest.mark.parametrize("seed", draws(25))
def test_missing_words_blame_nobody_else(seed, faults):
    """One to four ranks say nothing: the others are blamed as before or not at all, and it is said to be uncertain."""
    job = hung(seed, faults)
    rng = random.Random(seed)

    for number in (1, 2, 3, 4):
        without = rng.sample(range(job.world), number)
        verdict = judge(job.records(without), job.world)

        assert set(blamed(verdict)) <= job.at_fault() | set(without)
        assert {rank for rank, why in blamed(verdict).items() if why == "dead"} <= set(without)
        assert not set(without) & set(blamed(verdict)) or len(verdict.blamed) == 1
        assert not verdict.is_certain


@pytest.mark.parametrize("seed", draws(20))
def test_a_rank_that_died_is_named_where_all_wait_for_it_alone(seed):
    """It left no word."""
    job = HungJob(seed, stopped={3: 15})
    assert job.at_fault() == {3}

    verdict = judge(job.records(without=[3]), job.world)

    assert blamed(verdict) == {3: "dead"}
    assert not verdict.is_certain


@pytest.mark.parametrize("seed", draws(40))
def test_a_tensor_of_another_size_is_named_where_most_agree(seed):
    """In a pair nobody can say who is right; then nobody is blamed, and both are told."""
    job = hung(seed, "differing")

    verdict = judge(job.records(), job.world)

    assert set(blamed(verdict)) <= job.at_fault()
    told = {rank for each in verdict.mismatches for rank in each.ranks}
    # Broadcasts and all-reduces have one size everywhere, transfers have none that is compared.
    steps = {rank: job.ranks[rank].steps[at] for rank, at in job.differing.items() if job.ranks[rank].done == at}
    assert {rank for rank, step in steps.items() if step.transfer is None} <= told
    assert all(each.field == "size" for each in verdict.mismatches)
    for each in verdict.mismatches:
        assert each.is_decided == (2 * len(each.ranks) < len(job.groups[each.group]))


def record(rank, *operations, begun=None, done=None, groups=("0",), members=(0, 1, 2)):
    """What a rank says of collectives, by group and number, that are not done."""
    made = tuple(
        Operation(order, group, number, name, None, None, ((), ()), ((), ()), is_done=False)
        for order, (group, number, name) in enumerate(operations)
    )
    progress = {group: Progress((begun or {}).get(group, 0), (done or {}).get(group, 0)) for group in groups}
    return RankRecord(rank, {name: Group(name, "", members) for name in groups}, progress, made)


def test_where_all_stand_at_one_collective_nobody_is_blamed():
    """The network or a GPU may be at fault: nothing shows which."""
    told = {rank: record(rank, ("0", 5, "all_reduce"), begun={"0": 5}, done={"0": 4}) for rank in range(3)}

    verdict = judge(told, 3)

    assert verdict.blamed == ()
    assert not verdict.is_certain


def test_who_sent_a_broadcast_and_has_nothing_more_to_do_is_not_absent():
    """It is through with what the others wait in, which no all-reduce would permit."""
    told = {rank: record(rank, ("0", 5, "broadcast"), begun={"0": 5}, done={"0": 4}) for rank in (1, 2)}
    told[0] = record(0, begun={"0": 5}, done={"0": 5})

    assert judge(told, 3).blamed == ()


def test_two_that_wait_for_each_other_are_not_blamed_alone():
    """Each began first what the other begins second."""
    told = {
        0: record(0, ("0", 1, "all_reduce"), groups=("0", "1"), begun={"0": 1}, members=(0, 1)),
        1: record(1, ("1", 1, "all_reduce"), groups=("0", "1"), begun={"1": 1}, members=(0, 1)),
    }

    verdict = judge(told, 2)

    assert verdict.blamed == ()
    assert not verdict.is_certain


def test_nothing_hangs_where_all_is_done():
    """Nobody is blamed, and that is certain."""
    verdict = judge({rank: record(rank, begun={"0": 5}, done={"0": 5}) for rank in range(3)}, 3)

    assert verdict == Verdict((), (), True)


def test_another_operation_is_a_mismatch_before_its_size_is():
    """The fewer differ."""
    told = {rank: record(rank, ("0", 5, "all_reduce"), begun={"0": 5}, done={"0": 4}) for rank in range(3)}
    told[1] = record(1, ("0", 5, "barrier"), begun={"0": 5}, done={"0": 4})

    verdict = judge(told, 3)

    assert blamed(verdict) == {1: "mismatch"}
    assert verdict.mismatches == (("0", 5, "all_reduce", "op", (1,), True),)
    assert verdict.is_certain


def test_a_thousand_ranks_are_judged_at_once():
    """A group of all of them, in which one does not appear; each has its own pair besides."""
    world = 1024
    told = {
        rank: record(rank, ("0", 7, "all_reduce"), begun={"0": 7}, done={"0": 6}, members=tuple(range(world)))
        for rank in range(world)
    }
    told[700] = record(700, begun={"0": 6}, done={"0": 6}, members=tuple(range(world)))

    assert blamed(judge(told, world)) == {700: "absent"}
