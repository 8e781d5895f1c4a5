"""The CPU cost of a further probe of the packet loop, beside the least that a program in C can do for it.

A node and some peers exchange one probe a tick on every stream, over a veth pair. The packet loop knows sessions,
remembers stamps of both directions, judges silence and counts. The program, `bare_loop.c`, sends as many packets of the
same size in the same batches, and reads as many with their stamps; it remembers nothing. Both have the same sockets, by
turns. A probe is one sent and one received, with both stamps. The price of a further one is the slope of a straight
line through the medians of all numbers of streams.

On a veth pair the sender is charged for the delivery, here as in `probe-cost`.

    make bench NAME=packet-cost ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import numpy as np

from bench import place
from bench.document import Document
from bench.probe_fabric import Wires, node_settings
from bench.table import show
from foliot import native
from foliot.clock import HostClock
from foliot.node.addressing import describe
from foliot_lab.fabric.namespaces import enter_control, inside
from foliot_probe.core.measure.sessions import Completed
from foliot_probe.core.sockaddr import Address
from foliot_probe.io.udp_batch import open_socket
from foliot_probe.numpy_loop import NumpyPacketLoop
from foliot_probe.packet_loop import Report, SilenceChanges

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from numpy.typing import NDArray

    from foliot_probe.packet_loop import PacketLoop
    from foliot_schemas import Node

Way = Literal["native", "python", "bare"]
WAYS: tuple[Way, ...] = ("native", "python", "bare")

_TICK_NS = 10_000_000
_NEAR = "node0"
_SETTLE = 100
"""Ticks before those that are measured: stamps are checked, sessions met, caches warm."""
_PER_REPORT = 10
"""Ticks between two reports, as of a probe with 100 probes a second."""
_LATEST_S, _LOOK_S = 10.0, 0.001
"""What has not come so long after a turn is lost."""


class Row(msgspec.Struct, kw_only=True):
    """One way with so many streams."""

    path: Way
    streams: int
    turns: int
    us_per_tick: float
    """CPU time of a tick's sending and listening: the median of all turns."""
    us_least: float
    us_most: float


class Further(msgspec.Struct, kw_only=True):
    """The price of a further probe, one sent and one received, in microseconds."""

    path: Way
    us: float
    us_least: float
    """By the same line through each turn."""
    us_most: float
    times_bare: float


class Sockets:
    """The sockets at both ends: one for each of the node's path addresses, and one for each stream of a peer.

    The node's stream `r` is at its place ``r % entropies``, and at the far end at place `r`.
    """

    def __init__(self, peers: int) -> None:
        node, *others = (describe(node_settings(name, index, 1)) for index, name in enumerate(_names(peers)))
        self._wires = Wires(1, node, others)
        self.near = _opened([node])
        with inside(self._wires.far):
            self.far = _opened(others)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self.near, *self.far):
            each.close()
        self._wires.close()


def _names(peers: int) -> list[str]:
    return [_NEAR, *(f"node{number}" for number in range(1, peers + 1))]


def _opened(nodes: list[Node]) -> list[socket.socket]:
    return [open_socket(address, node.probe_port) for node in nodes for address in node.nics[0].path_addresses]


def _at(opened: socket.socket) -> tuple[int, int]:
    address, port = opened.getsockname()
    return int(IPv4Address(address)), port


