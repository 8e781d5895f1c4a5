"""Times at which a service that finds or moves was itself at fault: killed, halted, or cut off from the others. Pure.

To tell of a fault, the services need the probes, the detector and the bus. To command a move, they also need the
agents, the remediator, and clocks. Clocks go on alone for 20 s; after that they need `sync`. Armed agents that see
their own NIC's loss need no other process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from foliot_lab.measure.intervals import Intervals
from foliot_lab.scenario.fault_target import NODE_PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from foliot_lab.faults.injection import Injection

Task = Literal["tell", "command", "armed"]
"""The tasks: to tell of a fault; to move traffic by commands; to move it by armed agents alone."""

BACK_AT_WORK_NS = 20_000_000_000
"""The time after a service's return: docs/resilience.md, "each within 20 s". The longest seen there is 17 s."""
BUS_MISSED_NS = 3_000_000_000
"""The time until a process knows that the bus is away: docs/resilience.md, on the NATS server ("noticed within 3
s")."""
_CLOCKS_GO_ON_NS = 20_000_000_000
"""The time for which clocks go on: docs/resilience.md, on sync, where states of clocks are void after 20 s."""
_OF_A_MOMENT = frozenset({"restart", "clock-step"})
"""Kinds of fault that are over at once, unless they have an end."""
_OF_PROCESSES = frozenset({"kill", "stop", "restart"})


class Hindrance(NamedTuple):
    """A time in which a fault kept a service from a task."""

    fault_id: str
    since_ns: int
    until_ns: int


def hindrances(task: Task, hosts: Iterable[str], injections: Sequence[Injection], end_ns: int) -> list[Hindrance]:
    """The hindrances of the services that move the traffic of these hosts, until each is back at work."""
    needed = _needed(task, frozenset(hosts))
    found = []
    for injection in injections:
        touched = set(_touched(injection)) & needed
        if not touched:
            continue
        since_ns, until_ns = injection.injected_ns, injection.healed_ns
        if touched == {"sync"}:
            since_ns += _CLOCKS_GO_ON_NS
        if until_ns is None:
            until_ns = injection.injected_ns if injection.kind in _OF_A_MOMENT else end_ns
        if until_ns >= since_ns:
            found.append(Hindrance(injection.fault_id, since_ns, until_ns + BACK_AT_WORK_NS))
    return found


def bus_away(injections: Sequence[Injection], at_ns: int) -> Hindrance | None:
    """The fault that cuts all processes off the bus at a moment, until they know it; None: the bus is there."""
    for injection in injections:
        over_ns = injection.healed_ns
        if "bus" in _touched(injection) and injection.injected_ns <= at_ns and (over_ns is None or at_ns < over_ns):
            return Hindrance(injection.fault_id, injection.injected_ns, injection.injected_ns + BUS_MISSED_NS)
    return None


def times(found: Iterable[Hindrance]) -> Intervals:
    """The union of all their times."""
    return Intervals((each.since_ns, each.until_ns) for each in found)


def _needed(task: Task, hosts: frozenset[str]) -> frozenset[str]:
    agents = frozenset(f"{host}/agent" for host in hosts)
    if task == "armed":
        return agents
    telling = frozenset(f"{host}/{what}" for host in hosts for what in ("probe", "bus")) | {"bus", "detector"}
    if task == "tell":
        return telling
    return telling | agents | frozenset(f"{host}/clock" for host in hosts) | {"remediator", "sync"}


def _touched(injection: Injection) -> Iterator[str]:
    """The things that a fault takes away: processes, a node's clock, its way to the bus (`node3/bus`), or the bus."""
    where = injection.where
    if injection.kind == "clock-step":
        yield f"{where}/clock"
    elif injection.kind == "bus-cut":
        yield "bus"
    elif injection.kind == "partition":
        yield from _parted(where.split("|"))
    elif injection.kind == "cut-off":
        yield f"{where}/bus"
    elif injection.kind in _OF_PROCESSES:
        if where.startswith("nats"):
            yield "bus"
        elif where.startswith("node") and "/" not in where:
            yield from (f"{where}/{process}" for process in NODE_PROCESSES)
        else:
            yield where


def _parted(ends: Sequence[str]) -> Iterator[str]:
    """The ends of a partition that hinder a service.

    Services meet on the bus alone, so no other partition hinders any.
    """
    for end, other in (ends, ends[::-1]):
        if other == "bus" or other.startswith("nats"):
            if end.startswith("nats"):
                yield "bus"
            else:
                yield f"{end}/bus" if end.startswith("node") else end
