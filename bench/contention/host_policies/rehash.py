"""PLB: a flow that sees congestion for some rounds in a row takes another way by chance.

An extension, which the remediator of a trial loads.

Source: M. Qureshi and others, "PLB: congestion signals are simple and effective for network load balancing", SIGCOMM
2022; Linux, net/ipv4/tcp_plb.c, with the defaults of its settings. A round is congested if half of its packets are
marked (``tcp_plb_cong_thresh`` 128 of 256): here if the median of its probes waited in a queue, as no router of the lab
marks packets. A timeout of retransmission suspends PLB for one to two minutes, see `remedy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from bench.contention.host_policies.sight import Sight

_ROUNDS = 12
"""``tcp_plb_rehash_rounds``: congested rounds in a row after which a flow moves whatever it has on its way."""
_PAUSING_ROUNDS = 3
"""``tcp_plb_idle_rehash_rounds``: those after which it moves when it pauses, as no packets are overtaken then."""


class Rehash:
    """See `HostPolicy`.

    Parameters:
        chance: draws the new way.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._congested = 0
        """Congested rounds in a row. Those without a probe do not count."""

    def decide(self, seen: Sight) -> int | None:
        """See `HostPolicy`. A way that is drawn may be the same over the fabric, or as full."""
        if (heard := seen.round) is None:
            return None
        self._congested = self._congested + 1 if heard.is_congested else 0
        if self._congested < (_PAUSING_ROUNDS if seen.pauses else _ROUNDS) or not seen.others:
            return None
        self._congested = 0
        return self._chance.choice(seen.others)


def extend(service: str) -> None:
    """The remediator gives the orders of all hosts. No other service has a part in it."""
    if service == "remediator":
        from bench.contention.host_policies.remedy import register  # noqa: PLC0415 - no other service has its package

        register("rehash", Rehash)
