"""A fleet on a leaf-spine fabric that several remediators share, in virtual time, with the messages between them."""

from __future__ import annotations

from contention_world import ContentionWorld

from foliot.node.shard import Shard
from foliot_remediator.core.remediator import Remediator
from foliot_schemas import MoveAnswer, MoveOrder, NodeHomes, NodePaths, decode, encode
from foliot_schemas.subjects import MOVE, MOVED


class Shards:
    """Two remediators that hear all that is published. They stand for one in a `World`.

    `dead` ones hear and do nothing. `lost` says which messages between them nobody gets.
    """

    def __init__(self, settings, cut):
        self.shards = [Shard("", cut), Shard(cut, "")]
        self.cores = [Remediator(settings, shard, self.shards) for shard in self.shards]
        self.dead = set()
        self.lost = ()
        self.told = []
        """Orders and answers, in order."""

    # -- as one remediator ----------------------------------------------------------------------------------------

    def observe(self, seen, now_ns):
        """All of them hear it."""
        return self._each(lambda core: core.observe(seen, now_ns), now_ns)

    def tick(self, now_ns):
        """Time passes for all of them."""
        return self._each(lambda core: core.tick(now_ns), now_ns)

    def hold(self, revision, now_ns):
        """Each takes the lease of its shard."""
        for number, core in enumerate(self.cores):
            core.hold(revision + number, now_ns)

    @property
    def inventory(self):
        """All nodes."""
        return self.cores[0].whole.inventory

    @property
    def routing(self):
        """The ways that are in force, by who commands them."""
        return self

    def way(self, destination):
        """The way that traffic takes."""
        return self.owner(destination.node).routing.way(destination)

    # -- more -----------------------------------------------------------------------------------------------------

    def owner(self, node):
        """Who commands a node."""
        return next(core for core, shard in zip(self.cores, self.shards, strict=True) if shard.owns(node))

    def elect(self, number, term, rail="rail0"):
        """One of them coordinates a rail, and the others know that somebody does."""
        for each, core in enumerate(self.cores):
            core.coordinate({rail: term} if each == number else {}, {rail})

    def _each(self, ask, now_ns):
        return [
            action
            for number, core in enumerate(self.cores) if number not in self.dead
            for action in self._passed_on(ask(core), now_ns)
        ]  # fmt: skip

    def _passed_on(self, actions, now_ns):
        """What is left for the world, after messages between them and values of the buckets were told to all."""
        for action in actions:
            if isinstance(action, MoveOrder | MoveAnswer):
                channel = MOVE if isinstance(action, MoveOrder) else MOVED
                message = decode(encode(action), type(action))
                channel.check(channel.subject(message.shard), message)
                self.told.append(message)
                if not isinstance(message, self.lost):
                    yield from self.observe(message, now_ns)
            else:
                yield action
                if isinstance(action, NodeHomes | NodePaths):
                    yield from self.observe(action, now_ns)


class ShardedWorld(ContentionWorld):
    """A `ContentionWorld` of two shards, cut at node1; the first coordinates the rail if nothing else is said."""

    def __init__(self, flows=(), coordinator=0, **settings):
        self._coordinator = coordinator
        super().__init__(flows, **settings)

    def made(self, settings):
        """Two remediators."""
        shards = Shards(settings, "node1")
        if self._coordinator is not None:
            shards.elect(self._coordinator, 20)
        return shards