class Loops:
    """The packet loop at either end, compiled or not, with so many streams."""

    def __init__(self, sockets: Sockets, streams: int, *, compiled: bool) -> None:
        self._streams = streams
        self._now_ns = 0
        self._due = self._came = self._went = 0
        """Probes that were to come since all streams are known, those that came, and those that left with a stamp."""
        self._near = _loop(sockets.near, streams, compiled=compiled)
        self._far = _loop(sockets.far[:streams], streams, compiled=True)
        for row in range(streams):
            entropy = row % len(sockets.near)
            self._near.begin(row, entropy, _at(sockets.far[row]), session=row + 1, first=1, every=1, tick=0)
            self._far.begin(row, row, _at(sockets.near[entropy]), session=row + 1, first=1, every=1, tick=0)

    def close(self) -> None:
        """Leaves the sockets."""
        self._near.close()
        self._far.close()

    def tick(self, number: int) -> int:
        """Makes a tick of both ends; returns the CPU time of the node's, in ns."""
        now_ns = self._now_ns = number * _TICK_NS
        self._far.send(number)
        began_ns = time.thread_time_ns()
        self._near.listen(now_ns)
        self._near.send(number)
        took_ns = time.thread_time_ns() - began_ns
        self._far.listen(now_ns)
        if number % _PER_REPORT == 0:
            self._far.take_report()
            came, went = self._told()
            if number > _SETTLE:
                self._due += _PER_REPORT * self._streams
                self._came += came
                self._went += went
        return took_ns

    def check(self) -> None:
        """Waits for what is still on its way: on a busy machine, the kernel hands packets over later.

        Raises:
            RuntimeError: not every stream has sent and heard a probe in each tick.
        """
        deadline_s = time.monotonic() + _LATEST_S
        while (lost := self._due - self._streams - min(self._came, self._went)) > 0:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{lost} probes were lost")
            time.sleep(_LOOK_S)
            self._near.listen(self._now_ns)
            came, went = self._told()
            self._came += came
            self._went += went

    def _told(self) -> tuple[int, int]:
        said = self._near.take_report()
        return len(said.incoming.row), len(said.outgoing.row)


def _loop(opened: list[socket.socket], rows: int, *, compiled: bool) -> PacketLoop:
    given: dict[str, Any] = {"tick_ns": _TICK_NS, "full_every": 0, "now_ns": 0}
    made: PacketLoop
    if compiled:
        module = native.compiled("packet_loop")
        assert module is not None
        types = SilenceChanges, Report, Completed
        made = module.PacketLoop(len(opened), rows, **given, seed=1, error=None, types=types)
    else:
        made = NumpyPacketLoop(len(opened), rows, HostClock(_NEAR), **given)
    for number, each in enumerate(opened):
        made.add_socket(number, each)
    return made


