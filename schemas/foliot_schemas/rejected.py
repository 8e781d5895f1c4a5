"""What a service could not read."""

from __future__ import annotations

import msgspec


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected.v1"):
    """An unknown or broken message: counted, logged and shown, never fatal."""

    service: str
    subject: str
    reason: str
    head: bytes
    """First 256 bytes of what came."""
