"""Checks a fault against its target and against the other faults."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from foliot_lab.scenario.fault_target import Target, parse_where
from foliot_lab.scenario.promises import OF_PATHS
from foliot_lab.scenario.topology import MTU_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from foliot_lab.scenario.fault_target import TargetKind
    from foliot_lab.scenario.spec import FabricSpec, FaultKind, FaultSpec

_LINKS: frozenset[TargetKind] = frozenset({"nic", "fabric link"})
_RUNNING: frozenset[TargetKind] = frozenset({"host", "process", "service", "bus server"})
_RANK: frozenset[TargetKind] = frozenset({"rank"})

TARGETS: dict[FaultKind, frozenset[TargetKind]] = {
    "link-down": _LINKS,
    "admin-down": frozenset({"nic"}),
    "flap": _LINKS,
    "drop": _LINKS,
    "drop-one-way": _LINKS,
    "loss": _LINKS,
    "loss-one-way": _LINKS,
    "rate": _LINKS,
    "cpu": frozenset({"host"}),
    "kill": _RUNNING | _RANK,
    "stop": _RUNNING | _RANK,
    "restart": _RUNNING,
    "clock-step": frozenset({"host"}),
    "bus-cut": frozenset({"bus"}),
    "partition": frozenset({"pair"}),
    "reload": frozenset({"nic"}),
    "mtu": _LINKS,
    "throttle": _RANK,
    "data-slow": _RANK,
    "compute-slow": _RANK,
    "hang": _RANK,
    "mismatch": _RANK,
    "reset": _RANK,
    "cut-off": frozenset({"host"}),
    "xid": frozenset({"host"}),
    "drain": frozenset({"host"}),
}
"""The targets that each kind of fault can have."""

_WORDS: dict[TargetKind, str] = {
    "nic": "a NIC",
    "fabric link": "a fabric link",
    "host": "a host",
    "process": "a process of a host",
    "rank": "a rank of a training job",
    "service": "a service",
    "bus server": "a bus server",
    "bus": "the bus",
    "pair": "two places (node3|bus)",
}

PARAMETERS: dict[FaultKind, tuple[str, ...]] = {
    "flap": ("times", "down_s", "up_s"),
    "loss": ("share",),
    "loss-one-way": ("share",),
    "rate": ("mbps",),
    "clock-step": ("offset_ns",),
    "cpu": ("share",),
    "mtu": ("bytes",),
    "throttle": ("share",),
    "data-slow": ("ms",),
    "compute-slow": ("ms",),
    "xid": ("number",),
}
"""The keys that a kind needs besides at_s, kind and where, and that no other kind may have."""

_ALL_PARAMETERS = ("times", "down_s", "up_s", "share", "mbps", "offset_ns", "bytes", "ms", "number")

_TOUCHES: dict[FaultKind, str] = {
    "link-down": "carrier", "admin-down": "carrier", "flap": "carrier", "reload": "carrier",
    "drop": "filter", "drop-one-way": "filter", "loss": "filter", "loss-one-way": "filter", "mtu": "filter",
    "cut-off": "carrier",
    "kill": "process", "stop": "process", "restart": "process", "throttle": "process",
    "hang": "program", "mismatch": "program", "data-slow": "program", "compute-slow": "program",
}  # fmt: skip
"""The part of its target that a fault changes. Two faults at a time on one part would undo each other. By default,
each kind has its own part."""

Trouble = tuple[int, str, str]
"""Position of the fault in the file, the key to blame (with a dot for a key of a table in it), the reason."""


def problems_of(
    faults: Sequence[FaultSpec | None],
    fabric: FabricSpec,
    trained: Mapping[str, int] = MappingProxyType({}),
    *,
    replaceable: bool = False,
) -> Iterator[Trouble]:
    """Every error in these faults for this fabric; None stands for a fault that could not be read.

    Parameters:
        trained: the hosts of a training job, spares too, each with its number of processes.
        replaceable: whether its spares take the places of lost ranks.
    """
    seen: dict[str, int] = {}
    judged: list[tuple[FaultSpec, Target]] = []
    for position, fault in enumerate(faults):
        if fault is None:
            continue
        if fault.id in seen:
            yield position, "id", f"a fault {fault.id} is there already, the {_ordinal(seen[fault.id])}"
        seen.setdefault(fault.id, position)
        yield from ((position, field, reason) for field, reason in _parameter_problems(fault, fabric))
        yield from ((position, field, reason) for field, reason in _expectation_problems(fault))
        try:
            target = parse_where(fault.where, fabric)
        except ValueError as error:
            yield position, "where", str(error)
            continue
        if target.kind not in TARGETS[fault.kind]:
            fitting = " or ".join(sorted(_WORDS[kind] for kind in TARGETS[fault.kind]))
            yield (
                position,
                "where",
                f"{fault.kind} cannot be done to {_WORDS[target.kind]} ({fault.where}), only to {fitting}",
            )
            continue
        if target.kind == "rank":
            yield from (
                (position, field, reason)
                for field, reason in _rank_problems(fault, target, trained, replaceable=replaceable)
            )
        for other, other_target in judged:
            if _collide(fault, target, other, other_target):
                like = _touched(fault) == _touched(other)
                why = (
                    f"which does the like to {other.where} then"
                    if like
                    else "and with a device goes what was done to it"
                )
                yield position, "where", f"{fault.id} overlaps {other.id}, {why}"
        judged.append((fault, target))


def _parameter_problems(fault: FaultSpec, fabric: FabricSpec) -> Iterator[tuple[str, str]]:
    wanted = PARAMETERS.get(fault.kind, ())
    for name in _ALL_PARAMETERS:
        given = getattr(fault, name)
        if name in wanted and given is None:
            yield "kind", f"{fault.kind} needs {name}"
        elif name not in wanted and given is not None:
            yield name, f"{fault.kind} has no {name}"
    if fault.kind == "flap" and fault.for_s is not None:
        yield "for_s", "flap has no for_s: it lasts as long as its times, down_s and up_s make it"
    if fault.kind == "restart" and fault.for_s is not None:
        yield "for_s", "restart has no for_s: it is over when the process is back"
    if fault.kind == "xid" and fault.for_s is not None:
        yield "for_s", "xid has no for_s: what was logged stays so"
    if fault.kind == "clock-step" and fault.offset_ns == 0:
        yield "offset_ns", "a clock step of 0 is none"
    if fault.kind == "mtu" and fault.bytes is not None and fault.bytes >= MTU_BYTES:
        yield "bytes", f"{fault.bytes:,} is no less than the link's own {MTU_BYTES:,}"
    if fault.kind == "rate" and fault.mbps is not None and fault.mbps >= fabric.link_mbps:
        yield "mbps", f"{fault.mbps:g} is no less than the link's own {fabric.link_mbps:g}"


def _rank_problems(
    fault: FaultSpec, target: Target, trained: Mapping[str, int], *, replaceable: bool
) -> Iterator[tuple[str, str]]:
    count = trained.get(target.node, 0)
    if not count:
        yield "where", f"no training job has a rank on {target.node}"
    elif target.local is None and count > 1:
        yield "where", f"{target.node} has {count} ranks: {target.node}/rank0 to {target.node}/rank{count - 1}"
    elif target.local is not None and count == 1:
        yield "where", f"{target.node} has one rank: {target.node}/rank"
    elif target.local is not None and target.local >= count:
        yield "where", f"there is no {fault.where}; {target.node} has {target.node}/rank0 to rank{count - 1}"
    if fault.kind == "kill" and fault.for_s is not None and not replaceable:
        yield "for_s", "the kill of a rank has for_s only where spares take over: nothing else starts it again"
    if fault.kind == "mismatch" and fault.for_s is not None:
        yield "for_s", "mismatch has no for_s: the job does not survive it"
    if fault.kind == "reset" and fault.for_s is not None:
        yield "for_s", "reset has no for_s: connections end at once, and later ones are well"


def _expectation_problems(fault: FaultSpec) -> Iterator[tuple[str, str]]:
    wanted, moves = fault.expect, fault.kind in OF_PATHS
    if wanted is None:
        return
    if not moves and wanted.moved_ms is not None:
        yield "expect.moved_ms", f"{fault.kind} moves no traffic, so there is nothing to wait for"
    elif not moves and wanted.back_s is not None:
        yield "expect.back_s", f"{fault.kind} moves no traffic, so nothing comes back"
    elif wanted.back_s is not None and fault.lasts_s is None:
        yield "expect.back_s", "the fault lasts to the end of the run: give it for_s, or leave back_s out"


def _inside(one: Target, other: Target) -> bool:
    """Whether one of them is part of the other."""
    # A host's processes are its probe, its agent and its ranks.
    return one.node == other.node != "" and "host" in {one.kind, other.kind}


def _collide(one: FaultSpec, target: Target, other: FaultSpec, other_target: Target) -> bool:
    # A fault that removes a device also removes all other faults on it.
    away = "reload" in {one.kind, other.kind} and {target.kind, other_target.kind} <= _LINKS
    if not away and _touched(one) != _touched(other):
        return False
    if one.at_s >= _end_s(other) or other.at_s >= _end_s(one):
        return False
    if one.kind == other.kind == "partition":
        return _meet(one.where.split("|"), other.where.split("|"))
    same = target.name == other_target.name
    return same or _inside(target, other_target)


def _touched(fault: FaultSpec) -> str:
    return _TOUCHES.get(fault.kind, fault.kind)


def _meet(one: list[str], other: list[str]) -> bool:
    """Whether two partitions separate the same two places, in either order; `bus` is all its servers."""
    return any(all(map(_alike, one, places)) for places in (other, other[::-1]))


def _alike(one: str, other: str) -> bool:
    servers = all(place == "bus" or place.startswith("nats") for place in (one, other))
    return one == other or ("bus" in {one, other} and servers)


def _end_s(fault: FaultSpec) -> float:
    return math.inf if fault.lasts_s is None else fault.at_s + fault.lasts_s


def _ordinal(position: int) -> str:
    return f"number {position + 1} in the file"
