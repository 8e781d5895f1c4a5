"""Clocks: one that was stepped or otherwise disrupted, and that it is in step again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_detector.core.detectors.ending import ended
from foliot_schemas import ClockState, Event
from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from foliot_detector.core.protocol import Seen
    from foliot_schemas.event import Evidence


class ClockDisruptionDetector:
    """Events of kind ``clock``: one was disrupted, and is synchronised again.

    Neither a first synchronisation nor a holdover is trouble.
    """

    def __init__(self) -> None:
        self._latest: dict[str, ClockState] = {}
        self._disrupted: dict[str, Event] = {}

    def resume(self, event: Event) -> None:
        """Waits for a clock that an earlier run said to be disrupted."""
        if event.kind == "clock" and event.state == "disrupted":
            self._disrupted[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:  # noqa: ARG002 - judged by the clock's own times
        """Takes the state of a clock; one older than the latest changes nothing."""
        if not isinstance(seen, ClockState):
            return []
        latest = self._latest.get(seen.clock)
        if latest is not None and seen.as_of_ns < latest.as_of_ns and seen.window <= latest.window:
            return []  # a clock may be set back, but windows only count up
        self._latest[seen.clock] = seen
        disruption = self._disrupted.get(seen.clock)
        if seen.status == "disrupted" and disruption is None:
            self._disrupted[seen.clock] = event = _disrupted(seen)
            return [event]
        if seen.status == "synchronised" and disruption is not None:
            del self._disrupted[seen.clock]
            at_ns = _reference_ns(seen)
            evidence = _evidence(seen) | {"disrupted_ms": (at_ns - disruption.since_ns) / 1e6}
            return [ended(disruption, "synchronised", at_ns, evidence)]
        return []

    def tick(self, now_ns: int) -> list[Event]:  # noqa: ARG002 - nothing here is due by time
        """Nothing: sync speaks every window."""
        return []


def _reference_ns(state: ClockState) -> int:
    """The reference time that the state is as of, as far as an event can say it."""
    return min(max(state.reference_ns(state.as_of_ns), 1 - FAR_NS), FAR_NS - 1)


def _disrupted(state: ClockState) -> Event:
    at_ns = _reference_ns(state)
    fault = f"{state.clock}/disrupted-{at_ns}"
    return Event(
        id=fault, kind="clock", who=state.clock, state="disrupted", at_ns=at_ns, since_ns=at_ns,
        evidence=_evidence(state), fault=fault,
    )  # fmt: skip


def _evidence(state: ClockState) -> Evidence:
    return {
        "bound_ns": state.bound_ns,
        "hard_bound_ns": state.hard_bound_ns,
        "offset_ns": state.offset_ns,
        "drift_ppb": state.drift_ppb,
        "window": state.window,
        "neighbours": state.neighbours,
        "surplus_ns": state.surplus_ns,
    }
