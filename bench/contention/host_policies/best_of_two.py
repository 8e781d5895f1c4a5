"""Hopper: a flow on a congested path compares it with two others, and takes the better one if that is clearly better.

An extension, which the remediator of a trial loads.

Source: E. Nosrati and M. Ghaderi, "Hopper", arXiv 2506.08132 (2025), for RDMA: a moving average of the round trip, two
paths drawn by chance that are probed once it is 1.5 times its base, and a switch to the better one where that has less
than 0.8 of it. Here the one-way delay of probes takes the place of the round trip: it has no queue of the way back in
it. What is known of other paths is half a second old, and jobs have breaks. So averages are compared on both sides, and
a flow that has moved rests. Hopper also waits with the switch, so that fewer packets are overtaken. TCP bears that, and
a route changes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.contention.host_policies.sight import QUEUE_NS

if TYPE_CHECKING:
    import random

    from bench.contention.host_policies.sight import Sight

_PROBED_AT = 1.5
"""Of the least delay. The least of the lab's paths is less than what a busy machine is late by, so there has to be a
queue as well."""
_BETTER = 0.8
_CHOICES = 2
_ANSWER_NS = 1_000_000_000
"""By then a path that is probed five times a second has been heard. Of those that were not, nothing is expected."""
_REST_NS = 1_000_000_000
"""After a move, a flow stays for one to two of these: by then the averages tell of the move, and of those of others.
Without averages and rests, and with a fourth of the queue, each flow moved twice a second (one run, a busy machine)."""


class BestOfTwo:
    """See `HostPolicy`.

    Parameters:
        chance: draws the paths to compare, and how long a flow rests.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._present = -1
        self._drawn: tuple[int, ...] = ()
        self._drawn_ns = 0
        self._rests_until_ns = 0

    def decide(self, seen: Sight) -> int | None:
        """See `HostPolicy`. A path that is drawn counts once something more is reported of it."""
        if seen.present != self._present:
            self._present, self._drawn = seen.present, ()
        mean_ns = _congested_ns(seen)
        if mean_ns is None or seen.now_ns < self._rests_until_ns:
            self._drawn = ()
            return None
        if not self._drawn:
            self._drawn = tuple(self._chance.sample(seen.others, min(_CHOICES, len(seen.others))))
            self._drawn_ns = seen.now_ns
            return None
        heard = ((seen.heard.get(entropy), entropy) for entropy in self._drawn)
        means = [(each.mean_ns, entropy) for each, entropy in heard if each and each.reported_ns > self._drawn_ns]
        if len(means) < len(self._drawn) and seen.now_ns - self._drawn_ns < _ANSWER_NS:
            return None
        self._drawn = ()
        least_ns, best = min(means, default=(0.0, -1))
        if best not in seen.others or least_ns >= _BETTER * mean_ns:
            return None
        self._rests_until_ns = seen.now_ns + round(_REST_NS * self._chance.uniform(1, 2))
        return best


def _congested_ns(seen: Sight) -> float | None:
    """The moving average of the delay on the present path, if that is congested."""
    present = seen.heard.get(seen.present)
    if present is None or present.mean_ns < max(_PROBED_AT * present.least_ns, present.least_ns + QUEUE_NS):
        return None
    return present.mean_ns


def extend(service: str) -> None:
    """The remediator gives the orders of all hosts. No other service has a part in it."""
    if service == "remediator":
        from bench.contention.host_policies.remedy import register  # noqa: PLC0415 - no other service has its package

        register("best-of-two", BestOfTwo)
