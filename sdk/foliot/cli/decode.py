"""``foliot decode``: messages that another tool received, as lines.

For example ``nats sub 'foliot.v1.event.>' --translate 'foliot decode'``.
"""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import binascii
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from foliot.bus.observer import Heard
from foliot.cli.message_lines import in_json, in_text
from foliot.runtime.extensions import extend
from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES = 65_536


class _Dumped(msgspec.Struct):
    """A message as ``nats sub --dump=-`` writes it."""

    Subject: str = ""
    Header: dict[str, list[str]] | None = None
    Data: str | None = None


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "decode",
        help="show a message that another tool received",
        description="Reads one message from standard input, or many as `nats sub --dump=-` writes them, "
        "and shows them.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(func=_decode)


def _decode(arguments: argparse.Namespace) -> int:
    try:
        extend("cli")
        for heard in messages(sys.stdin.buffer):
            sys.stdout.write((in_json(heard) if arguments.json else in_text(heard)) + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except SettingsError as error:
        sys.stderr.write(f"foliot decode: {error}\n")
        return 1
    except (msgspec.MsgspecError, binascii.Error) as error:
        sys.stderr.write(f"foliot decode: not what `nats sub --dump=-` writes: {error}\n")
        return 1
    return 0


def messages(stream: BinaryIO) -> Iterator[Heard]:
    """Splits a stream into messages: a single one, with a line end or without, or JSON objects that end in a zero byte.

    Raises:
        msgspec.MsgspecError, binascii.Error: it begins like JSON and is something else.
    """
    rest = _more(stream)
    if not rest.startswith(b"{"):
        yield Heard("", _one(rest + stream.read()), {}, time.time_ns())
        return
    while rest:
        *whole, rest = rest.split(b"\0")
        for each in whole:
            yield _dumped(each)
        more = _more(stream)
        if not more:
            break
        rest += more
    if rest.strip():
        yield _dumped(rest)


def _one(data: bytes) -> bytes:
    """The message without the line end that ``nats --raw`` puts after it; a message may itself end in that byte."""
    try:
        msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return data.removesuffix(b"\n")
    return data


def _dumped(text: bytes) -> Heard:
    dumped = msgspec.json.decode(text, type=_Dumped)
    headers = {name: values[0] for name, values in (dumped.Header or {}).items() if values}
    return Heard(dumped.Subject, binascii.a2b_base64(dumped.Data or ""), headers, time.time_ns())


def _more(stream: Any) -> bytes:
    chunk: bytes = stream.read1(_CHUNK_BYTES)
    return chunk
