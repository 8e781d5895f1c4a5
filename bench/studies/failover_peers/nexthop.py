"""Linux nexthop groups: every host's routes share a group of its two rails.

The kernel takes a rail that has lost its carrier out of the group. Both rails' fabrics know the way to the hosts'
service addresses. No host announces anything: when a kernel takes a rail out of its host's group, the host's peers go
on as before. Nor does the kernel ever put a rail back. The bench does so when the fault has been healed, and does not
measure it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bench.studies.failover_peers import flowing, routed
from bench.studies.failover_peers.carriers import Carriers
from bench.studies.failover_peers.rows import Row, ms
from bench.studies.failover_peers.settings import Settings
from bench.studies.failover_peers.stage import until
from foliot_lab.fabric.fabric import FabricError, run_batch
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.sysctls import ROUTER
from foliot_lab.measure.outages import End
from foliot_lab.measure.wire_witness import Witness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.studies.failover_peers.rows import Coverage
    from bench.studies.failover_peers.stage import Cut, Stage
    from foliot_lab.measure.outages import Pair, Pulses

_RATE_HZ = 400.0
_PORT = 7953
_BEFORE_S = 0.2
_SEEN_S = 0.15
"""By then every silence of the fault has begun (`foliot_lab.measure.outages.REACH_NS`), and been read."""
_PATIENCE_S = 2.0
_REST_S = 0.2
_HASH = {name: value for name, value in ROUTER.items() if "fib_multipath" in name}


class Nexthops:
    """A nexthop group on every host."""

    name = "nexthop group"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._plan = stage.fabric.plan
        self._settings = Settings()
        self._witness: Witness | None = None
        self._carriers: Carriers | None = None

    async def start(self) -> None:
        """Sets addresses, groups and routes everywhere; then pulses may flow."""
        hosts = {host: self._stage.fabric.host(host) for host in self._plan.hosts}
        for number, namespace in enumerate(hosts.values()):
            # Like routers, each with a hash seed of its own, so that in every run the same flows are on the same rail.
            self._settings.set(namespace, {**_HASH, "net/ipv4/fib_multipath_hash_seed": str(1 + number)})
        self._put()
        ends = {
            End(host, rail): routed.service_address(self._plan, host, rail)
            for host in hosts
            for rail in self._plan.rails
        }
        self._witness = Witness(ends, hosts, self._stage.time, rate_hz=_RATE_HZ, port=_PORT)
        self._carriers = Carriers(hosts.values(), self._stage.time)

    async def measure(self, cut: Cut, rep: int) -> Row:
        """Measures when the traffic that a fault stops flows again."""
        assert self._witness is not None
        assert self._carriers is not None
        witness, watch = self._witness, self._witness.arm(flowing.pairs(cut, self._plan))
        await asyncio.sleep(_BEFORE_S)
        self._carriers.forget()
        injected_ns = self._stage.time.now_ns()
        cut.action.inject()
        try:
            await asyncio.sleep(_SEEN_S)
            # On a busy machine the loss is read late, and no silence may have been seen before.
            await until(lambda: self._is_over(witness.look(watch), injected_ns), _PATIENCE_S)
            silences = flowing.of_pulses(witness.look(watch), injected_ns)
        finally:
            cut.action.heal()
            witness.disarm(watch)
        bare = Row(
            variant=cut.variant, where=cut.where, tool=self.name, rep=rep,
            detect_ms=ms(injected_ns, self._carriers.lost()),
        )  # fmt: skip
        await self._put_back()
        return flowing.row(bare, silences, injected_ns, cut, self._plan)

    def _is_over(self, seen: Mapping[Pair, Pulses], injected_ns: int) -> bool:
        """Whether the kernel has told of the loss, and all streams flow again."""
        assert self._carriers is not None
        return self._carriers.lost() is not None and flowing.over(flowing.of_pulses(seen, injected_ns))

    async def stop(self) -> None:
        """Removes everything."""
        if self._witness is not None:
            self._witness.close()
        if self._carriers is not None:
            self._carriers.close()
        self._witness = self._carriers = None
        for name in routed.lines(self._plan):
            run_batch(self._stage.fabric.namespace(name), IP, routed.UNDO)
        self._settings.put_back()

    def coverage(self) -> Coverage | None:
        """None: nexthop groups have no sessions."""
        return None

    def _put(self) -> None:
        for name, lines in routed.lines(self._plan).items():
            run_batch(self._stage.fabric.namespace(name), IP, lines)

    async def _put_back(self) -> None:
        """Puts back the routes that the kernel removed, as soon as it accepts them.

        Raises:
            FabricError: it does not accept them.
        """

        def put() -> bool:
            try:
                self._put()
            except FabricError:
                return False
            return True

        if not await until(put, _PATIENCE_S):
            self._put()
        await asyncio.sleep(_REST_S)
