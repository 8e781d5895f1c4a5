"""The process that sends and receives all flows of the lab, of all its jobs, at next to no cost per byte.

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
from foliot_lab.scenario.spec import Over  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.workload.flow_record import GAP_NS, FlowRecord
from foliot_lab.workload.job_steps import JobPlan, JobSteps, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
_SLOW_BUFFER_BYTES = 1 << 17
"""The buffer of a socket that is read slowly: a small part of a step, so that the sender soon feels the reader."""
_SLOW_BURST_NS = 20_000_000
"""What a slow reader has not read in time, it makes up for by so much at most."""
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
    """0: as fast as the links permit."""
    job: int = 0
    """Number of its job. Flows between the same addresses differ in it."""
    over: Over = "service"
    source_port: int = 0
    """TCP port of the sender; 0: any."""


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
    """TCP port on which the first job is received; the second's is the next one, and so on."""
    jobs: tuple[JobPlan, ...] = ()
    """Empty: the flows are of no job, and send all the time."""


class Flow:
    """One flow's sockets. An error closes both; they are opened again a little later."""

    def __init__(self, number: int, plan: FlowPlan, port: int, namespace: Namespace) -> None:
        self.number = number
        self.plan = plan
        self.sent = 0
        """Bytes sent so far, without those that a lost connection took along."""
        self.delivered = 0
        self.may_send: int | None = None
        """Bytes that may have been sent at most; None: there is no limit."""
        self.receiver: socket.socket | None = None
        self.reader: _SlowReader | None = None
        """None: what has arrived is read at once."""
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
        left = _SEND_BYTES if self.may_send is None else min(_SEND_BYTES, self.may_send - self.sent)
        if left <= 0:
            return
        try:
            self.sent += os.sendfile(self._sender.fileno(), zeros, 0, left)
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
        self.sent = self.delivered
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
        if self.plan.bytes_per_s:
            sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", self.plan.bytes_per_s))
        else:
            # A step's last packet is not full, and shall not wait for an acknowledgement.
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _resize(sender, _SO_SNDBUFFORCE, socket.SO_SNDBUF, _BUFFER_BYTES)
        if self.plan.source_port:
            # So that the same port can be taken again at once: what is closed is reset, and waits for nothing.
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        sender.bind((self.plan.source_address, self.plan.source_port))
        try:
            sender.connect((self.plan.destination_address, self._port))
        except BlockingIOError:
            return


class _SlowReader:
    """An application that reads a flow at a rate of its own.

    Parameters:
        bytes_per_s: the rate.
    """

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._may_read = 0.0

    def turn(self, lasted_ns: int) -> None:
        """So much time has passed."""
        most = self._bytes_per_s * _SLOW_BURST_NS * 1e-9
        self._may_read = min(self._may_read + self._bytes_per_s * lasted_ns * 1e-9, max(most, 1.0))

    def take(self, count: int) -> None:
        """Bytes were read."""
        self._may_read -= count

    @property
    def most(self) -> int:
        """How many bytes it reads now at most."""
        return int(self._may_read)


