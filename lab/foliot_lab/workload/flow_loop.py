"""The process that sends and receives all flows of the lab, at next to no cost per byte.

It turns 200 times a second. A turn hands each sender pages of a file of zeros, which the kernel sends without copying
(sendfile). The kernel discards each receiver's bytes, also without copying (MSG_TRUNC on TCP, see tcp(7)). The kernel
also sets the pace (SO_MAX_PACING_RATE). So 16 flows of 120 Mb/s cost three hundredths of a core. The important time is
the arrival of the last byte. It is the kernel's receive timestamp, not the loop's time.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from foliot.clock import HostClock
from foliot_lab.fabric.namespaces import Namespace, make_socket
from foliot_lab.workload.flow_record import GAP_NS, FlowRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

TURN_NS = 5_000_000
_REOPEN_NS = 200_000_000
"""After an error a flow waits this long, so that a fabric without a route is not flooded with attempts."""
_CONNECT_NS = 1_000_000_000
"""The time after which a connection that is not established is begun anew. The kernel repeats a SYN after one
second, and again after three (RFC 6298). That would make a flow's start a matter of luck."""
_SEND_BYTES = 1 << 20
_READ_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 20
"""The buffer of either socket: a turn of 5 ms at 1 Gb/s is 0.6 MB."""
# From asm-generic/socket.h; Python 3.11 does not name them.
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SO_MAX_PACING_RATE = 47
_STAMP = struct.Struct("=qq")
_CONTROL_BYTES = socket.CMSG_SPACE(_STAMP.size)


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One TCP flow: its ends and its rate."""

    id: str
    source: str
    """The sending node."""
    destination: str
    rail: str
    source_address: str
    destination_address: str
    bytes_per_s: int


class LoopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the process."""

    flows: tuple[FlowPlan, ...]
    namespaces: dict[str, int]
    """Per node, an inherited descriptor of its network namespace."""
    record: int
    """An inherited descriptor of the record's memory."""
    slots: int
    base_ns: int
    """Lab time minus CLOCK_MONOTONIC_RAW."""
    port: int


class Flow:
    """One flow's sockets. An error closes both; they are opened again a little later."""

    def __init__(self, number: int, plan: FlowPlan, port: int, namespace: Namespace) -> None:
        self.number = number
        self.plan = plan
        self.receiver: socket.socket | None = None
        self.quiet = True
        """The last turn found no bytes, so that the next byte ends a gap."""
        self._port = port
        self._namespace = namespace
        self._sender: socket.socket | None = None
        self._due_ns = 0

    def send(self, zeros: int, now_ns: int) -> None:
        """Fills the send buffer; opens the connection if it is time to.

        Raises:
            OSError: the connection is lost.
        """
        if self._sender is None:
            if now_ns >= self._due_ns:
                self._open(now_ns)
            return
        if self.receiver is None and now_ns >= self._due_ns:
            raise TimeoutError("the connection did not come up")
        try:
            os.sendfile(self._sender.fileno(), zeros, 0, _SEND_BYTES)
        except BlockingIOError:
            return

    def accepted(self, receiver: socket.socket, source_port: int) -> None:
        """Takes the receiving end, unless it belongs to an attempt that was given up."""
        if self._sender is None or self._sender.getsockname()[1] != source_port:
            receiver.close()
            return
        self.close()
        receiver.setblocking(False)
        self.receiver = receiver
        self.quiet = True

    def lose(self, now_ns: int) -> None:
        """Closes both ends, to be opened again."""
        self.close()
        if self._sender is not None:
            self._sender.close()
        self._sender = None
        self._due_ns = now_ns + _REOPEN_NS

    def close(self) -> None:
        """Closes the receiving end."""
        if self.receiver is not None:
            self.receiver.close()
        self.receiver = None

    def _open(self, now_ns: int) -> None:
        sender = make_socket(self._namespace, socket.AF_INET, socket.SOCK_STREAM)
        self._sender = sender
        self._due_ns = now_ns + _CONNECT_NS
        sender.setblocking(False)
        # The kernel's default differs from machine to machine; one must be named for numbers to be comparable.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", self.plan.bytes_per_s))
        _widen(sender, _SO_SNDBUFFORCE, socket.SO_SNDBUF)
        sender.bind((self.plan.source_address, 0))
        try:
            sender.connect((self.plan.destination_address, self._port))
        except BlockingIOError:
            return


