"""What probes tell of the round trips of flows, and of the delays of the paths that these are said to take."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from foliot_detector.core.state.ways import Ways
from foliot_schemas import NodePaths, Witness
from foliot_schemas.subjects import DELAY, FLOW, PATHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from foliot.bus.client import Bus
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_lab.scenario.spec import Over
    from foliot_schemas import DelayBatch, FlowBatch

_FRESH_NS = 1_000_000_000
"""A delay that is older says nothing of a round trip now."""
_NEVER = 0, 0
_KEPT = 20_000
"""Words of a flow that are kept: some three hours of them."""


class Told(NamedTuple):
    """A word of a flow, with the delays of its path then."""

    at_ns: int
    """Arrival, as lab time."""
    in_band_us: float
    """Its smoothed round trip."""
    out_of_band_us: float | None
    """The medians of its path's probes in the latest reports, there and back; None: nobody has told of both."""


class ToldDelays:
    """Round trips and delays by flow."""

    def __init__(self, lab: LabTime) -> None:
        self._lab = lab
        self._ways = Ways()
        self._medians: dict[str, tuple[int, int]] = {}
        """By path that a flow takes, when it was told last, and its median delay."""
        self._told: collections.defaultdict[tuple[str, Over], collections.deque[Told]] = collections.defaultdict(
            functools.partial(collections.deque, maxlen=_KEPT)
        )

    async def follow(self, bus: Bus) -> None:
        """Begins to listen."""
        await bus.watch(PATHS, self.paths)
        await bus.subscribe(DELAY, self.delays)
        await bus.subscribe(FLOW, self.flows)

    async def paths(self, node: str, paths: NodePaths | None) -> None:
        """Takes which ways a node's traffic is said to take."""
        self._ways.take(NodePaths(node=node, lease_revision=0) if paths is None else paths, self._lab.now_ns())

    async def delays(self, batch: DelayBatch, _subject: str = "") -> None:
        """Takes what a node tells of delays."""
        now_ns, rows = self._lab.now_ns(), batch.rows()
        heard = rows[(rows["witness"] == Witness.DESTINATION) & (rows["median_ns"] != 0)]
        for number, median_ns in zip(heard["path"].tolist(), heard["median_ns"].tolist(), strict=True):
            if batch.paths[number] in self._medians:
                self._medians[batch.paths[number]] = now_ns, median_ns

    async def flows(self, batch: FlowBatch, _subject: str = "") -> None:
        """Takes what a node tells of its flows."""
        self._take(batch.flows, batch.rows(), "service")
        self._take(batch.nic_flows, batch.nic_rows(), "nic")

    def of(self, flow: str, over: Over) -> Sequence[Told]:
        """What was told of a flow by its name on the bus, in its order.

        Flows between the same addresses are told together.
        """
        return tuple(self._told.get((flow, over), ()))

    def _take(self, flows: tuple[str, ...], rows: NDArray[Any], over: Over) -> None:
        now_ns = self._lab.now_ns()
        for number, rtt_ns in zip(rows["flow"].tolist(), rows["rtt_ns"].tolist(), strict=True):
            if rtt_ns:
                told = Told(now_ns, rtt_ns / 1e3, self._out_of_band_us(flows[number], now_ns))
                self._told[flows[number], over].append(told)

    def _out_of_band_us(self, flow: str, now_ns: int) -> float | None:
        source, _, destination = flow.partition(">")
        paths = [self._ways.path_of(each) for each in (flow, f"{destination}>{source}")]
        latest = [self._medians.setdefault(path, _NEVER) for path in paths]
        is_fresh = all(now_ns - told_ns <= _FRESH_NS for told_ns, _ in latest)
        return sum(median_ns for _, median_ns in latest) / 1e3 if is_fresh else None
