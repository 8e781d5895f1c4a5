"""`foliot why`: the workers of a job whose ranks can be replaced."""

from __future__ import annotations

import msgspec

from foliot.cli import why


def answer(**more):
    """What a gateway answers about a job."""
    job = {
        "job": "pretrain-7", "registered": False, "priority": 0, "nodes": ["node0"], "flows": 0, "carried_bps": 0.0,
        "slowest": "", "slowest_share": None,
    }  # fmt: skip
    return msgspec.convert({"job": job, "slowest": None, "cause": None} | more, why.JobWhy)


def worker(rank, **more):
    """What it has of a worker."""
    told = {"rank": rank, "node": f"node{rank}", "stage": "training", "generation": 1, "step": 40, "alive": "running"}
    return told | more


def lines(**more):
    """The lines between the nodes and the slowest flow."""
    said = [*why.of_job(answer(**more))]
    return said[2:-1]


def test_workers_of_one_stage_are_told_together():
    """However many they are, and though they told their steps at different times."""
    found = [worker(rank, step=40 + rank % 2) for rank in range(10)]
    found[3] |= {"stage": "failed", "alive": "gone", "generation": 0, "step": 7, "reason": "nobody gave it an order"}

    named = ", ".join(f"rank {rank} on node{rank}" for rank in (0, 1, 2, 4, 5, 6, 7, 8))
    assert lines(workers=found, spares=2) == [
        "  workers  training, generation 1, step 40 to 41",
        f"           {named}, 1 more",
        "  workers  failed, process gone, generation 0, step 7: nobody gave it an order",
        "           rank 3 on node3",
        "  spares   2",
    ]


def test_a_job_without_workers_has_no_line_about_them():
    """Nor has one of a gateway of an earlier version."""
    assert lines() == []


def test_a_job_that_nobody_registered_is_told_of_by_its_workers():
    """Its name is not one that Foliot made up."""
    assert next(why.of_job(answer())).startswith("pretrain-7  told of by its workers, nodes: 1")
