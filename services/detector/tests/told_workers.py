"""A training job whose ranks can be replaced, in virtual time, and what the agents of its nodes tell of its workers."""

from __future__ import annotations

from told_job import START_NS, TELL_NS, S, SimulatedRank, ToldJob, node

from foliot_schemas import WorkerBatch, WorkerState

EACH_NS = S
"""How often a node tells of its workers, if nothing changes."""


class ReplaceableJob(ToldJob):
    """A job of workers, each on a node of its own, and spares.

    `lose`, `fail`, `replace` and `train` are the course of a replacement. Each tells of it at once, as agents do.
    """

    def __init__(self, ranks=4, spares=2, **more):
        super().__init__(ranks, **more)
        self.spares = [SimulatedRank(f"spare{number}", number=-1) for number in range(spares)]
        for spare in self.spares:
            self.pipeline.observe(node(spare.node))
        self.stages = {rank.node: "training" for rank in self.ranks} | {spare.node: "spare" for spare in self.spares}
        self.failed_step = 0
        self.has_workers = True
        """Whether agents tell of the workers."""

    def lose(self, number, alive="gone"):
        """A rank's process ends without a word, or stops."""
        rank = self.ranks[number]
        rank.halted, rank.process = True, alive
        self.say(rank)

    def fail(self, *numbers):
        """A collective of ranks fails: it is done, and they wait for an order."""
        for number in numbers:
            rank = self.ranks[number]
            rank.halted = True
            if rank.begun > rank.through:
                rank.through, rank.ended_ns = rank.begun, self.now_ns
                rank.done.append((rank.begun, rank.began_ns, rank.ended_ns))
            self.turn(rank, "broken")

    def replace(self, number, spare=0):
        """A spare gets the place of a rank, and all leave their group."""
        self.failed_step = self.step()
        self.former.append(self.ranks[number])
        new = self.spares[spare]
        new.number, self.ranks[number], self.spares = number, new, [each for each in self.spares if each is not new]
        self.form()

    def form(self):
        """All leave their group for another one."""
        self.failed_step = self.step()
        generation = 1 + max(rank.generation for rank in (*self.ranks, *self.former))
        for rank in self.ranks:
            if rank.begun > rank.through:
                rank.left = (rank.group, rank.begun, rank.order + rank.begun, rank.began_ns)
            rank.order += rank.begun
            rank.begun = rank.through = 0
            rank.done.clear()
            rank.generation, rank.halted, rank.ended_ns = generation, True, self.now_ns
            self.turn(rank, "forming")
        self._due = None

    def train(self):
        """All have the state, and do steps again."""
        self._due = None
        for rank in self.ranks:
            rank.halted, rank.ended_ns = False, self.now_ns
            self.turn(rank, "training")

    def turn(self, rank, stage):
        """A worker comes into another stage."""
        self.stages[rank.node] = stage
        self.say(rank)

    def say(self, *ranks, **more):
        """Nodes tell of their workers now."""
        for rank in ranks:
            if rank.told and self.has_workers:
                self._say(self.pipeline.observe(self.worker_batch(rank, **more), 0))

    def tell_more(self):
        """Nodes tell of their workers each second, one after the other."""
        for place, rank in enumerate((*self.former, *self.ranks, *self.spares)):
            if (self.now_ns - START_NS + place * TELL_NS) % EACH_NS == 0:
                self.say(rank)

    def step(self):
        """The steps that the job has done."""
        return self.failed_step + min(rank.through for rank in self.ranks) // self._buckets

    def worker_batch(self, rank, /, **more):
        """What a node says of its worker."""
        at_ns = self.now_ns + rank.skew_ns
        state = {
            "process": 1_000 + rank.skew_ns, "rank": rank.number, "generation": rank.generation, "step": self.step(),
            "stage": self.stages[rank.node], "alive": rank.process, "since_ns": at_ns,
            "heard_ns": at_ns if rank.heard else rank.last[0],
        }  # fmt: skip
        return WorkerBatch(
            job=self.name, node=rank.node, at_ns=at_ns, bound_ns=self.bound_ns, size=len(self.ranks),
            workers=(WorkerState(**state | more),),
        )  # fmt: skip
