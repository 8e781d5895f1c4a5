"""What each link carries of the flows that are told, and the best that it carried before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown
from foliot_detector.core.detectors.contention.link_index import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable

_S = 1_000_000_000
_ROUNDS = 6
"""A link carried what it did for so many rounds, of a quarter of a second, without a break. Senders tell of the same
time up to half a second apart."""
_MEMORY_NS = 600 * _S
FELL = 0.7
"""A place whose flows together get less than this share of what it carried at best carries less than it did."""
_MORE = 1.15
"""A full link that seems to carry more than this times its best does not: what is told of its flows is wrong. Nor is it
true of flows that one NIC receives, if they are more than this times what its port counts."""
_DISPUTED_NS = 10 * _S
"""After so long, it does carry more: somebody made it faster."""


class LinkLoads:
    """Columns by link, in bits a second."""

    def __init__(self) -> None:
        self.carried = np.zeros(0)
        self._rounds = np.zeros((_ROUNDS, 0))
        self._best = np.zeros((0, 2))
        self._is_full = np.zeros(0, np.bool_)
        """Whether its queue stood while it was at its best."""
        self._counted = np.zeros(0)
        """Of a link that enters a NIC, what that one's port counts lately; inf: it does not say."""
        self._disputed: dict[int, int] = {}
        """Full links that seem to carry more than they can, and since when."""
        self._round = 0
        self._turn_ns = 0

    def look(self, flows: FlowTable, links: int, now_ns: int) -> None:
        """Adds up what flows carry now over so many links."""
        self._rounds = np.concatenate([self._rounds, np.zeros((_ROUNDS, links - self._rounds.shape[1]))], axis=1)
        self._best, self._is_full = grown(self._best, links), grown(self._is_full, links)
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + _MEMORY_NS
            self._best[:, 1] = self._best[:, 0]
            self._best[:, 0] = 0.0
        self.carried = _sums(flows, flows.is_active, flows.rate, links)
        # Nothing is learnt of a link whose flows are not all known: it is as if it carried nothing.
        unknown = _sums(flows, flows.is_unknown, np.ones(len(flows.rate)), links) > 0
        self._round = (self._round + 1) % _ROUNDS
        self._rounds[self._round] = np.where(unknown, 0.0, self.carried)
        steady = self._rounds.min(axis=0)
        for link, since_ns in self._disputed.items():
            if now_ns - since_ns < _DISPUTED_NS:
                steady[link] = 0.0
        steady[self._contradicted(flows, links)] = 0.0
        self._best[:, 0] = np.maximum(self._best[:, 0], steady)

    def count(self, link: int, bps: float) -> None:
        """Takes what a NIC's port counts as received; `link` enters that NIC."""
        self._counted = grown(self._counted, link + 1, np.inf)
        self._counted[link] = bps

    def best(self, link: int) -> float:
        """The most that a link carried in the last ten to twenty minutes; 0: nothing is known."""
        return float(self._best[link].max()) if 0 <= link < len(self._best) else 0.0

    def bests(self, links: NDArray[np.int32]) -> NDArray[np.float64]:
        """As `best`, of many."""
        return np.where(links >= 0, self._best[links].max(axis=1), 0.0)

    def forget(self, link: int) -> None:
        """Forgets a link; one that is not known yet, too."""
        self._disputed.pop(link, None)
        if link < len(self._best):
            self._best[link], self._is_full[link], self._rounds[:, link] = 0.0, False, 0.0
        if link < len(self._counted):
            self._counted[link] = np.inf

    def all_bests(self) -> NDArray[np.float64]:
        """As `best`, of all links."""
        best: NDArray[np.float64] = self._best.max(axis=1)
        return best

    def fill(self, link: int, now_ns: int) -> bool:
        """Takes it that a link's queue stands. Returns whether what it carries can be true."""
        best = self.best(link)
        if self._is_full[link] and self.carried[link] > _MORE * best:
            since_ns = self._disputed.setdefault(link, now_ns)
            return now_ns - since_ns >= _DISPUTED_NS
        self._disputed.pop(link, None)
        rounds = self._rounds[:, link]
        # While a flow only begins, its link is not full yet.
        self._is_full[link] |= rounds.min() > max(rounds.max(), best) / _MORE
        return True

    def _contradicted(self, flows: FlowTable, links: int) -> NDArray[np.int32]:
        """The links of flows that are told to bring a NIC more than its port counts: one end's word is wrong.

        Rounds are averaged, as both ends tell of other moments.
        """
        self._counted = grown(self._counted, links, np.inf)
        is_over = np.append(self._rounds.mean(axis=0) > _MORE * self._counted, [False])  # the last is for no link
        crossed = flows.links[flows.is_active]
        named = (crossed != NONE) & is_over[crossed].any(axis=1, keepdims=True)
        return np.asarray(crossed[named])


def _sums(flows: FlowTable, chosen: NDArray[np.bool_], weights: NDArray[np.float64], links: int) -> NDArray[np.float64]:
    """Per link, the sum of the weights of chosen flows that cross it."""
    rows = np.flatnonzero(chosen)
    crossed = flows.links[rows]
    named = crossed != NONE
    each = np.broadcast_to(weights[rows, None], crossed.shape)
    return np.bincount(crossed[named], each[named], minlength=links).astype(np.float64)
