"""UDP sockets in batches: many probes per system call, each with the kernel's stamp of its departure or arrival.

The slots of a batch lie in numpy arrays laid out as the kernel's ``struct mmsghdr``. So ``sendmmsg`` and ``recvmmsg``
work on them in place, and the ancillary data is parsed in columns. 64-bit Linux only.

A transmit stamp comes back on the socket's error queue with a copy of the packet, and the probe inside says whose stamp
it is. The packet cannot be mistaken. The kernel's own numbering of packets (SOF_TIMESTAMPING_OPT_ID) can. It slips as
soon as a send fails, because only some failures consume a number.

The path's headers come before the probe, however many they are. The copy of a padded probe is cut off behind the probe,
so the end does not show the probe's place. The name that the probe begins with shows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import termios
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_probe.core.packet import MAGIC, MOST_BYTES, ProbePacket
from foliot_probe.core.sockaddr import Address
from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# asm-generic/socket.h and linux/net_tstamp.h; Python 3.11's socket module does not have them.
SO_TIMESTAMPING = 37
SO_RXQ_OVFL = 40
# linux/in.h: the kernel sets DF and ignores the path's MTU as it believes it to be, so a probe is never sent in
# fragments.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
# linux/sockios.h and linux/if.h.
_SIOCGIFCONF, _SIOCGIFMTU = 0x8912, 0x8921
_IFREQ_BYTES, _IFNAME_BYTES = 40, 16
_TX_SOFTWARE, _RX_SOFTWARE, _REPORT_SOFTWARE = 2, 8, 16
_TX_HARDWARE, _RX_HARDWARE, _RAW_HARDWARE = 1, 4, 64
_BOTH_TX = 1 << 14
"""SOF_TIMESTAMPING_OPT_TX_SWHW: where the NIC stamps a packet that leaves, the kernel's stamp comes all the same."""
_BY_HOST = _TX_SOFTWARE | _RX_SOFTWARE | _REPORT_SOFTWARE
_BY_NIC = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE | _BOTH_TX

_QUEUE_BYTES = 1 << 20
"""Size of the receive buffer to ask for, which the error queue shares.

The kernel gives what net.core.rmem_max allows.
"""
_AT_ONCE = 4_096
"""Packets to read from one socket at a time: several times what its buffer holds.

A flooded socket is never empty, and all else would wait.
"""
_PAYLOAD_BYTES = 256
"""Room for a probe behind the headers of a tunnel: 144 + 14 + 20 + 8, and as many headers again outside."""
_CONTROL_BYTES = 128
_SECOND_NS = 1_000_000_000
_FAR_S = FAR_NS // _SECOND_NS

_Header = np.dtype(
    [
        ("name", "<u8"), ("name_length", "<u4"), ("pad", "<u4"), ("vector", "<u8"), ("vector_length", "<u8"),
        ("control", "<u8"), ("control_length", "<u8"), ("flags", "<i4"), ("pad2", "<u4"), ("length", "<u4"), ("pad3", "<u4"),
    ],
)  # fmt: skip
_Vector = np.dtype([("base", "<u8"), ("length", "<u8")])
_Control = np.dtype(
    {
        "names": ["stamp_length", "stamp_level", "stamp_type", "seconds", "nanoseconds", "nic_seconds", "nic_nanoseconds",
                  "next_length", "next_level", "next_type", "dropped", "origin", "info"],
        "formats": ["<u8", "<i4", "<i4", "<i8", "<i8", "<i8", "<i8", "<u8", "<i4", "<i4", "<u4", "u1", "<u4"],
        "offsets": [0, 8, 12, 16, 24, 48, 56, 64, 72, 76, 80, 84, 88],
        "itemsize": _CONTROL_BYTES,
    },
)  # fmt: skip
"""The ancillary data in the kernel's order (``__sock_recv_timestamp``). First comes SCM_TIMESTAMPING with three
timespecs, of which the first is the software stamp and the last one the NIC's. Then may follow the count of dropped packets or ``struct
sock_extended_err``."""
_STAMP_BYTES = 64
# As plain numbers: joining members of socket's enumeration costs more than the system call.
_DONT_WAIT = int(socket.MSG_DONTWAIT)
_TRUNCATED = int(socket.MSG_TRUNC)
"""With this flag the kernel tells a datagram's true length, of which the slot holds the first bytes."""
_ERROR_QUEUE = int(socket.MSG_ERRQUEUE) | _DONT_WAIT
_DATA_QUEUE = _DONT_WAIT | _TRUNCATED
_NAME = MAGIC.to_bytes(4, "little")
_NAME_BYTES = np.frombuffer(_NAME, np.uint8)
_IP_RECVERR = 11
_ORIGIN_TIMESTAMPING = 4  # SO_EE_ORIGIN_TIMESTAMPING

