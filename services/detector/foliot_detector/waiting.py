"""Claims that wait: which of them are to be looked at now. In a storm thousands wait, and news of a node concerns a few."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_detector.claim import Claim


class Waiting:
    """Per path at most one claim. The order of what it returns follows from the order of the calls alone."""

    def __init__(self) -> None:
        self.claims: dict[int, Claim] = {}
        self._of_node: dict[str, dict[int, None]] = {}
        """Per node, the paths that begin or end there, of those claims."""
        self._new: dict[int, None] = {}
        self._timed: list[tuple[int, int]] = []
        """A heap: when to look at a path, and which. Some are gone, or were looked at since."""

    def add(self, claim: Claim) -> None:
        """To be looked at next time."""
        self.claims[claim.path_id] = claim
        for node in (claim.sender, claim.receiver):
            self._of_node.setdefault(node, {})[claim.path_id] = None
        self._new[claim.path_id] = None

    def remove(self, path_id: int) -> None:
        """It was decided, or is void."""
        claim = self.claims.pop(path_id)
        self._new.pop(path_id, None)
        for node in {claim.sender: None, claim.receiver: None}:
            paths = self._of_node[node]
            del paths[path_id]
            if not paths:
                del self._of_node[node]

    def due(self, now_ns: int, nodes: Iterable[str]) -> list[Claim]:
        """Those that are new, or whose time has come, or that news of these nodes may decide."""
        due, self._new = self._new, {}
        while self._timed and self._timed[0][0] <= now_ns:
            due[heapq.heappop(self._timed)[1]] = None
        for node in nodes:
            for path_id in self._of_node.get(node, ()):
                if self.claims[path_id].rest_ns <= now_ns:
                    due[path_id] = None
        return [self.claims[path_id] for path_id in due if path_id in self.claims]

    def look_again(self, claim: Claim) -> None:
        """It could not be decided: at the time that the claim names, if it names one."""
        if claim.look_ns > claim.timed_ns:
            claim.timed_ns = claim.look_ns
            heapq.heappush(self._timed, (claim.look_ns, claim.path_id))
