"""The contract as an AsyncAPI 3.1 document, for people whose own tools subscribe.

``python -m foliot_schemas.asyncapi GOLDEN`` prints it, with the golden files of that directory as examples; a copy lies
in ``docs/asyncapi.json``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foliot_schemas import docstrings, event_kinds, orders, subjects
from foliot_schemas.codec import decode
from foliot_schemas.collective import CollectiveBatch, CollectiveRow, ProgressRow
from foliot_schemas.command import Command, Outcome
from foliot_schemas.event import Event
from foliot_schemas.fit import FIT_LATER, FitBatch, FitRow
from foliot_schemas.flow import FLOW_LATER, FlowBatch, FlowRow
from foliot_schemas.hops import HopBatch, HopRow
from foliot_schemas.observation import DELAY_LATER, DelayBatch, DelayCount, DelayRow, StampBatch, StampRow
from foliot_schemas.payloads import payloads

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from foliot_schemas.subjects import Bucket, Channel

_INFO = """\
What Foliot's services tell one another on NATS, and anybody who listens. The page subscribe.md beside \
this document says how, with
examples that run.

- **Encoding**: every message is one msgpack map. Its key `type` holds the message's name and major version. \
The schemas here are of
  the same map as JSON; msgpack's binary values stand there as base64.
- **Times** are int64 nanoseconds, of the reference clock unless a field says otherwise. Floats are never times.
- **Names** become tokens of a subject, and keys of a bucket, by one escape: each byte \
other than `a-z 0-9 -` is `_` and two hex
  digits, so `node3.rail0` is `node3_2erail0`. Inside messages names are plain.
- **New things come**: fields, event kinds, states, verbs and columns that you do not know are to be left alone. \
What is here stays: a
  change that breaks readers gets a new major version in the `type`, and a new subject root.
