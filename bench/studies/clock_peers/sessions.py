"""A session: all tools started once on a topology, with one drift, and measured under one load after the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bench.studies.clock_peers import chrony, judged, load, ours, ptp, rows
from bench.studies.clock_peers.children import Children
from bench.studies.clock_peers.counting import Counters
from bench.studies.clock_peers.network import RATE_MBPS, Network, Plan
from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.measure.machine import CpuTimes

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bench.studies.clock_peers.chrony import Configuration
    from bench.studies.clock_peers.rows import Row
    from foliot_lab.fabric.namespaces import Namespace

_READY_S = 120.0
_LOOK_S = 0.25
_LAST_WORDS_S = 1.5
"""The wait for last estimates: chrony dates its estimates in whole seconds."""


class Pace(NamedTuple):
    """The sending rates of the tools in a topology, so that all send as many packets."""

    poll: int
    """chrony polls every 2^poll s: two packets each time."""
    interval: int
    """ptp4l's sync comes every 2^interval s: four packets each time, with what follows it."""
    ours: ours.Rate
    """The rate of Foliot. 25 rounds a second are 62.5 packets: every fourth round has two probes, and both ends
    send."""


PACES = {"path": Pace(-7, -6, ours.Rate(10, 100.0)), "mesh": Pace(-5, -4, ours.Rate(40, 25.0))}
"""On the path, chrony's greatest rate. In the mesh, a probe's default rate, which is as much as two cores carry of
80 pairs."""


class Binaries(NamedTuple):
    """The programs of the peers."""

    chronyd: Path
    ptp4l: Path


Statistics: TypeAlias = "dict[Configuration, dict[str, Path]]"
"""chrony's statistics, by configuration and host."""


class NotReadyError(RuntimeError):
    """A tool did not get into step; the message says which."""


