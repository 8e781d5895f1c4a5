"""Checks a job against the fabric and against the other jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.scenario.job_traffic import hosts_of, pairs_of, rails_of
from foliot_lab.scenario.spec import TrainSpec
from foliot_lab.scenario.topology import leaf_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot_lab.scenario.spec import FabricSpec, JobSpec
    from foliot_lab.scenario.validation import Trouble

MOST_JOBS = 64
"""Each job has a port of its own."""
_OF_FLOWS = ("step_mb", "mbps", "read_mbps")
_LEAST_HOSTS = 2
_LEAST_RANKS = 2


def job_problems(jobs: Sequence[JobSpec | None], fabric: FabricSpec) -> Iterator[Trouble]:
    """Every error in these jobs for this fabric; None stands for a job that could not be read."""
    names: set[str] = set()
    trains = 0
    for position, job in enumerate(jobs):
        if job is None:
            continue
        if job.name in names:
            yield position, "name", f"a job {job.name} is there already"
        names.add(job.name)
        trains += job.kind == "train"
        if job.kind == "train" and trains > 1:
            yield position, "kind", "there is a job of kind train already, and there can be one"
        if position == MOST_JOBS:
            yield position, "name", f"there can be {MOST_JOBS} jobs"
        yield from ((position, field, reason) for field, reason in _problems(job, fabric))
    present = [job for job in jobs if job is not None]
    collide = [position for position, job in enumerate(jobs) if job is not None and job.placed == "collide"]
    if len(present) == len(jobs) and collide and _most_on_a_link(present, fabric) < _LEAST_HOSTS:
        reason = "no two flows of the jobs that are to collide leave the same leaf, or come to the same from another"
        yield collide[0], "placed", reason


def _problems(job: JobSpec, fabric: FabricSpec) -> Iterator[tuple[str, str]]:
    yield from _place_problems("hosts", job.hosts, hosts_of(_whole(job), fabric))
    yield from _place_problems("rails", job.rails, rails_of(_whole(job), fabric))
    hosts = hosts_of(job, fabric)
    if len(hosts) < _LEAST_HOSTS:
        yield "hosts", f"{job.kind} needs two hosts or more"
    elif job.kind == "pairs" and len(hosts) % 2:
        yield "hosts" if job.hosts is not None else "kind", f"pairs needs an even number of hosts, not {len(hosts)}"
    if job.kind == "train":
        yield from ((name, f"train has no {name}") for name in _OF_FLOWS if getattr(job, name) is not None)
        if job.for_s is not None:
            yield "for_s", "train has no for_s: it goes on until its steps are done, or the run is over"
        if job.placed != "hash":
            yield "placed", "train has no placed: the lab does not know which ranks send to which"
        yield from train_problems(job.train(), len(hosts))
        return
    if fabric.spray and job.placed != "hash":
        yield "placed", f"{job.placed} means nothing where leaves spray packets: no flow has a way of its own"
    for name in TrainSpec.__struct_fields__:
        if getattr(job, name) is not None:
            yield name, f"{job.kind} has no {name}; only train has"
    if (job.step_mb is None) == (job.mbps is None):
        yield "kind", f"{job.kind} needs either step_mb or mbps"


def train_problems(train: TrainSpec, hosts: int) -> Iterator[tuple[str, str]]:
    """Every error in a training job on so many hosts, by the key to blame."""
    if train.spares >= hosts:
        yield "spares", f"{train.spares} spares of {hosts} hosts leave none for ranks"
    elif train.ranks(hosts) < _LEAST_RANKS:
        yield "spares", "train needs two ranks or more beside its spares"
    if train.spares and not train.outlives_ranks:
        yield "spares", 'spares go with use = "foliot", or with checkpoint_steps: nothing else would use them'
    if train.checkpoint_steps is not None and train.use == "foliot":
        yield "checkpoint_steps", 'checkpoint_steps go with use = "plain": ranks that can be replaced need none'


def _whole(job: JobSpec) -> JobSpec:
    """The same kind of job, over everything that there is."""
    return type(job)(name=job.name, kind=job.kind)


def _place_problems(key: str, given: tuple[str, ...] | None, known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if given is None:
        return
    if not given:
        yield key, f"{key} is empty; left out, it means all"
    for name in dict.fromkeys(given):
        if name not in known:
            yield key, f"there is no {name}; the fabric has {known[0]} to {known[-1]}"
        elif given.count(name) > 1:
            yield key, f"{name} is named twice"


def _most_on_a_link(jobs: Sequence[JobSpec], fabric: FabricSpec) -> int:
    """The most flows that could share a fabric link, of the jobs that are to collide."""
    sizes = leaf_sizes(fabric.hosts, fabric.leaves)
    leaves = [leaf for leaf, size in enumerate(sizes) for _ in range(size)]
    leaf_of = {f"node{host}": leaf for host, leaf in enumerate(leaves)}
    ends: list[tuple[str, str, int | None]] = []
    for job in jobs:
        for source, destination in pairs_of(job.kind, hosts_of(job, fabric)) if job.placed == "collide" else ():
            here, there = leaf_of.get(source), leaf_of.get(destination)
            if here != there:
                ends += [
                    (rail, way, leaf) for rail in rails_of(job, fabric) for way, leaf in (("up", here), ("down", there))
                ]
    return max((ends.count(end) for end in set(ends)), default=0)
