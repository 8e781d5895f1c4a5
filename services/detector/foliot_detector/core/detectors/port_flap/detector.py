"""Ports: a carrier lost or back, told apart from what an administrator did, and held against what flaps."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from foliot_detector.core.detectors.port_flap.rfc2439 import Damping
from foliot_detector.core.detectors.port_flap.window_threshold import WindowThreshold
from foliot_detector.core.state.port_counters import Change, LinkDowned, is_made_anew, ran_back, unheard
from foliot_detector.flap_rules import CountRule
from foliot_schemas import Event, Node, PortState
from foliot_schemas.fault import port_fault
from foliot_schemas.names import node_of
from foliot_schemas.port_order import BELIEVED_NS, falls_between, is_old, returns_between

if TYPE_CHECKING:
    from foliot_detector.core.detectors.port_flap.settings import PortFlapSettings
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas.event import Evidence

_HOUR_NS = 3_600_000_000_000
_MOST_FLAPS = 4_096
"""Remembered: more than one a second for an hour."""
_UNSEEN_FALL = 0.5
"""Confidence in a port that was down when first heard of. The kernel says that it is down and was up in this boot.
But nobody here saw that it was in use when it fell: as likely a cable pulled long ago."""

State: TypeAlias = Literal["never-up", "up", "down", "admin-down"]


@dataclass(slots=True)
class _Port:
    latest: PortState
    state: State
    judge: Damping | WindowThreshold
    """The rule at work."""
    here_ns: int
    """When it was last believed, on the detector's timeline."""
    fault: str = ""
    named: str = ""
    """The part of the last fault's name that the kernel's count made."""
    since_ns: int = 0
    fell: bool = False
    """It is down for a lost carrier, not for a reboot or an administrator. Only then is its return half a flap."""
    link_downed: LinkDowned = field(default_factory=LinkDowned)
    flaps: collections.deque[tuple[int, int]] = field(default_factory=lambda: collections.deque(maxlen=_MOST_FLAPS))
    """When, and how many at once, in the last hour."""


