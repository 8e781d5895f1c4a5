"""Messages to bytes and back: msgpack, with the message's name and major version in its tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

Message = TypeVar("Message", bound=msgspec.Struct)

_REASON_CHARACTERS = 512
"""Length of an error's text. It may quote its input, of any length; a reader wants a line."""

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[msgspec.Struct], tuple[msgspec.msgpack.Decoder[Any], Callable[[Any], None] | None]] = {}
"""Per kind of message, the decoder of its fields and, if the message has one, the check that they do not contradict
each other."""


class WireError(ValueError):
    """The bytes are not the message that the subject promises."""


def encode(message: msgspec.Struct) -> bytes:
    """The message's bytes."""
    return _encoder.encode(message)


def decode(data: bytes, kind: type[Message]) -> Message:
    """The message in these bytes, every value within its bounds.

    Unknown fields are ignored: a newer sender may know more.

    Raises:
        WireError: they are anything else.
    """
    if kind not in _decoders:
        _decoders[kind] = msgspec.msgpack.Decoder(kind), getattr(kind, "check", None)
    decoder, check = _decoders[kind]
    try:
        message = decoder.decode(data)
        if check is not None:
            check(message)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not a {kind.__struct_config__.tag}: {str(error)[:_REASON_CHARACTERS]}") from error
    return cast("Message", message)
