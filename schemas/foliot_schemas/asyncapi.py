"""The contract as an AsyncAPI 3.0 document, for people whose own tools subscribe.

``python -m foliot_schemas.asyncapi`` prints it; a copy lies in ``docs/asyncapi.json``.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from foliot_schemas.subjects import BUCKETS, CHANNELS, STREAMS, Bucket, Channel

_REF = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """The document, as plain data."""
    messages = {channel.message for channel in CHANNELS} | {bucket.message for bucket in BUCKETS}
    ordered = sorted(messages, key=lambda message: message.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Foliot",
            "version": "1",
            "license": {"name": "Apache-2.0"},
            "description": (
                "Messages are msgpack maps; the key `type` holds the message's name and major version. Times are int64 "
                "nanoseconds of the reference clock. Names in subjects are escaped: bytes other than a-z 0-9 - become _ "
                "and two hex digits. Unknown fields are to be ignored."
            ),
        },
        "defaultContentType": "application/msgpack",
        "channels": {channel.name.replace(".", "-"): _channel(channel) for channel in CHANNELS},
        "operations": {f"send-{channel.name.replace('.', '-')}": _operation(channel) for channel in CHANNELS},
        "components": {
            "messages": {message.__name__: _message(message) for message in ordered},
            "schemas": dict(sorted(schemas.items())),
        },
        "x-jetstream": {
            "streams": [msgspec.to_builtins(stream) for stream in STREAMS],
            "buckets": [_bucket(bucket) for bucket in BUCKETS],
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    name = channel.message.__name__
    return {
        "address": ".".join(("foliot.v1", channel.name, *(f"{{{token}}}" for token in channel.tokens))),
        "summary": channel.summary,
        "parameters": {token: {"description": f"The escaped {token}."} for token in channel.tokens},
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "x-publishers": list(channel.publishers),
        "x-readers": list(channel.readers),
        **({"x-stream": channel.stream} if channel.stream else {}),
    }


def _operation(channel: Channel) -> dict[str, Any]:
    return {"action": "send", "channel": {"$ref": f"#/channels/{channel.name.replace('.', '-')}"}}


def _message(message: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        "name": message.__struct_config__.tag,
        "contentType": "application/msgpack",
        "payload": {"$ref": _REF.format(name=message.__name__)},
    }


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "bucket": bucket.name,
        "key": bucket.key,
        "storage": bucket.storage,
        "keep_s": bucket.keep_s,
        "message": {"$ref": f"#/components/messages/{bucket.message.__name__}"},
    }


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document())).decode() + "\n")
