"""The processes of a job: its ranks and its spares, each in the network namespace of its host.

They are started once and watched. One process imports PyTorch for all of them and forks, as that takes each of them
seconds of processor time. A process that has lost its rank can be started again by itself, as a spare.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from foliot_lab.fabric.namespaces import child_setup
from foliot_lab.services.forker import Forker
from foliot_lab.workload.train.places import at, file_stem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.services.forker import Forked
    from foliot_lab.workload.train.places import Place

    Process = Forked | asyncio.subprocess.Process

STORE_PORT = 29500
"""torchrun's default port of the store."""
IMPORTED = (
    "foliot_lab.workload.train.checkpoint", "foliot_lab.workload.train.group", "foliot_lab.workload.train.model",
    "torch._dynamo",
)  # fmt: skip
"""What a training job imports: PyTorch, what of the lab's needs it, and what PyTorch imports for a first optimizer."""
_NICENESS = 10
"""The niceness of ranks. A cluster's NICs and clocks do not wait for its training. On the lab's few processors the
services therefore go first."""
_GRACE_S = 3.0
_LEAVES_S = 60.0
"""A process that has lost its rank has so long to end. One that was cut off waits for an order first, for half a minute."""
_TAIL_BYTES = 4096
_LONGEST_REASON = 200


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's process that has ended."""

    node: str
    """The name of its place, see `Place.name`."""
    at_ns: int
    """Lab time."""
    status: int
    """Status as in `subprocess`. 0: its steps were done; negative: the signal that killed it."""
    reason: str
    """The last line that it wrote, or the signal's name."""


class Ranks:
    """A job's processes. Make it by `start`; `stop` whatever happens.

    Processes are known by the names of their places, see `Place.name`. Where a method takes a host, it means all
    processes there.

    Parameters:
        folder: the logs, one per place.
        imported: what programs import, which is imported once for all of them.
        forker: the process that has imported it, if there is one. It stays when all ranks end.
        returns: whether `start_again` does anything, because the job has a use for spares.
    """

    def __init__(
        self, folder: Path, time: LabTime, *, imported: tuple[str, ...] = (), forker: Forker | None = None,
        returns: bool = False,
    ) -> None:  # fmt: skip
        self.ended: list[Ended] = []
        """Ranks in the order of their ends, without those that `stop` ended."""
        self.folder = folder
        self._time = time
        self._returns = returns
        self._imported = imported
        self._forker = forker
        self._owns_forker = forker is None
        self._processes: dict[str, Process] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._returning: dict[str, asyncio.Task[None]] = {}

    async def start(
        self, module: str, places: Sequence[Place], master: str, arguments: Callable[[str], Sequence[str]]
    ) -> None:
        """Starts all processes of a program, in the order of the places; the spares have no rank.

        Parameters:
            module: takes an ``--address`` per device, and the rest from the environment as torchrun sets it.
            master: the address of rank 0's store, by which the ranks find one another. No backend fault cuts it.
            arguments: further arguments, by the name of the place.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._module, self._master, self._arguments = module, master, arguments
        self._places = {place.name: place for place in places}
        self._size = sum(not place.is_spare for place in places)
        if self._forker is None:
            self._forker = Forker(self._imported, os.environ)
        await asyncio.to_thread(self._forker.wait)
        for rank, place in enumerate(places):
            self._begin(place, None if place.is_spare else rank)

    def signal(self, where: str, number: signal.Signals) -> None:
        """Sends a signal to the processes at a place, or on a host, that run."""
        for name in at(where, self._processes):
            if self._processes[name].returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._processes[name].send_signal(number)

    def pid(self, where: str) -> int:
        """The process id at a place; 0: it does not run."""
        for name in at(where, self._processes):
            if self._processes[name].returncode is None:
                return self._processes[name].pid
        return 0

    def lever(self, where: str) -> Path:
        """The file in which the process at a place looks before each step, see `levers.py`."""
        return self.folder / f"{file_stem(where.removesuffix('/rank'))}.lever"

    def lose_host(self, host: str) -> None:
        """Does nothing: nobody schedules these processes anew."""

    def start_again(self, where: str) -> None:
        """Starts processes at a place, or on a host, again as spares, once they have ended. One that goes on stays."""
        for name in at(where, self._processes) if self._returns else ():
            if name not in self._returning or self._returning[name].done():
                self._returning[name] = asyncio.create_task(self._return(name))

    def log(self, where: str) -> Path:
        """The output of the process at a place."""
        return self.folder / f"{file_stem(where.removesuffix('/rank'))}.log"

    async def finished(self) -> None:
        """Returns when no rank runs any more."""
        await asyncio.wait(self._watchers)

    async def stop(self) -> None:
        """Ends all ranks. May be called twice."""
        for task in (*self._watchers, *self._returning.values()):
            task.cancel()
        await asyncio.gather(*self._returning.values(), return_exceptions=True)
        for name in self._processes:
            self.signal(name, signal.SIGCONT)
            self.signal(name, signal.SIGTERM)
        deadline_s = time.monotonic() + _GRACE_S
        for name, process in self._processes.items():
            try:
                await asyncio.wait_for(process.wait(), max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                self.signal(name, signal.SIGKILL)
                await process.wait()
        if self._forker is not None and self._owns_forker:
            self._forker.close()

    def _begin(self, place: Place, rank: int | None) -> None:
        """Forks the process of a place; without a rank it is a spare."""
        assert self._forker is not None
        environment = _environment(rank, self._size, self._master)
        self._watch(place, fork(self._forker, place.namespace, environment, self._words(place), self.log(place.name)))

    async def _return(self, name: str) -> None:
        """Starts the process of a place as what is started after a loss: a spare, which imports all by itself."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._processes[name].wait(), _LEAVES_S)
            place = self._places[name]
            environment = _environment(None, self._size, self._master)
            self._watch(place, await spawn(place.namespace, environment, self._words(place), self.log(name)))

    def _words(self, place: Place) -> list[str]:
        """The program of a place, and its arguments."""
        devices = [word for address in place.addresses for word in ("--address", address)]
        return [self._module, *devices, *self._arguments(place.name)]

    def _watch(self, place: Place, process: Process) -> None:
        self._processes[place.name] = process
        self._watchers.append(asyncio.create_task(self._ends(place, process)))

    async def _ends(self, place: Place, process: Process) -> None:
        status = await process.wait()
        self.ended.append(ended(place, self._time.now_ns(), status, self.log(place.name)))


