"""Datagrams between agents, over a surviving rail, without the bus.

On the wire: 32 bytes of HMAC-SHA256 under the fleet's key over all that follows, then the encoded message.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice.v1"):
    """One of my NICs is lost (or is back): do not send to it (or do again)."""

    node: str
    rail: str
    state: Literal["lost", "back"]
    fault: str
    """What the trace id is derived from."""
    sequence: int
    """Rises with every notice of this node and boot, so that an old one cannot undo a newer one."""
    at_ns: int
    span: str = ""
    """The sender's span id, in hex: parent of what the receiver does."""


class NoticeSeen(msgspec.Struct, frozen=True, kw_only=True, tag="notice-seen.v1"):
    """The answer: the receiver has moved."""

    node: str
    sequence: int
    moved: bool


class Echo(msgspec.Struct, frozen=True, kw_only=True, tag="echo.v1"):
    """Sent from service address to service address, and back: confirms on the wire that both directions flow."""

    node: str
    token: int
    answer: bool
