"""The home of each destination's traffic, when all is well: a stored choice, else what the settings or a hash say."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from foliot_remediator.core.scheduling import Round
from foliot_remediator.core.state.inventory import Destination, ends_of
from foliot_remediator.core.state.retention import Index, node_alone
from foliot_schemas import NodeHomes, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_remediator.core.state.inventory import Inventory
    from foliot_remediator.settings import RemediatorSettings

_REWRITE_NS = 60_000_000_000
"""A node's choices are written once more after this long, so that a bus that lost its store has them again."""
_MOST_UNSAVED = 1_024
"""Most choices that wait to be written. To lose them with the lease takes 4 us each, for which an event may have to
wait."""
_AT_ONCE = 1_024
"""Destinations whose values are written in one tick, but always one node: 0.5 us each."""


class Homes:
    """Homes of a fleet, by destination.

    A choice counts while the inventory has its path. It stands as long as the bucket tells it, so that a process that
    runs on and one that starts anew know the same.

    Choices of the lease's holder that the bucket does not tell yet are kept apart. The holder loses that with the
    lease, since its successor knows only the bucket.
    """

    def __init__(self, inventory: Inventory, settings: RemediatorSettings) -> None:
        self._inventory = inventory
        self._hashed = settings.primary == "hash"
        self._configured = {
            Destination(rule.node, rule.peer, rule.rail): Placement(
                peer=rule.peer, rail=rule.rail, via=rule.via, entropy=rule.entropy
            )
            for rule in settings.placements
        }
        self._pinned = frozenset(
            Destination(rule.node, rule.peer, rule.rail) for rule in settings.placements if rule.pinned
        )
        self._chosen: dict[Destination, Placement] = {}
        """As the bucket tells."""
        self._unsaved: dict[Destination, Placement | None] = {}
        """Chosen since; None: the default again."""
        self._own: Index[Destination] = Index(node_alone)
        """Both of these, by node."""
        self._revision: dict[str, int] = {}
        """By node, of the lease under which its value was written."""
        self._across = Index(ends_of)
        """Destinations whose home, chosen or configured, goes by another rail than their own."""
        self._to_write: dict[str, None] = {}
        self._turns = Round(_REWRITE_NS)
        """Nodes with choices."""
        self._note(self._configured)

    def of(self, destination: Destination) -> Placement:
        """The home of a destination's traffic."""
        if self._unsaved or self._chosen:  # most fleets have no choices, and this is asked for each destination
            chosen = self.choice(destination)
            if chosen is not None and self._is_possible(destination, chosen):
                return chosen
        return self.default(destination)

    def default(self, destination: Destination) -> Placement:
        """A destination's home that nobody has chosen: over the service address's own rail, or as the settings say."""
        chosen = self._configured.get(destination)
        if chosen is not None and self._is_possible(destination, chosen):
            return chosen
        node, peer, rail = destination
        count = self._inventory.entropies(node, peer, rail) if self._hashed else 0
        entropy = pair_number(*destination) % count if count else 0
        return Placement(peer=peer, rail=rail, via=rail, entropy=entropy)

    def choice(self, destination: Destination) -> Placement | None:
        """The home that was chosen for a destination, whether or not it is possible now; None: none was."""
        if destination in self._unsaved:
            return self._unsaved[destination]
        return self._chosen.get(destination)

    def is_pinned(self, destination: Destination) -> bool:
        """Whether an administrator has placed it for good."""
        return destination in self._pinned

    def chosen_of(self, node: str) -> list[Destination]:
        """The destinations of a node that have a choice."""
        return sorted(self._own.of(node))

    def has_room(self) -> bool:
        """Whether one more choice may wait to be written."""
        return len(self._unsaved) < _MOST_UNSAVED

    def choose(self, destination: Destination, way: Placement | None) -> None:
        """Chooses a home, or with None the default again; to be written by the holder of the lease."""
        if self.choice(destination) != way:
            self._unsaved[destination] = way
            self._note((destination,))
            self._to_write[destination.node] = None

    def write_anew(self, node: str) -> None:
        """Lets the holder of the lease write a node's choices once more."""
        self._to_write[node] = None

    def revision(self, node: str) -> int:
        """The revision of the lease under which the last value of a node was written; 0: none was told."""
        return self._revision.get(node, 0)

    def forget_revisions(self, *, above: int) -> None:
        """Forgets numbers above what the bus has given: it counts leases anew, and they say nothing any more."""
        self._revision = {node: revision for node, revision in self._revision.items() if revision <= above}

    def forget_revision(self, node: str) -> None:
        """Forgets the number of a node that has left the fleet for good, unless it has choices still."""
        if not self._own.of(node):
            self._revision.pop(node, None)

    def nodes(self) -> list[str]:
        """Nodes with choices."""
        return [*self._own]

    def changed_by(self, homes: NodeHomes) -> list[Destination]:
        """The destinations whose home a value of the bucket may change."""
        told = {Destination(homes.node, way.peer, way.rail): way for way in homes.placements}
        known = {*self._own.of(homes.node), *told}
        return sorted(each for each in known if self.choice(each) != told.get(each))

    def learn(self, homes: NodeHomes) -> None:
        """Takes a value of the bucket.

        Choices since it was written still stand, and will be told by a later value.
        """
        node = homes.node
        self._revision[node] = homes.lease_revision
        told = {Destination(node, way.peer, way.rail): way for way in homes.placements}
        known = {*self._own.of(node), *told}
        for destination in known:
            self._chosen.pop(destination, None)
            if destination in self._unsaved and self._unsaved[destination] == told.get(destination):
                del self._unsaved[destination]
        self._chosen.update(told)
        self._note(known)

    def across(self, node: str) -> list[Destination]:
        """Destinations that begin or end at a node and whose home goes by another rail than their own."""
        return sorted(self._across.of(node))

    def unsaved(self) -> list[Destination]:
        """The destinations whose choice is not in the bucket yet."""
        return sorted(self._unsaved)

    def lose_unsaved(self) -> None:
        """Forgets choices that are not in the bucket: another holds the lease."""
        lost = {*self._unsaved}
        self._unsaved.clear()
        self._to_write.clear()
        self._note(lost)

    def due(self, lease: int, now_ns: int) -> Iterator[NodeHomes]:
        """Values to be written: of nodes with new choices, so many in a tick, and in turn of one with old ones."""
        if not self._to_write and (turn := self._turns.take(now_ns)) is not None:
            self._to_write[turn] = None
        left = _AT_ONCE
        while self._to_write and left > 0:
            node = next(iter(self._to_write))
            del self._to_write[node]
            chosen = [self.choice(each) for each in sorted(self._own.of(node))]
            left -= len(chosen) + 1
            yield NodeHomes(node=node, lease_revision=lease, placements=tuple(way for way in chosen if way is not None))
            if chosen:
                self._turns.wait(node, now_ns)

    def leave(self, node: str) -> None:
        """Takes back the choices of a node that has left the fleet for good, and those of others for traffic to it.

        The values that say so are written as any other.
        """
        to_it = [each for each in {*self._chosen, *self._unsaved} if each.peer == node]
        for destination in sorted({*self._own.of(node), *to_it}):
            self.choose(destination, None)

    def _note(self, destinations: Iterable[Destination]) -> None:
        """Sees to it that destinations whose choice changed are found."""
        for destination in destinations:
            way = self.choice(destination) or self._configured.get(destination)
            if way is not None and way.via != destination.rail:
                self._across.add(destination)
            else:
                self._across.discard(destination)
            if destination in self._chosen or destination in self._unsaved:
                self._own.add(destination)
                if destination.node not in self._turns:
                    self._turns.join(destination.node)
            else:
                self._own.discard(destination)
                if not self._own.of(destination.node):
                    self._turns.leave(destination.node)

    def _is_possible(self, destination: Destination, way: Placement) -> bool:
        return way.entropy < self._inventory.entropies(destination.node, way.peer, way.via)


def pair_number(node: str, peer: str, rail: str) -> int:
    """A number that follows from the unordered pair and the rail."""
    text = "|".join((*sorted((node, peer)), rail)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
