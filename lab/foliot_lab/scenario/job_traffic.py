"""The hosts, rails and pairs of a job. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.scenario.spec import FabricSpec, JobKind, JobSpec


def hosts_of(job: JobSpec, fabric: FabricSpec) -> tuple[str, ...]:
    """The names of a job's hosts, in its order."""
    return tuple(f"node{host}" for host in range(fabric.hosts)) if job.hosts is None else job.hosts


def rails_of(job: JobSpec, fabric: FabricSpec) -> tuple[str, ...]:
    """The names of a job's rails."""
    return tuple(f"rail{rail}" for rail in range(fabric.rails)) if job.rails is None else job.rails


def pairs_of(kind: JobKind, hosts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The flows of a job on each of its rails, as sender and receiver; a training job has none of the lab's.

    ``ring``: each host to the next. ``all-to-all``: each to all others. ``pairs``: each of the first half to its
    counterpart in the second. ``incast``: all others to the first.
    """
    count = len(hosts)
    if kind == "pairs":
        return tuple(zip(hosts, hosts[count // 2 :], strict=False))
    if kind == "incast":
        return tuple((host, hosts[0]) for host in hosts[1:])
    steps = {"ring": range(1, 2), "all-to-all": range(1, count)}.get(kind, range(0))
    return tuple((host, hosts[(number + step) % count]) for number, host in enumerate(hosts) for step in steps)


def sent_mbps(job: JobSpec, fabric: FabricSpec) -> dict[str, float]:
    """The rate at which each NIC of a job may send at most, by the NIC's name."""
    hosts = hosts_of(job, fabric)
    flow_mbps = min(job.mbps or fabric.link_mbps, job.read_mbps or fabric.link_mbps)
    senders = list(hosts) if job.kind == "train" else [source for source, _ in pairs_of(job.kind, hosts)]
    return {
        f"{host}.{rail}": min(senders.count(host) * flow_mbps, fabric.link_mbps)
        for rail in rails_of(job, fabric)
        for host in set(senders)
    }
