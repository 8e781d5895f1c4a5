"""A data-parallel training job in virtual time, and what the agents of its nodes tell of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import CollectiveBatch, CollectiveGroup, CollectiveRow, Nic, Node, ProgressRow, RankState
from foliot_schemas.collective import runs

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
S = 1_000 * MS
TELL_NS = 250 * MS


@dataclass
class SimulatedRank:
    """One rank; times are true ones."""

    node: str
    skew_ns: int = 0
    """What its node's clock is wrong by."""
    compute_ns: int = 60 * MS
    data_ns: int = 0
    """For how long it waits for the data of each step."""
    halted: bool = False
    """It begins nothing more."""
    process: str = "running"
    told: bool = True
    """Whether its agent speaks."""
    heard: bool = True
    """Whether its own process speaks to the agent; if not, the agent tells what it said last."""
    since_ns: int = START_NS
    last: tuple = ()
    """What its agent told last."""
    waited_for_data_ns: int = 0
    delay_ns: int = 0
    """For how long it has no processor in each step. Its own time is as much longer."""
    is_loading: bool = False
    """Whether it loads its data itself then, and counts that as waiting for them."""
    delayed_ns: int = 0
    done: list[tuple[int, int, int]] = field(default_factory=list)
    """Number, beginning and end of what is not told yet."""
    began_ns: int = 0
    ended_ns: int = START_NS
    begun: int = 0
    through: int = 0
    operation: str = "all_reduce"
    elements: int = 1_000
    number: int = 0
    generation: int = 0
    order: int = 0
    """What it had begun in earlier generations."""
    left: tuple = ()
    """The collective of an earlier generation in which it waited, which never ends: group, number, order, beginning."""

    @property
    def group(self):
        """The name of its group."""
        return f"0@{self.generation}" if self.generation else "0"