class Bare:
    """The program at either end, with so many streams."""

    def __init__(self, sockets: Sockets, streams: int, program: ctypes.CDLL) -> None:
        self._program, self._streams = program, streams
        opened = sockets.far[:streams]
        far, near = ([_at(each) for each in some] for some in (opened, sockets.near))
        entropies = len(near)
        self._near = [(each.fileno(), _addresses(far[first::entropies])) for first, each in enumerate(sockets.near)]
        self._far = [(each.fileno(), _addresses([near[row % entropies]])) for row, each in enumerate(opened)]
        self._near_fds, self._far_fds = (
            np.array([number for number, _ in some], np.int32) for some in (self._near, self._far)
        )
        self._sum_ns, self._stamped, self._of_far = ctypes.c_int64(0), ctypes.c_int(0), ctypes.c_int(0)
        self._due = self._came = 0
        """Packets that were to come, and that came, each with two stamps."""

    def close(self) -> None:
        """Has nothing to leave."""

    def tick(self, number: int) -> int:
        """See `Loops`."""
        self._send(self._far)
        began_ns = time.thread_time_ns()
        came = self._listen(self._near_fds, self._stamped)
        self._send(self._near)
        took_ns = time.thread_time_ns() - began_ns
        if number == _SETTLE:
            self._stamped.value = 0
        if number > _SETTLE:
            self._due += self._streams
            self._came += came
        self._listen(self._far_fds, self._of_far)
        return took_ns

    def check(self) -> None:
        """See `Loops`."""
        deadline_s = time.monotonic() + _LATEST_S
        while (lost := self._due - self._streams - min(self._came, self._stamped.value // 2)) > 0:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{lost} packets were lost, or had no stamps")
            time.sleep(_LOOK_S)
            self._came += self._listen(self._near_fds, self._stamped)

    def _send(self, outbox: list[tuple[int, NDArray[np.void]]]) -> int:
        return sum(int(self._program.bare_send(number, held.ctypes.data, len(held))) for number, held in outbox)

    def _listen(self, numbers: NDArray[np.int32], stamped: ctypes.c_int) -> int:
        told = ctypes.byref(self._sum_ns), ctypes.byref(stamped)
        return int(self._program.bare_listen(numbers.ctypes.data, len(numbers), *told))


def _addresses(ends: list[tuple[int, int]]) -> NDArray[np.void]:
    found = np.zeros(len(ends), Address)
    found["family"] = 2
    found["address"], found["port"] = zip(*ends, strict=True)
    return found


def program(folder: Path) -> ctypes.CDLL:
    """Compiles the program and loads it.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
        OSError: there is none.
    """
    source, library = Path(__file__).with_name("bare_loop.c"), folder / "bare_loop.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run((*compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)), check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.bare_begin()
    loaded.bare_send.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    loaded.bare_listen.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return loaded


def turn(sockets: Sockets, streams: int, way: Way, bare: ctypes.CDLL, ticks: int) -> float:
    """One turn; returns the CPU time of a tick, in us."""
    pair = Bare(sockets, streams, bare) if way == "bare" else Loops(sockets, streams, compiled=way == "native")
    try:
        for number in range(1, _SETTLE + 1):
            pair.tick(number)
        took_ns = [pair.tick(_SETTLE + number) for number in range(1, ticks + 1)]
        pair.check()
    finally:
        pair.close()
    return statistics.median(took_ns) / 1e3


def further(taken: dict[tuple[Way, int], list[float]], ways: list[Way]) -> list[Further]:
    """The price of a further probe by each way: the slope over the numbers of streams, of the medians and of each turn."""

    def slopes(way: Way, choose: Callable[[list[float]], list[float]]) -> list[float]:
        by = {streams: choose(values) for (each, streams), values in taken.items() if each == way}
        return [float(np.polyfit(list(by), values, 1)[0]) for values in zip(*by.values(), strict=True)]

    median = {way: slopes(way, lambda values: [statistics.median(values)])[0] for way in ways}
    return [
        Further(
            path=way, us=round(median[way], 3), us_least=round(min(slopes(way, list)), 3),
            us_most=round(max(slopes(way, list)), 3), times_bare=round(median[way] / median["bare"], 2),
        )
        for way in ways
    ]  # fmt: skip


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(
        prog="bench.packet_cost", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--peers", nargs="+", type=int, default=[4, 16, 64], help="(default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS[:2], default=list(WAYS[:2]), help="beside the bare program")
    parser.add_argument("--ticks", type=int, default=400, help="of each turn (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="(default: %(default)s)")
    arguments = parser.parse_args()
    if not place.enter():
        return place.CANNOT
    enter_control()
    document = Document("packet-cost", arguments)
    ways: list[Way] = [*arguments.ways, "bare"]
    taken: dict[tuple[Way, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="foliot-bench-") as folder:
        bare = program(Path(folder))
        with Sockets(max(arguments.peers)) as sockets:
            for _ in range(arguments.turns):
                for peers in arguments.peers:
                    streams = peers * len(sockets.near)
                    for way in ways:
                        us = turn(sockets, streams, way, bare, arguments.ticks)
                        taken.setdefault((way, streams), []).append(us)
    rows = [
        Row(
            path=way, streams=streams, turns=len(us), us_per_tick=round(statistics.median(us), 1),
            us_least=round(min(us), 1), us_most=round(max(us), 1),
        )
        for (way, streams), us in taken.items()
    ]  # fmt: skip
    prices = further(taken, ways)
    show([msgspec.to_builtins(row) for row in rows])
    show([msgspec.to_builtins(price) for price in prices])
    if arguments.json:
        document.write(arguments.json, rows, further=[msgspec.to_builtins(price) for price in prices])
    return 0


if __name__ == "__main__":
    sys.exit(main())