- **Listen only**: what is published below `foliot.v1` moves traffic. None of it is for outsiders to publish, \
and no bucket is for them
  to write."""

_TOKENS = {
    "node": ("Name of a node, escaped.", "node3"),
    "clock": ("Name of a clock, escaped: a host's system clock has the node's name.", "node3"),
    "kind": ("Kind of event.", "flap"),
    "who": ("Name of the one concerned, a NIC, path, process or clock, escaped.", "node3_2erail0"),
    "verb": ("What is asked: a verb of Foliot's, or of an extension.", "reroute"),
    "service": ("Name of a service.", "sync"),
    "shard": ("Role of a shard of sync, escaped.", "sync-node1"),
    "job": ("Name of a job, escaped.", "pretrain-7"),
    "role": ("Name of a role, escaped.", "remediator"),
    "thing": (
        "What is claimed, escaped: `node-` and a name, `index-` and a number, or `address-` and an address.",
        "index-3",
    ),
}

_COLUMNS: Mapping[type[msgspec.Struct], tuple[str, np.dtype[Any]]] = {
    StampBatch: ("StampRow", StampRow),
    DelayBatch: ("DelayRow", DelayRow),
    FlowBatch: ("FlowRow", FlowRow),
    HopBatch: ("HopRow", HopRow),
    CollectiveBatch: ("CollectiveRow", CollectiveRow),
    FitBatch: ("FitRow", FitRow),
}
_LATER = {"DelayRow": DELAY_LATER, "FitRow": FIT_LATER, "FlowRow": FLOW_LATER}
"""Columns that senders of before do not have, by the rows."""

_HEADERS = {
    "traceparent": {
        "type": "string",
        "description": "W3C Trace Context: the span of the sender that this message came out of.",
        "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    },
}
_KEPT_HEADERS = {
    **_HEADERS,
    "Nats-Msg-Id": {
        "type": "string",
        "description": "The message's `id`. A message that arrives a second time has the same: drop it.",
    },
}


def document(golden: Mapping[str, bytes]) -> dict[str, Any]:
    """The document, as plain data.

    Parameters:
        golden: bytes of one example per message, by the message's tag.

    Raises:
        KeyError: a message has no example.
        WireError: an example is not what its name says.
    """
    carried = {channel.message for channel in subjects.CHANNELS} | {bucket.message for bucket in subjects.BUCKETS}
    messages = sorted(carried, key=lambda message: message.__name__)
    kept = {channel.message for channel in subjects.CHANNELS if channel.stream}
    channels = {_key(channel): _channel(channel) for channel in subjects.CHANNELS}
    return {
        "asyncapi": "3.1.0",
        "info": _info(),
        "defaultContentType": "application/msgpack",
        "servers": {"bus": _server()},
        "channels": channels | {f"kv-{bucket.name}": _bucket_channel(bucket) for bucket in subjects.BUCKETS},
        "operations": _operations(),
        "components": {
            "messages": {
                message.__name__: _message(message, golden[_tag(message)], kept=message in kept) for message in messages
            },
            "schemas": _with_orders(_with_kinds(payloads((*messages, *orders.BUILT_IN)))),
            "securitySchemes": _SECURITY,
        },
        "x-jetstream": _jetstream(),
    }


def golden_files(directory: Path) -> dict[str, bytes]:
    """The golden files of a directory, by the tag of what is in them."""
    return {path.stem: path.read_bytes() for path in directory.glob("*.msgpack")}


# -- servers and channels ---------------------------------------------------------------------------------------------


def _info() -> dict[str, Any]:
    return {
        "title": "Foliot",
        "version": "1",
        "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        "description": _INFO,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
    }


_TAGS = {
    "lossy": "Core NATS: whoever is not there misses it.",
    "durable": "Kept by a JetStream stream for thirty days; can be caught up with.",
    "state": "The present value per key, in a JetStream key-value bucket.",
}

_SECURITY = {
    "password": {
        "type": "userPassword",
        "description": (
            "The user of a role that may listen. A bus on one machine, as `foliot up` starts it, asks for none."
        ),
    },
    "certificate": {"type": "X509", "description": "A client certificate, where the bus asks for one."},
}


def _server() -> dict[str, Any]:
    return {
        "host": "{host}:{port}",
        "protocol": "nats",
        "title": "The bus",
        "description": "A NATS server or cluster with JetStream, the `[bus] url` of the settings.",
        "variables": {
            "host": {"default": "127.0.0.1", "description": "Where it runs."},
            "port": {"default": "4222", "description": "NATS' own by default."},
        },
        "security": [{"$ref": f"#/components/securitySchemes/{name}"} for name in _SECURITY],
    }


# -- what travels ------------------------------------------------------------------------------------------------------


def _key(channel: Channel) -> str:
    return channel.name.replace(".", "-")


def _tag(message: type[msgspec.Struct]) -> str:
    return str(message.__struct_config__.tag)


def _channel(channel: Channel) -> dict[str, Any]:
    stream = {"x-stream": channel.stream} if channel.stream else {}
    return {
        "address": ".".join((subjects.ROOT, channel.name, *(f"{{{token}}}" for token in channel.tokens))),
        "title": channel.name,
        "summary": channel.summary,
        "tags": [{"name": "durable" if channel.stream else "lossy"}],
        "parameters": {token: _parameter(token) for token in channel.tokens},
        "messages": _reference(channel.message),
        "x-wildcard": channel.all,
        **stream,
    }


def _bucket_channel(bucket: Bucket) -> dict[str, Any]:
    first = docstrings.markdown(bucket.message.__doc__ or "").partition("\n")[0]
    return {
        "address": f"$KV.{bucket.name}.{{{bucket.key}}}",
        "title": f"bucket {bucket.name}",
        "summary": first.partition(": bucket")[0].rstrip("."),
        "description": (
            f"Changes of the bucket `{bucket.name}` as plain messages. "
            "A deletion is an empty one with the header `KV-Operation`."
        ),
        "tags": [{"name": "state"}],
        "parameters": {bucket.key: _parameter(bucket.key)},
        "messages": _reference(bucket.message),
    }


def _parameter(token: str) -> dict[str, Any]:
    description, example = _TOKENS[token]
    return {"description": description, "examples": [example]}


def _reference(message: type[msgspec.Struct]) -> dict[str, Any]:
    return {message.__name__: {"$ref": f"#/components/messages/{message.__name__}"}}


def _operations() -> dict[str, Any]:
    found = {}
    for channel in subjects.CHANNELS:
        readers = [reader for reader in channel.readers if reader != "anyone"]
        found[f"send-{_key(channel)}"] = _operation("send", _key(channel), f"Sent by {_listed(channel.publishers)}")
        who = f"Received by {_listed((*readers, 'anyone who listens'))}"
        found[f"receive-{_key(channel)}"] = _operation("receive", _key(channel), who)
    for bucket in subjects.BUCKETS:
        key = f"kv-{bucket.name}"
        found[f"receive-{key}"] = _operation("receive", key, f"Changes of the bucket {bucket.name}, for anyone")
    return found


def _operation(action: str, channel: str, summary: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _message(message: type[msgspec.Struct], golden: bytes, *, kept: bool) -> dict[str, Any]:
    summary, _, more = docstrings.markdown(message.__doc__ or "").partition("\n\n")
    if message is Event:
        more = _kinds()
    example = decode(golden, message)
    columns = {"x-columns": _columns(message, *_COLUMNS[message])} if message in _COLUMNS else {}
    if message is DelayBatch:
        columns["x-histogram"] = _columns(message, "DelayCount", DelayCount)
    if message is CollectiveBatch:
        columns["x-progress"] = _columns(message, "ProgressRow", ProgressRow)
    return {
        "name": _tag(message),
        "title": message.__name__,
        "summary": summary,
        **({"description": more} if more else {}),
        "contentType": "application/msgpack",
        "headers": {"type": "object", "properties": _KEPT_HEADERS if kept else _HEADERS},
        "payload": {"$ref": f"#/components/schemas/{message.__name__}"},
        "examples": [
            {"name": _tag(message), "summary": "A golden file, as JSON", "payload": msgspec.to_builtins(example)}
        ],
        **columns,
    }


def _with_kinds(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas, with the kinds of event that there are now. Others will come, so that they are no enumeration."""
    event = schemas[Event.__name__]
    event["description"] += f"\n\n{_kinds()}"
    event["properties"]["kind"]["examples"] = [kind.name for kind in event_kinds.BUILT_IN]
    return schemas


