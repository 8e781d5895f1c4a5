"""Passes a rank's records to the agent of its node. Nothing here waits for the agent."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foliot.torch.agent_socket import AgentSocket

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foliot.torch.collective_log import CollectiveLog, Entry, Group, Taken

_EACH_S = 0.2
_ASK_EACH_S = 0.005
"""How often it is asked whether operations are done. The next one that begins asks, too."""
_CONNECT_EACH_S = 2.0
_ROWS = 200
"""Collectives in a packet: some 20 KB."""
_MEMBERS = 2_048
"""Runs of a group's members in a packet. A group of more has none told."""
_ANEW_S = 10.0
"""How often groups are told anew."""
_OWN_SCHEDULING = Path("/proc/self/schedstat")
_LAST_S = 0.5
"""How long the process's end waits for what is not done."""


class Reporter:
    """The thread that passes the records on.

    Parameters:
        job: the job's name.
        path: of the agent's socket.
    """

    def __init__(self, log: CollectiveLog, job: str, path: str) -> None:
        self._log = log
        self._job = job
        self._socket = AgentSocket(path, _CONNECT_EACH_S)
        self._tell_groups_at_s = 0.0
        self._over = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begins to report, until `end`, or until the process ends."""
        threading.Thread(target=self._run, name="foliot-recorder", daemon=True).start()
        own = os.getpid()
        atexit.register(lambda: self.end() if os.getpid() == own else None)

    def end(self) -> None:
        """Says that the process is over, or its record, and what became of its last operations."""
        self._over.set()
        until_s = time.monotonic() + _LAST_S
        while not self._log.is_idle and time.monotonic() < until_s:
            time.sleep(_ASK_EACH_S)
            self._log.ask()
        with self._lock:
            self._report(is_over=True)

    def _run(self) -> None:
        report_at_s = time.monotonic() + _EACH_S
        while not self._over.wait(_ASK_EACH_S):
            self._log.ask()
            if time.monotonic() >= report_at_s:
                report_at_s = time.monotonic() + _EACH_S
                with self._lock:
                    self._report()

    def _report(self, *, is_over: bool = False) -> None:
        if not self._log.size:
            return
        was_connected, is_connected = self._socket.file >= 0, self._socket.connect()
        if not was_connected:
            self._tell_groups_at_s = 0.0
        taken = self._log.take()
        left = len(taken.done)
        if is_connected:
            for packet in self._packets(taken, is_over=is_over):
                if not self._socket.send(packet):
                    self._tell_groups_at_s = 0.0
                    break
                left = max(0, left - _ROWS)
        self._log.dropped += left

    def _packets(self, taken: Taken, *, is_over: bool) -> Iterator[bytes]:
        """The packets of one report."""
        now_s = time.monotonic()
        are_due = now_s >= self._tell_groups_at_s
        if are_due:
            self._tell_groups_at_s = now_s + _ANEW_S
        told = [group for group in taken.groups if are_due or not group.is_told]
        head: dict[str, Any] = {
            "job": self._job, "rank": self._log.rank, "size": self._log.size, "began_ns": self._log.began_ns,
            "generation": self._log.generation, "data_ns": self._log.data_ns, "cpu_delay_ns": _cpu_delay_ns(),
            "dropped": self._log.dropped, "over": is_over,
            "progress": [[group.name, begun, through] for group, begun, through in taken.progress],
            "groups": [_group(group) for group in told],
            "open": [_row(entry) for entry in taken.open],
        }  # fmt: skip
        for group in told:
            group.is_told = True
        for first in range(0, max(len(taken.done), 1), _ROWS):
            rows = [_row(entry) for entry in taken.done[first : first + _ROWS]]
            yield json.dumps({**head, "done": rows}, separators=(",", ":")).encode()
            # The next packets have the rest of what is done.
            head |= {"groups": [], "open": None}


def _cpu_delay_ns() -> int:
    """How long the first thread could have run and had no processor; 0: the kernel does not count it.

    See sched-stats.rst of Linux.
    """
    try:
        return int(_OWN_SCHEDULING.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _group(group: Group) -> list[Any]:
    runs = _runs(group.members)
    return [group.name, group.description, runs if len(runs) <= _MEMBERS else []]


def _row(entry: Entry) -> list[Any]:
    return [
        entry.group.name, entry.operation, entry.number, entry.order, entry.peer, entry.began_ns, entry.ended_ns,
        entry.elements_in, entry.elements_out, entry.type, entry.bytes,
    ]  # fmt: skip


def _runs(ranks: Sequence[int]) -> list[list[int]]:
    """As `foliot_schemas.collective.runs`, which a job's own process does not import."""
    found: list[list[int]] = []
    for rank in ranks:
        if found:
            first, step, count = run = found[-1]
            if count == 1 and rank > first:
                run[1:] = [rank - first, 2]
                continue
            if count > 1 and rank == first + step * count:
                run[2] += 1
                continue
        found.append([rank, 0, 1])
    return found