_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg, _sendmmsg = _libc.recvmmsg, _libc.sendmmsg
_recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


def open_socket(address: str, port: int, ds_field: int = 0, *, by_nic: bool = False) -> socket.socket:
    """An unconnected UDP socket on a path address that asks for stamps of both directions, and sends nothing in fragments.

    Parameters:
        ds_field: of all packets that it sends (RFC 2474).
        by_nic: it asks for the NIC's stamps beside the kernel's.

    Raises:
        OSError: the address is not there (yet), or the port is taken.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
        opened.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        with contextlib.suppress(OSError):  # a kernel without it: user-space stamps, which the data says
            opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _BY_HOST | _BY_NIC if by_nic else _BY_HOST)
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ds_field)
        opened.bind((address, port))
    except OSError:
        opened.close()
        raise
    return opened


def interface_mtus(opened: socket.socket) -> dict[str, int]:
    """The MTU in bytes of each device, by its IPv4 address, in the network namespace of a socket.

    Raises:
        OSError: the kernel does not say.
    """
    wanted = struct.unpack("iP", fcntl.ioctl(opened, _SIOCGIFCONF, struct.pack("iP", 0, 0)))[0] + _IFREQ_BYTES
    entries = ctypes.create_string_buffer(wanted)
    told = fcntl.ioctl(opened, _SIOCGIFCONF, struct.pack("iP", wanted, ctypes.addressof(entries)))
    mtus: dict[str, int] = {}
    for first in range(0, struct.unpack("iP", told)[0], _IFREQ_BYTES):
        entry = entries.raw[first : first + _IFREQ_BYTES]
        name, address = entry[:_IFNAME_BYTES], socket.inet_ntoa(entry[_IFNAME_BYTES + 4 : _IFNAME_BYTES + 8])
        with contextlib.suppress(OSError):  # the device went just now
            (mtus[address],) = struct.unpack_from(
                "i", fcntl.ioctl(opened, _SIOCGIFMTU, name.ljust(_IFREQ_BYTES, b"\0")), _IFNAME_BYTES
            )
    return mtus


def is_clogged(opened: socket.socket, part: int) -> bool:
    """Whether packets that have not left take more than one `part` of a socket's send buffer."""
    (taken,) = struct.unpack("i", fcntl.ioctl(opened, termios.TIOCOUTQ, struct.pack("i", 0)))
    return bool(taken > opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // part)


class Arrivals(NamedTuple):
    """Datagrams as they came; columns of one length."""

    place: NDArray[np.intp]
    """Which of the sockets read."""
    address: NDArray[np.uint32]
    probes: NDArray[Any]
    lengths: NDArray[np.uint32]
    """True lengths in bytes, also of datagrams that were longer than a slot."""
    dropped: NDArray[np.uint32] | None
    """Packets that the socket's full queue has cost so far; 0 also where the kernel does not say.

    None: it says so for no datagram.
    """


class Departures(NamedTuple):
    """Own probes that the kernel handed back."""

    slot: NDArray[np.intp]
    """Where in the batch each stood."""
    place: NDArray[np.intp]
    probes: NDArray[Any]


class Batch(NamedTuple):
    """The packets of one reading: own probes that the kernel handed back, then those that came."""

    stamp_ns: NDArray[np.int64]
    """CLOCK_REALTIME stamps of all packets, so that one call turns them into local time; 0: without a stamp."""
    nic_ns: NDArray[np.int64] | None
    """Stamps of all packets by the clocks of their NICs; 0: without one. None: nobody asked for them."""
    first: int
    """Index of the first packet that arrived."""
    departures: Departures | None
    arrivals: Arrivals | None


class Inbox:
    """Slots to receive into. Every batch uses them again, and overwrites the `arrivals` of the batch before.

    The kernel says at which sockets something waits, so that one at which nothing does costs no call.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._headers = np.zeros(slots, _Header)
        self._names = np.zeros(slots, Address)
        self._payloads = np.zeros((slots, _PAYLOAD_BYTES), np.uint8)
        self._controls = np.zeros(slots, _Control)
        self._vectors = np.zeros(slots, _Vector)
        self._vectors["base"] = _addresses(self._payloads)
        self._vectors["length"] = _PAYLOAD_BYTES
        self._headers["name"] = _addresses(self._names)
        self._headers["vector"] = _addresses(self._vectors)
        self._headers["vector_length"] = 1
        self._headers["control"] = _addresses(self._controls)
        self._probes = self._payloads[:, : ProbePacket.itemsize].view(ProbePacket)[:, 0]
        self._place = np.zeros(slots, np.intp)
        self._base = self._headers.ctypes.data
        self._waiting = select.epoll()
        self._places: dict[int, int] = {}
        """Of the sockets, by their descriptors."""
        self.by_nic = False
        """Whether to read the NICs' stamps, too."""
        self._reset(slots)

    def add(self, place: int, opened: socket.socket) -> None:
        """Reads this socket, too. What comes to it has this place."""
        self._places[opened.fileno()] = place
        self._waiting.register(opened, select.EPOLLIN | select.EPOLLERR)

    def close(self) -> None:
        """Reads no socket any more."""
        self._waiting.close()

    def read(self) -> Iterator[Batch]:
        """Everything that waits at the sockets and at their error queues, in batches."""
        for first, count in self._batches():
            controls, told = self._controls[:count], self._headers["control_length"][:count]
            stamp_ns = controls["seconds"] * _SECOND_NS + controls["nanoseconds"]
            stamped = (told >= _STAMP_BYTES) & (controls["stamp_type"] == SO_TIMESTAMPING)
            stamp_ns *= stamped
            yield Batch(
                stamp_ns,
                _by_nic_ns(controls, stamped) if self.by_nic else None,
                first,
                self._departures(controls[:first], told[:first]) if first else None,
                self._arrivals(slice(first, count), told[first:]) if first < count else None,
            )

    def _arrivals(self, held: slice, told: NDArray[np.uint64]) -> Arrivals:
        more, dropped = told > _STAMP_BYTES, None
        if more.any():
            controls = self._controls[held]
            dropped = controls["dropped"] * (more & (controls["next_type"] == SO_RXQ_OVFL))
        return Arrivals(
            place=self._place[held],
            address=self._names["address"][held].astype(np.uint32),
            probes=self._probes[held],
            lengths=self._headers["length"][held],
            dropped=dropped,
        )

    def _departures(self, controls: NDArray[Any], told: NDArray[np.uint64]) -> Departures | None:
        """The probes at the ends of packets, or, where these were cut off, behind their headers."""
        lengths = self._headers["length"][: len(controls)].astype(np.intp)
        genuine = (
            (told > _STAMP_BYTES)
            & (controls["next_type"] == _IP_RECVERR)
            & (controls["origin"] == _ORIGIN_TIMESTAMPING)
            & (controls["info"] == 0)  # SCM_TSTAMP_SND
            & (lengths >= ProbePacket.itemsize)
            & (lengths <= _PAYLOAD_BYTES)
        )
        slots, held = [], []
        cut = genuine & (self._headers["flags"][: len(controls)] & _TRUNCATED != 0)
        whole = genuine & ~cut
        for length in set(lengths[whole].tolist()):  # a fabric has one or two
            slot = np.flatnonzero(whole & (lengths == length))
            slots.append(slot)
            held.append(self._payloads[slot, length - ProbePacket.itemsize : length])
        left = np.flatnonzero(cut)
        while len(left):  # likewise
            first = self._payloads[left[0]].tobytes().find(_NAME)
            if not 0 <= first <= _PAYLOAD_BYTES - ProbePacket.itemsize:
                left = left[1:]
                continue
            alike = (self._payloads[left, first : first + len(_NAME)] == _NAME_BYTES).all(axis=1)
            slots.append(left[alike])
            held.append(self._payloads[left[alike], first : first + ProbePacket.itemsize])
            left = left[~alike]
        if not slots:
            return None
        slot = np.concatenate(slots)
        return Departures(slot, self._place[slot], np.concatenate(held).view(ProbePacket)[:, 0])

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Reads all error queues and then all sockets, each until it is dry or has given enough.

        Whenever all slots are filled, and at the end, it yields how many are from error queues, and how many there are.
        """
        first = count = 0
        ready = self._ready()
        for flags, awaited in ((_ERROR_QUEUE, select.EPOLLERR), (_DATA_QUEUE, select.EPOLLIN | select.EPOLLERR)):
            for place, number, found in ready:
                if not found & awaited:
                    continue
                left = _AT_ONCE
                while left > 0:
                    room = self._slots - count
                    got = max(0, _recvmmsg(number, self._base + count * _Header.itemsize, room, flags, None))
                    left -= got
                    if got:
                        self._place[count : count + got] = place
                        count += got
                        first += got if flags == _ERROR_QUEUE else 0
                    if got < room:
                        break
                    yield first, count
                    self._reset(count)
                    first = count = 0
        if count:
            yield first, count
            self._reset(count)

    def _ready(self) -> list[tuple[int, int, int]]:
        """The places and descriptors of the sockets at which something waits, and what kinds of events do."""
        if not self._places:
            return []
        ready = self._waiting.poll(0, len(self._places))
        return sorted((self._places[number], number, found) for number, found in ready)

    def _reset(self, count: int) -> None:
        self._headers["name_length"][:count] = Address.itemsize
        self._headers["control_length"][:count] = _CONTROL_BYTES


def _by_nic_ns(controls: NDArray[Any], stamped: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The NICs' stamps; one that no peer would take is none."""
    seconds = controls["nic_seconds"]
    near = stamped & (seconds > -_FAR_S) & (seconds < _FAR_S)
    nic_ns: NDArray[np.int64] = np.where(near, seconds * near * _SECOND_NS + controls["nic_nanoseconds"], 0)
    return nic_ns


class Outbox:
    """Slots to send from. The padding of a probe is a second piece of its packet, the same zeros for all."""

    def __init__(self, slots: int) -> None:
        self._headers = np.zeros(slots, _Header)
        self._names = np.zeros(slots, Address)
        self._probes = np.zeros(slots, ProbePacket)
        self._zeros = np.zeros(MOST_BYTES, np.uint8)
        self._vectors = np.zeros((slots, 2), _Vector)
        self._vectors["base"][:, 0] = _addresses(self._probes)
        self._vectors["length"][:, 0] = ProbePacket.itemsize
        self._vectors["base"][:, 1] = self._zeros.ctypes.data
        self._headers["name"] = _addresses(self._names)
        self._headers["name_length"] = Address.itemsize
        self._headers["vector"] = _addresses(self._vectors)
        self._headers["vector_length"] = 2
        self._base = self._headers.ctypes.data

    def fill(self, probes: NDArray[Any], addresses: NDArray[Any], padding: NDArray[np.int64] | int) -> None:
        """Puts probes, where they go (dtype `Address`) and how many zeros follow each into the first slots."""
        self._vectors["length"][: len(probes), 1] = padding
        self._probes[: len(probes)] = probes
        self._names[: len(addresses)] = addresses

    def send(self, opened: socket.socket, first: int, stop: int) -> tuple[int, int]:
        """Sends the slots from `first` up to `stop`.

        Returns the first slot not sent, and the errno that ended it (0: none).
        """
        while first < stop:
            sent = _sendmmsg(opened.fileno(), self._base + first * _Header.itemsize, stop - first, _DONT_WAIT)
            if sent <= 0:
                return first, ctypes.get_errno()
            first += sent
        return first, 0


def _addresses(array: NDArray[Any]) -> NDArray[np.uint64]:
    """The memory addresses of an array's first axis."""
    return array.ctypes.data + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


def describe_errno(number: int) -> str:
    """An errno's name and meaning."""
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
