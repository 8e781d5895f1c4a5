"""Whether a training job whose ranks can be replaced is whole again after a fault, as its nodes tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from foliot_schemas import WorkerBatch, WorkerState


def generation(told: Collection[WorkerBatch]) -> int:
    """The number of the newest group in which a rank trains; -1: there is none.

    Parameters:
        told: what each node told last of the job's processes.
    """
    return max((each.generation for each in _running(told) if each.stage == "training"), default=-1)


def is_whole(told: Collection[WorkerBatch], since: int, processes: int) -> bool:
    """Whether all ranks have done a step in a group that was formed after a fault, and the spares stand by.

    Parameters:
        told: what each node told last of the job's processes.
        since: the number of the group before the fault.
        processes: how many are to run, ranks and spares.
    """
    newest = generation(told)
    stepping = {
        each.rank
        for each in _running(told)
        if each.stage == "training" and each.generation == newest and each.first_step_ns
    }
    spares = [each for each in _running(told) if each.stage == "spare"]
    size = max((batch.size for batch in told), default=0)
    return newest > since and len(stepping) == size and len(stepping) + len(spares) >= processes


def _running(told: Collection[WorkerBatch]) -> Iterator[WorkerState]:
    return (each for batch in told for each in batch.workers if each.alive == "running")
