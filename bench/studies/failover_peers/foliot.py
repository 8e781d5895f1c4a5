"""Foliot itself, in the lab that it runs in, under the same faults as its peers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bench.studies.clock_peers.counting import Counters
from bench.studies.failover_peers import flowing
from bench.studies.failover_peers.rows import Row, ms
from bench.studies.failover_peers.stage import until
from foliot_schemas.event_kinds import is_relief
from foliot_schemas.inventory import OVERLAY_PORT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.studies.failover_peers.rows import Coverage
    from bench.studies.failover_peers.stage import Cut, Stage
    from foliot_lab.measure.bus_recorder import Collector
    from foliot_lab.measure.wire_witness import Witness

_BEFORE_S = 0.2
_SEEN_S = 0.15
_PATIENCE_S = 4.0
_COUNTED_S = 1.0


class Foliot:
    """A lab's services.

    Parameters:
        witness: of the lab's service addresses.
        collector: of the services' messages.
        home: returns when all traffic is where it was and every backup armed.
    """

    name = "foliot"

    def __init__(
        self, stage: Stage, witness: Witness, collector: Collector, home: Callable[[], Awaitable[None]]
    ) -> None:
        self._stage, self._witness, self._collector, self._home = stage, witness, collector, home
        self._packets_per_s = 0.0

    async def start(self) -> None:
        """Counts its packets; it runs already. Probes travel through the overlay."""
        await self._home()
        fabric = self._stage.fabric
        doors = [(fabric.namespace(link.far.owner), link.far.device) for link in fabric.plan.nics]
        with contextlib.closing(Counters(doors, {self.name: (OVERLAY_PORT,)})) as counters:
            counters.take()
            await asyncio.sleep(_COUNTED_S)
            self._packets_per_s = counters.take()[self.name] / _COUNTED_S / len(doors)

    async def measure(self, cut: Cut, rep: int) -> Row:
        """Measures the event's time, and the time from which the traffic that the fault stopped flowed again."""
        plan, witness = self._stage.fabric.plan, self._witness
        watch, heard = witness.arm(flowing.pairs(cut, plan)), len(self._collector.events)
        await asyncio.sleep(_BEFORE_S)
        injected_ns = self._stage.time.now_ns()
        cut.action.inject()
        try:
            await asyncio.sleep(_SEEN_S)
            await until(lambda: flowing.over(flowing.of_pulses(witness.look(watch), injected_ns)), _PATIENCE_S)
            silences = flowing.of_pulses(witness.look(watch), injected_ns)
        finally:
            cut.action.heal()
            witness.disarm(watch)
        told = [each.at_ns for each in self._collector.events[heard:] if not is_relief(each.message)]
        bare = Row(
            variant=cut.variant, where=cut.where, tool=self.name, rep=rep,
            detect_ms=ms(injected_ns, min(told, default=None)), packets_per_s=round(self._packets_per_s, 1),
        )  # fmt: skip
        await self._home()
        return flowing.row(bare, silences, injected_ns, cut, plan)

    async def stop(self) -> None:
        """Does nothing: Foliot runs on."""

    def coverage(self) -> Coverage | None:
        """The coverage of Foliot, which probes every path."""
        return None
