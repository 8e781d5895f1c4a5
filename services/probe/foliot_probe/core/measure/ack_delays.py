"""One-way delays of TCP's own packets, from the stamps of its acknowledgements.

An acknowledgement has the receiver's stamp of when it left, and the sender's of when the data left that it is for. By
one common time, the difference is the delay of the data, and what the receiver waited before it acknowledged.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_US_NS = 1_000
_S_NS = 1_000_000_000
_OLDEST_NS, _NEWEST_NS = 2 * _S_NS, -_S_NS // 20
"""Limits to the age of a stamp when it is read. Others are of milliseconds, or of connections with a number of their own
added. By chance, one such connection in 2,000 looks right for a moment."""
_READS_KEPT = 128
"""The longest interval has a hundred. Where the kernel tells of no connections, nobody takes them."""


class Ends(NamedTuple):
    """The addresses of both ends of a connection, as numbers: this host's and the other one."""

    local: int
    remote: int


class AckDelays:
    """Gathers the delays of an interval."""

    def __init__(self) -> None:
        self._delays: dict[Ends, collections.deque[NDArray[np.int64]]] = {}

    def add(self, acks: NDArray[Any], own_ns: int, others_ns: Mapping[int, int]) -> None:
        """Takes acknowledgements that were just read.

        Parameters:
            acks: of dtype `ack_headers.AckRow`.
            own_ns: CLOCK_MONOTONIC now.
            others_ns: by address, that of the host at the other end in the same moment. Addresses of which it is not
                known are passed over.
        """
        ends = np.stack([acks["local"].astype(np.int64), acks["remote"].astype(np.int64)], axis=1)
        for local, remote in np.unique(ends, axis=0).tolist():
            other_ns = others_ns.get(remote)
            if other_ns is not None:
                chosen = acks[(ends[:, 0] == local) & (ends[:, 1] == remote)]
                delays_ns = _delays_ns(chosen, own_ns, other_ns)
                kept = self._delays.setdefault(Ends(local, remote), collections.deque(maxlen=_READS_KEPT))
                kept.append(delays_ns)

    def take(self) -> dict[Ends, int]:
        """The median delay of the data to each other end since the last call, in ns; never 0."""
        gathered, self._delays = self._delays, {}
        whole = {ends: np.concatenate(kept) for ends, kept in gathered.items()}
        return {ends: round(float(np.median(each_ns))) or 1 for ends, each_ns in whole.items() if len(each_ns)}


def _delays_ns(acks: NDArray[Any], own_ns: int, other_ns: int) -> NDArray[np.int64]:
    sent_ns, acked_ns = _age_ns(acks["sent_us"], own_ns), _age_ns(acks["acked_us"], other_ns)
    are_likely = (sent_ns >= 0) & (sent_ns <= _OLDEST_NS) & (acked_ns >= _NEWEST_NS) & (acked_ns <= _OLDEST_NS)
    chosen: NDArray[np.int64] = (sent_ns - acked_ns)[are_likely]
    return chosen


def _age_ns(stamps_us: NDArray[Any], now_ns: int) -> NDArray[np.int64]:
    """How old stamps are, which have the lowest 32 bits of microseconds alone."""
    now_us, rest_ns = divmod(now_ns, _US_NS)
    ages_us = (np.uint32(now_us & 0xFFFFFFFF) - stamps_us.astype(np.uint32)).view(np.int32)
    return ages_us.astype(np.int64) * _US_NS + rest_ns
