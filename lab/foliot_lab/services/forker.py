"""Python programs as processes, without the second of processor time that each takes to import its libraries.

One process imports these once, and forks for each program. What a program does from then on, until its exit status, is
what it does when it is started by its name, with arguments, environment, standard streams and namespace of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foliot_lab.fabric.namespaces import CLONE_NEWNET, end_with_parent, set_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OWN_NAMESPACE = Path("/proc/self/ns/net")
_SESSION = Path("/proc/self/autogroup")
_REQUEST_BYTES = 1 << 17
_ANSWER_BYTES = 64
_MOST_DESCRIPTORS = 5
_LISTENS = 3
"""The descriptor of a socket that listens (sd_listen_fds(3))."""
_PR_SET_NAME = 15
_KILLED = -signal.SIGKILL


class Forked:
    """A program that runs, as one of `asyncio.subprocess`. Make it where an event loop runs.

    Parameters:
        answers: where its exit status comes when it has ended.
    """

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid = pid
        self._answers = answers
        self._answers.setblocking(False)
        self._status = asyncio.ensure_future(self._ended())

    @property
    def returncode(self) -> int | None:
        """Its exit status; None: it runs."""
        return self._status.result() if self._status.done() else None

    async def wait(self) -> int:
        """Waits for its end; the exit status."""
        return await asyncio.shield(self._status)

    def send_signal(self, number: int) -> None:
        """Sends it a signal."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and the loop has not heard yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    async def _ended(self) -> int:
        with self._answers:
            return _status(await asyncio.get_running_loop().sock_recv(self._answers, _ANSWER_BYTES))


def status(answers: socket.socket) -> int:
    """Waits for the end of a program that `Forker.ask` has started; its exit status."""
    return _status(answers.recv(_ANSWER_BYTES))


def _status(told: bytes) -> int:
    return int(told or _KILLED)  # nothing comes if who forks was killed, and with it all of its programs


class Forker:
    """The process that imports and forks. `close` ends it, and the end of this process does.

    Parameters:
        modules: what it imports beforehand. Programs import the rest themselves.
        env: all of its environment.
        command: what runs `main`.
    """

    def __init__(self, modules: tuple[str, ...], env: Mapping[str, str], command: tuple[str, ...] = ()) -> None:
        self._requests, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [*(command or (sys.executable, "-m", __name__)), str(its.fileno()), *modules], pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env, start_new_session=True,
        )  # fmt: skip
        its.close()
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait(self) -> None:
        """Waits until what is imported beforehand is.

        Raises:
            ChildProcessError: the process that forks has ended.
        """
        if not self._is_ready and not self._requests.recv(_ANSWER_BYTES):
            raise ChildProcessError("the process that forks has ended")
        self._is_ready = True

    def close(self) -> None:
        """Ends it, and its programs with it."""
        self._requests.close()
        self._process.wait()

    def start(self, module: str, *arguments: str, **more: Any) -> Forked:
        """Like `ask`, where an event loop runs."""
        return Forked(*self.ask(module, *arguments, **more))

    def ask(
        self, module: str, *arguments: str, namespace: int, stdout: int, stderr: int, env: Mapping[str, str],
        more: Mapping[str, Any] | None = None, niceness: int = 0, listener: int = -1,
    ) -> tuple[int, socket.socket]:  # fmt: skip
        """Starts ``python -m module``; its process id, and where its exit status comes when it has ended.

        The first call waits until what is imported beforehand is, unless `wait` did.

        Parameters:
            namespace: a descriptor of the network namespace that it is to be in.
            env: all of its environment.
            more: what else `main` is to prepare it by.
            niceness: by which it is nicer than this process, within its own session.
            listener: a descriptor that it is to have as 3, of a socket that listens (sd_listen_fds(3)); -1: none.

        Raises:
            ChildProcessError: the process that forks has ended.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "module": module, "arguments": arguments, "env": dict(env), "folder": str(Path.cwd()),
            "more": dict(more or {}), "niceness": niceness,
        }  # fmt: skip
        descriptors = [namespace, its.fileno(), stdout, stderr, *([listener] if listener >= 0 else [])]
        with contextlib.suppress(BrokenPipeError), its:
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        if not (answer := ours.recv(_ANSWER_BYTES)):
            ours.close()
            raise ChildProcessError(f"the process that forks has ended, and {module} cannot be started")
        return int(answer), ours


# -- the process that forks -------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks for each request, and tells how those ended.

    It returns in each of them, with what was asked; None: in itself, when nobody asks any more.
    """
    answers: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    own = os.getpid()
    while True:
        for fd, _ in poll.poll():
            if fd in answers:
                pid, answer = answers.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _answer(answer, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                answer.close()
                continue
            try:
                text, fds, *_ = socket.recv_fds(requests, _REQUEST_BYTES, _MOST_DESCRIPTORS)
            except ConnectionResetError:  # who asked has not read that all is imported
                return None
            if not text:
                return None
            namespace, answer_fd, *others = fds
            answer = socket.socket(fileno=answer_fd)
            if pid := os.fork():
                answers[pidfd := os.pidfd_open(pid)] = pid, answer
                poll.register(pidfd, select.POLLIN)
                _answer(answer, pid)
                for each in (namespace, *others):
                    os.close(each)
                continue
            for pidfd, (_, other) in answers.items():
                os.close(pidfd)
                other.close()
            answer.close()
            requests.close()
            asked: dict[str, Any] = json.loads(text)
            _become(asked, namespace, others)
            end_with_parent()
            if os.getppid() != own:  # it ended before the tie was made
                os._exit(1)
            return asked


def _answer(where: socket.socket, number: int) -> None:
    """Whoever asked may have ended meanwhile."""
    with contextlib.suppress(OSError):
        where.send(str(number).encode())


def _become(asked: Mapping[str, Any], namespace: int, descriptors: list[int]) -> None:
    """Takes on what a program has that was started anew."""
    os.setsid()
    if niceness := os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(OSError):  # the kernel does not share processors out by sessions
            _SESSION.write_text(str(niceness))  # in which alone a process's niceness counts (sched(7))
    os.nice(asked["niceness"])
    if os.fstat(namespace).st_ino != _OWN_NAMESPACE.stat().st_ino:  # to stay takes no privilege
        set_namespace(namespace, CLONE_NEWNET, "entering the network namespace")
    os.close(namespace)
    for its, fd in zip((1, 2, _LISTENS), descriptors, strict=False):
        if fd != its:
            os.dup2(fd, its)
            os.close(fd)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, asked["module"].encode(), 0, 0, 0)


def main(prepare: Callable[[Mapping[str, Any]], None] | None = None) -> None:
    """The process that forks, and what it forks into: a program, once that is prepared by what `start` had more."""
    descriptor, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # what is there by now stays, and is not copied for each program by counting who refers to it
    serve(int(descriptor), prepare)


def serve(descriptor: int, prepare: Callable[[Mapping[str, Any]], None] | None = None) -> None:
    """Like `main`, where all is imported.

    Parameters:
        descriptor: of the socket on which `Forker` asks.
    """
    end_with_parent()
    with socket.socket(fileno=descriptor) as requests:
        _answer(requests, os.getpid())
        asked = _serve(requests)
    if asked is None:
        return
    if prepare is not None:
        prepare(asked["more"])
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
