"""The patterns of ``foliot watch`` as subjects: ``event.flap.node3.rail0``, ``clock.*``, ``inventory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.names import escape, unescape
from foliot_schemas.subjects import BUCKETS, CHANNELS, ROOT

if TYPE_CHECKING:
    from foliot_schemas.subjects import Channel

_WILD = {"*", ">"}


class PatternError(ValueError):
    """Nothing travels there; the message says what there is."""


class Target(NamedTuple):
    """A subscription that a pattern asks for."""

    subject: str
    streams: tuple[str, ...] = ()
    """The streams that keep messages of this subject."""
    bucket: str = ""
    """The bucket whose changes travel there; empty: it is no bucket."""


def target(pattern: str) -> Target:
    """The target of a pattern below ``foliot.v1.``, or of a bucket.

    A pattern that ends early stands for all below it. The last name may be written plain, with its dots.

    Raises:
        PatternError: it matches no channel and no bucket.
    """
    tokens = pattern.removeprefix(f"{ROOT}.").split(".")
    bucket = next((each for each in BUCKETS if each.name == tokens[0]), None)
    if bucket is not None:
        key = ".".join(tokens[1:])
        return Target(f"$KV.{bucket.name}.{'>' if key in {'', *_WILD} else _token(key)}", bucket=bucket.name)
    reached = [channel for channel in CHANNELS if _reaches(tokens, channel)]
    if not reached:
        channels, buckets = ", ".join(each.name for each in CHANNELS), ", ".join(each.name for each in BUCKETS)
        raise PatternError(f"nothing travels at {pattern!r}; there are {channels}, and the buckets {buckets}")
    streams = tuple(dict.fromkeys(channel.stream for channel in reached if channel.stream))
    subject = _narrow(tokens, reached[0]) if len(reached) == 1 else _wide(tokens, reached)
    return Target(f"{ROOT}.{subject}", streams)


def _reaches(tokens: list[str], channel: Channel) -> bool:
    for asked, own in zip(tokens, channel.name.split("."), strict=False):
        if asked == ">":
            return True
        if asked not in {"*", own}:
            return False
    return True


def _narrow(tokens: list[str], channel: Channel) -> str:
    head = channel.name.split(".")
    if len(tokens) < len(head) or ">" in tokens[: len(head)]:
        return ".".join((*head, ">"))
    rest = tokens[len(head) :]
    last = len(channel.tokens) - 1
    names = rest[:last] + ([".".join(rest[last:])] if len(rest) > last else [])
    names = [name if name in _WILD else _token(name) for name in names]
    if len(names) <= last and ">" not in names:
        names.append(">")
    return ".".join((*head, *(names or [">"])))


def _wide(tokens: list[str], reached: list[Channel]) -> str:
    """A pattern of several channels: of most of them it is the whole subject, or else the beginning."""
    depths = [len(channel.all.split(".")) - len(ROOT.split(".")) for channel in reached]
    whole = sum(depth <= len(tokens) for depth in depths)
    return ".".join(tokens if tokens[-1] == ">" or 2 * whole > len(depths) else [*tokens, ">"])


def _token(name: str) -> str:
    """A name as a token; a token stays as it is."""
    try:
        unescape(name)
    except ValueError:
        return escape(name)
    return name
