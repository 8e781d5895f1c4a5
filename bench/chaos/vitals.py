"""Checks whether all parts live and work: processes, nodes, clocks, the lease, the streams, the gateway."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import nats
import nats.errors

from foliot.bus import connection
from foliot_lab.scenario.topology import GATEWAY_PORT
from foliot_schemas.subjects import CLOCK, DELAY, LEASES, STREAMS

if TYPE_CHECKING:
    from foliot_lab.services.lab import Lab
    from foliot_schemas import ClockState, DelayBatch, Lease

_REPORT_S = 0.5
"""Age limit of a report. Nodes report every 100 ms."""
_WINDOW_S = 5.0
"""Age limit of a clock's state. Sync publishes every two seconds."""
_ANSWER_S = 1.0
_RENEWAL_S = 1.0
"""Age limit of the lease. The remediator renews it every 0.4 s."""
_STARTED = {
    "probe": "probe_started", "agent": "agent_ready", "sync": "sync_started", "detector": "detector_started",
    "remediator": "remediator_started",
}  # fmt: skip
"""Log messages of services that have begun their work."""


async def _ignored(_error: Exception) -> None:
    """Ignores the error, because this check looks for a bus that is away."""


class Vitals:
    """Listens to the reports of nodes and sync all the time."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._reported_s: dict[str, float] = {}
        self._clocks: dict[str, tuple[float, ClockState]] = {}
        self._renewed_s = 0.0
        self._starts: dict[str, int] = {}
        self._client = nats.NATS()
        self._streams = self._client.jetstream(timeout=_ANSWER_S)

    async def follow(self) -> None:
        """Begins to listen."""
        await self._lab.bus.subscribe(DELAY, self._on_delays)
        await self._lab.bus.subscribe(CLOCK, self._on_clock)
        await self._lab.bus.watch(LEASES, self._on_lease)
        await connection.establish(self._client, connection.options(self._lab.listener, "vitals"), error_cb=_ignored)

    async def close(self) -> None:
        """Stops listening."""
        await self._client.close()

    def note(self, process: str) -> None:
        """Notes that a process is about to be struck. Its reports so far do not show that it works again."""
        self._starts[process] = self._said(process)

    def idle(self, process: str, returned_s: float, *, restarted: bool) -> list[str]:
        """The work that a process which came back at this time has not done yet."""
        if restarted and process.rpartition("/")[2] in _STARTED and self._said(process) <= self._starts[process]:
            return [f"{process} has not begun its work"]
        silent = [clock for clock, (heard_s, _) in self._clocks.items() if heard_s < returned_s]
        return [f"sync has not spoken of {', '.join(silent)}"] if process == "sync" and silent else []

    async def missing(self) -> list[str]:
        """The parts that are not as they should be, in words; empty if all is well."""
        now_s = time.monotonic()
        dead = [name for name in self._lab.supervisor.names() if not self._lab.supervisor.pid(name)]
        words = [f"not running: {', '.join(dead)}"] if dead else []
        for host in self._lab.plan.hosts:
            if now_s - self._reported_s.get(host, 0.0) > _REPORT_S:
                words.append(f"{host} does not report")
            words += self._clock_trouble(host, now_s)
        if now_s - self._renewed_s > _RENEWAL_S:
            words.append("nobody holds the lease")
        return words or await self._store_trouble() or await self._gateway_trouble()

    async def _store_trouble(self) -> list[str]:
        """A stream without a leader or, in a cluster, with a member that has not caught up.

        The next loss would be one too many.
        """
        for definition in STREAMS:
            try:
                cluster = (await self._streams.stream_info(definition.name)).cluster
            except (nats.errors.Error, OSError, TimeoutError) as error:
                return [f"stream {definition.name}: {str(error) or type(error).__name__}"]
            behind = (
                [each.name for each in (cluster.replicas or ()) if each.offline or not each.current] if cluster else []
            )
            if cluster is not None and (not cluster.leader or behind):
                return [
                    (
                        f"stream {definition.name} is led by {cluster.leader or 'nobody'}; behind: "
                        f"{', '.join(behind) or 'none'}"
                    )
                ]
        return []

    def _said(self, process: str) -> int:
        started = _STARTED.get(process.rpartition("/")[2], "")
        path = self._lab.folder / f"{process.replace('/', '-')}.log"
        return path.read_text(errors="replace").count(f'"{started}"') if started else 0

    def _clock_trouble(self, host: str, now_s: float) -> list[str]:
        heard_s, state = self._clocks.get(host, (0.0, None))
        if state is None or now_s - heard_s > _WINDOW_S:
            return [f"nobody speaks of {host}'s clock"]
        if state.status != "synchronised":
            return [f"{host}'s clock is {state.status}"]
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        error_ns = self._lab.truth.error_ns(host, raw_ns)
        if error_ns is not None and abs(error_ns) > state.hard_bound_at_ns(state.as_of_ns + round(_WINDOW_S * 1e9)):
            return [f"{host}'s clock is {error_ns} ns off, beyond its bound"]
        return []

    async def _gateway_trouble(self) -> list[str]:
        host = self._lab.plan.front("gateway")
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_connection(host, GATEWAY_PORT)
                writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                status = await reader.readline()
                writer.close()
        except (OSError, TimeoutError) as error:
            return [f"the gateway does not answer: {str(error) or type(error).__name__}"]
        return [] if b" 200 " in status else [f"the gateway says {status.decode().strip()}"]

    async def _on_delays(self, batch: DelayBatch, _subject: str) -> None:
        self._reported_s[batch.node] = time.monotonic()

    async def _on_lease(self, _role: str, lease: Lease | None) -> None:
        self._renewed_s = time.monotonic() if lease is not None else 0.0

    async def _on_clock(self, state: ClockState, _subject: str) -> None:
        self._clocks[state.clock] = (time.monotonic(), state)
        self._lab.truth.learn(state)
