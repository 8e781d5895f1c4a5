"""Ends the processes that ``foliot lab exec`` started in a lab's namespaces, when the lab ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_lab.fabric.namespaces import Namespace

_GRACE_S = 1.0
_GONE_S = 20.0
"""The wait for a process after SIGKILL. Nothing can refuse that signal. On a busy machine it takes a process seconds
to end, and the lab's namespaces live until then."""
_LOOK_S = 0.02


async def see_out(namespaces: Iterable[Namespace]) -> None:
    """Ends every process in these network namespaces other than this one and its descendants: SIGTERM, then SIGKILL."""
    places = {_place(os.fstat(namespace.fd)) for namespace in namespaces if namespace.fd >= 0}
    for number, grace_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GONE_S)):
        with contextlib.ExitStack() as stack:
            found = list(_guests(places, stack))
            for descriptor in found:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
            deadline_s = time.monotonic() + grace_s
            # The kernel ends them.
            while any(not _has_ended(descriptor) for descriptor in found) and time.monotonic() < deadline_s:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)


def _guests(places: set[tuple[int, int]], stack: contextlib.ExitStack) -> Iterator[int]:
    """A descriptor of each process, because the kernel may reuse an id between a look and a signal."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or _is_own(int(entry.name)):
            continue
        with contextlib.suppress(OSError):  # it has ended, or this process may not look at it
            descriptor = os.pidfd_open(int(entry.name))
            stack.callback(os.close, descriptor)
            if _place((entry / "ns/net").stat()) in places:
                yield descriptor


def _is_own(pid: int) -> bool:
    """Whether a process is this one or descends from it."""
    own = os.getpid()
    while pid not in {0, own}:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == own


def _place(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _has_ended(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])
