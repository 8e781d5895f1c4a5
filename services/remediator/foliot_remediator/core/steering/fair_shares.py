"""The rate of every flow where each link is shared fairly: max-min fairness, by progressive filling.

Source: D. Bertsekas, R. Gallager, Data Networks, 2nd edition, 1992, section 6.5.2. Long TCP flows of like round trips
come near it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEAR = 1e-9
"""Relative difference below which two shares count as equal: far above what the sums round, far below any link's."""


def fair_shares(
    links: NDArray[np.intp], capacity_bps: NDArray[np.float64], demand_bps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rates, bits/s, shape (flows,).

    All flows' rates rise together. A flow stops at its demand, or where one of its links is full.

    Parameters:
        links: the links of each flow, shape (flows, hops); -1 for no link.
        capacity_bps: of each link, shape (links,).
        demand_bps: the most that each flow can use, shape (flows,).
    """
    count = len(capacity_bps)
    places = np.where(links < 0, count, links)
    left = np.append(capacity_bps, np.inf)
    flows = np.bincount(places.ravel(), minlength=count + 1)
    rates = demand_bps.astype(np.float64)
    open_flows = np.arange(len(links))
    while len(open_flows):
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(flows[:count] > 0, left[:count] / flows[:count], np.inf)
        share = np.append(share, np.inf)
        tightest = share[places[open_flows]].min(axis=1)
        level = min(tightest.min(), demand_bps[open_flows].min())
        done = (tightest <= level * (1 + _NEAR)) | (demand_bps[open_flows] <= level * (1 + _NEAR))
        stopped = open_flows[done]
        rates[stopped] = level
        ended = places[stopped].ravel()
        flows -= np.bincount(ended, minlength=count + 1)
        left -= level * np.bincount(ended, minlength=count + 1)
        np.maximum(left, 0.0, out=left)
        open_flows = open_flows[~done]
    return rates
