"""The figures of `bench.fleet`: the times from events to commands, and the cost of each process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.processes import cpu_s, rss_mb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.fleet_agents import Arrivals
    from bench.fleet_load import Told

_BEGINNINGS = frozenset({"down", "silent"})


class Times(msgspec.Struct, kw_only=True):
    """Percentiles of some delays, ms."""

    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, delays_ns: Iterable[int]) -> Times:
        """Percentiles of these; NaN where there are none."""
        known = np.array([*delays_ns], np.float64) * 1e-6
        middle, high, most = np.percentile(known, (50, 99, 100)) if len(known) else (np.nan,) * 3
        return cls(
            n=len(known),
            p50_ms=round(float(middle), 2),
            p99_ms=round(float(high), 2),
            max_ms=round(float(most), 2),
        )


class Cost(msgspec.Struct, kw_only=True):
    """The cost of a process during the storm."""

    cpu: float
    """Share of one core."""
    rss_mb: float
    """Resident memory at the end."""


class Usage:
    """The resources that processes have used since this was made, by their ids."""

    def __init__(self, pids: Mapping[str, int], now_s: float) -> None:
        self._pids = dict(pids)
        self._began_s = now_s
        self._before = {name: cpu_s(pid) for name, pid in self._pids.items()}

    def costs(self, now_s: float) -> dict[str, Cost]:
        """The costs by process."""
        span_s = now_s - self._began_s
        return {
            name: Cost(cpu=round((cpu_s(pid) - self._before[name]) / span_s, 3), rss_mb=round(rss_mb(pid), 1))
            for name, pid in self._pids.items()
        }


class Road(msgspec.Struct, kw_only=True):
    """The times from observations to commands."""

    events: int
    commands: int
    event_to_command: Times
    """From an event's arrival at a subscriber to the arrival there of each command that answers it first."""
    event_to_first_command: Times
    """The same for the first of these commands alone."""
    observation_to_event: dict[str, Times]
    """By kind of event, the time from the observation's publication. A silence waits for 15 ms by design."""
    observation_to_command: dict[str, Times]
    unanswered: int
    """Events about a fault's beginning that gave no command."""
    unseen: int
    """Faults that gave no event."""


def road(arrivals: Arrivals, told: Told) -> Road:
    """Joins the published observations with the arrivals."""
    came = {id_: (kind, who, at_ns) for id_, kind, state, who, at_ns in arrivals.events if state in _BEGINNINGS}
    answers: dict[tuple[str, str], int] = {}
    for _, verb, cause, node, at_ns in arrivals.commands:
        if verb == "reroute" and cause in came:
            answers.setdefault((cause, node), at_ns)
    first: dict[str, int] = {}
    for (cause, _), at_ns in answers.items():
        first[cause] = min(at_ns, first.get(cause, at_ns))
    # If a NIC or path was in trouble more than once, the last time counts, as in the record of observations.
    last = {who: (id_, kind, at_ns) for id_, (kind, who, at_ns) in came.items()}
    seen = {
        who: (kind, at_ns - observed_ns, first[id_] - observed_ns if id_ in first else None)
        for who, (id_, kind, at_ns) in last.items()
        if (observed_ns := told.observed.get(who, at_ns)) <= at_ns
    }
    kinds = ("flap", "path")
    return Road(
        events=len(arrivals.events),
        commands=len(arrivals.commands),
        event_to_command=Times.of(at_ns - came[cause][2] for (cause, _), at_ns in answers.items()),
        event_to_first_command=Times.of(at_ns - came[cause][2] for cause, at_ns in first.items()),
        observation_to_event={
            kind: Times.of(event_ns for each, event_ns, _ in seen.values() if each == kind) for kind in kinds
        },
        observation_to_command={
            kind: Times.of(
                command_ns for each, _, command_ns in seen.values() if each == kind and command_ns is not None
            )
            for kind in kinds
        },
        unanswered=len(came.keys() - first.keys()),
        unseen=len(told.observed.keys() - last.keys()),
    )