def fork(
    forker: Forker, namespace: Namespace, environment: Mapping[str, str], arguments: Sequence[str], log: Path
) -> Forked:
    """Does what `spawn` does, by a process that has imported what the module needs."""
    module, *words = arguments
    with log.open("ab") as output:
        return forker.start(
            module, *words, namespace=namespace.fd, stdout=output.fileno(), stderr=output.fileno(),
            env={**os.environ, **environment}, niceness=_NICENESS,
        )  # fmt: skip


async def spawn(
    namespace: Namespace, environment: Mapping[str, str], arguments: Sequence[str], log: Path
) -> asyncio.subprocess.Process:
    """Starts a module of Python's in a host's namespace, as nice as a rank is.

    Parameters:
        arguments: the module, and its own.
        log: of its output, which is added to what is there.
    """
    enter = child_setup(namespace)

    def prepare() -> None:
        enter()
        os.nice(_NICENESS)

    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, env={**os.environ, **environment}, stdin=asyncio.subprocess.DEVNULL,
            stdout=output, stderr=output, preexec_fn=prepare, start_new_session=True,
        )  # fmt: skip


def ended(place: Place, at_ns: int, status: int, log: Path) -> Ended:
    """What is told of a process that has ended."""
    reason = last_words(log) if status >= 0 else f"killed by {signal.Signals(-status).name}"
    return Ended(node=place.name, at_ns=at_ns, status=status, reason=reason)


def missing() -> str:
    """The reason why no job can run here, with the remedy; empty if one can."""
    if importlib.util.find_spec("torch") is not None:
        return ""
    return (
        "A training job needs PyTorch, which is not installed here. `make train` installs it into .venv: "
        "see docs/lab.md, A training job."
    )


def last_words(log: Path) -> str:
    """The last line of a log. For a traceback it is the exception."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return said if len(said) <= _LONGEST_REASON else f"{said[:_LONGEST_REASON]}..."


def _environment(rank: int | None, size: int, master: str) -> dict[str, str]:
    """The variables of a process; None: it is a spare."""
    return {
        **({"FOLIOT_SPARE": "1"} if rank is None else {"RANK": str(rank)}),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(STORE_PORT),
        "OMP_NUM_THREADS": "1",
    }
