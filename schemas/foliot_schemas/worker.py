"""What a node knows of the processes of a training job whose ranks can be replaced. It may be lost."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import Bound, Count, Name, Text, Time, check_name
from foliot_schemas.collective import MOST_RANKS, ProcessState
from foliot_schemas.gpu import XID  # noqa: TC001 - msgspec reads annotations at run time

MOST_WORKERS_OF_A_NODE = 128
"""Processes of one job that a node tells of: twice its ranks, as each may have a spare."""
MOST_XIDS = 16
NO_RANK = -1
NO_USER = -1

Stage = Literal["spare", "forming", "copying", "training", "broken", "over", "failed"]


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process of the job: one that has a rank, or a spare."""

    process: Count
    """Its number, which no other process of the node has in this boot: when it began, by CLOCK_MONOTONIC_RAW, in ns."""
    rank: Annotated[int, msgspec.Meta(ge=NO_RANK, lt=MOST_RANKS)]
    """Its rank in the job; -1: it is a spare."""
    generation: Count
    """The number of the process group that it is in, or forms: 0 first, and a higher one with each replacement."""
    step: Count
    """The steps that it has done, since the job's first."""
    stage: Stage
    """`spare`: it waits to be given a rank. `forming`: it leaves a group, or waits for the others of a new one.
    `copying`: the state goes to those who lack it. `training`: it does steps. `broken`: a collective of its failed,
    or its group did not form, and it waits to be told what to do. `over`: it has done its work. `failed`: it has given up, see `reason`."""
    alive: ProcessState
    """What the node knows of the process itself."""
    meet: Text = ""
    """Address and port of its store, at which the next group can meet."""
    since_ns: Time
    """When it came into its stage."""
    heard_ns: Time
    """When it spoke last."""
    left_ns: Time = 0
    """When it had left its last group, reference time; 0: it has left none, or left it long ago."""
    formed_ns: Time = 0
    """When all had met and the group was there."""
    copied_ns: Time = 0
    """When it had the state."""
    first_step_ns: Time = 0
    """When it had done the first step."""
    state_bytes: Count = 0
    """The size of the state that it was given; 0: it had it."""
    state_from: Annotated[int, msgspec.Meta(ge=NO_RANK, lt=MOST_RANKS)] = NO_RANK
    """The rank that gave it the state; -1: it had it."""
    lost_steps: Count = 0
    """Steps that it had done before the replacement, and the job does again."""
    reason: Text = ""
    """Why it has failed, or waits."""
    user: Annotated[int, msgspec.Meta(ge=NO_USER, lt=1 << 32)] = NO_USER
    """The number of the user whose process it is, on its node; -1: the node does not say."""


class WorkerBatch(msgspec.Struct, frozen=True, kw_only=True, tag="worker.v1"):
    """The processes of one job on one node: at once when one comes into another stage, and each second.

    At once, too, when a GPU of the node has an error of another kind.
    """

    job: Name
    """The job, as its processes name it."""
    node: Name
    """The node on which they run."""
    at_ns: Time
    """When it was told, reference time as the node knows it."""
    bound_ns: Bound
    """Statistical bound of the node's clock; -1: it is not synchronised."""
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    """The number of the job's ranks."""
    workers: Annotated[tuple[WorkerState, ...], msgspec.Meta(max_length=MOST_WORKERS_OF_A_NODE)]
    """The processes."""
    xids: Annotated[tuple[XID, ...], msgspec.Meta(max_length=MOST_XIDS)] = ()
    """Kinds of errors of its GPUs that the node has seen in the last hour, by their numbers; the newest ones."""

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: a process is there twice, or has a rank beyond the job's size.
        """
        check_name(self.job)
        if len({each.process for each in self.workers}) != len(self.workers):
            raise ValueError(f"a process of {self.job} is there twice")
        if any(each.rank >= self.size for each in self.workers):
            raise ValueError(f"a rank of {self.job} is not below {self.size}")
