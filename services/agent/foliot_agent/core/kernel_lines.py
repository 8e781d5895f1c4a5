"""Lines of the kernel's log: those by which a GPU's driver says that a GPU is in trouble.

A record of /dev/kmsg begins with its priority and facility, number, time and flags, then a semicolon
(Documentation/ABI/testing/dev-kmsg). The driver's line is described in "XID Errors" (docs.nvidia.com/deploy/xid-errors).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_LONGEST_LINE = 8_192
"""The largest record that the kernel gives (CONSOLE_EXT_LOG_MAX of <linux/printk.h>)."""
_LONGEST_MESSAGE = 512
_MOST_A_SECOND = 10
_MOST_OF_A_KIND = 3
"""Of one kind and GPU. A program may make the driver repeat itself; another error must not drown in that."""
_SECOND_NS = 1_000_000_000
_FACILITY = 3
"""The bit of a record's first number at which its facility begins; 0 is the kernel's own."""
_PREFIX = re.compile(rb"(\d{1,9}),\d{1,20},\d{1,20},[^;]{0,256};")
_ERROR = re.compile(rb"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{0,32})[^)]{0,64}\): (\d{1,5})\b,? ?(.*)", re.DOTALL)
_MOST_XID = (1 << 16) - 1


class GpuLine(NamedTuple):
    """An error as the driver wrote it."""

    xid: int
    device: str
    """PCI address; empty: the line has none."""
    message: str


def read(line: bytes) -> GpuLine | None:
    """The error in a line of the log, with a record's prefix or without; None: there is none.

    A record of a program, which root may write, is none either: the kernel marks it by another facility.
    """
    prefix = _PREFIX.match(line)
    if prefix is not None and int(prefix[1]) >> _FACILITY:
        return None
    found = _ERROR.match(line, prefix.end() if prefix is not None else 0)
    if found is None or int(found[2]) > _MOST_XID:
        return None
    message = found[3].decode(errors="replace").strip()
    return GpuLine(int(found[2]), found[1].decode(), message[:_LONGEST_MESSAGE])


class Lines:
    """Puts the lines of a stream together. One that is too long is left out."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_too_long = False

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in these bytes."""
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = self._rest + ended[0]
            if self._is_too_long:
                del ended[0]
            self._rest, self._is_too_long = b"", False
        self._rest += rest
        if len(self._rest) > _LONGEST_LINE:
            self._rest, self._is_too_long = b"", True
        return ended


class Bound:
    """How many errors are told: a broken GPU, or a program that errs, may make thousands a second."""

    def __init__(self) -> None:
        self.left_out = 0
        """Errors that were not told, in all."""
        self._since_ns = 0
        self._told: Counter[tuple[int, str]] = Counter()

    def passes(self, error: GpuLine, now_ns: int) -> bool:
        """Whether an error may be told now."""
        if not 0 <= now_ns - self._since_ns < _SECOND_NS:
            self._since_ns = now_ns
            self._told.clear()
        kind = error.xid, error.device
        if self._told.total() >= _MOST_A_SECOND or self._told[kind] >= _MOST_OF_A_KIND:
            self.left_out += 1
            return False
        self._told[kind] += 1
        return True
