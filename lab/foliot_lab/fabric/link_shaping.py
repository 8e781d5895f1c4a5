"""Shapes a link: its rate, its queue, and the packets that it drops."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot.node.rtnetlink import attributes
from foliot_lab.fabric import rtnetlink
from foliot_lab.scenario.topology import MTU_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

BURST_BYTES = 70_000
"""More than one 64 KiB GSO packet with its headers. With 8 kB the kernel segments every such packet, and two cores
saturate at 0.9 Gb/s in all. With this they are 17 % busy at 1.3 Gb/s (measured)."""
_ETHERNET_BYTES = 14
_FRAME_BYTES = MTU_BYTES + _ETHERNET_BYTES
_TBF_HANDLE = 0x1_0000

# linux/pkt_sched.h and linux/pkt_cls.h
_TCA_KIND, _TCA_OPTIONS, _TCA_STATISTICS = 1, 2, 7
_STATISTICS_BASIC, _STATISTICS_QUEUE = 1, 3
_TBF_PARAMETERS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_LINKLAYER_ETHERNET = 1
_ROOT = 0xFFFF_FFFF
_BPF_OPS_LENGTH, _BPF_OPS, _BPF_FLAGS = 4, 5, 8
_BPF_ACT_DIRECT = 1
_ALL_PROTOCOLS = 0x0300  # ETH_P_ALL in network order
_ENTERING, _LEAVING = 0xFFFF_FFF2, 0xFFFF_FFF3  # clsact's two hooks
_TCMSG = struct.Struct("=BxxxiIII")

# linux/filter.h: a classic BPF instruction is code, jump if true, jump if false, operand.
_LOAD_RANDOM = (0x20, 0, 0, 0xFFFF_F000 + 56)  # ld #random: SKF_AD_OFF + SKF_AD_RANDOM, 32 bits, uniform
_LOAD_LENGTH = (0x80, 0, 0, 0)  # ld #len: of the kernel's packet, with its Ethernet header
_JUMP_IF_ABOVE, _JUMP_IF_AT_LEAST, _RETURN = 0x25, 0x35, 0x06
_PASS, _DROP = 0, 2  # TC_ACT_OK, TC_ACT_SHOT


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of one direction of a link, and the limit of its queue."""

    rate_mbps: float
    queue_packets: int
    """Full-size packets. The queue is bounded in bytes, so small packets queue in larger numbers."""

    @property
    def rate_bytes(self) -> int:
        """Bytes per second."""
        return round(self.rate_mbps * 1e6 / 8)

    @property
    def limit_bytes(self) -> int:
        """Bound of the queue."""
        return self.queue_packets * _FRAME_BYTES


def shape_command(device: str, shape: Shape) -> str:
    """The tc(8) batch line that gives a device its rate and queue."""
    rate = f"rate {shape.rate_bytes * 8}bit burst {BURST_BYTES} limit {shape.limit_bytes}"
    return f"qdisc add dev {device} root handle 1: tbf {rate}"


def reshape(index: int, shape: Shape) -> bytes:
    """The netlink message that changes a device's rate in place. Queued packets stay queued."""
    rate = struct.pack("=BBHhHI", 0, _LINKLAYER_ETHERNET, 0, 0, 0, min(shape.rate_bytes, 0xFFFF_FFFF))
    no_peak = bytes(len(rate))
    parameters = rate + no_peak + struct.pack("=III", shape.limit_bytes, 0, 0)
    options = (
        rtnetlink.attribute(_TBF_PARAMETERS, parameters)
        + rtnetlink.attribute(_TBF_RATE64, struct.pack("=Q", shape.rate_bytes))
        + rtnetlink.attribute(_TBF_BURST, struct.pack("=I", BURST_BYTES))
    )
    return rtnetlink.message(
        rtnetlink.NEW_QDISC,
        rtnetlink.ACK | rtnetlink.REPLACE,
        _TCMSG.pack(0, index, _TBF_HANDLE, _ROOT, 0),
        rtnetlink.attribute(_TCA_KIND, b"tbf\0"),
        rtnetlink.attribute(_TCA_OPTIONS, options),
    )


