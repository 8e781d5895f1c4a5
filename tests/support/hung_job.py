"""A training job in which ranks fail: what each of them would say of its collectives when nothing moves any more."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from foliot.analysis.collectives import Group, Operation, Progress, RankRecord


@dataclass(frozen=True)
class Step:
    """An operation of the job's program, which all its members do in the same order."""

    group: str
    members: tuple[int, ...]
    transfer: tuple[int, int] | None = None
    """Sender and receiver by their places among the members."""
    name: str = "all_reduce"


@dataclass
class Rank:
    """How far a rank is in the steps that are its own, by number of steps."""

    steps: list[Step]
    begun: int = 0
    done: int = 0
    seen: int = 0
    """Of those done, how many it has noticed: a broken GPU says no more what it has done."""


@dataclass
class HungJob:
    """A job of tensor, data and pipeline groups in which ranks fail at one of their steps.

    By rank, the number of the step that it does not begin (`stopped`), from which on it notices nothing (`broken`), or
    in which its tensor has another size (`differing`).
    """

    seed: int
    world: int = 8
    stopped: dict[int, int] = field(default_factory=dict)
    broken: dict[int, int] = field(default_factory=dict)
    differing: dict[int, int] = field(default_factory=dict)
    length: int = 120
    ahead: int = 6

    def __post_init__(self):
        rng = random.Random(self.seed)
        half = self.world // 2
        self.groups = {"0": tuple(range(self.world))}
        self.groups |= {str(1 + n): (2 * n, 2 * n + 1) for n in range(half)}
        self.groups |= {str(1 + half + n): tuple(range(n * half, (n + 1) * half)) for n in range(2)}
        self.groups |= {str(3 + half + n): (n, n + half) for n in range(half)}
        program = []
        while len(program) < self.length:
            kind = rng.random()
            if kind < 0.1:
                chosen = ["0"]
            elif kind < 0.5:
                chosen = [str(1 + n) for n in range(half)]
            elif kind < 0.8:
                chosen = [str(1 + half + n) for n in range(2)]
            else:
                chosen = [str(3 + half + n) for n in range(half)]
            ends = rng.choice([(0, 1), (1, 0)]) if kind >= 0.8 else None
            program += [Step(name, self.groups[name], ends, rng.choice(["all_reduce", "broadcast"])) for name in chosen]
        self.ranks = [Rank([step for step in program if rank in step.members]) for rank in range(self.world)]
        while self._advance():
            pass

    def _advance(self):
        moved = False
        for number, rank in enumerate(self.ranks):
            limit = min(self.stopped.get(number, len(rank.steps)), rank.seen + self.ahead, len(rank.steps))
            moved |= limit > rank.begun
            rank.begun = max(rank.begun, limit)
        for rank in self.ranks:
            if rank.done == rank.begun:
                continue
            step = rank.steps[rank.done]
            if all(self._stands(member, step) for member in step.members) and not self._differs(step):
                for member in step.members:
                    other = self.ranks[member]
                    other.done += 1
                    if other.done <= self.broken.get(member, len(other.steps)):
                        other.seen = other.done
                moved = True
        return moved

    def _stands(self, member, step):
        rank = self.ranks[member]
        return rank.done < rank.begun and rank.steps[rank.done] is step

    def _differs(self, step):
        return any(
            rank.done < rank.begun and rank.steps[rank.done] is step and self.differing.get(member) == rank.done
            for member, rank in enumerate(self.ranks)
        )

    def at_fault(self):
        """The ranks that came to where they fail."""
        stopped = {rank for rank, at in self.stopped.items() if self.ranks[rank].begun == self.ranks[rank].done == at}
        broken = {rank for rank in self.broken if self.ranks[rank].done > self.ranks[rank].seen}
        differing = {
            rank for rank, at in self.differing.items() if self.ranks[rank].done <= at < self.ranks[rank].begun
        }
        return stopped | broken | differing

    def anybody_ended(self):
        """Whether some rank did all of its program: it has nothing to do, and is not at fault."""
        return any(rank.done == len(rank.steps) for rank in self.ranks)

    def record(self, rank):
        """What a rank says."""
        own, groups = self.ranks[rank], {}
        for name, members in self.groups.items():
            if rank in members:
                groups[name] = Group(name, f"GROUP_{name}", members)
        begun, done = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
        operations = []
        for order, step in enumerate(own.steps[: own.begun]):
            if step.transfer is None:
                begun[step.group] += 1
                done[step.group] += order < own.seen
            if order >= own.seen - 3:
                size = (7 + rank,) if self.differing.get(rank) == order else (4096, 16)
                sender, receiver = step.transfer or (None, None)
                side = "send" if sender is not None and step.members[sender] == rank else "recv"
                operations.append(
                    Operation(
                        order, step.group, begun[step.group], step.name if step.transfer is None else side,
                        sender, receiver, (((size),), ((size),)), (("Float",), ("Float",)), order < own.seen,
                    )
                )  # fmt: skip
        progress = {name: Progress(begun[name], done[name]) for name in groups}
        return RankRecord(rank, groups, progress, tuple(operations))

    def records(self, without=()):
        """What all say, but for some."""
        return {rank: self.record(rank) for rank in range(self.world) if rank not in without}

    def dump(self, rank):
        """The same as NCCL's Flight Recorder dumps it, version 2.9, with what is active and the last that is not."""
        record = self.record(rank)
        local = {name: 2 * place for place, name in enumerate(sorted(record.groups, key=int))}
        config = {
            name: {"name": name, "desc": group.description, "ranks": str(list(group.members))}
            for name, group in record.groups.items()
        }
        steps = self.ranks[rank].steps
        entries = []
        for each in record.operations:
            ends = {"send": f"{each.sender}->{each.receiver}", "recv": f"{each.receiver}<-{each.sender}"}
            (size,), (also,) = each.sizes
            entries.append(
                {
                    "record_id": each.order, "pg_id": local[each.group],
                    "process_group": (each.group, record.groups[each.group].description),
                    "collective_seq_id": each.number, "p2p_seq_id": self._transfers(steps[: each.order + 1], each.group), "op_id": each.order,
                    "profiling_name": f"nccl:{each.name} {ends.get(each.name, '')}".rstrip(), "time_created_ns": each.order,
                    "input_sizes": [list(size)], "input_dtypes": ["Float"], "output_sizes": [list(also)],
                    "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": None,
                    "time_discovered_completed_ns": None, "retired": each.is_done, "timeout_ms": 600_000,
                    "is_p2p": each.is_transfer, "thread_id": "140", "frames": [{"name": "f", "filename": "a.py", "line": 1}],
                }
            )  # fmt: skip
        status = {}
        for name, progress in record.progress.items():
            begun, done = progress
            if self.has_transfers(name):
                begun, done = (
                    self._transfers(steps[:number], name) for number in (self.ranks[rank].begun, self.ranks[rank].seen)
                )
            status[local[name]] = {
                "last_enqueued_collective": begun, "last_started_collective": -1, "last_completed_collective": done,
            }  # fmt: skip
        return {
            "version": "2.9", "nccl_version": "2.27.3", "pg_config": config, "pg_status": status, "entries": entries
        }  # fmt: skip

    def has_transfers(self, name):
        """Whether a group has transfers: then its status counts these."""
        return any(step.transfer is not None for rank in self.ranks for step in rank.steps if step.group == name)

    def _transfers(self, steps, name):
        return sum(step.group == name and step.transfer is not None for step in steps)
