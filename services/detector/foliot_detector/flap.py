"""Ports: a carrier lost or back, told apart from what an administrator did, with the damping of what flaps."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from foliot_detector.damping import Damping
from foliot_detector.ports import BELIEVED_NS, flaps_between, is_made_anew, is_old
from foliot_schemas import Event, Node, PortState
from foliot_schemas.fault import port_fault
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from foliot_detector.damping import Rule
    from foliot_detector.detector import Seen
    from foliot_detector.fleet import Fleet

_HOUR_NS = 3_600_000_000_000
_MOST_FLAPS = 4_096
"""Remembered: more than one a second for an hour."""
_UNSEEN_FALL = 0.5
"""Confidence in a port that was down when first heard of. The kernel says that it is down and was up in this boot, but nobody
here saw that it was in use when it fell: as likely a cable pulled long ago."""

State: TypeAlias = Literal["never-up", "up", "down", "admin-down"]
Evidence: TypeAlias = dict[str, float | int | str | bool]


@dataclass(slots=True)
class _Port:
    latest: PortState
    state: State
    damping: Damping
    here_ns: int
    """When it was last believed, on the detector's timeline."""
    fault: str = ""
    since_ns: int = 0
    flaps: collections.deque[tuple[int, int]] = field(default_factory=lambda: collections.deque(maxlen=_MOST_FLAPS))
    """When, and how many at once, in the last hour."""


class FlapDetector:
    """Events of kind ``flap``.

    - The kernel's counters count flaps, also those that fell between two messages; an administrator's doing never counts.
    - A port that was never up in this boot is not cabled: no event. One that is down when first heard of but was up before gives an
      event of half confidence and no penalty: a remediator that starts during the outage needs it, and to one that knows already
      its id says nothing new.
    - Where the device was made anew or the host booted, the counters begin again: no flap.
    - `admin-up` comes when there is a carrier as well: before that, nothing can be sent.
    """

    def __init__(self, rule: Rule, fleet: Fleet) -> None:
        self._rule = rule
        self._fleet = fleet
        self._ports: dict[str, _Port] = {}
        self._before: dict[str, Event] = {}
        """The last events of an earlier run."""

    def resume(self, event: Event) -> None:
        """Takes up the penalty of a NIC. How its port is now, it says itself, every second."""
        if event.kind == "flap" and event.who in self._fleet.nics:
            self._before[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the state of a port of the inventory."""
        if isinstance(seen, Node) and not seen.nics:
            self._ports = {nic: port for nic, port in self._ports.items() if nic in self._fleet.nics}
        if not isinstance(seen, PortState) or seen.nic not in self._fleet.nics or node_of(seen.nic) != seen.node:
            return []
        port = self._ports.get(seen.nic)
        if port is None:
            return self._meet(seen, now_ns)
        if is_old(port.latest, seen) and now_ns - port.here_ns <= BELIEVED_NS:
            return []
        port.here_ns = now_ns
        before, port.latest = port.latest, seen
        if is_made_anew(before, seen):
            fresh = msgspec.structs.replace(before, carrier_down_count=0, carrier_up_count=0)
            return self._change(port, fresh, 0, {"device_made_anew": True})
        flaps = flaps_between(before, seen)
        if port.state == "up" and seen.admin_up and not seen.carrier:
            flaps = max(flaps, 1)  # a kernel that does not count still says that the carrier is gone
        return self._change(port, before, flaps)

    def tick(self, now_ns: int) -> list[Event]:  # noqa: ARG002 - nothing here is due by time
        """Nothing: what has decayed by then is in the event already, as `reuse_at_ns`."""
        return []

    def _meet(self, seen: PortState, now_ns: int) -> list[Event]:
        port = self._ports[seen.nic] = _Port(seen, "never-up", Damping(self._rule), now_ns)
        before = self._before.pop(seen.nic, None)
        if before is not None:
            penalty = min(max(before.number("penalty"), 0.0), self._rule.ceiling)
            port.damping.resume(before.at_ns, penalty, int(before.number("reuse_at_ns")))
        if seen.admin_up and seen.carrier:
            port.state = "up"
        elif seen.carrier_up_count:
            state: State = "down" if seen.admin_up else "admin-down"
            return [self._fall(port, state, seen.at_ns, 0, {"first_report": True}, confidence=_UNSEEN_FALL)]
        return []

    def _change(self, port: _Port, before: PortState, flaps: int, more: Evidence | None = None) -> list[Event]:
        seen = port.latest
        if flaps:
            port.damping.add(seen.at_ns, flaps)
            port.flaps.append((seen.at_ns, flaps))
        if not seen.admin_up:
            if port.state in {"up", "down"}:
                return [self._fall(port, "admin-down", seen.at_ns, flaps, more or {})]
        elif seen.carrier:
            return self._rise(port, before, flaps, more or {})
        elif _has_fallen(port.state, before, seen, flaps):
            return [self._fall(port, "down", seen.at_ns, flaps, more or {})]
        return []

    def _fall(
        self, port: _Port, state: State, since_ns: int, flaps: int, more: Evidence, *, confidence: float = 1.0
    ) -> Event:
        port.state, port.since_ns = state, since_ns
        port.fault = _fault(port.latest)
        return self._event(port, state, flaps, confidence, more)

    def _rise(self, port: _Port, before: PortState, flaps: int, more: Evidence) -> list[Event]:
        was, port.state = port.state, "up"
        if was == "never-up" or (was == "up" and not flaps):
            return []
        if was == "up":
            # It fell and came back between two messages: no time of its fall but the last at which it was seen up.
            port.fault, port.since_ns = _fault(port.latest), before.at_ns
            more = more | {"between_messages": True}
        more = more | {"down_ms": (port.latest.at_ns - port.since_ns) / 1e6}
        return [self._event(port, "admin-up" if was == "admin-down" else "up", flaps, 1.0, more)]

    def _event(self, port: _Port, state: str, flaps: int, confidence: float, more: Evidence) -> Event:
        seen = port.latest
        while port.flaps and port.flaps[0][0] <= seen.at_ns - _HOUR_NS:
            port.flaps.popleft()
        evidence: Evidence = {
            "carrier_down_count": seen.carrier_down_count,
            "flaps": flaps,
            "flaps_last_hour": sum(count for _, count in port.flaps),
            "penalty": round(port.damping.penalty(seen.at_ns), 3),
            "suppressed": port.damping.suppressed(seen.at_ns),
            "reuse_at_ns": port.damping.reuse_at_ns(seen.at_ns),
            "half_life_s": self._rule.half_life_s,
        }
        return Event(
            id=f"{port.fault}/{state}",
            kind="flap",
            who=seen.nic,
            state=state,
            at_ns=seen.at_ns,
            since_ns=port.since_ns,
            confidence=confidence,
            evidence=evidence | more,
            fault=port.fault,
        )


def _fault(seen: PortState) -> str:
    return port_fault(seen.fault, seen.nic, seen.carrier_down_count)


def _has_fallen(state: State, before: PortState, seen: PortState, flaps: int) -> bool:
    """Whether a port without a carrier is in trouble that was not told yet."""
    if state == "up":
        return True
    if state == "never-up":
        return seen.carrier_up_count > before.carrier_up_count
    return flaps > 0