class Loop:
    """All flows, turn by turn. `turn` never raises for an error of a flow: the record has it."""

    def __init__(self, plan: LoopPlan, record: FlowRecord) -> None:
        namespaces = {node: Namespace(node, fd) for node, fd in plan.namespaces.items()}
        self._record = record
        self._base_ns = plan.base_ns
        self._clock = HostClock("lab")
        self._flows = [
            Flow(number, flow, plan.port + flow.job, namespaces[flow.source]) for number, flow in enumerate(plan.flows)
        ]
        self._jobs = [
            JobSteps(number, job, [flow for flow in self._flows if flow.plan.job == number], record)
            for number, job in enumerate(plan.jobs)
        ]
        slow = {number for number, job in enumerate(plan.jobs) if job.read_bytes_per_s}
        for flow in self._flows:
            if flow.plan.job in slow:
                flow.reader = _SlowReader(plan.jobs[flow.plan.job].read_bytes_per_s)
        self._listeners = {
            (address, job): _listen(
                namespaces[node], address, plan.port + job, _SLOW_BUFFER_BYTES if job in slow else _BUFFER_BYTES
            )
            for node, address, job in sorted(
                {(flow.destination, flow.destination_address, flow.job) for flow in plan.flows}
            )
        }
        self._by_ends = {
            (flow.plan.source_address, flow.plan.destination_address, flow.plan.job): flow for flow in self._flows
        }
        self._zeros = os.memfd_create("foliot-zeros")
        os.truncate(self._zeros, _SEND_BYTES)
        self._nowhere = memoryview(bytearray(_READ_BYTES))
        self._slot = -1
        self._turned_ns = self.now_ns()

    def now_ns(self) -> int:
        """Lab time."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + self._base_ns

    def turn(self) -> None:
        """Receives, lets jobs take their next steps, sends, and records the arrival times of bytes."""
        now_ns = self.now_ns()
        self._enter_slot(now_ns)
        self._count_due(now_ns)
        if any(flow.receiver is None for flow in self._flows):
            self._accept()
        stamps: list[tuple[Flow, bool, int]] = []
        for flow in self._flows:
            self._try(flow, now_ns, lambda flow: self._receive(flow, stamps))
        self._write(stamps)
        for job in self._jobs:
            job.turn(now_ns)
        for flow in self._flows:
            self._try(flow, now_ns, lambda flow: flow.send(self._zeros, now_ns))
        self._record.written(now_ns)

    def close(self) -> None:
        """Closes all sockets."""
        for flow in self._flows:
            flow.lose(0)
        for listener in self._listeners.values():
            listener.close()
        os.close(self._zeros)

    def _try(self, flow: Flow, now_ns: int, act: Callable[[Flow], None]) -> None:
        """Does something with a flow; an error closes it."""
        try:
            act(flow)
        except OSError as error:
            # Before a flow's first byte the fabric may simply not be ready: that is no error of the flow.
            if self._record.opened_ns[flow.number]:
                self._record.error(flow.number, now_ns, error.errno or 0)
            flow.lose(now_ns)

    def _count_due(self, now_ns: int) -> None:
        """Counts the time since the last turn for the jobs' flows of which bytes were due. Others have no gap."""
        lasted_ns, self._turned_ns = now_ns - self._turned_ns, now_ns
        if not self._jobs:
            return
        for flow in self._flows:
            if flow.reader is not None:
                flow.reader.turn(lasted_ns)
            if is_due(flow):
                self._record.was_due(self._slot, flow.number, lasted_ns)
            elif self._record.opened_ns[flow.number]:
                self._record.last_ns[flow.number] = now_ns

    def _enter_slot(self, now_ns: int) -> None:
        slot = self._record.slot(now_ns)
        for begun in range(self._slot + 1, slot + 1):
            self._record.clear(begun)
        self._slot = slot

    def _accept(self) -> None:
        for (address, job), listener in self._listeners.items():
            try:
                receiver, (source, source_port) = listener.accept()
            except BlockingIOError:
                continue
            flow = self._by_ends.get((source, address, job))
            if flow is None:
                receiver.close()
            else:
                flow.accepted(receiver, source_port)

    def _receive(self, flow: Flow, stamps: list[tuple[Flow, bool, int]]) -> None:
        most = _READ_BYTES if flow.reader is None else flow.reader.most
        if flow.receiver is None or not most:
            return
        count = 0
        try:
            if flow.quiet:
                # The one byte that ended the silence, for its own stamp.
                count += self._read(flow, flow.receiver, 1, stamps, first=True)
                flow.quiet = False
            if count < most:
                count += self._read(flow, flow.receiver, most - count, stamps, first=False)
        except BlockingIOError:
            flow.quiet = not count
        flow.delivered += count
        if flow.reader is not None:
            flow.reader.take(count)
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


def _listen(namespace: Namespace, address: str, port: int, buffer_bytes: int) -> socket.socket:
    listener = make_socket(namespace, socket.AF_INET, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    _resize(listener, _SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
    listener.bind((address, port))
    listener.listen(1024)
    return listener


def _resize(ends: socket.socket, forced: int, plain: int, buffer_bytes: int) -> None:
    """Sets a buffer's size past the machine's limit, or up to the limit if that is not allowed."""
    try:
        ends.setsockopt(socket.SOL_SOCKET, forced, buffer_bytes)
    except PermissionError:
        ends.setsockopt(socket.SOL_SOCKET, plain, buffer_bytes)


def _stamp_ns(control: Iterable[tuple[int, int, bytes]]) -> int:
    """The kernel's receive timestamp, or the present time for the first packets, which may have none."""
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, rest = _STAMP.unpack(data[: _STAMP.size])
            return int(seconds) * 1_000_000_000 + int(rest)
    return time.clock_gettime_ns(time.CLOCK_REALTIME)
