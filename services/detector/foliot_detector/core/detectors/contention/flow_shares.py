"""What each flow at a place gets of what it could get."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.flow_table import FlowTable
    from foliot_detector.core.detectors.contention.link_loads import LinkLoads

BETTER = 1.1
"""A flow that never got more than this times its rate has no better rate of its own to be held against."""
_SMALL = 0.25
"""Where only others tell what a flow could get, one with less than this share of an even part does not want more: TCP
shares a queue by less than that."""


class FlowShares(NamedTuple):
    """Columns by flow, shape (flows)."""

    rows: NDArray[np.intp]
    could_bps: NDArray[np.float64]
    share: NDArray[np.float64]
    has_better: NDArray[np.bool_]
    """Whether the flow itself got more than now."""


def flow_shares(
    flows: FlowTable, loads: LinkLoads, rows: NDArray[np.intp], members: NDArray[np.intp], carried_bps: float
) -> FlowShares:
    """What each of these flows gets, where the members share a place that carries so much.

    A flow could get what it got before. One that never got more could get what its NIC carried, evenly shared there, or
    what the place carries, evenly shared among the flows of its NIC. None could get more than the place carries.
    """
    rate, own, source = flows.rate[rows], flows.best[rows].max(axis=1), flows.source[rows]
    has_better = own > BETTER * rate
    # A NIC that carried more than now could do so again; else its queue would be the place.
    best = loads.bests(source)
    has_room = best > BETTER * np.where(source >= 0, loads.carried[source], 0.0)
    beside = _count(flows.source[flows.is_limited], source)
    of_nic = np.where(has_room, best / np.maximum(beside, 1), np.inf)
    of_place = carried_bps / np.maximum(_count(flows.source[members], source), 1)
    wants_more = rate >= _SMALL * carried_bps / max(len(members), 1)
    guessed = np.where(wants_more, np.minimum(of_nic, of_place), rate)
    could = np.minimum(np.where(has_better, own, guessed), carried_bps)
    return FlowShares(rows, could, rate / np.maximum(could, 1.0), has_better)


def _count(of: NDArray[np.int32], nics: NDArray[np.int32]) -> NDArray[np.intp]:
    """How many of some flows leave each of these NICs."""
    return np.array([np.count_nonzero(of == nic) for nic in nics.tolist()], np.intp)
