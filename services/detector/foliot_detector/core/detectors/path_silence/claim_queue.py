"""Claims that wait, and which of them to look at now. In a storm thousands wait, and news of a node concerns a few."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_detector.core.detectors.path_silence.claim import Claim


class ClaimQueue:
    """Per path at most one claim. The order of what it returns follows from the order of the calls alone."""

    def __init__(self) -> None:
        self.claims: dict[int, Claim] = {}
        self._of_node: dict[str, dict[int, None]] = {}
        """Per node, the paths that begin or end there and whose claims news may decide."""
        self._of_nic: dict[str, dict[int, None]] = {}
        """Per NIC whose port is down, the paths of those that wait for it."""
        self._new: dict[int, None] = {}
        self._timed: list[tuple[int, int]] = []
        """A heap: when to look at a path, and which. Some are gone, or were looked at since."""

    def add(self, claim: Claim) -> None:
        """Adds a claim, to be looked at next time."""
        self.claims[claim.path_id] = claim
        self._enter(claim)
        self._new[claim.path_id] = None

    def remove(self, path_id: int) -> None:
        """Removes a claim that was decided or is void."""
        claim = self.claims.pop(path_id)
        self._new.pop(path_id, None)
        self._leave(claim)

    def due(self, now_ns: int, nodes: Iterable[str], nics: Iterable[str] = ()) -> list[Claim]:
        """The claims to look at now: new, due by their time, or such as these nodes' or NICs' news may decide."""
        due, self._new = self._new, {}
        while self._timed and self._timed[0][0] <= now_ns:
            due[heapq.heappop(self._timed)[1]] = None
        for nic in nics:
            for path_id in tuple(self._of_nic.get(nic, ())):
                self._move(self.claims[path_id], "")
                due[path_id] = None
        for node in nodes:
            for path_id in self._of_node.get(node, ()):
                if self.claims[path_id].rest_ns <= now_ns:
                    due[path_id] = None
        return [self.claims[path_id] for path_id in due if path_id in self.claims]

    def look_again(self, claim: Claim) -> None:
        """Keeps a claim that could not be decided, until the time or port's return that it names, if it names any."""
        self._move(claim, claim.down)
        if claim.look_ns > claim.timed_ns:
            claim.timed_ns = claim.look_ns
            heapq.heappush(self._timed, (claim.look_ns, claim.path_id))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _move(self, claim: Claim, nic: str) -> None:
        """Makes a claim wait for the port of a NIC or, without one, for news of its nodes."""
        if claim.waits_for != nic:
            self._leave(claim)
            claim.waits_for = nic
            self._enter(claim)

    def _indexes(self, claim: Claim) -> list[tuple[dict[str, dict[int, None]], str]]:
        if claim.waits_for:
            return [(self._of_nic, claim.waits_for)]
        return [(self._of_node, node) for node in {claim.sender: None, claim.receiver: None}]

    def _enter(self, claim: Claim) -> None:
        for index, name in self._indexes(claim):
            index.setdefault(name, {})[claim.path_id] = None

    def _leave(self, claim: Claim) -> None:
        for index, name in self._indexes(claim):
            paths = index[name]
            del paths[claim.path_id]
            if not paths:
                del index[name]
