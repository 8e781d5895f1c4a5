"""Which silences have one cause, so that they share a trace."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from foliot_schemas.fault import path_fault
from foliot_schemas.names import rail_of

if TYPE_CHECKING:
    from foliot_detector.core.detectors.path_silence.claim import Claim

_BURST_NS = 250_000_000
"""Silences of one rail that began within this have one cause: an interval of the slow sweep, and some."""
_REMEMBERED = 16
"""Bursts per rail: more than can begin before the claims of the first are decided."""


class FaultGrouping:
    """Silences of paths of one rail that began within `_BURST_NS` of the first one decided are taken for one burst.

    Their beginnings count, and not the times of the reports: a path of the slow sweep is found silent long after one in
    use. A rail is the most that one broken link or switch can touch.
    """

    def __init__(self) -> None:
        self._rails: dict[str, collections.deque[tuple[int, str]]] = {}
        """Per rail, when each burst began, on the timeline, and its fault."""

    def join(self, claim: Claim) -> str:
        """The fault that a silence belongs to; that of the path itself where it is the first."""
        grouping = self._rails.setdefault(rail_of(claim.path.source), collections.deque(maxlen=_REMEMBERED))
        for since_here_ns, fault in reversed(grouping):
            if abs(claim.since_here_ns - since_here_ns) <= _BURST_NS:
                return fault
        fault = path_fault(claim.name, claim.since_ns)
        grouping.append((claim.since_here_ns, fault))
        return fault