class Counted(NamedTuple):
    """What the kernel has counted at the queue of a device."""

    device: int
    """The device's index."""
    sent_bytes: int
    """Bytes that have left it, with the headers of every packet on the wire."""
    queued_bytes: int
    """Bytes that wait in it now."""
    rate_bytes: int
    """Bytes that may leave it in a second now."""


def ask_counters() -> bytes:
    """The netlink question about the queues of all devices of a namespace."""
    return rtnetlink.message(rtnetlink.GET_QDISC, rtnetlink.DUMP, _TCMSG.pack(0, 0, 0, 0, 0))


def counted(answer: bytes) -> Counted | None:
    """What an answer to that says of a shaped device; None: it is about another queue."""
    _, index, _, parent, _ = _TCMSG.unpack_from(answer)
    found = attributes(answer, _TCMSG.size)
    if parent != _ROOT or found.get(_TCA_KIND) != b"tbf\0":
        return None
    statistics = attributes(found[_TCA_STATISTICS])
    parameters = attributes(found[_TCA_OPTIONS])[_TBF_PARAMETERS]
    return Counted(
        device=index,
        sent_bytes=struct.unpack_from("=Q", statistics[_STATISTICS_BASIC])[0],
        queued_bytes=struct.unpack_from("=II", statistics[_STATISTICS_QUEUE])[1],
        rate_bytes=struct.unpack_from("=BBHhHI", parameters)[5],
    )


def _hook(index: int, entering: bool) -> bytes:
    return _TCMSG.pack(0, index, 1, _ENTERING if entering else _LEAVING, 1 << 16 | _ALL_PROTOCOLS)


def drop(index: int, *, entering: bool, share: float = 1.0) -> bytes:
    """The netlink message that makes a device silently drop a random share of the packets that enter or leave it.

    It counts kernel packets. The sender's offload may join several TCP segments into one, which is lost or passed
    whole.
    """
    program = [(_RETURN, 0, 0, _DROP)]
    if share < 1:
        least = round((1 - share) * 0xFFFF_FFFF)
        program = [_LOAD_RANDOM, (_JUMP_IF_AT_LEAST, 0, 1, least), *program, (_RETURN, 0, 0, _PASS)]
    return _filter(index, entering, program)


def drop_large(index: int, *, entering: bool, most_bytes: int) -> bytes:
    """The netlink message that makes a device silently drop every larger IP packet that enters or leaves it.

    It counts kernel packets. The sender's offload may join several TCP segments into one, which is lost whole. Its last
    segment, which would have passed alone, is lost with it.
    """
    most = most_bytes + _ETHERNET_BYTES
    program = [_LOAD_LENGTH, (_JUMP_IF_ABOVE, 0, 1, most), (_RETURN, 0, 0, _DROP), (_RETURN, 0, 0, _PASS)]
    return _filter(index, entering, program)


def _filter(index: int, entering: bool, program: Sequence[tuple[int, int, int, int]]) -> bytes:
    options = (
        rtnetlink.attribute(_BPF_OPS_LENGTH, struct.pack("=H", len(program)))
        + rtnetlink.attribute(_BPF_OPS, b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
        + rtnetlink.attribute(_BPF_FLAGS, struct.pack("=I", _BPF_ACT_DIRECT))
    )
    return rtnetlink.message(
        rtnetlink.NEW_FILTER,
        rtnetlink.ACK | rtnetlink.CREATE | rtnetlink.EXCLUSIVE,
        _hook(index, entering),
        rtnetlink.attribute(_TCA_KIND, b"bpf\0"),
        rtnetlink.attribute(_TCA_OPTIONS, options),
    )


def pass_again(index: int, *, entering: bool) -> bytes:
    """The netlink message that undoes `drop` and `drop_large`."""
    return rtnetlink.message(
        rtnetlink.DELETE_FILTER, rtnetlink.ACK, _hook(index, entering), rtnetlink.attribute(_TCA_KIND, b"bpf\0")
    )
