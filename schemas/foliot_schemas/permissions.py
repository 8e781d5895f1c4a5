"""The permissions of each role on the bus, derived from the contract.

The server enforces them. A node's name is part of each subject that it may publish on, so that it cannot speak as
another. Only the remediator may publish a command.

JetStream needs two precautions. First, the server sends an answer to any subject that a request names, and does not ask
whether the requester may publish there. So no permitted request of a node returns raw bytes that a node has written.
Nodes have no direct reads and make no consumers of their own. Every answer is JSON, which no reader here takes for a
message, or the node's own commands.

Second, nodes write keys of any name into buckets. So tools that only listen have no consumers on buckets. They have
consumers on the streams, because they may miss nothing there.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from foliot_schemas.subjects import BUCKETS, CHANNELS, CLOCK, HOPS, ROOT, STREAMS, Bucket, Channel

Role = Literal["probe", "agent", "sync", "detector", "remediator", "gateway", "scheduler", "reader", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
NODE_ROLES: tuple[Role, ...] = ("probe", "agent")
"""Roles whose credentials are a node's. Those of the other roles are a service's, a tool's or a person's."""

NAME = "{{name()}}"
"""A placeholder for the holder's name, in a template that the server fills in."""

_MAKERS = ("sync", "detector", "remediator", "gateway")
"""The roles that make streams and buckets, whichever comes first."""
_STREAMS = (*(stream.name for stream in STREAMS), *(f"KV_{bucket.name}" for bucket in BUCKETS))


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects, with NATS' wildcards."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions(role: Role, name: str = NAME) -> Permissions:
    """The subjects that a role may publish on and subscribe to.

    Parameters:
        name: the holder's name as a subject token (`names.escape`); by default a template for the server.
    """
    inbox = f"{inbox_prefix(role, name)}.>"
    if role == "admin":
        return Permissions(publish=(">",), subscribe=(">",))
    if role == "reader":
        return Permissions(publish=_read_only(), subscribe=(f"{ROOT}.>", "$KV.>", inbox))
    return Permissions(
        publish=(*_published(role, name), *_requests(role, name)), subscribe=(*_heard(role, name), inbox)
    )


def inbox_prefix(role: Role, name: str) -> str:
    """The prefix of the subjects for answers to a holder's requests. Only the holder may listen there."""
    return f"_INBOX.{role}.{name}"


def _published(role: Role, name: str) -> list[str]:
    own = [_subject(channel, role, name) for channel in CHANNELS if role in channel.publishers]
    keys = [f"$KV.{bucket.name}.{_key(role, bucket, name)}" for bucket in _buckets(role, "writers")]
    return [*own, f"{ROOT}.rejected.{role}", *keys]


def _heard(role: Role, name: str) -> list[str]:
    # A probe hears of its peers' routers, and its peers are not known here.
    heard = [
        channel.all if channel is HOPS else _subject(channel, role, name)
        for channel in CHANNELS
        if _hears(role, channel)
    ]
    return heard + [f"$KV.{bucket.name}.{_key_read(role, bucket, name)}" for bucket in _buckets(role, "readers")]


def _hears(role: Role, channel: Channel) -> bool:
    return role in channel.readers or ("anyone" in channel.readers and (role not in NODE_ROLES or channel is CLOCK))


def _requests(role: Role, name: str) -> list[str]:
    """JetStream's own subjects: to list streams, to read buckets, to keep consumers."""
    granted = ["$JS.API.INFO", *(f"$JS.API.STREAM.INFO.{stream}" for stream in _STREAMS)]
    granted += [f"$JS.API.STREAM.MSG.GET.KV_{bucket.name}" for bucket in _buckets(role, "readers")]
    if role == "agent":
        durable = f"agent-{name}"
        granted += [
            f"$JS.API.CONSUMER.CREATE.COMMANDS.{durable}.{ROOT}.command.*.{name}",
            f"$JS.API.CONSUMER.INFO.COMMANDS.{durable}",
            f"$JS.API.CONSUMER.MSG.NEXT.COMMANDS.{durable}",
            f"$JS.ACK.COMMANDS.{durable}.>",
        ]
    if role in _MAKERS:
        granted += [f"$JS.API.STREAM.CREATE.{stream}" for stream in _STREAMS]
        granted += _consumers({channel.stream for channel in CHANNELS if role in channel.readers + channel.publishers})
        # To read a bucket of any size: the stream's list of its keys ends at 100,000.
        granted += _consumers({f"KV_{bucket.name}" for bucket in _buckets(role, "readers")})
    return granted


def _consumers(streams: set[str]) -> list[str]:
    return [
        subject
        for stream in sorted(streams - {""})
        for subject in (
            f"$JS.API.CONSUMER.CREATE.{stream}.>",
            f"$JS.API.CONSUMER.INFO.{stream}.*",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
            f"$JS.ACK.{stream}.>",
        )
    ]


def _read_only() -> tuple[str, ...]:
    reads = [f"$JS.API.STREAM.{verb}.{stream}" for stream in _STREAMS for verb in ("INFO", "MSG.GET")]
    lists = ("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST")
    return (*lists, *reads, *_consumers({stream.name for stream in STREAMS}))


def _subject(channel: Channel, role: Role, name: str) -> str:
    """The subject of a channel for a role.

    A node role may use its own part alone, but every node may read all clocks.
    """
    if role not in NODE_ROLES or "node" not in channel.tokens:
        return channel.all
    return ".".join((ROOT, channel.name, *(name if token == "node" else "*" for token in channel.tokens)))  # noqa: S105


def _buckets(role: Role, kind: Literal["writers", "readers"]) -> list[Bucket]:
    return [bucket for bucket in BUCKETS if role in getattr(bucket, kind)]


def _key(role: Role, bucket: Bucket, name: str) -> str:
    return name if role in NODE_ROLES and bucket.key == "node" else "*"


def _key_read(role: Role, bucket: Bucket, name: str) -> str:
    """The key that a role may read. A node reads only its own paths, and the records of all nodes."""
    return name if role in NODE_ROLES and bucket.name == "paths" else ">"
