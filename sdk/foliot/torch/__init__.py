"""Records the collectives of a training job, so that Foliot can say for which of its ranks the others wait.

    import foliot.torch

    foliot.torch.record("pretrain-7")  # before the program's first collective
    torch.distributed.init_process_group(...)

A thread passes the records to the node's agent five times a second, by a Unix socket. Where no agent listens, they are
dropped. Nothing here waits for the agent, adds a collective, or raises once recording has begun.

This package needs PyTorch and Python's standard library alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypeVar

from foliot.places import RANK_SOCKET
from foliot.torch.collective_log import CollectiveLog
from foliot.torch.interception import intercept
from foliot.torch.loading import timed
from foliot.torch.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["data", "record"]

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
    elastic = os.environ.get(_ELASTIC, "none")
    name = job or os.environ.get(_JOB) or (elastic if elastic != "none" else _meeting_point())
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:64]!r} cannot be the name of a job: it is long, or has a space, '>', '#' or '/'")
    _reporter = Reporter(_log, name, socket or os.environ.get(_SOCKET) or RANK_SOCKET)
    intercept(_log)
    _reporter.start()


def _meeting_point() -> str:
    return f"{os.environ.get('MASTER_ADDR', 'job')}:{os.environ.get('MASTER_PORT', '0')}"


def data(batches: Iterable[_T]) -> Iterator[_T]:
    """The same batches; the time for which the program waits for each counts as waiting for data.

    The batches of a `torch.utils.data.DataLoader` count without it.
    """
    return timed(batches, _log)
