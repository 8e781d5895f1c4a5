"""Bounds of the values on the wire, checked when a message is decoded.

The limits are far beyond real values. They keep arithmetic inside 64 bits, names inside a subject, and the memory for a
message near its own size.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import sys
from typing import Annotated, TypeAlias

from msgspec import Meta

FAR_NS = 1 << 62
"""146 years. Times and delays lie nearer to 0 than this, so that the difference of two fits into int64."""

Time: TypeAlias = Annotated[int, Meta(ge=1 - FAR_NS, le=FAR_NS - 1)]
"""A time, local or of the reference, or a difference of times, in ns."""
Span: TypeAlias = Annotated[int, Meta(ge=0, le=FAR_NS - 1)]
"""A length of time in ns."""
Bound: TypeAlias = Annotated[int, Meta(ge=-1, le=FAR_NS)]
"""The bound of a clock's error, in ns; -1: not known, `FAR_NS`: nothing is promised."""
Seconds: TypeAlias = Annotated[int, Meta(ge=-(FAR_NS // 10**9), le=FAR_NS // 10**9)]
"""A whole number of seconds."""
TaiOffset: TypeAlias = Annotated[int, Meta(ge=0, le=100_000)]
"""TAI minus UTC, in seconds; 0: not known. Linux takes no more than 100,000 for it."""
LeapSecond: TypeAlias = Annotated[int, Meta(ge=-1, le=1)]
"""1: a second is inserted; -1: one is deleted; 0: neither."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
KernelCount: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""A count of carriers. The kernel counts them in 32 bits."""
Integer: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Entropy: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Finite: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A float that is neither infinite nor NaN."""
Share: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
MOST_PPB = 1e7
"""1 %, in ppb. The worst crystals keep to 0.02 %, so a rate further from another clock's is an error."""
Rate: TypeAlias = Annotated[float, Meta(ge=-MOST_PPB, le=MOST_PPB)]
"""The rate of one clock against another, in ppb."""

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
"""The name of a node, rail, clock or service: at most as long as a host's name (RFC 1035)."""
LongName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_056)]
"""The name of a NIC, a path or any other subject of an event. The longest holds two nodes, two rails and an entropy."""
Word: TypeAlias = Annotated[str, Meta(max_length=64)]
KindName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
"""The name of a kind of event, known here or not. It is a token of a subject, so it is never empty."""
Text: TypeAlias = Annotated[str, Meta(max_length=4_096)]
"""An id, a fault or a reason. Ids are made of each other, and hold a path or two."""
Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4_096)]

_LONGEST_ID = 4_096
MOST_RAILS = 64
MOST_PATHS = 1 << 16
"""Paths in a batch, at most: rows name them by 16 bits."""

_PLAIN_NAME = re.compile(r"[^\x00-\x20\x7f-\xa0>#/]+")
"""Printable characters without those that separate names from each other in the names of paths and processes."""


def fitting(made_id: str) -> str:
    """An id made of other ids: itself or, if it is too long for a message, its beginning and a digest of the whole."""
    if len(made_id) <= _LONGEST_ID:
        return made_id
    return f"{made_id[: _LONGEST_ID // 2]}/{hashlib.blake2b(made_id.encode(), digest_size=16).hexdigest()}"


def check_name(name: str) -> None:
    """Refuses a name of a node or clock that could be taken for something else.

    Raises:
        ValueError: it holds a space, a control character, ``>``, ``#`` or ``/``.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"{name[:64]!r} cannot be a name: it is empty, or holds a space, '>', '#' or '/'")


def check_address(address: str) -> None:
    """Refuses any text that is no IPv4 address. A sender would have to look a name up.

    Raises:
        ValueError: it is none.
    """
    ipaddress.IPv4Address(address)
