"""Records the collectives of a training job, so that Foliot can say for which of its ranks the others wait.

    import foliot.torch

    foliot.torch.record("pretrain-7")  # before the program's first collective
    torch.distributed.init_process_group(...)

A thread passes the records to the node's agent five times a second, by a Unix socket. Where no agent listens, they are
dropped. Nothing here waits for the agent, adds a collective, or raises once recording has begun.

`groups` makes the job's ranks replaceable: a lost one is given to a spare, and the others go on at the same step.

This package needs PyTorch and Python's standard library alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypeVar

from foliot.places import RANK_SOCKET
from foliot.torch.collective_log import CollectiveLog
from foliot.torch.group import Group, groups_of
from foliot.torch.interception import intercept
from foliot.torch.loading import time_loaders, timed
from foliot.torch.mirror import StateLostError
from foliot.torch.process_groups import default_join
from foliot.torch.reporter import Reporter
from foliot.torch.worker import Program, Replaced, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch.distributed import Store

    from foliot.torch.state_transfer import Stateful

__all__ = ["Group", "Replaced", "StateLostError", "data", "groups", "record"]

_T = TypeVar("_T")
_JOB, _SOCKET, _ELASTIC = "FOLIOT_JOB", "FOLIOT_AGENT__RANK_SOCKET", "TORCHELASTIC_RUN_ID"
_NAME = re.compile(r"[^\x00-\x20\x7f-\xa0>#/]{1,255}")
"""As `foliot_schemas.bounds.check_name` has it, which a job's own process does not import."""
_log = CollectiveLog()
_reporter: Reporter | None = None


def record(job: str = "", *, socket: str = "") -> None:
    """Begins to record this process's collectives. A second call changes nothing.

    Call it on all ranks before the first collective, or at the same place of the program: collectives are counted from
    here on. Recorded are those of PyTorch's own process groups, whoever begins them: the program, DDP, FSDP. Not
    recorded are functional collectives (DTensor's, and those of compiled graphs) and those under inference mode.

    Parameters:
        job: name of the job, the same on all ranks. Default: ``$FOLIOT_JOB``, which `foliot job` sets, else torchrun's
            run id, else the address and port at which its ranks meet.
        socket: path of the agent's socket. Default: ``$FOLIOT_AGENT__RANK_SOCKET``, else the agent's default.

    Raises:
        ValueError: the name has a space, ``>``, ``#`` or ``/``, or more than 255 characters.
    """
    global _reporter  # noqa: PLW0603 - a process has one
    if _reporter is not None:
        return
    name, path = _named(job), _path(socket)
    _reporter = Reporter(_log, name, path)
    intercept(_log)
    time_loaders(_log)
    _reporter.start()


def groups(
    state: Mapping[str, Stateful], *, shard: Mapping[str, Stateful] | None = None,
    join: Callable[[Store, int, int], None] = default_join, reload: Callable[[int], int] | None = None, step: int = 0,
    seed: int | None = None, mirror_steps: int = 1, wait_s: float = 20.0, timeout_s: float = 1800.0, job: str = "",
    socket: str = "",
) -> Iterator[Group]:  # fmt: skip
    """The process groups in which this process works, one after the other: a new one each time a rank is replaced.

    Take each by a `with` statement and work there until all is done, as docs/training-jobs.md shows. Rank, size and
    place of meeting are those of the environment, as torchrun sets them. A spare is started with ``FOLIOT_SPARE=1`` and
    without a rank. It waits here until it is given one. Collectives are recorded, as by `record`.

    Parameters:
        state: what a rank must have to go on and all ranks have alike, by names of your own: modules, optimizers,
            schedules. Their states have tensors and plain values alone.
        shard: what each rank has for itself, such as its part of the optimizer's state. After each step the next rank
            gets a copy, so that what a lost rank had is not lost. Their tensors must be plain ones.
        join: makes all process groups, the default one first, of a store, this process's rank and the number of ranks.
            Default: one group, by NCCL where there is a GPU, else by Gloo.
        reload: takes the state and the shard of the rank that it is given from the last checkpoint, and returns its
            step. It is called on all ranks where one and the keeper of its copy are lost at once, or where a rank is
            lost, or the group breaks, while all others are between their optimizer's step and the step's end. Default: the job ends then,
            with an error.
        step: how many steps were done before, as a checkpoint says.
        seed: if given, PyTorch's random numbers of each step follow from it, the rank and the step. Then a step that is
            done by another process, or again, draws the same.
        mirror_steps: how many steps there are from one copy of the shards to the next. If ranks are lost, the job goes
            back to the last copies.
        wait_s: how long a process waits to be told who takes a lost rank's place, in seconds, and then for the others
            to come: at least as long as they compute between two collectives.
        timeout_s: how long a collective of Gloo's may take, and the first group to form. What takes longer is given up
            like a group that lost a rank: with an error, unless somebody says within `wait_s` what to do. NCCL has a
            limit of its own.
        job: name of the job, as `record` takes it.
        socket: path of the agent's socket, likewise.

    Raises:
        KeyError: the environment has no rank, or no number of ranks.
        ValueError: the name cannot be a job's, `mirror_steps` is below 1, or `timeout_s` is not above 0.
        TypeError: a state has something else, at the end of the first step.
        StateLostError: no rank has what another lacks, and nothing reloads a checkpoint.
        Replaced: another process has this one's rank; a `SystemExit` with status 0.
        RuntimeError: a group did not form, or a collective took too long, and nobody said what to do.
    """
    if not timeout_s > 0:  # nor NaN
        raise ValueError(f"a collective may take some time, not {timeout_s:g} s")
    if mirror_steps < 1:
        raise ValueError(f"copies of the shards are kept each step or more seldom, not each {mirror_steps} steps")
    record(job, socket=socket)
    program = Program(state, shard or {}, join, reload, step, seed, mirror_steps, wait_s, timeout_s)
    return groups_of(Worker(program, _named(job), _path(socket), _log))


def _named(job: str) -> str:
    """The job's name.

    Raises:
        ValueError: it cannot be one.
    """
    elastic = os.environ.get(_ELASTIC, "none")
    name = job or os.environ.get(_JOB) or (elastic if elastic != "none" else _meeting_point())
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:64]!r} cannot be the name of a job: it is long, or has a space, '>', '#' or '/'")
    return name


def _path(socket: str) -> str:
    return socket or os.environ.get(_SOCKET) or RANK_SOCKET


def _meeting_point() -> str:
    return f"{os.environ.get('MASTER_ADDR', 'job')}:{os.environ.get('MASTER_PORT', '0')}"


def data(batches: Iterable[_T]) -> Iterator[_T]:
    """The same batches; the time for which the program waits for each counts as waiting for data.

    The batches of a `torch.utils.data.DataLoader` count without it.
    """
    return timed(batches, _log)
