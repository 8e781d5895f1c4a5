"""The targets of faults: the grammar of `where` in a scenario."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from foliot_lab.scenario.topology import CENTRAL, server_names

if TYPE_CHECKING:
    from foliot_lab.scenario.spec import FabricSpec

TargetKind = Literal["nic", "fabric link", "host", "process", "rank", "service", "bus server", "bus", "pair"]

NODE_PROCESSES = ("probe", "agent")

_FORMS: tuple[tuple[TargetKind, re.Pattern[str]], ...] = (
    ("nic", re.compile(r"node(?P<node>\d+)\.rail(?P<rail>\d+)")),
    ("fabric link", re.compile(r"rail(?P<rail>\d+)\.leaf(?P<leaf>\d+)-spine(?P<spine>\d+)")),
    ("host", re.compile(r"node(?P<node>\d+)")),
    ("process", re.compile(rf"node(?P<node>\d+)/(?:{'|'.join(NODE_PROCESSES)})")),
    ("rank", re.compile(r"node(?P<node>\d+)/rank(?P<local>\d*)")),
    ("service", re.compile("|".join(CENTRAL))),
    ("bus server", re.compile(r"nats\d*")),
    ("bus", re.compile("bus")),
)
_ENDS: frozenset[TargetKind] = frozenset({"host", "service", "bus server", "bus"})


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One thing of the lab that a fault can be done to."""

    kind: TargetKind
    name: str
    node: str = ""
    """The node concerned; empty for fabric links, services and the bus."""
    local: int | None = None
    """Of a rank, its number among those of its node; None: it is the only one."""


def parse_where(where: str, fabric: FabricSpec) -> Target:
    """The target of this name in this fabric.

    Raises:
        ValueError: it is not the name of anything, or of something that the fabric does not have.
    """
    if "|" in where:
        return _pair(where, fabric)
    counts = {"node": fabric.hosts, "rail": fabric.rails, "leaf": fabric.leaves, "spine": fabric.spines}
    for kind, form in _FORMS:
        match = form.fullmatch(where)
        if match is None:
            continue
        groups = match.groupdict()
        local = groups.pop("local", None)
        if kind == "bus server" and where not in server_names(fabric.bus_servers):
            raise ValueError(f"there is no {where}; the bus has {', '.join(server_names(fabric.bus_servers))}")
        for what, number in groups.items():
            there_are = counts[what]
            # As the lab writes it: node3, not node03, or two names would mean one thing.
            if str(int(number)) != number or int(number) >= there_are:
                raise ValueError(f"there is no {what}{number}; the fabric has {what}0 to {what}{there_are - 1}")
        if local and str(int(local)) != local:
            raise ValueError(f"there is no rank{local}; the first of a host is rank0")
        return Target(
            kind=kind,
            name=where,
            node=f"node{groups['node']}" if "node" in groups else "",
            local=int(local) if local else None,
        )
    raise ValueError(
        f"{where!r} names nothing; expected a NIC (node3.rail0), a fabric link (rail0.leaf1-spine2), a host (node3),"
        f" a process (node3/{' or node3/'.join(NODE_PROCESSES)}), a rank of a training job (node3/rank, or node3/rank0 of several), a service ({', '.join(CENTRAL)}),"
        " a bus server (nats), bus, or two of them (node3|bus)"
    )


def _pair(where: str, fabric: FabricSpec) -> Target:
    ends = where.split("|")
    if len(ends) != 2 or ends[0] == ends[1]:
        raise ValueError(f"{where!r} is not two different places, as node3|bus is")
    for end in ends:
        kind = parse_where(end, fabric).kind
        if kind not in _ENDS:
            raise ValueError(f"{end} is a {kind}; only hosts, services, bus servers and the bus can be parted")
    if "bus" in ends and any(end.startswith("nats") for end in ends):
        raise ValueError(f"{where!r}: a bus server is part of the bus")
    return Target(kind="pair", name=where)
