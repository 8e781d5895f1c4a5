"""Leaves out the time of a scenario in which nothing is due.

How long a fault takes to be found, and traffic to be back, is the machine's. A scenario that gives each fault time
enough on a slow machine waits on a quick one. With `skip_waits`, its next moment comes once all that has happened so
far is over: cut traffic flows, what was healed is back on its way, and nothing else is amiss. A rank that holds up its
job is named first, and then said to go on. A job whose ranks can be replaced is whole again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from foliot_lab.faults.injection import moments
from foliot_lab.scenario.promises import OF_PATHS, holds_up_all
from foliot_lab.scenario.spec import trained
from foliot_schemas.event_kinds import is_relief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.faults.injection import Injection, ScenarioTime
    from foliot_lab.scenario.spec import FaultSpec, Scenario
    from foliot_schemas import Event

_LOOK_S = 0.2
_CALM_S = 3.0
"""The time since anything happened. What follows from it, also what should not, comes within that."""


class Waits:
    """What of a scenario is pending.

    Parameters:
        before_s: the time before each fault in which the lab gets ready for it, which is not left out.
    """

    def __init__(self, scenario: Scenario, seconds: ScenarioTime, before_s: float) -> None:
        self._scenario = scenario
        self._seconds = seconds
        self._before_s = before_s
        self._injections: dict[str, Injection] = {}
        self._moved: set[str] = set()
        self._over: set[str] = set()
        job = trained(scenario)
        self._is_mended = job is not None and job[1].is_replaceable
        """Whether ranks can be replaced, of a job that stands until they are."""
        self._whole: set[str] = set()
        self._told: dict[str, set[str]] = {}
        """By fault of a rank that Foliot has named, the ids of its events that are not over."""
        self._changed_s = 0.0

    def injected(self, injection: Injection) -> None:
        """A fault began or ended, or a flap did.

        What a fault took from a job may return at its end, for which the job is whole only later.
        """
        self._whole.discard(injection.fault_id)
        self._injections[injection.fault_id] = injection
        self._changed_s = self._seconds.now_s

    def moved(self, fault_id: str) -> None:
        """All traffic that this fault cut off flows."""
        self._moved.add(fault_id)
        self._changed_s = self._seconds.now_s

    def over(self, fault_id: str) -> None:
        """All of it is back, or does not come any more."""
        self._over.add(fault_id)

    def told(self, fault_id: str, event: Event) -> None:
        """Foliot said something of the ranks that this fault touches, after it began."""
        standing = self._told.setdefault(fault_id, set())
        if is_relief(event):
            standing.discard(event.cause)
        else:
            standing.add(event.id)
        self._changed_s = self._seconds.now_s

    def whole(self, fault_id: str) -> None:
        """The job has all ranks again after this fault, and goes on."""
        if fault_id not in self._whole:
            self._whole.add(fault_id)
            self._changed_s = self._seconds.now_s

    async def leave_out(self) -> None:
        """Leaves out, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if (due_s := self.due_s()) is not None:
                self._seconds.skip_to(due_s)

    def due_s(self) -> float | None:
        """The next moment of the scenario, if nothing is pending before it."""
        now_s = self._seconds.now_s
        if now_s < max(self._changed_s, 0.0) + _CALM_S or any(map(self._pending, self._scenario.faults)):
            return None
        return min((at_s for at_s in self._moments() if at_s > now_s), default=None)

    def _pending(self, fault: FaultSpec) -> bool:
        injection = self._injections.get(fault.id)
        if injection is None:
            return self._seconds.now_s >= fault.at_s - self._before_s
        if fault.kind in OF_PATHS:
            moved = fault.id in self._moved and injection.healed_ns is None and fault.times is None
            return not moved and fault.id not in self._over
        if self._is_mended and holds_up_all(fault.kind, fault.where):
            return fault.id not in self._whole
        if injection.healed_ns is None:
            return fault.lasts_s is not None and fault.id not in self._told
        return bool(self._told.get(fault.id))

    def _moments(self) -> Iterator[float]:
        for fault in self._scenario.faults:
            yield fault.at_s - self._before_s
            for _, up_s in moments(fault):
                if up_s is not None:
                    yield up_s
            if fault.for_s is not None:
                yield fault.at_s + fault.for_s
        yield self._scenario.duration_s
