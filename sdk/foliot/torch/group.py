"""A job whose ranks can be replaced: its process groups, one after the other, until its work is done.

    for group in foliot.torch.groups({"model": model, "optimizer": optimizer}, join=join):
        with group:
            parallel = DistributedDataParallel(model)
            while group.step < STEPS:
                train(parallel, optimizer, batch(group.rank, group.step))
                group.end_step()

Where a rank is lost, the others' collectives end with an error. The `with` statement holds that error back until the
agent says who takes the rank. Then a new group forms. Who has done most steps gives its state to those that have done
fewer, and all go on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from foliot.torch.worker import Worker


class Group:
    """One process group of the job. Use it in a `with` statement, and make everything that needs the group there."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def rank(self) -> int:
        """This process's rank in the job. It stays the same in all groups."""
        return self._worker.rank

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return self._worker.size

    @property
    def generation(self) -> int:
        """The group's number, from 0."""
        return self._worker.generation

    @property
    def step(self) -> int:
        """How many steps the job has done: the number of the one that is to be done next."""
        return self._worker.step

    def end_step(self) -> None:
        """Says that a step is done. Call it when the state is whole: after the optimizer's step."""
        self._worker.end_step()

    def __enter__(self) -> Self:
        """Begins to work in the group."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        """Ends the work in the group; holds an error back if a new group follows."""
        return True if self._worker.left_by(error) else None


def groups_of(worker: Worker) -> Iterator[Group]:
    """The groups in which a worker is, one after the other, see `foliot.torch.groups`."""
    worker.enter_first()
    while True:
        yield Group(worker)
        if worker.is_over:
            return
        worker.enter_next()
