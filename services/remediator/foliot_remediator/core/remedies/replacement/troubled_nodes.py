"""Nodes that ranks are to leave, and those that were to blame lately."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.remedies.replacement.course import Reason
from foliot_remediator.core.state.routing_table import Cause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from foliot_remediator.core.remedies.replacement.workers import Worker
    from foliot_schemas import Drain, Event

_OFFENDER_NS = 3_600_000_000_000
"""How long a node counts as a recent offender: an operator's time to look at it."""
_GRACE_NS = 3_000_000_000
"""How long the node's own word of an error may be late before that is said: three words of a node."""


_MOST_KINDS = 64
"""Of errors that are remembered of a node, or as many again as it tells at once."""


class Wish(NamedTuple):
    """Why the ranks of a node are to go elsewhere."""

    reason: Reason
    """Its word is `drain` or `hardware`."""
    is_urgent: bool
    """Whether they are to go at once, and not at the end of a step."""
    xid: int = -1
    """The error that the node must have seen itself; -1: nobody has to bear it out."""
    taken_ns: int = 0
    """When it was heard."""


class TroubledNodes:
    """The nodes that are drained, or whose hardware has a fault; and those of which a rank was blamed.

    An event about a node's hardware is believed where the node itself has told of such an error, with its workers.

    Parameters:
        remedy: the name of the remedy that acts on it.
    """

    def __init__(self, remedy: str) -> None:
        self._remedy = remedy
        self._drains: dict[str, Wish] = {}
        self._hardware: dict[str, Wish] = {}
        self._hardware_ns: dict[str, int] = {}
        self._blamed_ns: dict[str, int] = {}
        self._xids: dict[str, frozenset[int]] = {}
        """Of each node, the kinds of errors of which it has told since it was started."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def take_drain(self, drain: Drain) -> None:
        """Takes what a person wants of a node. A wish that is written again is another one."""
        if drain.over:
            self._drains.pop(drain.node, None)
            return
        fault = f"drain/{drain.node}-{drain.at_ns}"
        self._drains[drain.node] = Wish(Reason(Cause(fault, fault, self._remedy), "drain"), is_urgent=False)

    def take_xids(self, node: str, xids: Collection[int]) -> bool:
        """Takes the kinds of errors of which a node tells; returns whether that bears out an event for the first time."""
        if not xids:
            return False
        before = self.wish(node)
        known = self._xids.get(node, frozenset())  # an agent that was started anew knows of none from before
        self._xids[node] = frozenset(xids) if len(known) > _MOST_KINDS else known | frozenset(xids)
        return self.wish(node) != before

    def take_hardware(self, event: Event, now_ns: int) -> None:
        """Takes an event about a node's GPUs, unless a later one was taken."""
        node = event.who
        if event.at_ns < self._hardware_ns.get(node, 0):
            return
        self._hardware_ns[node] = event.at_ns
        known = self._hardware.get(node)
        if event.state == "restarted":
            self._hardware.pop(node, None)
            self._xids.pop(node, None)
        elif event.state == "failed" or (event.state == "degraded" and (known is None or not known.is_urgent)):
            reason = Reason(Cause(event.id, event.fault, self._remedy), "hardware")
            self._hardware[node] = Wish(reason, event.state == "failed", round(event.number("xid")), now_ns)

    def blame(self, node: str, at_ns: int) -> None:
        """Takes that a rank on a node was blamed."""
        self._blamed_ns[node] = max(at_ns, self._blamed_ns.get(node, 0))

    def forget_node(self, node: str) -> None:
        """Forgets what a node has done. Whoever drained it wants that still."""
        self._hardware.pop(node, None)
        self._hardware_ns.pop(node, None)
        self._blamed_ns.pop(node, None)
        self._xids.pop(node, None)

    # -- out ----------------------------------------------------------------------------------------------------------

    def wish(self, node: str) -> Wish | None:
        """Why a node is to be left, the most urgent reason that is borne out; None: it is not."""
        hardware = self._hardware.get(node)
        return hardware if hardware is not None and self._is_borne_out(node, hardware) else self._drains.get(node)

    def against_spare(self, node: str) -> str:
        """Why no rank is to come to a node, in one word; empty: it may. An event need not be borne out for that."""
        wish = self._hardware.get(node) or self._drains.get(node)
        return "" if wish is None else wish.reason.word

    def doubt(self, node: str, now_ns: int) -> tuple[Cause, Objection] | None:
        """What speaks against an event about a node's hardware: the node tells of no such error. None: nothing does."""
        wish = self._hardware.get(node)
        if wish is None or self._is_borne_out(node, wish) or now_ns - wish.taken_ns < _GRACE_NS:
            return None
        told = " ".join(map(str, sorted(self._xids.get(node, ()))))
        return wish.reason.cause, Objection(
            guard="not-confirmed", evidence={"own": told or "no error", "xid": wish.xid}
        )

    def has_any_of(self, workers: Iterable[Worker]) -> bool:
        """Whether any of these processes is on a node of which it is said that it is to be left."""
        return bool(self._drains or self._hardware) and any(
            each.node in self._drains or each.node in self._hardware for each in workers
        )

    def _is_borne_out(self, node: str, wish: Wish) -> bool:
        return wish.xid in self._xids.get(node, ())

    def is_recent_offender(self, node: str, now_ns: int) -> bool:
        """Whether a rank on it was blamed in the last hour."""
        at_ns = self._blamed_ns.get(node)
        return at_ns is not None and now_ns - at_ns <= _OFFENDER_NS
