"""What a host sees of one of its flows: how late probes come on the paths to its receiver, and whether it pauses. Pure.

PLB and Hopper go by round trips. A round here is a receiver's report of 100 ms, the least that tells of several probes.
A full queue of the lab takes 24 ms at 100 Mb/s and 48 ms at 50, so a round is some round trips.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from foliot_schemas import Witness
from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from foliot_schemas import DelayBatch

QUEUE_NS = 10_000_000
"""The delay above the least at which a path counts as congested, as ECN marks above a length of queue. A flow alone
makes less: what waits in the queue of its own NIC is stamped when it leaves, and a burst of 64 KiB takes 10 ms at 50
Mb/s. Of four flows alone on a busy machine, 99 of 100 rounds had less than 5.6 ms. At 2.5 ms such flows moved. Two that
share a link hold 16 to 24 ms of queue at 100 Mb/s, and twice that at 50."""
_MEAN_NS = 1_000_000_000
"""The time constant of the moving averages. With five probes a second, one that met an empty queue lowers the average
of a full one by 18 %: a break between two steps makes no path seem clearly better, which is 20 %."""

_path_of = functools.cache(parse_path)


class Heard(NamedTuple):
    """The last report on a path that had a delay in it."""

    reported_ns: int
    """When it came."""
    delay_ns: int
    """The median one-way delay of the probes in it."""
    least_ns: int
    """The least one-way delay that was ever seen on the path."""
    mean_ns: float
    """The moving average of the medians, over the same time however often the path is probed."""

    def then(self, now_ns: int, delay_ns: int, least_ns: int) -> Heard:
        """The same with the next report."""
        weight = -math.expm1((self.reported_ns - now_ns) / _MEAN_NS)
        mean_ns = self.mean_ns + weight * (delay_ns - self.mean_ns)
        return Heard(now_ns, delay_ns, min(self.least_ns, least_ns), mean_ns)

    @property
    def is_congested(self) -> bool:
        """Whether half of the probes or more waited in a queue."""
        return self.delay_ns - self.least_ns >= QUEUE_NS


class Sight(NamedTuple):
    """One flow in one round."""

    now_ns: int
    present: int
    """The entropy that carries it."""
    heard: Mapping[int, Heard]
    """By entropy, the paths from its sender to its receiver."""
    others: tuple[int, ...]
    """The other entropies whose paths are up and were heard a moment ago."""
    pauses: bool
    """Whether it had nothing on its way for a round or more of its sender's last word."""

    @property
    def round(self) -> Heard | None:
        """The present path in this round; None: no probe says anything of it."""
        heard = self.heard.get(self.present)
        return heard if heard is not None and heard.reported_ns == self.now_ns else None


class HostPolicy(Protocol):
    """Decides on one flow, by what its sender sees."""

    def decide(self, seen: Sight) -> int | None:
        """The entropy to which the flow moves now; None: it stays."""


class Delays:
    """The last delay of each path of the fleet, and the least. A host asks for those of its own paths alone.

    The clocks of a trial are not stepped, so the least counts from its beginning on.
    """

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], dict[int, Heard]] = {}
        """By source and destination NIC, and by entropy."""

    def take(self, batch: DelayBatch, now_ns: int) -> None:
        """Takes what a receiver reports.

        Raises:
            ValueError: the batch does not fit together.
        """
        rows = batch.rows()
        told = rows[(rows["witness"] == Witness.DESTINATION) & (rows["median_ns"] > 0)]
        for place, delay_ns, least_ns in zip(
            told["path"].tolist(), told["median_ns"].tolist(), told["least_ns"].tolist(), strict=True
        ):
            path = _path_of(batch.paths[place])
            paths = self._heard.setdefault((path.source, path.destination), {})
            known = paths.get(path.entropy)
            paths[path.entropy] = (
                Heard(now_ns, delay_ns, least_ns, delay_ns) if known is None else known.then(now_ns, delay_ns, least_ns)
            )

    def between(self, source: str, destination: str) -> Mapping[int, Heard]:
        """By entropy, what was heard on the paths from one NIC to another."""
        return self._heard.get((source, destination), {})

    def forget(self, nics: Collection[str]) -> None:
        """Forgets NICs that have left the fleet."""
        for ends in [ends for ends in self._heard if not {*ends}.isdisjoint(nics)]:
            del self._heard[ends]
