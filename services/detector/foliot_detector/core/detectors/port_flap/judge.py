"""A rule's verdict on one port: until when it is held back, whichever the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from foliot_detector.core.detectors.port_flap.rfc2439 import Damping
from foliot_detector.core.detectors.port_flap.window_threshold import WindowThreshold
from foliot_detector.flap_rules import CountRule

if TYPE_CHECKING:
    from foliot_detector.core.state.port_counters import Change
    from foliot_detector.flap_rules import FlapRule
    from foliot_schemas import Event
    from foliot_schemas.event import Evidence


class Judge(Protocol):
    """A rule at work on one port. It is deterministic; all times are those of the port's node."""

    def resume(self, event: Event) -> None:
        """Takes up what an earlier run came to, from its last event."""

    def take(self, change: Change) -> None:
        """Takes what happened at the port."""

    def reuse_at_ns(self, at_ns: int) -> int:
        """Until when the port is held back if it flaps no more, as seen at a time; 0: it is not."""

    def evidence(self, at_ns: int) -> Evidence:
        """Numbers that the verdict rests on."""


def judge_by(rule: FlapRule) -> Judge:
    """A judge of one port."""
    return WindowThreshold(rule) if isinstance(rule, CountRule) else Damping(rule)
