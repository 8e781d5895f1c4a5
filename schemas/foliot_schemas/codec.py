"""Messages to bytes and back: msgpack, with the message's name and major version in its tag."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

Message = TypeVar("Message", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {}


class WireError(ValueError):
    """The bytes are not the message that the subject promises."""


def encode(message: msgspec.Struct) -> bytes:
    """The message's bytes."""
    return _encoder.encode(message)


def decode(data: bytes, kind: type[Message]) -> Message:
    """The message in these bytes. Unknown fields are ignored: a newer sender may know more.

    Raises:
        WireError: they are anything else.
    """
    if kind not in _decoders:
        _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return cast("Message", _decoders[kind].decode(data))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not a {kind.__struct_config__.tag}: {error}") from error
