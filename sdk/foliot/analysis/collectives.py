"""What a rank says of its collectives: which it began, which are done, and in which groups."""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """A process group."""

    name: str
    """Unique within the job."""
    description: str
    members: tuple[int, ...]
    """Ranks of the job, in the order of their ranks in the group. Empty: not told."""


class Operation(NamedTuple):
    """A collective, or one side of a transfer between two ranks."""

    order: int
    """Of two operations of a rank, the one with the lower number was begun first."""
    group: str
    number: int
    """Of the collectives of its group, counted from the first. Of a transfer: of those that were begun before it."""
    name: str
    """Without the name of the library: ``all_reduce``, ``send``."""
    sender: int | None
    """Of a transfer, by its rank in the group."""
    receiver: int | None
    sizes: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
    """Shapes of the tensors that go in, and of those that come out."""
    types: tuple[tuple[str, ...], tuple[str, ...]]
    is_done: bool

    @property
    def is_transfer(self) -> bool:
        """Whether it is between two ranks, and no collective."""
        return self.sender is not None


class Progress(NamedTuple):
    """How far a rank is in a group's collectives, by their numbers."""

    begun: int
    done: int


class RankRecord(NamedTuple):
    """What one rank says."""

    rank: int
    groups: dict[str, Group]
    """Of which it is a member, by name."""
    progress: dict[str, Progress]
    """By the group's name; a group is missing where the rank does not say."""
    operations: tuple[Operation, ...]
    """In the order in which they were begun. Older ones may be missing."""
    is_whole: bool = True
    """Whether all that it may wait in is recorded. Gloo records no transfers."""
    is_in_order: bool = True
    """Whether its collectives run one after the other, as on a GPU's stream. Gloo's run side by side: of several, each
    may end for some ranks, and for others not, when one of them stops."""
