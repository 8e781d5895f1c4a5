"""The lab's witness on the wire: it sends pulses between service addresses around a fault.

The kernel's receive stamps time them, and `outages.py` judges them. One thread sends and receives; while nothing is
armed it rests.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from foliot.clock import HostClock
from foliot_agent.core.overlay_layout import VXLAN_OVERHEAD
from foliot_lab.fabric.namespaces import make_socket
from foliot_lab.measure.outages import FULL_SIZE_EVERY, End, Pair, Pulses
from foliot_lab.scenario.topology import MTU_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_schemas import Node

Cell = TypeVar("Cell", np.int64, np.int16)

PORT = 7951
RATE_HZ = 200.0
"""Pulses per second and pair. They time events to 5 ms, for a few per cent of a core with a NIC's pairs in a fleet
of eight."""
_FIRST_TURNS = 4096
_RECEIVE_BYTES = 1 << 20
_DRAIN_NS = 40_000_000
"""The pause between two readings. Reading need not be prompt, because the kernel has stamped the arrivals. What a
reading costs, it costs for one pulse as for eight."""
# From asm-generic/socket.h and linux/in.h and linux/sockios.h; Python 3.11 does not name them.
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_IP_PKTINFO = 8
_SIOCGIFNAME = 0x8910
_PULSE = struct.Struct("=IIq")
"""The numbers of the watch, the pair and the turn."""
_FULL_SIZE_PADDING = bytes(MTU_BYTES - VXLAN_OVERHEAD - 28 - _PULSE.size)
"""With VXLAN's headers outside and 28 bytes of IPv4 and UDP inside, the packet on the wire has the full size."""
_STAMP = struct.Struct("=qq")
_INDEX = struct.Struct("=i")
_INTERFACE = struct.Struct("=16si20x")
"""struct ifreq, with the index in its union."""
_CONTROL_BYTES = socket.CMSG_SPACE(16) + socket.CMSG_SPACE(12)


class Watch:
    """One armed spell: its pairs, and the state of their pulses so far. `Witness.arm` makes it.

    Parameters:
        padding: follows every pulse.
        every: a pulse is sent in every so many-th turn of the witness.
    """

    def __init__(self, number: int, pairs: tuple[Pair, ...], padding: bytes = b"", every: int = 1) -> None:
        self.number = number
        self.pairs = pairs
        self.padding = padding
        self._every = every
        self._waited = 0
        self.turns = 0
        room = (len(pairs), _FIRST_TURNS)
        self.sent_ns: NDArray[np.int64] = np.zeros(room, dtype=np.int64)
        self.arrived_ns: NDArray[np.int64] = np.zeros(room, dtype=np.int64)
        self.device: NDArray[np.int16] = np.zeros(room, dtype=np.int16)

    def is_due(self) -> bool:
        """Whether to send a pulse in this turn of the witness; call it once in each."""
        self._waited = (self._waited + 1) % self._every
        return not self._waited

    def begin_turn(self) -> int:
        """Makes room for the next turn; returns its number."""
        turn = self.turns
        if turn == self.sent_ns.shape[1]:
            self.sent_ns = _doubled(self.sent_ns)
            self.arrived_ns = _doubled(self.arrived_ns)
            self.device = _doubled(self.device)
        self.turns = turn + 1
        return turn

    def pulses(self, devices: tuple[str, ...]) -> dict[Pair, Pulses]:
        """A copy of the pulses and their arrivals so far."""
        return {
            pair: Pulses(
                sent_ns=self.sent_ns[row, : self.turns].copy(),
                arrived_ns=self.arrived_ns[row, : self.turns].copy(),
                device=self.device[row, : self.turns].copy(),
                devices=devices,
            )
            for row, pair in enumerate(self.pairs)
        }


