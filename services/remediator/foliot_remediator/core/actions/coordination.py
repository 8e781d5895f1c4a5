"""Who coordinates the moves of a rail, and what shards and coordinators tell each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from foliot.node.shard import Shard
    from foliot_schemas import MoveAnswer, MoveOrder

SERVICE = "remediator"


class Coordination:
    """This process among the shards of the remediator, by what the leases say.

    Parameters:
        shard: the nodes that it commands.
        shards: all shards of the fleet.
    """

    def __init__(self, shard: Shard, shards: Sequence[Shard]) -> None:
        self.is_shared = not shard.is_whole
        """Whether others command nodes of the fleet as well."""
        self.role = shard.role(SERVICE)
        """The name of this shard."""
        self._shards = {each.role(SERVICE): each for each in shards or (shard,)}
        self.terms: Mapping[str, int] = {}
        """By rail that this process coordinates, the revision of its lease."""
        self.led: Collection[str] = ()
        """Rails that somebody coordinates."""
        self.refused_orders = 0
        """How many orders of former coordinators were refused."""
        self._outgoing: list[MoveOrder | MoveAnswer] = []

    @property
    def shards(self) -> Collection[str]:
        """The names of all shards."""
        return self._shards.keys()

    def role_of(self, node: str) -> str:
        """The name of the shard that commands a node."""
        return next((role for role, shard in self._shards.items() if shard.owns(node)), self.role)

    def send(self, message: MoveOrder | MoveAnswer) -> None:
        """Has a message published."""
        self._outgoing.append(message)

    def outgoing(self) -> list[MoveOrder | MoveAnswer]:
        """Takes out what is to be published."""
        messages, self._outgoing = self._outgoing, []
        return messages
