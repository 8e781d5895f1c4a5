"""What a rule says of one port: until when it is held back, whichever the rule."""

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
    """What a rule says of one port. Deterministic; all times are those of its node."""

    def resume(self, event: Event) -> None:
        """Takes up what an earlier run came to, from its last event."""

    def take(self, change: Change) -> None:
        """Takes what happened at the port."""

    def reuse_at_ns(self, at_ns: int) -> int:
        """Until when it is held back at a time, if it flaps no more; 0: it is not."""

    def evidence(self, at_ns: int) -> Evidence:
        """What that rests on, in numbers."""


def judge_by(rule: FlapRule) -> Judge:
    """A judge of one port."""
    return WindowThreshold(rule) if isinstance(rule, CountRule) else Damping(rule)
