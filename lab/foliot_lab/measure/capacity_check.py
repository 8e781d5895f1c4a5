"""A check on the fabric that the machine carries a scenario's traffic, before a service runs.

`budget` judges the rest, earlier. One TCP connection runs alone over the longest way, and it must fill its link. The
check multiplies its processor time by the workload's traffic. The product must leave the machine room for the services.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import termios
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.measure.budget import traffic_gbps
from foliot_lab.measure.machine import CpuTimes

if TYPE_CHECKING:
    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.scenario.spec import Scenario

ENOUGH_SOLO = 0.8
"""Share of link_mbps. A connection alone reached 87 to 93 % of its link, less headers and slow start."""
MOST_BUSY = 0.7
"""Share of the processors for the traffic alone. Beyond it, timers run late, and a measurement of the services shows
their waits."""
_WATCH_S = 0.3
_RUN_S = 0.7
_SETTLE_S = 0.3
"""By then slow start is over on any link that the lab builds."""
_CHUNK = bytes(65536)


class Carrying(msgspec.Struct, frozen=True, kw_only=True):
    """The measured capacity of the fabric."""

    solo_mbps: float
    link_mbps: float
    cpu_per_gbps: float
    """Processors busy for each Gb/s that crosses the fabric."""
    processors: float
    """The number of processors, or the part of it that a quota allows."""


async def measure(fabric: Fabric, speed: float = 1.0) -> Carrying:
    """Measures the capacity. It takes about a second and a half, and needs an otherwise idle fabric.

    Parameters:
        speed: the share of all processors that a quota allows.
    """
    before = busy_s()
    await asyncio.sleep(_WATCH_S)
    idle_busy = (busy_s() - before) / _WATCH_S
    rail, source, sink = fabric.plan.rails[0], fabric.plan.hosts[0], fabric.plan.hosts[-1]
    here, there = (End(fabric.host(host), fabric.plan.underlay(host, rail)) for host in (source, sink))
    found = await solo(here, there)
    return Carrying(
        solo_mbps=found.mbps, link_mbps=fabric.plan.link_mbps,
        cpu_per_gbps=max(0.0, found.busy - idle_busy) / (found.mbps / 1000) if found.mbps else 0.0,
        processors=speed * len(os.sched_getaffinity(0)),
    )  # fmt: skip


def refusal(carrying: Carrying, scenario: Scenario) -> str:
    """The reason why this machine cannot carry the scenario, in a sentence; empty if it can."""
    if carrying.solo_mbps < ENOUGH_SOLO * carrying.link_mbps:
        return (
            f"One connection alone gets {carrying.solo_mbps:.0f} Mb/s over links of {carrying.link_mbps:.0f}:"
            f" this machine cannot make links that fast; lower link_mbps."
        )
    gbps = traffic_gbps(scenario)
    needed = gbps * carrying.cpu_per_gbps
    if needed > MOST_BUSY * carrying.processors:
        return (
            f"The workload moves {gbps:.1f} Gb/s in all, which would keep {needed:.1f} of this machine's"
            f" {carrying.processors:g} processors busy by itself, and at most {MOST_BUSY:.0%} may be;"
            f" lower {'load, ' if scenario.workload.kind in {'ring', 'all-to-all'} else ''}link_mbps, hosts or rails."
        )
    return ""


class End(NamedTuple):
    """One end of a connection."""

    namespace: Namespace
    address: str


class Solo(NamedTuple):
    """The result of one connection alone."""

    mbps: float
    busy: float
    """Processors busy during the connection, by any work."""


async def solo(source: End, sink: End, run_s: float = _RUN_S) -> Solo:
    """One connection, sending as much as it can."""
    loop = asyncio.get_running_loop()
    with (
        make_socket(sink.namespace, socket.AF_INET, socket.SOCK_STREAM) as listener,
        make_socket(source.namespace, socket.AF_INET, socket.SOCK_STREAM) as sender,
    ):
        listener.bind((sink.address, 0))
        sender.bind((source.address, 0))
        listener.listen()
        for end in (listener, sender):
            end.setblocking(False)
        await loop.sock_connect(sender, listener.getsockname())
        receiver, _ = await loop.sock_accept(listener)
        receiver.setblocking(False)
        with receiver:
            received = [0]
            tasks = [asyncio.create_task(_send(sender)), asyncio.create_task(_receive(receiver, received))]
            try:
                await asyncio.sleep(_SETTLE_S)
                start_s, start_busy_s, start_bytes = time.monotonic(), busy_s(), arrived(receiver, received[0])
                await asyncio.sleep(run_s)
                # In this order, so that a process that stands still in between counts too few bytes and never too many.
                bytes_, busy_until_s = arrived(receiver, received[0]), busy_s()
                took_s = time.monotonic() - start_s
                mbps = (bytes_ - start_bytes) * 8e-6 / took_s
                busy = (busy_until_s - start_busy_s) / took_s
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    return Solo(mbps, busy)


async def _send(sender: socket.socket) -> None:
    while True:
        await asyncio.get_running_loop().sock_sendall(sender, _CHUNK)


async def _receive(receiver: socket.socket, received: list[int]) -> None:
    space = bytearray(len(_CHUNK))
    while taken := await asyncio.get_running_loop().sock_recv_into(receiver, space):
        received[0] += taken


def arrived(receiver: socket.socket, read: int) -> int:
    """The bytes of a connection that have arrived: those that were read, and those that wait for a late reader.

    See SIOCINQ in tcp(7).
    """
    waiting = array.array("i", [0])
    fcntl.ioctl(receiver, termios.FIONREAD, waiting)
    return read + waiting[0]


def busy_s() -> float:
    """Seconds that all processors together have been busy since boot (all but idle time and the waits for a disk)."""
    times = CpuTimes.read()
    return (times.total - times.idle) / os.sysconf("SC_CLK_TCK")
