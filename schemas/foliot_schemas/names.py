"""Names of NICs and paths, and the one escape that makes a name a subject token.

A NIC is ``node3.rail0``. A path is ``node0.rail0>node3.rail0#2``: source NIC, destination NIC and
the index of its entropy, in the direction of travel. A flow is ``node0.rail0>node3.rail0``. The NIC's
own clock is ``node3.rail0:phc``.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_REMEMBERED = 4_096
"""Escaped names that are remembered. The subject of every incoming message is compared with its name."""
_SHOWN = 256
"""Characters of a wrong name that an error quotes."""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_PLAIN_TOKEN = re.compile(r"[a-z0-9-]+")
_ESCAPE = re.compile(r"_([0-9a-f]{2})")
_TOKEN = re.compile(r"(?:[a-z0-9-]|_[0-9a-f]{2})+")
_FLOW = re.compile(r"(?P<source>[^>#]+)>(?P<destination>[^>#]+)")
_PATH = re.compile(r"(?P<source>[^>#]+)>(?P<destination>[^>#]+)#(?P<entropy>0|[1-9][0-9]{0,4})")


_NIC_CLOCK = ":phc"
"""Behind the name of a NIC: Linux calls its clock a PTP hardware clock. No node and no rail is named so."""


class Flow(NamedTuple):
    """The traffic from one service address to another, whichever way it goes."""

    source: str
    """The NIC to which the sender's service address belongs."""
    destination: str
    """The same of the receiver."""

    def __str__(self) -> str:
        """The flow's name."""
        return f"{self.source}>{self.destination}"


class Path(NamedTuple):
    """One direction of one route through the fabric."""

    source: str
    """Source NIC."""
    destination: str
    """Destination NIC."""
    entropy: int
    """Index into the entropies of the source NIC, which the inventory lists."""

    def __str__(self) -> str:
        """The path's name."""
        return f"{self.source}>{self.destination}#{self.entropy}"

    @property
    def back(self) -> Path:
        """The same rail and entropy, travelled the other way."""
        return Path(self.destination, self.source, self.entropy)


def escape(name: str) -> str:
    """The subject token of a name: bytes other than ``a-z 0-9 -`` become ``_`` and two hex digits.

    Raises:
        ValueError: the name is empty; a subject has no empty token.
    """
    # Names of nodes are mostly plain. A large fleet has more of them than are remembered.
    return name if _PLAIN_TOKEN.fullmatch(name) else _escaped(name)


@functools.lru_cache(_REMEMBERED)
def _escaped(name: str) -> str:
    if not name:
        raise ValueError("an empty name cannot become a subject token")
    return "".join(chr(byte) if byte in _PLAIN else f"_{byte:02x}" for byte in name.encode())


def unescape(token: str) -> str:
    """The name that `escape` made this token from.

    Raises:
        ValueError: no name escapes to this token.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{token!r} is not an escaped name")
    raw = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), token)
    name = raw.encode("latin-1").decode()
    if escape(name) != token:
        raise ValueError(f"{token!r} is not the escape of any name")
    return name


def nic_name(node: str, rail: str) -> str:
    """The name of a node's NIC on a rail."""
    return f"{node}.{rail}"


def node_of(nic: str) -> str:
    """The node that a NIC sits in."""
    return nic.rpartition(".")[0]


def rail_of(nic: str) -> str:
    """The rail that a NIC sits on."""
    return nic.rpartition(".")[2]


def nic_clock_name(nic: str) -> str:
    """The name of the clock that is in a NIC, and stamps packets in its hardware."""
    return f"{nic}{_NIC_CLOCK}"


def is_nic_clock(clock: str) -> bool:
    """Whether a clock is in a NIC, and is no host's."""
    return clock.endswith(_NIC_CLOCK)


def starts_at(path: str, node: str) -> bool:
    """Whether the path of this name leaves a NIC of the node; quicker than parsing it."""
    return path.startswith(f"{node}.") and node_of(path.partition(">")[0]) == node


def ends_at(path: str, node: str) -> bool:
    """Whether the path of this name arrives at a NIC of the node."""
    return node_of(path.partition(">")[2].partition("#")[0]) == node


def parse_path(name: str) -> Path:
    """The path of this name.

    Raises:
        ValueError: it is not of the form ``source>destination#entropy``.
    """
    match = _PATH.fullmatch(name)
    if match is None:
        raise ValueError(f"{name[:_SHOWN]!r} is not a path; expected source>destination#entropy")
    return Path(match["source"], match["destination"], int(match["entropy"]))


def parse_flow(name: str) -> Flow:
    """The flow of this name.

    Raises:
        ValueError: it is not of the form ``source>destination``.
    """
    match = _FLOW.fullmatch(name)
    if match is None:
        raise ValueError(f"{name[:_SHOWN]!r} is not a flow; expected source>destination")
    return Flow(match["source"], match["destination"])
