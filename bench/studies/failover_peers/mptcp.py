"""The kernel's MPTCP: one connection for each pair of hosts, with a subflow on each rail.

It finds nothing; it repeats unacknowledged bytes. Each host signals its NICs' addresses, and takes up the addresses
that others signal to it. So a connection begun on one rail gets a second subflow on the other. The rails are fabrics of
their own. Packets from one to the other would go by the host's own route anyway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bench.studies.failover_peers import flowing
from bench.studies.failover_peers.rows import Row
from bench.studies.failover_peers.settings import Settings
from bench.studies.failover_peers.stage import PeerError, until
from bench.studies.failover_peers.streams import Streams
from foliot_lab.fabric.fabric import run_batch
from foliot_lab.fabric.iproute import IP

if TYPE_CHECKING:
    from bench.studies.failover_peers.rows import Coverage
    from bench.studies.failover_peers.stage import Cut, Stage

_STEADY_S = 0.5
_WATCHED_S = 4.0
"""The observation of a stream that flows again: it may stall again, until its subflow counts as stale
(net.mptcp.stale_loss_cnt)."""
_PATIENCE_S = 4.0
"""The further time, if a stream is still silent then."""
_JOINED_S = 5.0


class Mptcp:
    """MPTCP on every host."""

    name = "mptcp"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._plan = stage.fabric.plan
        self._settings = Settings()

    async def start(self) -> None:
        """Sets endpoints and limits on every host.

        Raises:
            PeerError: the kernel has no MPTCP.
        """
        more = str(len(self._plan.rails) - 1)
        for host in self._plan.hosts:
            namespace = self._stage.fabric.host(host)
            try:
                self._settings.set(namespace, {"net/mptcp/enabled": "1"})
            except OSError as error:
                raise PeerError(f"this kernel has no MPTCP (CONFIG_MPTCP): {error.strerror}") from error
            endpoints = [
                f"mptcp endpoint add {self._plan.underlay(host, rail)} dev {rail} signal" for rail in self._plan.rails
            ]
            limits = f"mptcp limits set subflows {more} add_addr_accepted {more}"
            run_batch(namespace, IP, ["mptcp endpoint flush", limits, *endpoints])

    async def measure(self, cut: Cut, rep: int) -> Row:
        """Measures the gaps in connections made for this one fault.

        A connection's memory of an earlier fault shall neither help nor hinder it.
        """
        streams = Streams(self._stage)

        def seen() -> list[flowing.Silence]:
            return flowing.concerned(streams.silences(injected_ns), cut, self._plan)

        try:
            await streams.connect()
            if not await until(streams.joined, _JOINED_S):
                raise PeerError(f"not every connection has a subflow on each rail after {_JOINED_S:g} s")
            await asyncio.sleep(_STEADY_S)
            injected_ns = self._stage.time.now_ns()
            cut.action.inject()
            try:
                await asyncio.sleep(_WATCHED_S)
                await until(lambda: flowing.over(seen()), _PATIENCE_S)
                silences = seen()
            finally:
                cut.action.heal()
        finally:
            streams.close()
        bare = Row(variant=cut.variant, where=cut.where, tool=self.name, rep=rep)
        return flowing.row(bare, silences, injected_ns, cut, self._plan)

    async def stop(self) -> None:
        """Removes the endpoints."""
        for host in self._plan.hosts:
            run_batch(
                self._stage.fabric.host(host),
                IP,
                ["mptcp endpoint flush", "mptcp limits set subflows 2 add_addr_accepted 0"],
            )
        self._settings.put_back()

    def coverage(self) -> Coverage | None:
        """None: MPTCP has no sessions."""
        return None