class Witness:
    """Sends and reads pulses between service addresses while it is armed.

    Parameters:
        ends: the address of each service address to be watched.
        namespaces: of each node.
        rate_hz: pulses per second and pair.

    A context manager; leaving it ends the thread and closes the sockets.
    """

    def __init__(
        self,
        ends: Mapping[End, str],
        namespaces: Mapping[str, Namespace],
        lab: LabTime,
        *,
        rate_hz: float = RATE_HZ,
        port: int = PORT,
    ) -> None:
        self._turn_ns = round(1e9 / rate_hz)
        self._lab = lab
        self._clock = HostClock("lab")
        self._targets = {end: (address, port) for end, address in ends.items()}
        self._sockets = {end: _open(namespaces[end.node], address, port) for end, address in ends.items()}
        self._watches: dict[int, Watch] = {}
        self._made = 0
        self._devices: list[str] = []
        self._device_numbers: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._armed = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    @classmethod
    def over(
        cls, nodes: Iterable[Node], namespaces: Mapping[str, Namespace], lab: LabTime, *, rate_hz: float = RATE_HZ
    ) -> Witness:
        """A witness of all service addresses of these nodes."""
        ends = {End(node.name, nic.rail): nic.service_address for node in nodes for nic in node.nics}
        return cls(ends, namespaces, lab, rate_hz=rate_hz)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arm(self, pairs: Iterable[Pair], *, full_size: bool = False) -> Watch:
        """Begins to pulse these pairs. Arm some 0.1 s before the fault, so that the former way is known.

        With `full_size`, pulses are as large as a path carries, a quarter as many, for faults that spare small packets.
        They time events to 20 ms.

        Raises:
            KeyError: a pair has an end that is not watched.
        """
        wanted = tuple(pairs)
        for pair in wanted:
            for end in pair:
                if end not in self._sockets:
                    raise KeyError(f"{end.node} has no watched service address on {end.rail}")
        with self._lock:
            self._made += 1
            large = (_FULL_SIZE_PADDING, FULL_SIZE_EVERY) if full_size else (b"", 1)
            watch = self._watches[self._made] = Watch(self._made, wanted, *large)
            self._armed.set()
        return watch

    def look(self, watch: Watch) -> dict[Pair, Pulses]:
        """The state of a watch's pulses so far; the last of them may still be on their way."""
        with self._lock:
            return watch.pulses(tuple(self._devices))

    def disarm(self, watch: Watch) -> dict[Pair, Pulses]:
        """Ends a watch, reads the pulses that have arrived, and returns all. May be called again."""
        with self._lock:
            self._drain()
            self._watches.pop(watch.number, None)
            if not self._watches:
                self._armed.clear()
            return watch.pulses(tuple(self._devices))

    def close(self) -> None:
        """Ends the thread and closes the sockets. May be called twice."""
        self._closing = True
        self._armed.set()
        self._thread.join()
        for end in self._sockets.values():
            end.close()

    def _run(self) -> None:
        due_ns = drain_ns = time.monotonic_ns()
        while not self._closing:
            if not self._armed.wait():
                continue
            with self._lock:
                for watch in self._watches.values():
                    if watch.is_due():
                        self._pulse(watch)
                if time.monotonic_ns() >= drain_ns:
                    self._drain()
                    drain_ns = time.monotonic_ns() + _DRAIN_NS
            # Turns that come late are left out rather than made up for in a burst.
            due_ns = max(due_ns + self._turn_ns, time.monotonic_ns())
            time.sleep(max(due_ns - time.monotonic_ns(), 0) * 1e-9)

    def _pulse(self, watch: Watch) -> None:
        turn = watch.begin_turn()
        base_ns = self._lab.base_ns
        for row, pair in enumerate(watch.pairs):
            watch.sent_ns[row, turn] = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + base_ns
            try:
                pulse = _PULSE.pack(watch.number, row, turn) + watch.padding
                self._sockets[pair.source].sendto(pulse, self._targets[pair.destination])
            except OSError:
                # No route or no room: the pulse was due and did not arrive. Only that matters.
                continue

    def _drain(self) -> None:
        came: list[tuple[Watch, int, int, int]] = []
        stamps_ns: list[int] = []
        for end in self._sockets.values():
            self._read(end, came, stamps_ns)
        if not came:
            return
        at_ns = self._clock.realtime_to_local(np.array(stamps_ns, dtype=np.int64)) + self._lab.base_ns
        self._keep(came, at_ns)

    def _read(self, end: socket.socket, came: list[tuple[Watch, int, int, int]], stamps_ns: list[int]) -> None:
        while True:
            try:
                data, control, _, _ = end.recvmsg(_PULSE.size, _CONTROL_BYTES)
            except BlockingIOError:
                return
            number, row, turn = _PULSE.unpack(data)
            watch = self._watches.get(number)
            if watch is None:
                continue
            stamp_ns, index = _told(control)
            stamps_ns.append(stamp_ns)
            came.append((watch, row, turn, self._device(end, index)))

    @staticmethod
    def _keep(came: list[tuple[Watch, int, int, int]], at_ns: NDArray[np.int64]) -> None:
        for (watch, row, turn, device), arrived_ns in zip(came, at_ns, strict=True):
            watch.arrived_ns[row, turn] = arrived_ns
            watch.device[row, turn] = device

    def _device(self, end: socket.socket, index: int) -> int:
        key = (end.fileno(), index)
        if key not in self._device_numbers:
            name = _name(end, index)
            if name not in self._devices:
                self._devices.append(name)
            self._device_numbers[key] = self._devices.index(name)
        return self._device_numbers[key]


def _doubled(table: NDArray[Cell]) -> NDArray[Cell]:
    """Twice the columns, the new ones zero."""
    return np.concatenate((table, np.zeros_like(table)), axis=1)


def _open(namespace: Namespace, address: str, port: int) -> socket.socket:
    end = make_socket(namespace, socket.AF_INET, socket.SOCK_DGRAM)
    end.setblocking(False)
    end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    end.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    try:
        end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    except PermissionError:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    end.bind((address, port))
    return end


def _told(control: Iterable[tuple[int, int, bytes]]) -> tuple[int, int]:
    """The kernel's receive stamp and the index of the device; if the kernel gave none, now and 0."""
    stamp_ns, index = 0, 0
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, rest = _STAMP.unpack_from(data)
            stamp_ns = seconds * 1_000_000_000 + rest
        elif (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            (index,) = _INDEX.unpack_from(data)
    # The first packets after a socket asked for stamps may lack one.
    return stamp_ns or time.clock_gettime_ns(time.CLOCK_REALTIME), index


def _name(end: socket.socket, index: int) -> str:
    """The name of a device in the socket's namespace, whichever namespace the caller is in."""
    try:
        answer = fcntl.ioctl(end.fileno(), _SIOCGIFNAME, _INTERFACE.pack(b"", index))
    except OSError:
        return f"gone-{index}"
    return bytes(_INTERFACE.unpack(answer)[0]).rstrip(b"\0").decode()
