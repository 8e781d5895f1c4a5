"""Reads a NIC's driver information by an ioctl that needs no privilege (linux/ethtool.h)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

import msgspec

_SIOCETHTOOL = 0x8946
_GET_SETTINGS, _GET_STAMPING = 0x01, 0x41
_SETTINGS_BYTES, _STAMPING_BYTES = 44, 44
_SPEED_AT, _SPEED_HIGH_AT = 12, 28
"""Offsets of `speed` and `speed_hi` in ``struct ethtool_cmd``."""
_UNKNOWN_SPEEDS = {0, 0xFFFF, 0xFFFFFFFF}
# linux/net_tstamp.h
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE, _RAW_HARDWARE = 1, 2, 4, 8, 64
_TX_ON, _FILTER_ALL = 1, 1
"""Bits by these numbers of `tx_types` and `rx_filters`."""
_NO_CLOCK = -1


class Stamping(msgspec.Struct, frozen=True, kw_only=True):
    """The timestamps that a NIC can give, each for sent and received packets."""

    hardware: bool
    kernel: bool
    phc_index: int | None
    """Its clock is /dev/ptp with this number; None: it has none."""
    transmits: bool = False
    """Whether it can stamp all packets that leave (``HWTSTAMP_TX_ON``)."""
    receives: bool = False
    """Whether it can stamp all packets that come (``HWTSTAMP_FILTER_ALL``), and not those of PTP alone."""


def stamping(device: str) -> Stamping | None:
    """The timestamps of a NIC; None: its driver does not say."""
    answer = _ask(device, _GET_STAMPING, _STAMPING_BYTES)
    return None if answer is None else parse_stamping(answer)


def parse_stamping(answer: bytes) -> Stamping:
    """Reads ``struct ethtool_ts_info``."""
    _, flags, phc, transmits, *_, receives = struct.unpack_from("IIiI3II", answer)
    hardware, kernel = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE, _TX_SOFTWARE | _RX_SOFTWARE
    return Stamping(
        hardware=flags & hardware == hardware,
        kernel=flags & kernel == kernel,
        phc_index=None if phc == _NO_CLOCK else phc,
        transmits=bool(transmits & 1 << _TX_ON),
        receives=bool(receives & 1 << _FILTER_ALL),
    )


def speed_mbps(device: str) -> int | None:
    """The speed of a NIC's link; None: its driver does not say, or there is no link."""
    answer = _ask(device, _GET_SETTINGS, _SETTINGS_BYTES)
    return None if answer is None else parse_speed(answer)


def parse_speed(answer: bytes) -> int | None:
    """Reads ``struct ethtool_cmd``."""
    (low,), (high,) = struct.unpack_from("H", answer, _SPEED_AT), struct.unpack_from("H", answer, _SPEED_HIGH_AT)
    speed = high << 16 | low
    return None if speed in _UNKNOWN_SPEEDS else speed


def _ask(device: str, command: int, length: int) -> bytes | None:
    answer = ctypes.create_string_buffer(struct.pack("I", command), length)
    request = struct.pack("16sP16x", device.encode(), ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            fcntl.ioctl(asked, _SIOCETHTOOL, request)
        except OSError:
            return None
    return answer.raw
