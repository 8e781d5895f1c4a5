"""A message as a line: in words, or as JSON."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.cli.colours import DIM, GREEN, RED, YELLOW, paint
from foliot.text import messages
from foliot_schemas import DelayBatch, Event, FitBatch, Outcome, StampBatch, WireError, decode
from foliot_schemas.names import unescape
from foliot_schemas.subjects import BUCKETS, CHANNELS, ROOT

if TYPE_CHECKING:
    from foliot.bus.observer import Heard

_KINDS = {str(each.message.__struct_config__.tag): each.message for each in (*CHANNELS, *BUCKETS)}
_COLUMNAR = (StampBatch, DelayBatch, FitBatch)
_LABEL_WIDTH = 11
_dated = functools.partial(messages.clock_time, form="%Y-%m-%dT%H:%M:%S")


def message_in(heard: Heard) -> msgspec.Struct | None:
    """The decoded message; None: a key of a bucket was deleted.

    Raises:
        WireError: it is broken, or of a newer version than this.
    """
    if not heard.data and heard.subject.startswith("$KV."):
        return None
    try:
        tag = msgspec.msgpack.decode(heard.data)["type"]
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError, KeyError, IndexError):
        raise WireError("no message of Foliot's") from None
    if tag not in _KINDS:
        raise WireError(f"{tag} is not known to this version")
    message = decode(heard.data, _KINDS[tag])
    _check(heard.subject, message)
    if isinstance(message, _COLUMNAR):
        try:
            message.rows()
        except ValueError as error:
            raise WireError(str(error)) from error
    return message


def _check(subject: str, message: msgspec.Struct) -> None:
    """Checks, as every reader of Foliot does, that a message is about the one that its subject names."""
    bucket = next((each for each in BUCKETS if subject.startswith(f"$KV.{each.name}.")), None)
    if bucket is not None:
        return bucket.check(_key(subject), message)
    channel = next((each for each in CHANNELS if subject.startswith(f"{ROOT}.{each.name}.")), None)
    if channel is None:
        return None
    if not isinstance(message, channel.message):
        raise WireError(f"not a {channel.message.__struct_config__.tag}")
    return channel.check(subject, message)


def in_text(heard: Heard, *, colour: bool = False) -> str:
    """A line for a person: the time (UTC), the kind of message, and its content in words."""
    at_ns, code = heard.arrived_ns, 0
    try:
        message = message_in(heard)
    except WireError as error:
        said, code = (
            f"{len(heard.data)} bytes on {heard.subject or 'standard input'} that cannot be read: {error}",
            YELLOW,
        )
    else:
        said = "deleted" if message is None else messages.one_line(message)
        if message is not None:
            at_ns = messages.happened_ns(message) or at_ns
            code = RED if messages.is_bad(message) else GREEN if isinstance(message, (Event, Outcome)) else 0
    key = _key(heard.subject) if heard.subject.startswith("$KV.") else ""
    said = said if said.startswith(key) else f"{key}: {said}"
    label = _label(heard)
    return f"{paint(_dated(at_ns), DIM, colour)}  {label:<{_LABEL_WIDTH}}  {paint(said, code, colour)}"


def in_json(heard: Heard) -> str:
    """A line for a program: subject, headers and message; batches have their columns as lists of numbers."""
    line: dict[str, Any] = {"subject": heard.subject, "at": _dated(heard.arrived_ns), "headers": heard.headers}
    if heard.subject.startswith("$KV."):
        line |= {"bucket": heard.subject.split(".")[1], "key": _key(heard.subject)}
    try:
        message = message_in(heard)
    except WireError as error:
        line |= {"unreadable": str(error), "data": heard.data}
    else:
        line["message"] = None if message is None else _plain(message)
    return msgspec.json.encode(line).decode()


def _plain(message: msgspec.Struct) -> Any:
    plain = msgspec.to_builtins(message)
    if isinstance(message, _COLUMNAR):
        rows = message.rows()
        plain["columns"] = {name: rows[name].tolist() for name in rows.dtype.names or ()}
    return plain


def _label(heard: Heard) -> str:
    if heard.subject.startswith("$KV."):
        return heard.subject.split(".")[1]
    tokens = heard.subject.removeprefix(f"{ROOT}.").split(".")
    return tokens[1] if tokens[0] == "observation" and len(tokens) > 1 else tokens[0]


def _key(subject: str) -> str:
    token = subject.rpartition(".")[2]
    try:
        return unescape(token)
    except ValueError:
        return token
