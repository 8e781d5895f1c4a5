"""Doing no harm: disturbances drawn at random move nothing; true silences among them are moved.

The disturbances are halted nodes, late reports, wrong clocks and a detector that is late.
"""

from __future__ import annotations

import heapq
import random

import pytest

from draws import draws

SECOND = 1_000_000_000
MS = 1_000_000
TICK = 10 * MS
SILENCE = 130 * MS
"""After so long without a probe a receiver says that a path is silent."""
TRIALS = len(draws(12))


class Fabric:
    """A world in which probes, their nodes' processes and the bus have lives of their own.

    A node that halts neither sends nor listens nor reports; what it was sent waits for it. Its peers say that its paths
    fell silent, as they heard nothing; and the detector, which does not know better, says so as late as it may. Reports
    take their time, and those of one node arrive in their order.
    """

    def __init__(self, world, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.halted_until: dict[str, int] = {}
        self.fallen: set[str] = set()
        self.late_ns: dict[str, int] = {}
        self.arrives_ns: dict[str, int] = {}
        self.queue: list[tuple[int, int, object]] = []
        self.count = 0
        self.phase = {name: self.random.randrange(10) * TICK for name in world.names}
        self.awake_since = dict.fromkeys(world.names, world.now_ns)
        self.paths = [
            f"{node}.{rail}>{peer}.{rail}#0"
            for node in world.names
            for peer in world.names
            for rail in world.rails
            if node != peer
        ]

    def is_halted(self, node: str) -> bool:
        """Whether its process stands still."""
        return self.halted_until.get(node, 0) > self.world.now_ns

    def send(self, node: str, message: object, late_ns: int = 0) -> None:
        """A message of a node, or of the detector, on the bus."""
        at_ns = max(self.world.now_ns + 1 * MS + late_ns, self.arrives_ns.get(node, 0))
        self.arrives_ns[node] = at_ns
        self.count += 1
        heapq.heappush(self.queue, (at_ns, self.count, message))

    def run(self, seconds: float) -> list:
        """Lets time pass, with all that happens in it; returns the commands given."""
        given = []
        for _ in range(round(seconds * SECOND / TICK)):
            self.world.now_ns += TICK
            self._live()
            while self.queue and self.queue[0][0] <= self.world.now_ns:
                _, _, message = heapq.heappop(self.queue)
                given += self.world.see(message)
            if self.world.now_ns % SECOND == 0:
                given += self.world.report_ports()
            given += self.world.act(self.world.core.tick(self.world.now_ns))
        return given

    def _live(self) -> None:
        world = self.world
        world.silent = {path for path in self.paths if self.is_halted(path.partition(".")[0])} | self.dead
        for name in world.names:
            if self.is_halted(name):
                self.awake_since[name] = world.now_ns
                continue
            if (world.now_ns + self.phase[name]) % (10 * TICK) == 0:
                self.send(name, world.batch(name), self.late_ns.get(name, 0))
        for path in self.paths:
            receiver = path.partition(">")[2].partition(".")[0]
            if self.is_halted(receiver):
                continue
            # A receiver that was halted itself, or has just begun to listen, knows that.
            last_ns = max(world.last.get(path, (0, 0))[0], self.awake_since[receiver])
            if path not in world.silent:
                if path in self.fallen:
                    self.fallen.discard(path)
                    self.send(receiver, world.word_of(path, "speaks again"), self.late_ns.get(receiver, 0))
                elif world.now_ns - last_ns >= 20 * MS:
                    world.last[path] = world.now_ns - 1 * MS, (world.now_ns - FIRST) // MS
            elif path not in self.fallen and world.now_ns - last_ns >= SILENCE:
                self.fallen.add(path)
                self.send(receiver, world.word_of(path, "silent"), self.late_ns.get(receiver, 0))
                self.tell(path)

    dead: frozenset[str] = frozenset()

    def tell(self, path: str) -> None:
        """The detector says that a path is silent: a true silence at once, a false one after its end.

        A false one also comes after the receiver's word of that end.
        """
        sender, since_ns = path.partition(".")[0], self.world.last[path][0]
        late_ns = 15 * MS
        if path not in self.dead:
            awake_ns = max(self.halted_until.get(sender, 0) - self.world.now_ns, 0)
            late_ns += awake_ns + max(self.late_ns.values(), default=0) + self.random.randrange(3, 60) * TICK
        self.count += 1
        event = event_of(self.world, path, since_ns)
        heapq.heappush(self.queue, (self.world.now_ns + late_ns, self.count, event))


FIRST = 1_800_000_000 * SECOND


def event_of(world, path: str, since_ns: int):
    """The detector's event about a silence, as it would be said now."""
    kept, told = [], world.last_word(path)[1]
    see, world.see = world.see, lambda message: kept.append(message) or []
    try:
        world.lie(path, "silent", since_ns, told)
    finally:
        world.see = see
    return kept[0]


def disturb(fabric: Fabric, draw: random.Random) -> None:
    """One of the things that happen to hosts."""
    names = fabric.world.names
    match draw.randrange(4):
        case 0:
            fabric.halted_until[draw.choice(names)] = fabric.world.now_ns + draw.randrange(15, 45) * TICK
        case 1:
            for name in names:
                if draw.random() < 0.5:
                    fabric.halted_until[name] = fabric.world.now_ns + draw.randrange(15, 45) * TICK
        case 2:
            fabric.late_ns[draw.choice(names)] = draw.randrange(5, 50) * TICK
        case 3:
            fabric.late_ns = dict.fromkeys(names, draw.randrange(5, 40) * TICK)


@pytest.mark.parametrize("count", [True, False], ids=["counting", "as of before 0.2"])
@pytest.mark.parametrize("part", range(2))
def test_what_is_no_fault_of_a_path_moves_nothing(make_world, count, part):
    """However it is put together."""
    for seed in range(part * TRIALS, (part + 1) * TRIALS):
        draw = random.Random(seed)
        world = make_world(nodes=3, count=count)
        fabric = Fabric(world, seed)
        told = 0
        for _ in range(3):
            disturb(fabric, draw)
            fabric.run(draw.randrange(5, 15) / 10)
            fabric.late_ns = {}
            told += len(fabric.queue)
        fabric.run(2.0)
        assert world.commands == [], seed
        assert set(world.guards()) <= {"contradicted"}, seed


@pytest.mark.parametrize("count", [True, False], ids=["counting", "as of before 0.2"])
def test_true_silences_are_moved_with_the_event(make_world, count):
    """In the same call, a path that was doubted for nothing before as any other."""
    for seed in range(TRIALS):
        draw = random.Random(seed)
        world = make_world(nodes=3, count=count)
        fabric = Fabric(world, seed)
        disturb(fabric, draw)
        fabric.run(1.5)
        fabric.late_ns = {}
        fabric.run(2.0)
        assert world.commands == [], seed
        path = "node0.rail0>node1.rail0#0"
        fabric.dead = frozenset({path})
        cut_ns = world.now_ns
        (command,) = fabric.run(0.5)
        assert (command.node, command.placements[0].peer) == ("node0", "node1"), seed
        assert command.issued_ns - cut_ns <= SILENCE + 15 * MS + 40 * MS, seed
