"""Times that are subtracted from a fault's outcome before it is judged.

They are the times without a live route, and those in which a service was itself at fault. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.intervals import Intervals
from foliot_lab.report.blast_radius import scope
from foliot_lab.report.hindrances import Hindrance, bus_away, hindrances, times
from foliot_lab.scenario.promises import OF_PATHS, class_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.report.connectivity import Ways
    from foliot_lab.scenario.topology import FabricPlan


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a time that does not count, and the reason."""

    ms: float = 0.0
    because: list[str] = []
    """The ids of the faults that kept the services from acting."""


class NotCounted(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a fault's times that do not count."""

    found: Allowance
    """The part of the time until it was found, or healed, or the run ended: services that detect were at fault."""
    moved: Allowance
    """The part of the time until it moved, or was healed, or the run ended. Either no way lived for one of its
    pairs, or services that move traffic were at fault."""
    no_way_ms: float
    """The part of `moved` without a way."""
    back: Allowance
    """After the healing: other faults were on the same paths, or services that restore traffic were at fault."""


class Allowances:
    """The allowances of all faults of a run.

    Parameters:
        armed: the agents' setting: `off`, `bus-away` or `always`.
    """

    def __init__(
        self, fabric: FabricPlan, injections: Sequence[Injection], ways: Ways, armed: str, end_ns: int
    ) -> None:
        self._fabric = fabric
        self._injections = injections
        self._ways = ways
        self._armed = armed
        self._end_ns = end_ns

    def of(
        self, injection: Injection, detected_ns: int | None, moved_ns: int | None, restored_ns: int | None
    ) -> NotCounted:
        """The allowances of one fault, by the times of its outcome. Lab time; None: it did not happen."""
        since_ns = injection.injected_ns
        over_ns = self._end_ns if injection.healed_ns is None else injection.healed_ns
        found_ns = over_ns if detected_ns is None else detected_ns
        moved_ns = over_ns if moved_ns is None else moved_ns
        telling = hindrances("tell", self._fabric.hosts, self._injections, self._end_ns)
        if injection.kind not in OF_PATHS:
            # The remaining services find a dead process, and its own fault is one of these hindrances.
            telling = [each for each in telling if each.fault_id != injection.fault_id]
        no_way = self._without_way(injection)
        return NotCounted(
            found=_taken(telling, Intervals(), since_ns, found_ns),
            moved=_taken(self.moving(injection), no_way, since_ns, moved_ns),
            no_way_ms=round(no_way.within(since_ns, moved_ns) * 1e-6, 3),
            back=self._back(injection, restored_ns),
        )

    def standing(self, one: str, other: str, injection: Injection | None) -> Intervals:
        """The times in which traffic between two hosts may stand still.

        No way lives for it then, or the services that move it after a path's fault are at fault.
        """
        moving = [] if injection is None else self.moving(injection)
        return self._ways.without(one, other) | times(moving)

    def moving(self, injection: Injection) -> list[Hindrance]:
        """The hindrances to moving this fault's traffic."""
        armed, known = self._armed == "always", None
        if self._armed == "bus-away":
            known = bus_away(self._injections, injection.injected_ns)
            armed = known is not None
        if not armed or class_of(injection.kind, injection.where) != "carrier":
            return self._commanding()
        found = hindrances("armed", self._fabric.hosts, self._injections, self._end_ns)
        return found if known is None else [*found, known]

    def _commanding(self) -> list[Hindrance]:
        return hindrances("command", self._fabric.hosts, self._injections, self._end_ns)

    def _without_way(self, injection: Injection) -> Intervals:
        found = Intervals()
        for pair in scope(injection.kind, injection.where, self._fabric).pairs():
            found |= self._ways.without(pair.source.node, pair.destination.node)
        return found

    def _back(self, injection: Injection, restored_ns: int | None) -> Allowance:
        """The time after the healing until the last hindrance was over."""
        healed_ns = injection.healed_ns
        if healed_ns is None or injection.kind not in OF_PATHS:
            return Allowance()
        until_ns = self._end_ns if restored_ns is None else restored_ns
        ends = [healed_ns]
        own = set(scope(injection.kind, injection.where, self._fabric).pairs())
        for other in self._injections:
            if other is injection or other.kind not in OF_PATHS or other.injected_ns >= until_ns:
                continue
            if own & set(scope(other.kind, other.where, self._fabric).pairs()):
                ends.append(self._end_ns if other.healed_ns is None else other.healed_ns)
        absent = [each for each in self._commanding() if each.since_ns < until_ns and each.until_ns > healed_ns]
        ends += [each.until_ns for each in absent]
        return Allowance(
            ms=round((max(ends) - healed_ns) * 1e-6, 3), because=sorted({each.fault_id for each in absent})
        )


def _taken(absent: Sequence[Hindrance], no_way: Intervals, since_ns: int, until_ns: int) -> Allowance:
    """The part of a span that absent services and the lack of a way take up."""
    ms = (times(absent) | no_way).within(since_ns, until_ns) * 1e-6
    because = {each.fault_id for each in absent if each.since_ns < until_ns and since_ns < each.until_ns}
    return Allowance(ms=round(ms, 3), because=sorted(because))
