"""A shard of a large fleet: the nodes whose names lie in a range. Several processes share the fleet by shards.

Ranges, and not a hash: nodes that exchange traffic have mostly been named one after the other, and a shard has to hear of its nodes' peers as well.
"""

from __future__ import annotations

import itertools

import msgspec

from foliot_schemas import Node
from foliot_schemas.bounds import check_name
from foliot_schemas.names import escape


class Shard(msgspec.Struct, frozen=True):
    """The nodes from one name on and before another, as text is ordered."""

    start: str = ""
    """Empty: from the first on."""
    end: str = ""
    """Empty: to the last."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole fleet."""
        return not self.start and not self.end

    def owns(self, node: str) -> bool:
        """Whether it sees to a node: it alone says what befalls it, and commands it."""
        return self.start <= node and (not self.end or node < self.end)

    def concerns(self, record: Node) -> bool:
        """Whether it has to hear of a node: its own, and those that exchange traffic with them."""
        return self.is_whole or self.owns(record.name) or not record.peers or any(map(self.owns, record.peers))

    def narrow(self, record: Node) -> Node:
        """A node's record; of one that is of no concern, as if it had left."""
        return record if self.concerns(record) else Node(name=record.name, nics=())

    def role(self, service: str) -> str:
        """The name of what a service does on this shard, as a subject token."""
        return f"{service}-{escape(self.start)}" if self.start else service


WHOLE = Shard()
_LONGEST = 128
"""Escaped: a shard's role is a name itself, and escaped again in subjects."""


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[shard]``: which part of the fleet a sync, detector or remediator sees to."""

    starts: tuple[str, ...] = ()
    """The first node of the second shard, and of each that follows; the same for all processes. Empty: each sees to the whole fleet."""
    number: int = 0
    """Which of the shards this process sees to; 0: the nodes before the first of `starts`."""

    def __post_init__(self) -> None:
        """Refuses shards out of order, and one that is not there.

        Raises:
            ValueError: they are; the message names the key.
        """
        for start in self.starts:
            try:
                check_name(start)
            except ValueError as error:
                raise ValueError(f"field `starts`: {error}") from error
            if len(escape(start)) > _LONGEST:
                raise ValueError(f"field `starts`: {start[:64]!r} is too long for the name of a shard")
        if any(later <= earlier for earlier, later in itertools.pairwise(self.starts)):
            raise ValueError(
                f"field `starts` must be in order, each once, as text is ordered: {', '.join(self.starts)}"
            )
        if not 0 <= self.number <= len(self.starts):
            raise ValueError(f"field `number` must be from 0 to {len(self.starts)}, got {self.number}")

    def shard(self) -> Shard:
        """The shard of this process."""
        return self.all()[self.number]

    def all(self) -> list[Shard]:
        """All that there are."""
        return [Shard(start, end) for start, end in itertools.pairwise(("", *self.starts, ""))]