class ToldJob:
    """A job of one group; each step has some all-reduces one after the other.

    `run` lets time pass; `events` has what the detector said of ranks.
    """

    def __init__(self, ranks=4, buckets=3, comm_ms=20.0, jitter=0.02, seed=1, **settings):
        self.now_ns = START_NS
        self.ranks = [SimulatedRank(f"node{number}", number * 70, number=number) for number in range(ranks)]
        self.former = []
        """Ranks that were replaced, and of which nodes still speak."""
        self.is_recorded = True
        """Whether the program records its collectives."""
        self.events = []
        self.comm_ns = round(comm_ms * MS)
        self.name = "pretrain"
        self.bound_ns = 400
        self.members = tuple(range(ranks))
        self._buckets = buckets
        self._jitter = jitter
        self._random = random.Random(seed)
        self._due = None
        self.pipeline = Pipeline(DetectorSettings(**settings))
        for number in range(ranks):
            self.pipeline.observe(node(f"node{number}"))

    def run(self, seconds):
        """Lets time pass."""
        until_ns = self.now_ns + round(seconds * S)
        while self.now_ns < until_ns:
            self.now_ns += TELL_NS
            self._work()
            told = [rank for rank in (*self.former, *self.ranks) if rank.told and self.is_recorded]
            for rank in told:
                self._say(self.pipeline.observe(self.batch(rank), TELL_NS // len(told)))
            self._say(self.pipeline.tick(0 if told else TELL_NS))
            self.tell_more()

    def tell_more(self):
        """Tells what else agents tell."""

    def take(self, kind):
        """The events of a kind since last time."""
        found = [event for event in self.events if event.kind == kind]
        self.events = [event for event in self.events if event.kind != kind]
        return found

    def batch(self, rank):
        """What a rank's node says now."""
        if rank.heard or not rank.last:
            rank.last = (self.now_ns, *self._said(rank))
        heard_ns, rows, progress = rank.last
        groups = (rank.group,)
        if rank.left:
            group, number, order, began_ns = rank.left
            groups = (rank.group, group)
            rows = [(0, 1, 1, 0, number, order, -1, began_ns + rank.skew_ns, 0, 1, 1, 4), *rows]
            progress = [(0, 1, number, number - 1), *progress]
        if not rank.heard:
            rows = [row for row in rows if not row[8]]
        return CollectiveBatch.of(
            np.array(rows, CollectiveRow), np.array(progress, ProgressRow),
            job=self.name, node=rank.node, at_ns=self.now_ns + rank.skew_ns, bound_ns=self.bound_ns,
            size=len(self.ranks),
            ranks=(
                RankState(
                    rank=rank.number, process=rank.process, since_ns=rank.since_ns,
                    heard_ns=heard_ns + rank.skew_ns, data_ns=rank.waited_for_data_ns,
                    cpu_delay_ns=rank.delayed_ns, generation=rank.generation,
                ),
            ),
            groups=groups, members=(CollectiveGroup(name=rank.group, members=runs(self.members)),),
            operations=("all_reduce", rank.operation), types=("float32",),
        )  # fmt: skip

    def _said(self, rank):
        """Rows and progress of a rank."""
        rows = [
            (
                0,
                0,
                0,
                0,
                each,
                rank.order + each,
                -1,
                began_ns + rank.skew_ns,
                ended_ns + rank.skew_ns,
                rank.elements,
                rank.elements,
                4,
            )
            for each, began_ns, ended_ns in rank.done
        ]
        rank.done.clear()
        if rank.begun > rank.through:
            at = rank.begun
            began_ns, order = rank.began_ns + rank.skew_ns, rank.order + at
            rows.append((0, 0, 1, 0, at, order, -1, began_ns, 0, rank.elements, rank.elements, 4))
        return rows, [(0, 0, rank.begun, rank.through)]

    def _say(self, events):
        self.events += [event for event in events if event.kind in {"hang", "straggler"}]

    def _work(self):
        """Lets the ranks go on up to now."""
        while True:
            if self._due is None:
                self._due = [self._own_ns(rank) for rank in self.ranks]
            for rank, own_ns in zip(self.ranks, self._due, strict=True):
                if rank.begun == rank.through and not rank.halted and rank.ended_ns + own_ns <= self.now_ns:
                    rank.begun, rank.began_ns = rank.begun + 1, rank.ended_ns + own_ns
            if any(rank.begun == rank.through for rank in self.ranks):
                return
            if any(rank.operation != "all_reduce" for rank in self.ranks):
                return
            ended_ns = max(rank.began_ns for rank in self.ranks) + self.comm_ns
            if ended_ns > self.now_ns:
                return
            for rank in self.ranks:
                rank.through, rank.ended_ns = rank.begun, ended_ns
                rank.done.append((rank.begun, rank.began_ns, rank.ended_ns))
            self._due = None

    def _own_ns(self, rank):
        first = rank.through % self._buckets == 0
        if not first:
            return MS
        rank.waited_for_data_ns += rank.data_ns + (rank.delay_ns if rank.is_loading else 0)
        rank.delayed_ns += rank.delay_ns
        spread = 1 + self._jitter * self._random.gauss(0, 1)
        # A rank that stood still until now begins now.
        own_ns = round(rank.compute_ns * max(spread, 0.1)) + rank.data_ns + rank.delay_ns
        return max(own_ns, self.now_ns - TELL_NS - rank.ended_ns)


def node(name):
    """An inventory record."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="eth0", address="10.0.0.1", clock=name, service_address="10.200.0.1",
        path_addresses=("100.64.0.1",), entropies=(0,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,))


class MeshJob:
    """A job of several groups. Each rank's program is a list of its own time and the group that it then waits in."""

    def __init__(self, programs, groups, comm_ms=4.0, **settings):
        self.now_ns = START_NS
        self.events = []
        self.programs = programs
        self._groups = groups
        self._comm_ns = round(comm_ms * MS)
        self._free_ns = [START_NS] * len(programs)
        self._at = [0] * len(programs)
        self._orders = [0] * len(programs)
        self._counts = [dict.fromkeys(groups, 0) for _ in programs]
        self._rows = [[] for _ in programs]
        self.pipeline = Pipeline(DetectorSettings(**settings))
        for number in range(len(programs)):
            self.pipeline.observe(node(f"node{number}"))

    def run(self, seconds):
        """Lets time pass."""
        until_ns = self.now_ns + round(seconds * S)
        while self.now_ns < until_ns:
            self.now_ns += TELL_NS
            while self._step():
                pass
            for number in range(len(self.programs)):
                events = self.pipeline.observe(self._batch(number), TELL_NS // len(self.programs))
                self.events += [event for event in events if event.kind == "straggler"]
            self.events += [event for event in self.pipeline.tick(0) if event.kind == "straggler"]

    def _due(self, number):
        own_ms, group = self.programs[number][self._at[number] % len(self.programs[number])]
        return self._free_ns[number] + round(own_ms * MS), group

    def _step(self):
        """Ends one collective that all members have begun by now; whether there was one."""
        due = [self._due(number) for number in range(len(self.programs))]
        for name, members in self._groups.items():
            if any(due[number][1] != name for number in members):
                continue
            ended_ns = max(due[number][0] for number in members) + self._comm_ns
            if ended_ns > self.now_ns:
                continue
            for number in members:
                self._orders[number] += 1
                self._counts[number][name] += 1
                self._at[number] += 1
                self._free_ns[number] = ended_ns
                place = list(self._groups).index(name)
                count, order = self._counts[number][name], self._orders[number]
                self._rows[number].append((0, place, 0, 0, count, order, -1, due[number][0], ended_ns, 9, 9, 4))
            return True
        return False

    def _batch(self, number):
        rows, self._rows[number] = self._rows[number], []
        progress = [(0, place, count, count) for place, count in enumerate(self._counts[number].values()) if count]
        return CollectiveBatch.of(
            np.array(rows, CollectiveRow), np.array(progress, ProgressRow), job="mesh", node=f"node{number}",
            at_ns=self.now_ns, bound_ns=100, size=len(self.programs),
            ranks=(RankState(rank=number, process="running", since_ns=START_NS, heard_ns=self.now_ns),),
            groups=tuple(self._groups),
            members=tuple(
                CollectiveGroup(name=name, members=runs(members))
                for name, members in self._groups.items() if number in members
            ),
            operations=("all_reduce",), types=("float32",),
        )  # fmt: skip
