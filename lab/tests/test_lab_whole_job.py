"""A job that lost a rank is whole again once all ranks have done a step in a newer group, and the spares stand by."""

import pytest

from foliot_lab.faults.whole_job import generation, is_whole
from foliot_schemas import WorkerBatch, WorkerState

SINCE, PROCESSES = 1, 3


def worker(rank=-1, number=0, stage=None, stepped=True, alive="running"):
    """A process: a spare, or one that trains in a group."""
    return WorkerState(
        process=10 + rank, rank=rank, generation=number, step=5, stage=stage or ("spare" if rank < 0 else "training"),
        alive=alive, since_ns=1, heard_ns=1, first_step_ns=1 if stepped else 0,
    )  # fmt: skip


def told(*workers):
    """Each on a node of its own, of a job of two ranks."""
    return [
        WorkerBatch(job="train", node=f"node{number}", at_ns=1, bound_ns=-1, size=2, workers=(each,))
        for number, each in enumerate(workers)
    ]


@pytest.mark.parametrize(
    ("workers", "is_it"),
    [
        ([worker(0, 2), worker(1, 2), worker()], True),
        ([worker(0, 1), worker(1, 1), worker()], False),  # as before the fault
        ([worker(0, 2), worker(1, 1), worker()], False),
        ([worker(0, 2), worker(1, 2, stepped=False), worker()], False),
        ([worker(0, 2), worker(1, 2, stage="copying"), worker()], False),
        ([worker(0, 2), worker(1, 2)], False),  # the spare has not come yet
        ([worker(0, 2), worker(1, 2), worker(alive="gone")], False),
        ([], False),
    ],
)
def test_all_ranks_step_in_a_newer_group_and_all_processes_are_there(workers, is_it):
    """By what the nodes told last."""
    assert is_whole(told(*workers), SINCE, PROCESSES) is is_it


def test_the_group_before_a_fault_is_the_newest_that_trains():
    """None trains before the job begins."""
    assert generation(told(worker(0, 3), worker(1, 4, stage="forming"))) == 3
    assert generation(told(worker())) == -1
