"""Datagrams between agents, sent over a surviving rail and not over the bus.

On the wire: 32 bytes of HMAC-SHA256, then the encoded message. The fleet's key signs all that follows the HMAC.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import Integer, Name, Text, Time  # noqa: TC001 - msgspec reads annotations at run time


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice.v1"):
    """One of the sender's NICs is lost, or back: do not send to it, or send to it again."""

    node: Name
    """The sender."""
    rail: Name
    """Rail of the NIC."""
    state: Literal["lost", "back"]
    """The new state of the NIC."""
    fault: Text
    """Name of the fault; the trace id is derived from it."""
    sequence: Integer
    """Rises with every notice of this node and boot, so that an old one cannot undo a newer one."""
    at_ns: Time
    """When the sender saw it, reference time."""
    span: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,16}$", max_length=16)] = ""
    """The sender's span id, in hex: the parent of the receiver's spans."""


class NoticeSeen(msgspec.Struct, frozen=True, kw_only=True, tag="notice-seen.v1"):
    """The answer: the receiver has moved."""

    node: Name
    """The receiver, which answers."""
    sequence: Integer
    """Sequence number of the notice."""
    moved: bool
    """Whether its traffic has left the NIC (or is back on it)."""


class Echo(msgspec.Struct, frozen=True, kw_only=True, tag="echo.v1"):
    """A datagram from service address to service address, and back.

    It confirms on the wire that both directions flow.
    """

    node: Name
    """The node that asks."""
    token: Integer
    """A number that comes back in the answer."""
    answer: bool
    """False on the way there, true on the way back."""
