"""A job under torchrun, PyTorch's own launcher: an agent of its on each host starts the ranks, and starts them again.

The agents meet over c10d at a store of the first host's. If a rank is lost, all ranks end, and start again where they
were. If a host is lost, the lab starts the job again, with a host that stands by.

Source: docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from foliot_lab.workload.train.places import at, file_stem, place_name
from foliot_lab.workload.train.ranks import STORE_PORT, Ended, ended, fork, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.services.forker import Forker
    from foliot_lab.workload.train.places import Place
    from foliot_lab.workload.train.ranks import Process

_MODULE = "torch.distributed.run"
IMPORTED = (_MODULE,)
"""What an agent imports."""
_MOST_RESTARTS = 1_000
"""More than any run has faults."""
_GRACE_S = 5.0
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Each group of ranks has a store of its own. In the agents' own store, ranks find one another by how often their agents
started them again, which is not the same for all after a second loss: github.com/pytorch/pytorch/issues/135712."""


class Torchrun:
    """The agents of a job, and its ranks by them. Make it by `start`; `stop` whatever happens.

    Places are as in `Ranks`. A rank's process is known by the file in which it has written its id.

    Parameters:
        folder: the logs, one per host.
        front: the address of a host by which agents and ranks find one another.
        forker: a process that has imported what agents do, from which the first ones are forked. Those that start after
            a loss import it themselves, as after any.
    """

    def __init__(self, folder: Path, time: LabTime, front: Callable[[str], str], forker: Forker | None = None) -> None:
        self.ended: list[Ended] = []
        """Agents in the order of their ends, without those that `stop` ended."""
        self.folder = folder
        self._time = time
        self._front = front
        self._forker = forker
        self._places: dict[str, Place] = {}
        self._spares: list[str] = []
        """Hosts that stand by, without those that are used."""
        self._agents: dict[str, Process] = {}
        self._hosts: list[str] = []
        """Hosts that have ranks now; the agents meet at the first."""
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._again: asyncio.Task[None] | None = None

    async def start(self, module: str, places: Sequence[Place], arguments: Callable[[str], Sequence[str]]) -> None:
        """Starts the agents of all hosts that have ranks.

        Parameters:
            module: takes an ``--address`` per device and a ``--pid``; the rest as in `Ranks.start`.
            arguments: further arguments, by the name of the place, in which ``{local}`` stands for the number of the
                process on its host.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._places = {place.name: place for place in places}
        self._program = module, arguments
        hosts = list(dict.fromkeys(place.node for place in places))
        self._spares = list(dict.fromkeys(place.node for place in places if place.is_spare))
        self._hosts = hosts[: len(hosts) - len(self._spares)]
        if self._forker is not None:
            await asyncio.to_thread(self._forker.wait)
        for host in self._hosts:
            await self._start(host, self._forker)

    def lose_host(self, host: str) -> None:
        """Begins to start the job again, with a host that stands by in place of the lost one, if there is one.

        So does who schedules a job, some time later. torchrun alone does not: with the places of a job filled, an agent
        that waits for one has the ranks started again and again, and one that comes later is not let in.
        """
        if host in self._hosts and self._spares:
            self._hosts = [*(each for each in self._hosts if each != host), self._spares.pop(0)]
            self._again = asyncio.create_task(self._start_again(self._again))

    async def _start_again(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        going = {host: self._agents.pop(host) for host in self._hosts if host in self._agents}
        for host, agent in going.items():
            self._watchers.pop(host).cancel()
            for name in at(host, self._places):
                _send(self._pid(name), signal.SIGKILL)
            _send(agent.pid if agent.returncode is None else 0, signal.SIGKILL)
            await agent.wait()
        for host in self._hosts:
            await self._start(host)

    def start_again(self, where: str) -> None:
        """Does nothing: the agent of a host starts its ranks again."""

    def signal(self, where: str, number: signal.Signals) -> None:
        """Sends a signal to the ranks at a place, or to all that runs on a host."""
        if where in self._agents and self._agents[where].returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._agents[where].send_signal(number)
        for name in at(where, self._places):
            _send(self._pid(name), number)

    def pid(self, where: str) -> int:
        """The process id of the rank at a place; 0: none runs there."""
        return next((pid for name in at(where, self._places) if (pid := self._pid(name))), 0)

    def lever(self, where: str) -> Path:
        """The file in which the rank at a place looks before each step, see `levers.py`."""
        return self.folder / f"{file_stem(where.removesuffix('/rank'))}.lever"

    def log(self, where: str) -> Path:
        """The output of a host's agent, and of its ranks."""
        return self.folder / f"{where.partition('/')[0]}.log"

    async def stop(self) -> None:
        """Ends all ranks and agents. May be called twice."""
        for watcher in (*self._watchers.values(), *([] if self._again is None else [self._again])):
            watcher.cancel()
        for host in self._agents:
            self.signal(host, signal.SIGCONT)
        for agent in self._agents.values():
            if agent.returncode is None:
                agent.terminate()
        for name in self._places:
            self.signal(f"{name}/rank" if name in self._agents else name, signal.SIGKILL)
        deadline_s = time.monotonic() + _GRACE_S
        for agent in self._agents.values():
            try:
                await asyncio.wait_for(agent.wait(), max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    agent.send_signal(signal.SIGKILL)
                await agent.wait()

    async def _start(self, host: str, forker: Forker | None = None) -> None:
        module, arguments = self._program
        own = [place for place in self._places.values() if place.node == host]
        first = own[0]
        name = host if first.local is None else place_name(host, "{local}")
        devices = [word for address in first.addresses for word in ("--address", address)]
        program = [module, *devices, "--pid", str(self._pid_file(name)), *arguments(name)]
        words = [_MODULE, *self._launching(host, len(own)), "-m", *program]
        environment = {"OMP_NUM_THREADS": "1"} | _OWN_STORE
        agent: Process = (
            await spawn(first.namespace, environment, words, self.log(host))
            if forker is None
            else fork(forker, first.namespace, environment, words, self.log(host))
        )
        self._agents[host] = agent
        self._watchers[host] = asyncio.create_task(self._watch(first._replace(local=None), agent))

    def _launching(self, host: str, each: int) -> list[str]:
        first = self._hosts[0]
        is_first = "true" if host == first else "false"
        return [
            "--nnodes", str(len(self._hosts)), "--nproc-per-node", str(each), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{self._front(first)}:{STORE_PORT}", "--rdzv-id", "lab",
            "--rdzv-conf", f"is_host={is_first}", "--local-addr", self._front(host),
            "--max-restarts", str(_MOST_RESTARTS), "--log-dir", str(self.folder / "torchrun"),
        ]  # fmt: skip

    def _pid_file(self, name: str) -> Path:
        return self.folder / f"{file_stem(name)}.pid"

    def _pid(self, name: str) -> int:
        """The process at a place; 0: there is none, or another has its number by now."""
        try:
            pid = int(self._pid_file(name).read_text() or 0)
            said = str(Path(f"/proc/{pid}/ns/net").readlink())
        except (FileNotFoundError, ProcessLookupError):
            return 0
        here = os.fstat(self._places[name].namespace.fd).st_ino
        return pid if said == f"net:[{here}]" else 0

    async def _watch(self, place: Place, agent: Process) -> None:
        status = await agent.wait()
        self.ended.append(ended(place, self._time.now_ns(), status, self.log(place.node)))


def _send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, if there is one."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
