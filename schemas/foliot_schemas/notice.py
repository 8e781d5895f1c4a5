"""Datagrams between agents, over a surviving rail, without the bus.

On the wire: 32 bytes of HMAC-SHA256 under the fleet's key over all that follows, then the encoded message.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import Integer, Name, Text, Time  # noqa: TC001 - msgspec reads annotations at run time


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice.v1"):
    """One of my NICs is lost (or is back): do not send to it (or do again)."""

    node: Name
    """The sender."""
    rail: Name
    """Of the NIC."""
    state: Literal["lost", "back"]
    """What became of it."""
    fault: Text
    """What the trace id is derived from."""
    sequence: Integer
    """Rises with every notice of this node and boot, so that an old one cannot undo a newer one."""
    at_ns: Time
    """When the sender saw it, reference time."""
    span: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,16}$", max_length=16)] = ""
    """The sender's span id, in hex: parent of what the receiver does."""


class NoticeSeen(msgspec.Struct, frozen=True, kw_only=True, tag="notice-seen.v1"):
    """The answer: the receiver has moved."""

    node: Name
    """The receiver, who answers."""
    sequence: Integer
    """Of the notice."""
    moved: bool
    """Whether its traffic has left the NIC (or is back on it)."""


class Echo(msgspec.Struct, frozen=True, kw_only=True, tag="echo.v1"):
    """Sent from service address to service address, and back: confirms on the wire that both directions flow."""

    node: Name
    """Who asks."""
    token: Integer
    """Comes back in the answer."""
    answer: bool
    """False on the way there, true on the way back."""
