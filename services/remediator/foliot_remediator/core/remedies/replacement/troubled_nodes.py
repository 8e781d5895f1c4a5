"""Nodes that ranks are to leave, and those that were to blame lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.remedies.replacement.course import Reason
from foliot_remediator.core.state.routing_table import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.core.remedies.replacement.workers import Worker
    from foliot_schemas import Drain, Event

_OFFENDER_NS = 3_600_000_000_000
"""How long a node counts as a recent offender: an operator's time to look at it."""


class Wish(NamedTuple):
    """Why the ranks of a node are to go elsewhere."""

    reason: Reason
    """Its word is `drain` or `hardware`."""
    is_urgent: bool
    """Whether they are to go at once, and not at the end of a step."""


class TroubledNodes:
    """The nodes that are drained, or whose hardware has a fault; and those of which a rank was blamed.

    Parameters:
        remedy: the name of the remedy that acts on it.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._drains: dict[str, Wish] = {}
        self._hardware: dict[str, Wish] = {}
        self._hardware_ns: dict[str, int] = {}
        self._blamed_ns: dict[str, int] = {}

    # -- in -----------------------------------------------------------------------------------------------------------

    def take_drain(self, drain: Drain) -> None:
        """Takes what a person wants of a node. A wish that is written again is another one."""
        if drain.over:
            self._drains.pop(drain.node, None)
            return
        fault = f"drain/{drain.node}-{drain.at_ns}"
        self._drains[drain.node] = Wish(Reason(Cause(fault, fault, self._remedy), "drain"), is_urgent=False)

    def take_hardware(self, event: Event) -> None:
        """Takes an event about a node's GPUs, unless a later one was taken."""
        node = event.who
        if event.at_ns < self._hardware_ns.get(node, 0):
            return
        self._hardware_ns[node] = event.at_ns
        known = self._hardware.get(node)
        if event.state == "restarted":
            self._hardware.pop(node, None)
        elif event.state == "failed" or (event.state == "degraded" and (known is None or not known.is_urgent)):
            reason = Reason(Cause(event.id, event.fault, self._remedy), "hardware")
            self._hardware[node] = Wish(reason, is_urgent=event.state == "failed")

    def blame(self, node: str, at_ns: int) -> None:
        """Takes that a rank on a node was blamed."""
        self._blamed_ns[node] = max(at_ns, self._blamed_ns.get(node, 0))

    def forget_node(self, node: str) -> None:
        """Forgets what a node has done. Whoever drained it wants that still."""
        for memory in (self._hardware, self._hardware_ns, self._blamed_ns):
            memory.pop(node, None)

    # -- out ----------------------------------------------------------------------------------------------------------

    def wish(self, node: str) -> Wish | None:
        """Why a node is to be left, the most urgent reason; None: it is not."""
        return self._hardware.get(node) or self._drains.get(node)

    def has_any_of(self, workers: Iterable[Worker]) -> bool:
        """Whether any of these processes is on a node that is to be left."""
        return bool(self._drains or self._hardware) and any(self.wish(each.node) is not None for each in workers)

    def is_recent_offender(self, node: str, now_ns: int) -> bool:
        """Whether a rank on it was blamed in the last hour."""
        at_ns = self._blamed_ns.get(node)
        return at_ns is not None and now_ns - at_ns <= _OFFENDER_NS
