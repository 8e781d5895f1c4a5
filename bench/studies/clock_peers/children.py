"""The processes of a run, each in its host's namespace. None is restarted, and none is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from foliot_lab.fabric.namespaces import child_setup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from foliot_lab.fabric.namespaces import Namespace

_GRACE_S = 3.0
_LAST_LINES = 5


class ChildError(RuntimeError):
    """A process ended although the run needs it. The message has its name and its last words."""


class Children:
    """Processes that die with this one (PR_SET_PDEATHSIG). Closing ends them, the last started first.

    Parameters:
        folder: for their output, a file each.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, asyncio.subprocess.Process] = {}

    def log(self, name: str) -> Path:
        """The file of a process's output."""
        return self._folder / f"{name.replace('/', '-')}.log"

    async def start(
        self,
        name: str,
        arguments: Sequence[str],
        namespace: Namespace | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a process in a namespace; None: in this process's own.

        Call it in the main thread, to whose life the child is tied.
        """
        with self.log(name).open("ab") as output:
            self._running[name] = await asyncio.create_subprocess_exec(
                *arguments, env={**os.environ, **(environment or {})}, stdin=asyncio.subprocess.DEVNULL, stdout=output,
                stderr=output,
                preexec_fn=child_setup(namespace), start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """Checks that no process has ended. If one has, later measurements are of something else.

        Raises:
            ChildError: a process has ended.
        """
        for name, process in self._running.items():
            if process.returncode is not None:
                words = self.log(name).read_text(errors="replace").splitlines()[-_LAST_LINES:]
                raise ChildError("\n".join([f"{name} ended with status {process.returncode}", *words]))

    async def end(self, *names: str) -> None:
        """Ends these processes: SIGTERM and, after a grace time, SIGKILL."""
        processes = [self._running.pop(name) for name in names]
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
        for process in processes:
            try:
                await asyncio.wait_for(process.wait(), _GRACE_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def close(self) -> None:
        """Ends all processes, the last started first, so that none misses the bus before its own end."""
        names = [*reversed(self._running)]
        if names:
            await self.end(*names[:-1])
            await self.end(names[-1])
