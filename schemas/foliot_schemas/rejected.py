"""A message that a service could not read, or that the bus did not store."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import Name, Text  # noqa: TC001 - msgspec reads annotations at run time


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected.v1"):
    """An unknown or broken message: counted, logged and shown, never fatal."""

    service: Name
    """Who could not read it."""
    subject: Text
    """Where it came."""
    reason: Text
    """What was wrong, in words."""
    head: Annotated[bytes, msgspec.Meta(max_length=256)]
    """First 256 bytes of what came."""
    unstored: bool = False
    """It is no broken message, but one of the service's own that its stream does not store: plain subscribers have it, and if it is lost on
    the way, nobody will know. It is offered again until it is stored, and each time this is said."""
