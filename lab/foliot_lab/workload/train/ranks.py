"""The processes of a job: one rank on each host, in the host's network namespace.

They are started once and watched, and never started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_lab.fabric.namespaces import child_setup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.scenario.spec import Over
    from foliot_lab.services.lab import Lab

STORE_PORT = 29500
"""torchrun's default port of the store."""
_NICENESS = 10
"""The niceness of ranks. A cluster's NICs and clocks do not wait for its training. On the lab's few processors the
services therefore go first."""
_GRACE_S = 3.0
_TAIL_BYTES = 4096
_LONGEST_REASON = 200


class Place(NamedTuple):
    """The place of a rank: its host and addresses."""

    node: str
    namespace: Namespace
    addresses: tuple[str, ...]
    """The addresses, one per rail; Gloo opens a device at each."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's process that has ended."""

    node: str
    at_ns: int
    """Lab time."""
    status: int
    """Status as in `subprocess`. 0: its steps were done; negative: the signal that killed it."""
    reason: str
    """The last line that it wrote, or the signal's name."""


class Ranks:
    """A job's processes. Make it by `start`; `stop` whatever happens.

    Parameters:
        folder: the logs, one per node.
    """

    def __init__(self, folder: Path, time: LabTime) -> None:
        self.ended: list[Ended] = []
        """Ranks in the order of their ends, without those that `stop` ended."""
        self.folder = folder
        self._time = time
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watchers: list[asyncio.Task[None]] = []

    async def start(
        self, module: str, places: Sequence[Place], master: str, arguments: Callable[[str], Sequence[str]]
    ) -> None:
        """Starts all ranks of a program, in the order of the places.

        Parameters:
            module: takes an ``--address`` per device, and the rest from the environment as torchrun sets it.
            master: the address of rank 0's store, by which the ranks find one another. No backend fault cuts it.
            arguments: further arguments, by node.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for rank, place in enumerate(places):
            environment = _environment(rank, len(places), master)
            devices = [word for address in place.addresses for word in ("--address", address)]
            process = await self._spawn(place, environment, [module, *devices, *arguments(place.node)])
            self._processes[place.node] = process
            self._watchers.append(asyncio.create_task(self._watch(place.node, process)))

    def signal(self, node: str, number: signal.Signals) -> None:
        """Sends a signal to a node's rank, if it runs."""
        process = self._processes.get(node)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def pid(self, node: str) -> int:
        """The process id of a node's rank; 0: it does not run."""
        process = self._processes.get(node)
        return process.pid if process is not None and process.returncode is None else 0

    def lever(self, node: str) -> Path:
        """The file in which a node's rank looks before each step, see `levers.py`."""
        return self.folder / f"{node}.lever"

    def log(self, node: str) -> Path:
        """The output of a node's rank."""
        return self.folder / f"{node}.log"

    async def finished(self) -> None:
        """Returns when no rank runs any more."""
        await asyncio.wait(self._watchers)

    async def stop(self) -> None:
        """Ends all ranks. May be called twice."""
        for watcher in self._watchers:
            watcher.cancel()
        for node in self._processes:
            self.signal(node, signal.SIGCONT)
            self.signal(node, signal.SIGTERM)
        deadline_s = time.monotonic() + _GRACE_S
        for node, process in self._processes.items():
            try:
                await asyncio.wait_for(process.wait(), max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                self.signal(node, signal.SIGKILL)
                await process.wait()

    async def _spawn(
        self, place: Place, environment: Mapping[str, str], arguments: Sequence[str]
    ) -> asyncio.subprocess.Process:
        enter = child_setup(place.namespace)

        def prepare() -> None:
            enter()
            os.nice(_NICENESS)

        with self.log(place.node).open("wb") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", *arguments, env={**os.environ, **environment}, stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=prepare, start_new_session=True,
            )  # fmt: skip

    async def _watch(self, node: str, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        reason = last_words(self.log(node)) if status >= 0 else f"killed by {signal.Signals(-status).name}"
        self.ended.append(Ended(node=node, at_ns=self._time.now_ns(), status=status, reason=reason))


def places(
    lab: Lab, over: Over = "service", hosts: Sequence[str] | None = None, rails: Sequence[str] | None = None
) -> list[Place]:
    """One place on each host of a lab, with its service addresses, or its NICs'.

    Parameters:
        hosts: in the order of their ranks; default: all.
        rails: default: all.
    """
    nodes = {node.name: node for node in lab.nodes}
    return [
        Place(
            host,
            lab.fabric.host(host),
            tuple(
                nic.service_address if over == "service" else lab.plan.underlay(host, nic.rail)
                for nic in nodes[host].nics
                if rails is None or nic.rail in rails
            ),
        )
        for host in (nodes if hosts is None else hosts)
    ]


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


def _environment(rank: int, size: int, master: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(STORE_PORT),
        "OMP_NUM_THREADS": "1",
    }