class Loop:
    """All flows, turn by turn. `turn` never raises for an error of a flow: the record has it."""

    def __init__(self, plan: LoopPlan, record: FlowRecord) -> None:
        namespaces = {node: Namespace(node, fd) for node, fd in plan.namespaces.items()}
        self._record = record
        self._base_ns = plan.base_ns
        self._clock = HostClock("lab")
        self._flows = [Flow(number, flow, plan.port, namespaces[flow.source]) for number, flow in enumerate(plan.flows)]
        self._listeners = {
            address: _listen(namespaces[node], address, plan.port)
            for node, address in sorted({(flow.destination, flow.destination_address) for flow in plan.flows})
        }
        self._by_ends = {(flow.plan.source_address, flow.plan.destination_address): flow for flow in self._flows}
        self._zeros = os.memfd_create("foliot-zeros")
        os.truncate(self._zeros, _SEND_BYTES)
        self._nowhere = memoryview(bytearray(_READ_BYTES))
        self._slot = -1

    def now_ns(self) -> int:
        """Lab time."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + self._base_ns

    def turn(self) -> None:
        """Receives, then sends, then records the arrival times of bytes."""
        now_ns = self.now_ns()
        self._enter_slot(now_ns)
        if any(flow.receiver is None for flow in self._flows):
            self._accept()
        stamps: list[tuple[Flow, bool, int]] = []
        for flow in self._flows:
            try:
                self._receive(flow, stamps)
                flow.send(self._zeros, now_ns)
            except OSError as error:
                # Before a flow's first byte the fabric may simply not be ready: that is no error of the flow.
                if self._record.opened_ns[flow.number]:
                    self._record.error(flow.number, now_ns, error.errno or 0)
                flow.lose(now_ns)
        self._write(stamps)
        self._record.written(now_ns)

    def close(self) -> None:
        """Closes all sockets."""
        for flow in self._flows:
            flow.lose(0)
        for listener in self._listeners.values():
            listener.close()
        os.close(self._zeros)

    def _enter_slot(self, now_ns: int) -> None:
        slot = self._record.slot(now_ns)
        for begun in range(self._slot + 1, slot + 1):
            self._record.clear(begun)
        self._slot = slot

    def _accept(self) -> None:
        for address, listener in self._listeners.items():
            try:
                receiver, (source, source_port) = listener.accept()
            except BlockingIOError:
                continue
            flow = self._by_ends.get((source, address))
            if flow is None:
                receiver.close()
            else:
                flow.accepted(receiver, source_port)

    def _receive(self, flow: Flow, stamps: list[tuple[Flow, bool, int]]) -> None:
        if flow.receiver is None:
            return
        count = 0
        try:
            if flow.quiet:
                # The one byte that ended the silence, for its own stamp.
                count += self._read(flow, flow.receiver, 1, stamps, first=True)
                flow.quiet = False
            count += self._read(flow, flow.receiver, _READ_BYTES, stamps, first=False)
        except BlockingIOError:
            flow.quiet = not count
        self._record.received(self._slot, flow.number, count)

    def _read(
        self, flow: Flow, receiver: socket.socket, most: int, stamps: list[tuple[Flow, bool, int]], *, first: bool
    ) -> int:
        count, control, _, _ = receiver.recvmsg_into([self._nowhere[:most]], _CONTROL_BYTES, socket.MSG_TRUNC)
        if not count:
            raise ConnectionResetError(0, "the sender ended the connection")
        stamps.append((flow, first, _stamp_ns(control)))
        return count

    def _write(self, stamps: list[tuple[Flow, bool, int]]) -> None:
        """Turns the kernel's stamps into lab time, all at once, and ends the gaps."""
        if not stamps:
            return
        raw_ns = self._clock.realtime_to_local(np.array([stamp_ns for *_, stamp_ns in stamps], dtype=np.int64))
        record = self._record
        for (flow, first, _), at in zip(stamps, raw_ns, strict=True):
            at_ns = int(at) + self._base_ns
            last_ns = int(record.last_ns[flow.number])
            if not last_ns:
                record.opened_ns[flow.number] = at_ns
            elif first and at_ns - last_ns >= GAP_NS:
                record.gap(self._slot, flow.number, at_ns - last_ns)
            record.last_ns[flow.number] = max(at_ns, last_ns)


def _listen(namespace: Namespace, address: str, port: int) -> socket.socket:
    listener = make_socket(namespace, socket.AF_INET, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    _widen(listener, _SO_RCVBUFFORCE, socket.SO_RCVBUF)
    listener.bind((address, port))
    listener.listen(1024)
    return listener


def _widen(ends: socket.socket, forced: int, plain: int) -> None:
    """Sets a buffer's size past the machine's limit, or up to the limit if that is not allowed."""
    try:
        ends.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
    except PermissionError:
        ends.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)


def _stamp_ns(control: Iterable[tuple[int, int, bytes]]) -> int:
    """The kernel's receive timestamp, or the present time for the first packets, which may have none."""
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, rest = _STAMP.unpack(data[: _STAMP.size])
            return int(seconds) * 1_000_000_000 + int(rest)
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
