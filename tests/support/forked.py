"""Programs of ours as processes, without the second of processor time that each takes to import its libraries.

One process imports them once, and forks for each program that a test starts. What the program does from then on, until
its exit status, is what it does when it is started by its name: with arguments, environment, standard streams and
namespace of its own. What this leaves out, that what is imported by a program is all that it needs, is shown where
tests and labs start programs by their names.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import functools
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORTED = (
    "foliot.cli", "foliot.bus.one_shot", "foliot.runtime.service", "foliot_agent.service",
    "foliot_agent.install.join", "foliot_agent.install.leave", "foliot_agent.install.plan_command",
    "foliot_agent.control.kernel_backend",
)  # fmt: skip
"""What is imported beforehand; the programs import the rest themselves."""
_TRIAL = "foliot_agent.install.kernel_trial"
_REQUEST_BYTES = 1 << 17
_NEW_NET = 0x40000000
# linux/prctl.h, linux/capability.h
_PR_CAPBSET_DROP, _CAPABILITIES, _CAPABILITY_VERSION_3 = 24, 64, 0x20080522


class Process:
    """A program that runs, as one of `asyncio.subprocess`.

    Parameters:
        answers: where its pid comes, and its exit status when it has ended.
    """

    def __init__(self, answers: socket.socket) -> None:
        self.pid = int(answers.recv(64))
        answers.setblocking(False)
        self._answers = answers
        self._status = asyncio.ensure_future(self._ended())

    @property
    def returncode(self) -> int | None:
        """Its exit status; None: it runs."""
        return self._status.result() if self._status.done() else None

    async def wait(self) -> int:
        """Waits for its end; the exit status."""
        return await asyncio.shield(self._status)

    def terminate(self) -> None:
        """SIGTERM."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and the loop has not heard yet
                os.kill(self.pid, signal.SIGTERM)

    async def _ended(self) -> int:
        with self._answers:
            return int(await asyncio.get_running_loop().sock_recv(self._answers, 64))


def start(
    module: str, *arguments: str, stdout: int | None = None, stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    privileged: bool = True, constants: Mapping[str, float] | None = None,
) -> Process:  # fmt: skip
    """Starts ``python -m module`` in the namespace that the calling thread is in.

    Parameters:
        stdout: file descriptor; None: this process's.
        env: all of its environment; None: as here.
        privileged: not so, it has no capability, whoever it runs as.
        constants: of its modules, as ``package.module.NAME``, that have other values in it.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {
        "module": module, "arguments": arguments, "env": dict(os.environ if env is None else env),
        "folder": str(Path.cwd()), "privileged": privileged,
        "constants": dict(constants or {}),
    }  # fmt: skip
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        fds = [namespace, its.fileno(), 1 if stdout is None else stdout, 2 if stderr is None else stderr]
        socket.send_fds(_forker(), [json.dumps(request).encode()], fds)
    finally:
        os.close(namespace)
        its.close()
    return Process(ours)


async def run(
    module: str, *arguments: str, env: Mapping[str, str] | None = None, privileged: bool = True
) -> tuple[int, str]:
    """Runs ``python -m module`` to its end; the exit status, and all that it said."""
    with tempfile.TemporaryFile() as said:
        process = start(module, *arguments, stdout=said.fileno(), stderr=said.fileno(), env=env, privileged=privileged)
        status = await process.wait()
        said.seek(0)
        return status, said.read().decode()


@functools.cache
def _forker() -> socket.socket:
    """The connection to the process that forks, started with the first program; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Python's streams wait as those of a program do whose output goes to a pipe or a file.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=env | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# -- the process that forks -------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks for each request, and tells how those ended.

    It returns in each of them, with what was asked; None: in itself, when nobody asks any more.
    """
    answers: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in answers:
                pid, answer = answers.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _answer(answer, status)
                answer.close()
                continue
            text, fds, *_ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
            if not text:
                return None
            namespace, answer_fd, *streams = fds
            answer = socket.socket(fileno=answer_fd)
            if pid := os.fork():
                answers[pidfd := os.pidfd_open(pid)] = pid, answer
                poll.register(pidfd, select.POLLIN)
                _answer(answer, pid)
                for each in (namespace, *streams):
                    os.close(each)
                continue
            for pidfd, (_, other) in answers.items():
                os.close(pidfd)
                other.close()
            answer.close()
            requests.close()
            asked: dict[str, Any] = json.loads(text)
            _become(asked, namespace, streams)
            return asked


def _answer(where: socket.socket, number: int) -> None:
    """Whoever asked may have ended meanwhile."""
    with contextlib.suppress(OSError):
        where.send(str(number).encode())


def _become(asked: Mapping[str, Any], namespace: int, streams: list[int]) -> None:
    """Takes on what a program has that was started anew."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)
    for standard, fd in enumerate(streams, 1):
        os.dup2(fd, standard)
        os.close(fd)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    if not asked["privileged"]:
        for capability in range(_CAPABILITIES):
            libc.prctl(_PR_CAPBSET_DROP, capability)
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
        if libc.capset(header, none):
            raise OSError(ctypes.get_errno(), "capset")


def _forked_trial() -> dict[str, str]:
    """What `foliot_agent.install.kernel_trial.run_trial` does, in a fork instead of a program of its own."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        with os.fdopen(reading) as told:
            text = told.read()
        os.waitpid(pid, 0)
        found: dict[str, str] = json.loads(text)
        return found
    try:
        sys.stdout = io.StringIO()
        importlib.import_module(_TRIAL).main()
        os.write(writing, sys.stdout.getvalue().encode())
    finally:
        os._exit(0)


def _main() -> None:
    # Python puts the folder of this file first, which programs of ours do not know.
    del sys.path[0]
    for module in _IMPORTED:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        asked = _serve(requests)
    if asked is None:
        return
    importlib.import_module(_TRIAL).run_trial = _forked_trial
    for name, value in asked["constants"].items():
        place, _, constant = name.rpartition(".")
        setattr(importlib.import_module(place), constant, value)
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
