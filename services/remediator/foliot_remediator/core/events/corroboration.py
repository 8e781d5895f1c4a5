"""The second witness: losses that an event tells of, while the nodes' own reports, as heard here, speak against them.

The detector hears the same reports. Its verdict is believed unless they say the opposite. So a detector that is wrong,
or was taken over by somebody, cannot have healthy NICs left. A true loss costs this nothing: the report that it follows
from is here before the event is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_remediator.core.events.event_log import input_of
from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.inventory import nics_of
from foliot_remediator.core.state.retention import Retained
from foliot_remediator.core.state.state_machine import Input, State
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_schemas import Event
    from foliot_schemas.event import Evidence

_OF_PORTS = frozenset({Input.CARRIER_LOST, Input.DAMPED_LOSS, Input.ADMIN_DOWN})
_HALF_SILENCE_NS = 60_000_000
"""A path heard so much after its silence is said to have begun ended that silence. This is half of the shortest
silence, three intervals of 40 ms. It is more than two reports of one time differ by."""
_LOST_SHARE = 0.5
"""Share of the lost probes that an event tells of which must have been reported to this process too. It may be
younger than the detector."""
_FIRST_LOOK_NS, _LONGEST_LOOK_NS = 20_000_000, 5_000_000_000
_FALLEN_LOOK_NS = 100_000_000
"""Nodes report every 100 ms, and a path whose receiver says that it is silent may be a dead one."""
_GRACE_NS = 100_000_000
"""Wait before a refusal: in a cluster of bus servers, an event may overtake the report that it follows from."""


def speaks_against(event: Event, health: PathHealth, now_ns: int, *, is_over: bool = False) -> Evidence | None:
    """Evidence against a loss, in numbers; None: nothing speaks against it, or nobody who could.

    Parameters:
        is_over: the silence that the event tells of was over already, by its receiver's word; what is silent since is
            another one.
    """
    given = input_of(event)
    if given in _OF_PORTS:
        return _port(event, health, now_ns)
    if given is Input.SILENT:
        return _silence(event, health, now_ns, is_over=is_over)
    if given is Input.LOSSY and health.is_reported(event.who, health.read_to_ns(now_ns)):
        return _loss(event, health)
    return None


def _port(event: Event, health: PathHealth, now_ns: int) -> Evidence | None:
    port = health.ports.get(event.who)
    if port is None or not port.good or not port.is_recent(now_ns) or port.bad_said_ns >= event.at_ns:
        return None
    return {"port_good_ms": (now_ns - port.since_ns) / 1e6, "port_said_ms_ago": (now_ns - port.at_ns) / 1e6}


def _silence(event: Event, health: PathHealth, now_ns: int, *, is_over: bool) -> Evidence | None:
    path, reports = event.who, health.reports
    # In trouble already, an event changes nothing.
    if health.state(path) is State.DOWN or health.is_unheard(path):
        return None
    told, heard = int(event.number("last_heard_sequence")), reports.heard_sequence(path)
    is_reported = health.is_reported(path, health.read_to_ns(now_ns))
    if not (is_over or 0 < told < heard) and (reports.has_fallen(path) or not is_reported):
        return None
    heard_ns = reports.heard_ns(path)
    receiver = node_of(parse_path(path).destination)
    since_ns = reports.here_ns(receiver, event.since_ns, now_ns)
    evidence: Evidence = {"heard_ms_ago": (now_ns - heard_ns) / 1e6, "heard_ms_after": (heard_ns - since_ns) / 1e6}
    return evidence | ({"heard_sequence": heard, "told_sequence": told} if heard and told else {})


def _has_ended(against: Evidence) -> bool:
    """Whether a silence is doubted because the path was heard after it."""
    after_ms, heard, told = (
        float(against.get(name, 0)) for name in ("heard_ms_after", "heard_sequence", "told_sequence")
    )
    return heard > told if told else after_ms * 1e6 > _HALF_SILENCE_NS


def _loss(event: Event, health: PathHealth) -> Evidence | None:
    told, lost = int(event.number("lost")), health.reports.lost(event.who)
    return None if lost >= max(1, _LOST_SHARE * told) else {"lost_told": told, "lost_reported": lost}


@dataclass(slots=True)
class Doubt:
    """A loss that is not believed yet."""

    event: Event
    since_ns: int
    is_over: bool = False
    """The silence was over when its event came, by the receiver's word; the detector may not say so of the next one."""


class Corroboration:
    """Doubts, at most one of each NIC or path.

    A doubt is looked at again, less and less often, until nothing speaks against the loss, or something newer is said.
    """

    def __init__(self, health: PathHealth) -> None:
        self._health = health
        self._open: Retained[str, Doubt] = Retained(nics_of)
        self._due = DueQueue()

    def holds(self, event: Event, now_ns: int) -> bool:
        """Whether something speaks against an event, which is looked at again then. An earlier doubt is over."""
        self._open.pop(event.who)
        against = speaks_against(event, self._health, now_ns)
        if against is None:
            return False
        self._put_off(Doubt(event, now_ns, _has_ended(against)), now_ns)
        return True

    def hurry(self, who: str, now_ns: int) -> None:
        """Looks at a doubt next time, as there is news of it."""
        doubt = self._open.get(who)
        if doubt is not None:
            self._put_off(doubt, now_ns, 0)

    def forget(self, nic: str) -> None:
        """Forgets a NIC that has left the fleet."""
        self._open.forget(nic)

    def look(self, now_ns: int) -> Iterator[tuple[Event, Evidence]]:
        """Losses whose turn it is: to be refused, with evidence; or without, as nothing speaks against them now."""
        for who in self._due.take(now_ns):
            doubt = self._open.get(who)
            if doubt is None:
                continue
            against = speaks_against(doubt.event, self._health, now_ns, is_over=doubt.is_over)
            if against is None:
                self._open.pop(who)
                yield doubt.event, {}
                continue
            doubt.is_over = doubt.is_over or _has_ended(against)
            self._put_off(doubt, now_ns)
            if now_ns - doubt.since_ns >= _GRACE_NS:
                yield doubt.event, {"state": doubt.event.state, **against}

    def _put_off(self, doubt: Doubt, now_ns: int, wait_ns: int | None = None) -> None:
        if wait_ns is None:
            fallen = self._health.reports.has_fallen(doubt.event.who)
            wait_ns = min(max(now_ns - doubt.since_ns, _FIRST_LOOK_NS), _FALLEN_LOOK_NS if fallen else _LONGEST_LOOK_NS)
        self._open[doubt.event.who] = doubt
        self._due.put(doubt.event.who, now_ns + wait_ns)
