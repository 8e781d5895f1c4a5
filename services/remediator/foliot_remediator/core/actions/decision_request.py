"""A question for the `Decider`: the verb, whom it is about, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.state.routing_table import FIRST

if TYPE_CHECKING:
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_remediator.settings import Policy
    from foliot_schemas import Verb
    from foliot_schemas.event import Evidence


class DecisionRequest(NamedTuple):
    """A question for the `Decider`."""

    verb: Verb
    who: str
    cause: Cause
    base_ns: int
    """The time from which the deadline counts."""
    now_ns: int
    remedy: str = FIRST
    """The remedy whose budget pays, and which hears of the answer."""
    policy: Policy = "act"
    """The most that the remedy may do, whatever the policy of the verb."""
    evidence: Evidence | None = None
    """Numbers that its commands say, beside their orders; None: none."""
    lasts_ns: int = 0
    """For how long nodes may carry it out, from `base_ns` on, if that is longer than usual."""