class Session:
    """The running tools of one topology and drift.

    Parameters:
        kind: of topology: path or mesh.
        folder: empty; for all files of the session.
    """

    def __init__(self, kind: str, plan: Plan, control: Namespace, folder: Path, drift_ppb: float) -> None:
        self.plan = plan
        self._pace = PACES[kind]
        self._drift_ppb = drift_ppb
        self._network = Network(plan, control)
        self._children = Children(folder)
        self._foliot = ours.Foliot(self._network, self._children, folder)
        self._folder = folder

    async def run(
        self,
        binaries: Binaries,
        conditions: list[tuple[float, str]],
        arguments: argparse.Namespace,
        tell: Callable[[Row], None],
    ) -> None:
        """Measures under these loads and ways."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._network.close)
            stack.push_async_callback(self._children.close)
            stack.push_async_callback(self._foliot.close)
            self._network.build()
            statistics = {
                each: await chrony.start(
                    binaries.chronyd,
                    each,
                    self._network,
                    self._children,
                    folder=self._folder,
                    poll=self._pace.poll,
                )
                for each in self._configurations(arguments)
            }
            sockets = await ptp.start(binaries.ptp4l, self._network, self._children, self._folder, self._pace.interval)
            await self._foliot.start(self._pace.ours, self._drift_ppb, arguments.wander_ppb)
            asking = ptp.Asking(sockets, self._pace.interval)
            stack.push_async_callback(asking.close)
            ports = {rows.of_chrony(each.name): (each.port,) for each in statistics}
            counters = Counters(self._network.doors, {rows.FOLIOT: ours.PORTS, **ports, rows.PTP: ptp.PORTS})
            stack.callback(counters.close)
            await self._ready(statistics, asking)
            await asyncio.sleep(arguments.warm_s)
            for share, ways in conditions:
                run = rows.Run(self.plan.title, share, ways, self._drift_ppb)
                async with self._loaded(share, ways):
                    await asyncio.sleep(arguments.settle_s)
                    for row in await self._measure(run, arguments.seconds, counters, statistics, asking):
                        tell(row)

    def _configurations(self, arguments: argparse.Namespace) -> list[Configuration]:
        """The configurations of chrony for which this topology has enough hosts."""
        asked = (chrony.CONFIGURATIONS[name] for name in arguments.chrony)
        return [each for each in asked if chrony.fits(each, self.plan.hosts)]

    async def _ready(self, statistics: Statistics, asking: ptp.Asking) -> None:
        """Waits until every tool has a statement about every host.

        Raises:
            NotReadyError: that takes too long.
        """
        deadline_s = time.monotonic() + _READY_S
        while True:
            await asyncio.sleep(_LOOK_S)
            self._children.check()
            late = {
                rows.FOLIOT: not self._foliot.in_step(),
                **{
                    rows.of_chrony(each.name): not all(
                        path.exists() and chrony.parse(path.read_text().splitlines()) for path in logs.values()
                    )
                    for each, logs in statistics.items()
                },
                rows.PTP: not all(asking.offsets.values()),
            }
            if not any(late.values()):
                return
            if time.monotonic() > deadline_s:
                raise NotReadyError(
                    f"not in step after {_READY_S:g} s: {', '.join(tool for tool, is_late in late.items() if is_late)}"
                )

    @contextlib.asynccontextmanager
    async def _loaded(self, share: float, ways: str) -> AsyncIterator[None]:
        flows = self.plan.flows[: {"none": 0, "one": 1, "both": 2}[ways]]
        sinks = [self._sink(flow.sink) for flow in flows]
        for flow in flows:
            command = (
                sys.executable,
                "-m",
                "bench.studies.clock_peers.load",
                self.plan.address(flow.sink),
                str(share * RATE_MBPS),
                flow.source[-1],
            )
            await self._children.start(flow.source, command, self._network.namespaces[flow.source])
        try:
            yield
        finally:
            await self._children.end(*(flow.source for flow in flows))
            for sink in sinks:
                sink.close()

    def _sink(self, host: str) -> socket.socket:
        """Opens a socket that takes the load and never reads it.

        Without it, the host would answer every packet by an error message.
        """
        opened = make_socket(self._network.namespaces[host], socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((self.plan.address(host), load.PORT))
        return opened

    async def _measure(
        self, run: rows.Run, seconds: float, counters: Counters, statistics: Statistics, asking: ptp.Asking
    ) -> list[Row]:
        counters.take()
        carried, cpu, began = self._network.carried_bytes(), CpuTimes.read(), _now()
        await asyncio.sleep(seconds)
        ended = _now()
        packets, after = counters.take(), CpuTimes.read()
        bits = [8 * (since - before) for before, since in zip(carried, self._network.carried_bytes(), strict=True)]
        await asyncio.sleep(_LAST_WORDS_S)
        self._children.check()
        span = judged.Span(began[0], ended[0], began[1], ended[1])
        hosts = self.plan.hosts
        found = {rows.FOLIOT: judged.foliot(self._foliot.told, self._foliot.skews, hosts[0], span)}
        if not self._drift_ppb:
            low = {host: ptp.low_passed(offsets) for host, offsets in asking.offsets.items()}
            for each, logs in statistics.items():
                said = {
                    host: chrony.combined(chrony.parse(path.read_text().splitlines())) for host, path in logs.items()
                }
                found[rows.of_chrony(each.name)] = judged.offsets(said, span)
            found[rows.PTP], found[rows.PTP_LOW] = judged.offsets(asking.offsets, span), judged.offsets(low, span)
        took_s = ended[0] - began[0]
        measuring = {rows.of_chrony(each.name): len(logs) for each, logs in statistics.items()}
        pairs = {rows.FOLIOT: ours.pairs(hosts), **measuring}
        return [
            rows.row(
                tool, run, what,
                packets_per_s=packets[rows.PTP if tool == rows.PTP_LOW else tool]
                / took_s / pairs.get(tool, len(hosts) - 1),
                carried=[each_bits / took_s / (RATE_MBPS * 1e6) for each_bits in bits],
                idle_cpu=cpu.idle_share(after), stolen_cpu=cpu.stolen_share(after),
            )
            for tool, what in found.items()
        ]  # fmt: skip


def _now() -> tuple[float, int]:
    return time.time(), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
