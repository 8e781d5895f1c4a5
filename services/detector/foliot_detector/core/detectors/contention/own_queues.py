"""Queues of senders' own NICs, which no probe shows: what flows' round trips have above the delays of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown
from foliot_detector.core.detectors.contention.hot_places import Place
from foliot_detector.core.detectors.contention.link_loads import FELL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable
    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.link_loads import LinkLoads
    from foliot_detector.core.detectors.contention.path_queues import PathQueues

_HOSTS_NS = 200_000.0
"""What two hosts add to a round trip without a queue: their stacks, and a receiver that acknowledges several segments at
once. A sender's kernel lets a flow keep a millisecond of data at least in the queue of its NIC (`sk_pacing_shift`)."""
_BULK = 0.5
"""A flow's hot place is its own NIC if it waits there for so much of its round trip: as much as on all the way. Round
trips and probes are of different moments, so they differ by some of that where no queue is."""
_FULL = 0.85
"""A NIC with this share of what it could carry is full. It is one node that tells of all its flows, at one time."""
_STEADY = 0.9
"""From this share on, a NIC shows how long its queue usually is."""
_AS_LONG = 0.7
"""The queue of a NIC that has become slower is no shorter, in time, than it was. It varies by so much. A flow that loses
packets leaves it shorter, and so does one whose host has no time for it."""
_LEARN = 0.2
"""Weight of the newest wait in the usual one: some seconds count."""


class OwnQueues:
    """Columns by link, of which those have a value that leave a NIC.

    A kernel stamps a probe after the queue of its NIC, as it is the driver that does so (`skb_tx_timestamp`). TCP times
    a segment from before. That rests on a sender's word of its own flows, and makes a place of its own NIC alone.
    """

    def __init__(self, queues: PathQueues, links: LinkIndex, flows: FlowTable, loads: LinkLoads) -> None:
        self._queues = queues
        self._links = links
        self._flows = flows
        self._loads = loads
        self._least_ns = np.inf
        """The least wait that counts."""
        self._wait_ns = np.zeros(0)
        """What all flows wait that the network limits; inf: there is none, NaN: of none the delays are known."""
        self._stands = np.zeros(0, np.bool_)
        """Whether the wait counts, and what the NIC carries explains it."""
        self._usual_ns = np.zeros(0)
        """The wait while the NIC carried its best; 0: not known."""
        self._usual_bps = np.zeros(0)
        """The best of that time."""

    def look(self, least_ns: float) -> None:
        """Finds the queues of this moment.

        Parameters:
            least_ns: the least delay of a probe that counts as a queue.
        """
        flows, carried, best = self._flows, self._loads.carried, self._loads.all_bests()
        self._least_ns = _HOSTS_NS + 2 * least_ns
        self._usual_ns, self._usual_bps = grown(self._usual_ns, len(best)), grown(self._usual_bps, len(best))
        # How long the queue is of a NIC that carries more than ever is another matter.
        self._usual_ns[_STEADY * best > self._usual_bps] = 0.0
        rows = np.flatnonzero(flows.is_active & (flows.source >= 0))
        waits_ns = self._waits_ns(rows)
        longest_ns = np.zeros(len(best))
        np.fmax.at(longest_ns, flows.source[rows], waits_ns)
        rows, waits_ns = rows[flows.is_limited[rows]], waits_ns[flows.is_limited[rows]]
        source, end = flows.source[rows], flows.end[rows]
        # Acknowledgements may wait at the other end's own NIC. Then nobody knows at which of the two it was.
        is_clear = (end < 0) | (longest_ns[end] < self._least_ns)
        self._wait_ns = _least(source, waits_ns, len(best))
        clear_ns = _least(source[is_clear], waits_ns[is_clear], len(best))
        # It was here as well if this NIC carries as much as that one did: NICs are taken to be alike.
        could = best.copy()
        np.maximum.at(could, source[~is_clear], best[end[~is_clear]])
        is_known = np.isfinite(clear_ns)
        # A NIC that showed no queue while it carried its best shows none by which it could be slower.
        is_slower = self._have_fallen(rows) & is_known & (self._usual_ns >= self._least_ns)
        is_slower &= clear_ns >= _AS_LONG * self._usual_ns
        is_long = np.isfinite(self._wait_ns) & (self._wait_ns >= self._least_ns)
        self._stands = is_long & ((carried >= _FULL * could) | is_slower)
        self._learn(is_known & (carried >= _STEADY * best), clear_ns, best)

    def hold(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Marks those of these flows whose hot place is their own NIC."""
        source = self._flows.source[rows]
        held = np.zeros(len(rows), np.bool_)
        known = np.flatnonzero(source >= 0)
        links = source[known]
        held[known] = self._stands[links] & (self._wait_ns[links] >= _BULK * self._flows.rtt_ns[rows[known]])
        return held

    def place(self, link: int) -> Place:
        """The place of a NIC's queue, by the link that leaves it."""
        return Place((link,), float(self._wait_ns[link]), len(self._links.crossing(link)))

    def stands(self, link: int) -> bool:
        """Whether a queue that counts stands before a link."""
        return bool(link < len(self._stands) and self._stands[link])

    def is_drained(self, link: int) -> bool:
        """Whether nothing waits at a link for longer than hosts take anyway, however much all delays vary."""
        wait_ns = self._wait_ns[link] if link < len(self._wait_ns) else np.inf
        return bool(wait_ns == np.inf or wait_ns < _HOSTS_NS)

    def _waits_ns(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """What flows' round trips have above the delays of probes there and back; NaN: these are not known."""
        flows, queues = self._flows, self._queues
        rtt_ns = np.where(flows.rtt_ns[rows] > 0, flows.rtt_ns[rows], np.nan)
        probed_ns = queues.longest_ns(flows.path[rows]) + queues.longest_ns(flows.back[rows])
        # An error of the clocks adds in one direction what it takes in the other. A sum below 0 is nobody's delay.
        return rtt_ns - np.maximum(probed_ns, 0.0)

    def _have_fallen(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """The links that carry less than they did, and not because one of these flows loses packets."""
        has_fallen: NDArray[np.bool_] = self._loads.carried < FELL * self._loads.all_bests()
        has_fallen[self._flows.source[rows[self._flows.has_lost[rows]]]] = False
        return has_fallen

    def _learn(self, links: NDArray[np.bool_], wait_ns: NDArray[np.float64], best: NDArray[np.float64]) -> None:
        usual_ns, now_ns = self._usual_ns[links], wait_ns[links]
        self._usual_ns[links] = np.where(usual_ns > 0, usual_ns + _LEARN * (now_ns - usual_ns), now_ns)
        self._usual_bps[links] = best[links]


def _least(links: NDArray[np.int32], waits_ns: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The least wait by link; inf: there is none, NaN: none is known."""
    least_ns = np.full(count, np.inf)
    np.fmin.at(least_ns, links, waits_ns)
    unknown = links[np.isnan(waits_ns)]
    least_ns[unknown[np.isinf(least_ns[unknown])]] = np.nan
    return least_ns
