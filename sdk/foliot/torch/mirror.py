"""Copies of what each rank has for itself, in the memory of the next one: what a lost rank had is not lost.

Source of the idea: Wang et al., "GEMINI: Fast Failure Recovery in Distributed Training with In-Memory Checkpoints",
SOSP 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot.torch.state_transfer import Packed, exchange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from foliot.torch.state_transfer import Stateful

_KEPT = 2
"""Steps of which copies are kept: while the last is exchanged, some ranks have it already and others not yet."""
NO_STEP = -1


class StateLostError(RuntimeError):
    """Nobody has what a rank needs: the keeper of its copy is lost, too, or all others were changing their state."""


class _Copy(NamedTuple):
    """The state after a step."""

    own: Packed
    """All of this rank's."""
    neighbours: Packed
    """What the rank before this one has for itself."""


class Mirror:
    """The copies that this rank keeps.

    Parameters:
        state: what all ranks have alike.
        shard: what each has for itself.
    """

    def __init__(self, state: Mapping[str, Stateful], shard: Mapping[str, Stateful]) -> None:
        self._all = {**{f"state/{name}": each for name, each in state.items()},
                     **{f"shard/{name}": each for name, each in shard.items()}}  # fmt: skip
        self._shard = shard
        self._copies: dict[int, _Copy] = {}

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of which this rank has copies, the newest first: `_KEPT` of them, -1 in place of what is not."""
        return tuple([*sorted(self._copies, reverse=True), *[NO_STEP] * _KEPT][:_KEPT])

    def keep(self, step: int, rank: int, size: int, device: torch.device) -> None:
        """Copies the state after a step, and exchanges copies with the neighbours; all ranks of the group do.

        Raises:
            RuntimeError: the group is broken. What was kept before is still there.
        """
        own, shard = Packed.of(self._all).copied(), Packed.of(self._shard).copied()
        neighbours = exchange(shard, (rank + 1) % size, (rank - 1) % size, device) if size > 1 else shard
        self._copies[step] = _Copy(own, neighbours)
        for old in sorted(self._copies)[:-_KEPT]:
            del self._copies[old]

    def put_back(self, step: int) -> None:
        """Makes this rank's state what it was after a step of which it has a copy. Copies of later ones go."""
        self._copies[step].own.give_to(self._all)
        self._copies = {each: kept for each, kept in self._copies.items() if each <= step}

    def neighbours(self, step: int) -> Packed:
        """What the rank before this one had for itself after a step."""
        return self._copies[step].neighbours

    def forget(self) -> None:
        """Forgets all copies."""
        self._copies.clear()


def common_step(kept: Sequence[Sequence[int]]) -> int:
    """The newest step to which a job can go back.

    Parameters:
        kept: by rank, the steps of which it has copies; of a rank that is new, none but -1.

    Raises:
        StateLostError: there is none.
    """
    new = [rank for rank, steps in enumerate(kept) if max(steps) < 0]
    if orphans := [rank for rank in new if (rank + 1) % len(kept) in new]:
        lost = ", ".join(str(each) for each in orphans)
        raise StateLostError(f"rank {lost} is lost with the one that had its copy")
    common = set.intersection(*({step for step in steps if step >= 0} for steps in kept if max(steps) >= 0))
    if not common:
        raise StateLostError("no step is one of which all ranks have copies")
    return max(common)