def _with_orders(schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas, with the types of order that an action can have. Those of extensions stay open."""
    verbs = [orders.verb_of(order) for order in orders.BUILT_IN]
    own = [{"$ref": f"#/components/schemas/{order.__name__}"} for order in orders.BUILT_IN]
    other = {"type": "object", "properties": {"verb": {"type": "string", "not": {"enum": verbs}}}}
    for message, field in ((Command, "action"), (Outcome, "action"), (Outcome, "undo_action")):
        schemas[message.__name__]["properties"][field]["oneOf"] = [*own, other]
    return schemas


def _kinds() -> str:
    lines = [
        f"- `{kind.name}`, {kind.summary}: {', '.join(state.name for state in kind.states)}"
        for kind in event_kinds.BUILT_IN
    ]
    return "\n".join(["By `kind`, whom `who` names and which `state` it is in:", "", *lines])


def _columns(message: type[msgspec.Struct], name: str, rows: np.dtype[Any]) -> dict[str, Any]:
    """The layout of the values of a field of columns: one array each, all of one length."""
    assert rows.names is not None
    return {
        "description": docstrings.of_constant(message.__module__, name),
        "encoding": "Each column is a contiguous little-endian array, here with the name that numpy has for its type.",
        "dtypes": {column: rows[column].str for column in rows.names},
        **({"later": sorted(_LATER[name])} if name in _LATER else {}),
    }


# -- what is kept ------------------------------------------------------------------------------------------------------


def _jetstream() -> dict[str, Any]:
    return {
        "streams": [msgspec.to_builtins(stream) for stream in subjects.STREAMS],
        "consumers": (
            "Foliot's own durable consumers are named after the services that read: `agent-<node>`, `gateway-*`, "
            "`<instance of the remediator>-*`. "
            "Name yours after your tool: whoever shares a durable shares its messages."
        ),
        "buckets": [_bucket(bucket) for bucket in subjects.BUCKETS],
    }


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "bucket": bucket.name,
        "key": bucket.key,
        "storage": bucket.storage,
        "keep_s": bucket.keep_s,
        "stream": f"KV_{bucket.name}",
        "channel": {"$ref": f"#/channels/kv-{bucket.name}"},
        "message": {"$ref": f"#/components/messages/{bucket.message.__name__}"},
    }


if __name__ == "__main__":
    whole = document(golden_files(Path(sys.argv[1])))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(whole)).decode() + "\n")
