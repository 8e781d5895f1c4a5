"""The job of a flow: a registered one, else a group of nodes that talk to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_schemas.job import FOUND
from foliot_schemas.names import node_of, parse_flow
from foliot_schemas.subjects import JOBS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from foliot_schemas import Job

TALKS_NS = 60_000_000_000
"""For how long after its last flow a node counts as one that talks: a job may compute for some time between steps."""
_HOLDS_NS = round(JOBS.keep_s * 1e9)
"""How long a registration holds after it was told."""
NO_PRIORITY = 0
"""The priority of flows that are of no registered job."""
_MOST_JOBS = 4_096
"""Jobs at a time. Beyond that, names are made up."""


class Jobs:
    """The registered jobs that live. Times are of one clock, whichever.

    A NIC is one job's. Of two that name it, the one that was registered earlier has it, and the other is refused whole.
    NICs that the fleet does not have are no job's: a job that loses a node goes on with the others.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[Job, int]] = {}
        """By name: the job, and when it was last told."""
        self._of_nic: dict[str, str] = {}
        self.turns = 0
        """How often any job came, changed or ended."""

    def take(self, job: Job, now_ns: int, known: Container[str] | None = None) -> str:
        """Takes a registration, or its renewal; one without NICs ends the job.

        Parameters:
            known: the NICs of the fleet, if all of them are known here.

        Returns:
            Why the job is refused; empty: it is not.
        """
        self.expire(now_ns)
        if known is not None and (there := tuple(nic for nic in job.nics if nic in known)) != job.nics:
            if not there:
                return f"the fleet has no {job.nics[0]}"
            job = msgspec.structs.replace(job, nics=there)
        if refusal := self._objection(job):
            return refusal
        for other in {self._of_nic.get(nic, job.name) for nic in job.nics} - {job.name}:
            self._end(other)
        before = self.get(job.name)
        if before != job:
            self.turns += 1
            for nic in () if before is None else before.nics:
                del self._of_nic[nic]
            self._of_nic |= dict.fromkeys(job.nics, job.name)
        if job.nics:
            self._told[job.name] = job, now_ns
        else:
            self._told.pop(job.name, None)
        return ""

    def expire(self, now_ns: int) -> None:
        """Ends the jobs that were not told again.

        Those told at 0, before the time began, count from now on. So do those of a time ahead: the clock was set back.
        """
        for name, (job, told_ns) in list(self._told.items()):
            if not told_ns or told_ns > now_ns:
                self._told[name] = job, now_ns
            elif now_ns - told_ns > _HOLDS_NS:
                self._end(name)

    def get(self, name: str) -> Job | None:
        """The job of this name; None: no such job lives."""
        told = self._told.get(name)
        return None if told is None else told[0]

    def all(self) -> list[Job]:
        """All jobs, by name."""
        return [job for _, (job, _) in sorted(self._told.items())]

    def of_nic(self, nic: str) -> str:
        """The job that a NIC belongs to; empty: none."""
        return self._of_nic.get(nic, "")

    def of_flow(self, flow: str) -> Job | None:
        """The job of a flow: that of both its NICs. None: it is of none.

        Raises:
            ValueError: it is no flow.
        """
        source, destination = parse_flow(flow)
        name = self.of_nic(source)
        return self.get(name) if name and name == self.of_nic(destination) else None

    def priority_of(self, flow: str) -> int:
        """The priority of a flow's job, or that of flows of no registered one.

        Raises:
            ValueError: it is no flow.
        """
        job = self.of_flow(flow)
        return NO_PRIORITY if job is None else job.priority

    def _objection(self, job: Job) -> str:
        for nic in job.nics:
            other = self.get(self.of_nic(nic))
            if other is not None and other.name != job.name and _order(other) < _order(job):
                return f"{nic} is of the job {other.name}"
        is_new = bool(job.nics) and job.name not in self._told
        return f"there are {_MOST_JOBS} jobs already" if is_new and len(self._told) >= _MOST_JOBS else ""

    def _end(self, name: str) -> None:
        job, _ = self._told.pop(name)
        for nic in job.nics:
            del self._of_nic[nic]
        self.turns += 1


def jobs_of(flows: Iterable[str], registered: Jobs) -> dict[str, str]:
    """The name of the job of each flow.

    A flow between two NICs of a registered job is that job's. All others make groups: nodes with a flow between them
    are in one, which is named after the first of them. So one flow more can join two groups.

    Raises:
        ValueError: one is no flow.
    """
    names: dict[str, str] = {}
    leaders: dict[str, str] = {}
    """By node, one of its group that comes before it; the first of a group is its own."""
    ends: dict[str, str] = {}
    for flow in flows:
        if (job := registered.of_flow(flow)) is not None:
            names[flow] = job.name
            continue
        source, destination = parse_flow(flow)
        first, second = sorted(_leader(leaders, node_of(end)) for end in (source, destination))
        leaders[second] = first
        ends[flow] = node_of(source)
    return names | {flow: f"{FOUND}{_leader(leaders, node)}" for flow, node in ends.items()}


def _leader(leaders: dict[str, str], node: str) -> str:
    while (before := leaders.setdefault(node, node)) != node:
        leaders[node] = leaders[before]
        node = before
    return node


def _order(job: Job) -> tuple[int, str]:
    return job.since_ns, job.name
