"""A message that a service could not read, or that the bus did not store."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import Name, Text  # noqa: TC001 - msgspec reads annotations at run time


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag="rejected.v1"):
    """An unknown or broken message: counted, logged and shown, never fatal."""

    service: Name
    """The service that could not read it."""
    subject: Text
    """The subject it came on."""
    reason: Text
    """The error, in words."""
    head: Annotated[bytes, msgspec.Meta(max_length=256)]
    """First 256 bytes of the message."""
    unstored: bool = False
    """The message is not broken. It is one of the service's own that its stream does not store. Plain subscribers
    have it; if it is lost on the way, nobody will know. The service offers it again until it is stored, and reports
    this each time."""
