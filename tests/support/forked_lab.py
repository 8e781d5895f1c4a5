"""Labs as processes that tests start, forked from one that has imported what the lab and all services do.

That takes a lab seconds of processor time. What it forks its services from is a fork, too. Tests that start labs by
``foliot lab run`` show that what these import themselves is all that they need.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foliot_lab.fabric import capabilities
from foliot_lab.services import forker

if TYPE_CHECKING:
    import io
    from collections.abc import Mapping

COMMAND = "foliot.cli.__main__"
"""``foliot``, as a module."""
_SERVICES = "foliot_lab.services.forked_services"
_IMPORTED = ("foliot.cli", "foliot_lab.command", "foliot_lab.launch")
_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0


class Program:
    """A program that was forked, as one of `subprocess`.

    Parameters:
        answers: where its exit status comes when it has ended.
    """

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._answers = answers

    def poll(self) -> int | None:
        """Its exit status; None: it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            with self._answers:
                self.returncode = forker.status(self._answers)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Waits for its end; the exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.poll() is None:
            select.select([self._answers], [], [], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Sends it a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    *arguments: str,
    said: io.BufferedWriter,
    errors: io.BufferedWriter | None = None,
    env: Mapping[str, str] | None = None,
    is_lab: bool = True,
) -> Program | subprocess.Popen[bytes]:
    """Starts ``python -m module``, which finds the benches, too.

    Who has to become another user for a lab starts it anew: what it forks from would stay behind. So does a quota.

    Parameters:
        said: a file for what it says.
        errors: another one for what it says on stderr.
        env: all of its environment; None: as here.
        is_lab: it is to fork its services.
    """
    env = dict(os.environ if env is None else env)
    if not capabilities.is_privileged() or "--speed" in arguments:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, stdout=said, stderr=errors or said, env=env, cwd=_ROOT)
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        return Program(
            *_forker().ask(
                module, *arguments, namespace=namespace, stdout=said.fileno(),
                stderr=(errors or said).fileno(), env=env,
                more={"is_lab": is_lab, "path": [str(_ROOT), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]},
            )
        )  # fmt: skip
    finally:
        os.close(namespace)


@functools.cache
def _forker() -> forker.Forker:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    services = importlib.import_module(_SERVICES).MODULES
    made = forker.Forker(
        (*_IMPORTED, *services), env | {"OPENBLAS_NUM_THREADS": "1"}, command=(sys.executable, __file__)
    )
    atexit.register(made.close)
    return made


# -- a lab that was forked ---------------------------------------------------------------------------------------------


class _Forked:
    """A fork of this process, as `subprocess` has it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class _ForkerOfTheLab(forker.Forker):
    """Forks a process that forks, instead of starting one that has to import first."""

    def __init__(self) -> None:
        self._requests, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if pid := os.fork():
            its.close()
            self._process = _Forked(pid)
            return
        self._requests.close()
        os.setsid()
        with Path(os.devnull).open("r+b") as nothing:
            for standard in range(3):
                os.dup2(nothing.fileno(), standard)
        forker.serve(its.detach())
        raise SystemExit


def _prepare(more: Mapping[str, Any]) -> None:
    sys.path[:0] = more["path"]
    if more["is_lab"]:
        made = _ForkerOfTheLab()
        importlib.import_module(_SERVICES).Forker = lambda *_: made


if __name__ == "__main__":
    # Python puts the folder of this file first, which programs of ours do not know.
    del sys.path[0]
    forker.main(_prepare)
