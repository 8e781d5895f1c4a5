"""A fleet with a training job whose ranks can be replaced, in virtual time: what its workers do, and its nodes tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from remediator_world import SECOND, START, World, make_node

from foliot.node.shard import WHOLE
from foliot_remediator.core.remediator import Remediator
from foliot_schemas import Drain, Event, HopBatch, HopRow, ReplaceRank, WorkerBatch
from foliot_schemas.worker import WorkerState

JOB = "pretrain-7"
FORMS_NS = 300_000_000
"""How long a group takes to form."""


@dataclass
class Mate:
    """A process of the job. It does a step each 100 ms while all of its group do, if the world says nothing else."""

    node: str
    number: int
    rank: int = -1
    generation: int = 0
    step: int = 0
    stage: str = "spare"
    alive: str = "running"
    since_ns: int = START
    formed_ns: int = 0
    first_step_ns: int = 0
    heard_ns: int = START
    order: ReplaceRank | None = None
    job: str = JOB
    meet: str = ""
    user: int = 1_000
    stepped_ns: int = 0

    @property
    def is_up(self):
        """Whether it can do anything."""
        return self.alive == "running" and self.stage not in ("over", "failed")

    def state(self):
        """What its node says of it."""
        return WorkerState(
            process=self.number, rank=self.rank, generation=self.generation, step=self.step, stage=self.stage,
            alive=self.alive, meet=(self.meet or f"{self.node}:29500") if self.alive == "running" else "", since_ns=self.since_ns,
            heard_ns=self.heard_ns, formed_ns=self.formed_ns, first_step_ns=self.first_step_ns,
            user=self.user,
        )  # fmt: skip


def _pair(path):
    """The nodes at which a path begins and ends."""
    return tuple(nic.partition(".")[0] for nic in path.replace("#", ">").split(">")[:2])


class ReplacementWorld(World):
    """A job with a rank on each of the first nodes, and spares on others: `ranks` and `spares` name nodes by number.

    `cut` nodes are not heard, and hear nothing. `obeys` says whether workers take orders at all. `crashing` jobs end a
    rank when a group has formed, before its first step. `limits` are those of the paths of spares.
    """

    EVERY = 5

    def __init__(self, ranks=(0, 1, 2, 3), spares=(4, 5), nodes=6, limits=(), **settings):
        self.mates: list[Mate] = []
        self.cut: set[str] = set()
        self.obeys = True
        self.stuck: list[Mate] = []
        """Those whose programs hang: they leave no group."""
        self.sizes: dict[str, int] = {}
        """How many ranks each job has."""
        self.starting: list[Mate] = []
        """Those of which their nodes have not heard yet."""
        self.crashing = False
        self.step_ns = self.copy_ns = 0
        """How long a step takes, if longer than usual, and the copy of a state."""
        self.delays: dict[tuple[str, str], int] = {}
        """One-way delays between nodes that are not 50 µs, in ns."""
        self.said: set[str] = set()
        """Nodes that have something to tell at once."""
        self.xids: dict[str, tuple[int, ...]] = {}
        """Errors of their GPUs of which nodes tell."""
        super().__init__(nodes, 1, **{"replace": "act", "spares": limits, "replace_hung_s": 0.01, **settings})
        self.add(ranks, spares)
        self.run(5.0)
        assert not self.decisions

    def add(self, ranks, spares, job=JOB):
        """A job begins."""
        self.sizes[job] = len(ranks)
        for rank, number in enumerate(ranks):
            self.mates.append(Mate(f"node{number}", self.number(), rank=rank, stage="training", job=job))
        for number in spares:
            self.mates.append(Mate(f"node{number}", self.number(), job=job))
        self.said.update(self.names)

    def number(self):
        """The number of a process that begins."""
        return 1_000 + len(self.mates)

    # -- what there is ------------------------------------------------------------------------------------------------

    def rank(self, number, job=JOB):
        """Who has a rank by now."""
        having = [mate for mate in self.mates if mate.rank == number and mate.job == job]
        return max(having, key=lambda mate: (mate.generation, mate.is_up))

    def spare(self, node):
        """The first process on a node that waits."""
        return next(mate for mate in self.mates if mate.node == node and mate.stage == "spare")

    @property
    def orders(self):
        """The orders that were given, each once."""
        found = []
        for command in self.commands:
            if command.verb == "replace-rank" and not command.advice and (order := command.order()) not in found:
                found.append(order)
        return found

    def nodes_of(self, order):
        """The nodes that were told an order."""
        return {command.node for command in self.commands if command.order() == order}

    # -- what happens -------------------------------------------------------------------------------------------------

    def happen(self):
        """Workers do what they do, and their nodes tell."""
        self.deaf = {*self.cut}
        for job in {mate.job for mate in self.mates}:
            self.work([mate for mate in self.mates if mate.job == job])
        for name in self.names:
            if name not in self.cut and (name in self.said or self.now_ns % SECOND == 0):
                self.said.discard(name)
                self.tell(name)

    def rows(self, name, paths):
        """What a node says of its paths, with their delays."""
        rows = super().rows(name, paths)
        rows["p99_ns"] = [self.delays.get(_pair(path), 50_000) for path in paths] if self.delays else 50_000
        return rows

    def tell_hops(self, *leaves):
        """All nodes tell the routers of their paths: one between nodes of the same leaf, three between others."""
        leaf_of = {f"node{number}": leaf for leaf, numbers in enumerate(leaves) for number in numbers}
        for name in self.names:
            paths = [path for path in self.core.inventory.paths_of(name) if path.startswith(f"{name}.")]
            peers = [path.partition(">")[2].partition(".")[0] for path in paths]
            hops = [1 if leaf_of[peer] == leaf_of[name] else 3 for peer in peers]
            rows = [(place, hop, 1 + hop) for place, count in enumerate(hops) for hop in range(1, count + 1)]
            self.see(HopBatch.of(np.array(rows, HopRow), node=name, at_ns=self.now_ns, paths=tuple(paths)))

    def take_over(self, shard=WHOLE, shards=(), *, lease=8):
        """Another process, which knows nothing yet, is in this one's place."""
        self.core = Remediator(self.settings, shard, shards)
        for name in self.names:
            self.see(make_node(name, 1))
        self.core.hold(lease, self.now_ns)

    def made(self, settings):
        """Keeps the settings for another process."""
        self.settings = settings
        return super().made(settings)

    def tell(self, name):
        """A node tells of its processes."""
        for job in sorted({mate.job for mate in self.mates if mate.node == name}):
            self.see(self.workers(name, job))

    def workers(self, name, job=JOB):
        """The words of a node alone."""
        mates = [mate for mate in self.mates if mate.node == name and mate.job == job]
        states = tuple(mate.state() for mate in mates if mate not in self.starting)
        return WorkerBatch(
            job=job,
            node=name,
            at_ns=self.now_ns,
            bound_ns=1_000,
            size=self.sizes[job],
            workers=states,
            xids=self.xids.get(name, ()),
        )

    def work(self, mates):
        """One step of a job, or of the forming of its group."""
        for mate in mates:
            if mate.is_up:
                mate.heard_ns = self.now_ns
                self.follow(mate)
        size = len({mate.rank for mate in mates} - {-1})
        for generation in {mate.generation for mate in mates if mate.rank >= 0}:
            group = [
                mate for mate in mates if mate.rank >= 0 and mate.generation == generation and mate.alive != "gone"
            ]
            if len(group) == size and all(mate.is_up and mate.node not in self.cut for mate in group):
                self.work_together(group)

    def work_together(self, group):
        """A group that is whole does a step, or forms."""
        if all(mate.stage == "training" for mate in group):
            if self.now_ns - max(mate.stepped_ns for mate in group) < self.step_ns:
                return
            for mate in group:
                mate.step, mate.stepped_ns = mate.step + 1, self.now_ns
                if mate.generation and not mate.first_step_ns:
                    mate.first_step_ns = self.now_ns
                    self.said.add(mate.node)
        elif all(mate.stage == "forming" and self.now_ns - mate.since_ns >= FORMS_NS for mate in group):
            for mate in group:
                mate.step, mate.formed_ns, mate.stepped_ns = max(each.step for each in group), self.now_ns, self.now_ns
                self.stage(mate, "copying" if self.copy_ns else "training")
            if self.crashing:
                self.die(0, tell=False, job=group[0].job)
        elif all(mate.stage == "copying" and self.now_ns - mate.since_ns >= self.copy_ns for mate in group):
            for mate in group:
                mate.stepped_ns = self.now_ns
                self.stage(mate, "training")

    def follow(self, mate):
        """A process takes an order, at once or at its step."""
        order = mate.order
        if (
            mate in self.stuck
            or order is None
            or (mate.stage == "training" and mate.step < order.at_step)
            or mate.node in self.cut
        ):
            return
        mate.order = None
        change = {(each.node, each.process): -1 for each in order.changes}
        change |= {(each.to_node, each.to_process): each.rank for each in order.changes}
        rank = change.get((mate.node, mate.number), mate.rank)
        if rank == -1:
            if mate.rank >= 0:
                mate.rank = -1
                self.stage(mate, "over")
            return
        mate.rank, mate.generation, mate.formed_ns, mate.first_step_ns = rank, order.generation, 0, 0
        self.stage(mate, "forming")

    def stage(self, mate, stage):
        """A process comes into a stage, which its node tells at once."""
        mate.stage, mate.since_ns = stage, self.now_ns
        self.said.add(mate.node)

    def act(self, actions):
        """Agents hand orders to their workers."""
        given = super().act(actions)
        for command in given:
            if command.verb == "replace-rank" and not command.advice and self.obeys and command.node not in self.cut:
                for mate in self.mates:
                    order = command.order()
                    if mate.node == command.node and mate.job == order.job and mate.generation < order.generation:
                        mate.order = order
        return given

    # -- troubles -----------------------------------------------------------------------------------------------------

    def die(self, rank, *, tell=True, job=JOB):
        """The process of a rank is killed. The others' collectives fail; its node, and theirs, say so."""
        mate = self.rank(rank, job)
        mate.alive = "gone"
        self.said.add(mate.node)
        self.fail(job)
        if tell:
            self.tell_all()
        return mate

    def fail(self, job=JOB):
        """The collectives of all who live fail."""
        for mate in self.mates:
            if mate.is_up and mate.job == job and mate.stage in ("training", "forming") and mate.node not in self.cut:
                self.stage(mate, "broken")

    def tell_all(self):
        """All nodes that have something to tell do so now."""
        for name in sorted(self.said - self.cut):
            self.said.discard(name)
            self.tell(name)

    def hang(self, rank, state="dead", *, job=JOB, number=1, since_ns=0, **more):
        """The detector's event about a rank; returns the commands given."""
        return self.see(self.hang_event(rank, state, job=job, number=number, since_ns=since_ns, **more))

    def hang_event(self, rank, state="dead", *, job=JOB, number=1, since_ns=0, **more):
        """The event alone."""
        who = job if rank is None else f"{job}/rank{rank}"
        fault = f"{who}/hang-{number}"
        return Event(
            id=f"{fault}/{state}", kind="hang", who=who, state=state, at_ns=self.now_ns,
            since_ns=since_ns or self.now_ns, fault=fault, related={"jobs": (job,)}, **more,
        )  # fmt: skip

    def lose(self, rank, **more):
        """A process dies, and the detector says so; returns the commands given within a while."""
        self.die(rank)
        return self.hang(rank, **more) + self.run(0.3)

    def drain(self, number, *, over=False):
        """A person wants a node to be left, or used again; returns the commands given."""
        return self.see(Drain(node=f"node{number}", at_ns=self.now_ns, over=over))

    def hardware(self, number, state="failed", *, told=(79,)):
        """The node tells of errors of a GPU, and the detector of a fault; returns the commands given."""
        fault = f"node{number}/xid-79"
        event = Event(
            id=f"{fault}/{state}", kind="hardware", who=f"node{number}", state=state, at_ns=self.now_ns,
            since_ns=self.now_ns, fault=fault, evidence={"xid": 79},
        )  # fmt: skip
        if told and state != "restarted":
            self.xids[f"node{number}"] = told
            self.tell(f"node{number}")
        return self.see(event)
