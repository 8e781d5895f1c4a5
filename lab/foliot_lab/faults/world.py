"""The targets of faults other than wires: processes and clocks by name, and the bus."""

from __future__ import annotations

import os
import signal
import struct
from typing import TYPE_CHECKING, Protocol

from foliot_lab.faults.connection_resets import reset_connections
from foliot_lab.scenario.fault_target import NODE_PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from foliot.runtime.supervisor import Supervisor
    from foliot_lab.fabric.partition import Partitions


def write_step(path: Path, step_ns: int) -> None:
    """Sets the sum of all a clock's steps (`SkewSpec.step_file`), in place: who has mapped the file sees it at once."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, struct.pack("<q", step_ns), 0)
    finally:
        os.close(descriptor)


class Job(Protocol):
    """A training job on the hosts; `foliot_lab.workload.train.ranks.Ranks` is one."""

    def signal(self, where: str, number: signal.Signals) -> None:
        """Sends a signal to the ranks on a node, or to one (``node3/rank``); nothing, if none runs there."""

    def pid(self, where: str) -> int:
        """The process of a rank; 0: it does not run."""

    def lose_host(self, host: str) -> None:
        """Takes notice that a host is lost, as who schedules the job would."""

    def start_again(self, where: str) -> None:
        """Starts processes that have lost their ranks again, as spares."""

    def lever(self, where: str) -> Path:
        """The file in which a rank looks before each step, see `train.levers`."""


class Hosts(Protocol):
    """What befalls hosts from outside; `foliot_lab.services.lab.Lab` has one."""

    def drain(self, node: str, *, over: bool) -> None:
        """Asks for a node to be left by ranks that can be replaced, or to be used again."""

    def xid(self, node: str, number: int) -> None:
        """Writes a GPU's error into a node's kernel log."""

    def cut_off(self, node: str, *, away: bool) -> None:
        """Pulls all cables of a node, frontend and rails, or plugs them in again."""


class World:
    """The lab's processes, clocks and bus. A place is a host (``node3``), a process (``node3/probe``) or a service.

    A fault that kills or stops all of a host's processes also reaches its ranks of a job. Those that have lost their
    ranks when it is healed become spares.

    Parameters:
        step_file: the file with the sum of the steps of a node's clock.
        cut: sets the hosts' ports of the frontend's bridge down (True) or up again.
        hosts: what befalls hosts from outside.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        step_file: Callable[[str], Path],
        cut: Callable[[bool], None],
        partitions: Partitions,
        hosts: Hosts,
    ) -> None:
        self._supervisor = supervisor
        self._step_file = step_file
        self._cut = cut
        self._partitions = partitions
        self._hosts = hosts
        self._steps: dict[str, int] = {}
        self.job: Job | None = None

    def names(self, where: str) -> list[str]:
        """The processes at a place: a service, a bus server, ``node3/probe``, or all of a node."""
        if where in self._supervisor.names():
            return [where]
        return [f"{where}/{process}" for process in NODE_PROCESSES]

    def kill(self, where: str) -> None:
        """Sends SIGKILL; the processes stay dead until `restart`."""
        for name in self.names(where):
            self._supervisor.kill(name)
        self._signal_rank(where, signal.SIGKILL)
        self._lose(where)

    def restart(self, where: str) -> None:
        """Starts killed processes again."""
        for name in self.names(where):
            self._supervisor.release(name)
        self.start_rank(where)

    def start_rank(self, where: str) -> None:
        """Starts processes of the job that have lost their ranks again, as spares."""
        if self.job is not None:
            self.job.start_again(where)

    def stop(self, where: str) -> None:
        """Sends SIGSTOP."""
        self._signal(where, signal.SIGSTOP)
        self._signal_rank(where, signal.SIGSTOP)
        self._lose(where)

    def resume(self, where: str) -> None:
        """Sends SIGCONT."""
        self._signal(where, signal.SIGCONT)
        self._signal_rank(where, signal.SIGCONT)
        self.start_rank(where)

    def resume_rank(self, where: str) -> None:
        """Sends SIGCONT to a rank of the job, which may have lost its rank."""
        self._signal_rank(where, signal.SIGCONT)
        self.start_rank(where)

    def signal_rank(self, where: str, number: signal.Signals) -> None:
        """Sends a signal to a rank of the job."""
        self._signal_rank(where, number)

    def rank_pid(self, where: str) -> int:
        """The process of a rank; 0: it does not run."""
        return 0 if self.job is None else self.job.pid(where)

    def reset_connections(self, where: str) -> None:
        """Ends all TCP connections of a rank with an error at both ends."""
        reset_connections(self.rank_pid(where))

    def pull(self, where: str, words: str) -> None:
        """Has a rank do something else from its next step on; without words, what it always does."""
        if self.job is None:
            return
        lever = self.job.lever(where)
        if words:
            lever.write_text(words)
        else:
            lever.unlink(missing_ok=True)

    def terminate(self, where: str) -> None:
        """Sends SIGTERM; the supervisor starts the processes again."""
        self._signal(where, signal.SIGTERM)

    def step_clock(self, node: str, offset_ns: int) -> None:
        """Steps a node's clock by this much, from now on."""
        self._steps[node] = self._steps.get(node, 0) + offset_ns
        write_step(self._step_file(node), self._steps[node])

    def cut_bus(self) -> None:
        """Cuts all nodes off the bus."""
        self._cut(True)

    def mend_bus(self) -> None:
        """Connects the nodes to the bus again."""
        self._cut(False)

    def cut_off(self, node: str) -> None:
        """Pulls all cables of a node."""
        self._hosts.cut_off(node, away=True)
        self._lose(node)

    def plug_in(self, node: str) -> None:
        """Plugs all cables of a node in again."""
        self._hosts.cut_off(node, away=False)
        self.start_rank(node)

    def drain(self, node: str) -> None:
        """Asks for a node to be left by ranks that can be replaced."""
        self._hosts.drain(node, over=False)

    def use_again(self, node: str) -> None:
        """Lets a drained node be used again."""
        self._hosts.drain(node, over=True)
        self.start_rank(node)

    def xid(self, node: str, number: int) -> None:
        """Writes a GPU's error into a node's kernel log."""
        self._hosts.xid(node, number)

    def part(self, where: str) -> None:
        """Separates two places of the frontend, so that they do not hear each other."""
        self._partitions.cut(*where.split("|"))

    def join(self, where: str) -> None:
        """Lets the two places hear each other again."""
        self._partitions.mend(*where.split("|"))

    def _signal(self, where: str, number: signal.Signals) -> None:
        for name in self.names(where):
            pid = self._supervisor.pid(name)
            if pid:
                os.kill(pid, number)

    def _signal_rank(self, where: str, number: signal.Signals) -> None:
        if self.job is not None:
            self.job.signal(where, number)

    def _lose(self, where: str) -> None:
        if self.job is not None:
            self.job.lose_host(where)
