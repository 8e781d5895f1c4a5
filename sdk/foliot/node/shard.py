"""A shard of a large fleet: the nodes whose names lie in a range. Several processes share the fleet by shards.

Shards are ranges, and no hash. Nodes that exchange traffic mostly have neighbouring names, and a shard has to hear of
its nodes' peers as well.
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
        """Whether a node is the shard's own: only the shard judges and commands it."""
        return self.start <= node and (not self.end or node < self.end)

    def concerns(self, record: Node) -> bool:
        """Whether the shard has to hear of a node: of its own, and of those that exchange traffic with them."""
        return self.is_whole or self.owns(record.name) or not record.peers or any(map(self.owns, record.peers))

    def narrow(self, record: Node) -> Node:
        """A node's record. If the node does not concern the shard, the record is as if the node had left."""
        return record if self.concerns(record) else Node(name=record.name, nics=())

    def role(self, service: str) -> str:
        """The name of a service's role on this shard, as a subject token."""
        return f"{service}-{escape(self.start)}" if self.start else service


WHOLE = Shard()
_LONGEST = 128
"""Most characters of an escaped name. A shard's role is a name itself, and escaped again in subjects."""


class ShardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[shard]``: the part of the fleet that a sync, detector or remediator serves."""

    starts: tuple[str, ...] = ()
    """The first node of the second shard, and of each that follows; the same for all processes. Empty: each serves the
    whole fleet."""
    number: int = 0
    """Number of the shard that this process serves; 0: the nodes before the first of `starts`."""

    def __post_init__(self) -> None:
        """Refuses shards out of order, and a number that no shard has.

        Raises:
            ValueError: the settings have one of these; the message names the key.
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
        """All shards."""
        return [Shard(start, end) for start, end in itertools.pairwise(("", *self.starts, ""))]