class PortFlapDetector:
    """Events of kind ``flap``.

    - A port's message also says what befell it before. News among that is judged first, as if it came now: the bus was
      away, or this process was late.
    - The kernel's counters count flaps, also those between two messages. Changes by an administrator never count.
    - A port that was never up in this boot is not cabled: no event.
    - A port that is down when first heard of, but was up before, gives an event of half confidence and no penalty. A
      remediator that starts during the outage needs it. To one that knows already, its id says nothing new.
    - The counters begin again where the device was made anew or the host booted: no flap. A counter that runs back says
      nothing either. The changes of carrier that are seen make up for one that sticks.
    - `admin-up` comes when there is a carrier as well: before that, nothing can be sent.
    - A management port has no events, unless the settings want them: it holds the host's default route or its way to
      the bus.
    """

    def __init__(self, inventory: Inventory, settings: PortFlapSettings) -> None:
        self._name, self._rule = settings.flap_rule, settings.rule()
        self._leaves_management = settings.management_nics == "leave-out"
        self._inventory = inventory
        self._ports: dict[str, _Port] = {}
        self._before: dict[str, Event] = {}
        """The last events of an earlier run."""

    def resume(self, event: Event) -> None:
        """Takes up what was counted against a NIC. The port itself says every second how it is now."""
        if event.kind == "flap" and event.who in self._inventory.nics:
            self._before[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the state of a port of the inventory."""
        if isinstance(seen, Node) and not seen.nics:
            self._ports = {nic: port for nic, port in self._ports.items() if nic in self._inventory.nics}
        if not isinstance(seen, PortState) or seen.nic not in self._inventory.nics or node_of(seen.nic) != seen.node:
            return []
        if seen.management and self._leaves_management:
            self._inventory.counts["ports_management"] += 1
            self._ports.pop(seen.nic, None)
            return []
        port = self._ports.get(seen.nic)
        if port is None:
            return self._meet(seen, now_ns)
        if is_old(port.latest, seen) and now_ns - port.here_ns <= BELIEVED_NS:
            return []
        port.here_ns = now_ns
        events: list[Event] = []
        for word in (*unheard(port.latest, seen), seen):
            before, port.latest = port.latest, word
            events += self._compare(port, before)
        return events

    def tick(self, now_ns: int) -> list[Event]:  # noqa: ARG002 - nothing here is due by time
        """Nothing: what has decayed by then is in the event already, as `reuse_at_ns`."""
        return []

    def _meet(self, seen: PortState, now_ns: int) -> list[Event]:
        rule = self._rule
        judge: Damping | WindowThreshold = WindowThreshold(rule) if isinstance(rule, CountRule) else Damping(rule)
        port = self._ports[seen.nic] = _Port(seen, "never-up", judge, now_ns)
        port.link_downed.read(seen, 0)
        before = self._before.pop(seen.nic, None)
        if before is not None:
            port.judge.resume(before)
        if seen.admin_up and seen.carrier:
            port.state = "up"
        elif seen.carrier_up_count:
            state: State = "down" if seen.admin_up else "admin-down"
            return [self._fall(port, state, 0, {"first_report": True}, confidence=_UNSEEN_FALL)]
        return []

    def _compare(self, port: _Port, before: PortState) -> list[Event]:
        seen, ups = port.latest, returns_between(before, port.latest)
        more: Evidence = {}
        if is_made_anew(before, seen) or (not seen.index and ran_back(before, seen)):
            change, ups, more = _unchanged(seen), seen.carrier_up_count, {"device_made_anew": True}
            port.link_downed = LinkDowned()
            port.link_downed.read(seen, 0)
        else:
            change = _between(port, before)
            if ran_back(before, seen):
                more = {"counters_ran_back": True}
        reuse_at_ns = port.judge.reuse_at_ns(seen.at_ns)
        port.judge.take(change)
        if change.falls:
            port.flaps.append((seen.at_ns, change.falls))
        elif change.link_downed and port.judge.reuse_at_ns(seen.at_ns) > reuse_at_ns:
            more = more | {"link_downed_rose": change.link_downed}  # news, although no carrier was lost
        return self._tell(port, before, change, ups, more)

    def _tell(self, port: _Port, before: PortState, change: Change, ups: int, more: Evidence) -> list[Event]:
        if not port.latest.admin_up:
            if port.state in {"up", "down"}:
                return [self._fall(port, "admin-down", change.falls, more)]
        elif port.latest.carrier:
            return self._rise(port, before, change, more)
        elif port.state == "up" or change.falls or (port.state == "never-up" and ups):
            return [self._fall(port, "down", change.falls, more)]
        return []

    def _fall(self, port: _Port, state: State, flaps: int, more: Evidence, *, confidence: float = 1.0) -> Event:
        _name(port, is_new=port.state in {"up", "never-up"} or flaps > 0)
        port.state, port.since_ns, port.fell = state, port.latest.at_ns, flaps > 0
        return self._event(port, state, flaps, confidence, more)

    def _rise(self, port: _Port, before: PortState, change: Change, more: Evidence) -> list[Event]:
        was, port.state = port.state, "up"
        if was == "never-up" or (was == "up" and not change.falls and "link_downed_rose" not in more):
            return []
        if was == "up":
            # It fell and came back between two messages: no time of its fall but the last at which it was seen up.
            _name(port, is_new=True)
            port.since_ns = before.at_ns
            more = more | {"between_messages": True}
        more = more | {"down_ms": (port.latest.at_ns - port.since_ns) / 1e6}
        return [self._event(port, "admin-up" if was == "admin-down" else "up", change.falls, 1.0, more)]

    def _event(self, port: _Port, state: str, flaps: int, confidence: float, more: Evidence) -> Event:
        seen, reuse_at_ns = port.latest, port.judge.reuse_at_ns(port.latest.at_ns)
        while port.flaps and port.flaps[0][0] <= seen.at_ns - _HOUR_NS:
            port.flaps.popleft()
        evidence: Evidence = {
            "carrier_down_count": seen.carrier_down_count,
            "flaps": flaps,
            "flaps_last_hour": sum(count for _, count in port.flaps),
            "rule": self._name,
            "suppressed": reuse_at_ns > 0,
            "reuse_at_ns": reuse_at_ns,
        }
        return Event(
            id=f"{port.fault}/{state}",
            kind="flap",
            who=seen.nic,
            state=state,
            at_ns=seen.at_ns,
            since_ns=port.since_ns,
            confidence=confidence,
            evidence=evidence | port.judge.evidence(seen.at_ns) | more,
            fault=port.fault,
        )


def _unchanged(seen: PortState) -> Change:
    return Change(seen.at_ns, seen.carrier and seen.admin_up)


def _between(port: _Port, before: PortState) -> Change:
    """Changes that came by themselves, without the carriers that an administrator's down took or an up brought."""
    seen, was = port.latest, port.state
    falls, returns = falls_between(before, seen), returns_between(before, seen)
    hidden, link_downed = port.link_downed.read(seen, falls)
    if not before.admin_up:
        return _unchanged(seen)._replace(returns=max(returns - 1, 0))
    if was in {"admin-down", "never-up"}:
        hidden = 0
    if was != "up" and not port.fell:
        returns = max(returns - 1, 0)
    carrier = seen.admin_up and seen.carrier
    if not seen.admin_up:
        falls = max(falls - 1, 0)
    elif was == "up" and not carrier:
        falls = max(falls, 1)  # a kernel that does not count still says that the carrier is gone
    elif was == "down" and port.fell and carrier:
        returns = max(returns, 1)
    lasted = was == "down" and port.fell and carrier and not falls
    outage_ns = max(seen.at_ns - port.since_ns, 0) if lasted else 0
    return Change(seen.at_ns, carrier, falls + hidden, returns + hidden, outage_ns, link_downed)


def _name(port: _Port, *, is_new: bool) -> None:
    """Names the fault by the kernel's count.

    Where that did not move since the last fault, the time is added, so no two have one name.
    """
    seen = port.latest
    named = port_fault(seen.fault, seen.nic, seen.carrier_down_count, seen.index)
    if named != port.named:
        port.named = port.fault = named
    elif is_new:
        port.fault = f"{named}/{seen.at_ns}"
