"""Reads the present values of a bucket without a consumer: a list of its keys, then one request for each."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from nats.js.errors import APIError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

_READ_AT_ONCE = 64
_ANSWER_S = 5.0
"""A busy server takes two seconds to list 100,000 keys."""


def is_deleted(raw: Any) -> bool:
    """Whether a message says that the key was deleted."""
    # nats-py gives a header that is not ASCII as an object that cannot be hashed.
    return str((raw.headers or {}).get("KV-Operation", "")) in {"DEL", "PURGE"}


async def subjects(client: Any, bucket: str, pattern: str) -> list[str]:
    """The subjects of a bucket that match, with those of deleted keys. The server lists 100,000 at a time.

    Raises:
        NotFoundError: there is no such bucket.
        nats.errors.Error: the bus did not answer.
    """
    found: dict[str, int] = {}
    while True:
        request = json.dumps({"subjects_filter": pattern, "offset": len(found)}).encode()
        reply = await client.request(f"$JS.API.STREAM.INFO.KV_{bucket}", request, timeout=_ANSWER_S)
        answer = json.loads(reply.data)
        if "error" in answer:
            APIError.from_error(answer["error"])  # raises
        page = answer["state"].get("subjects") or {}
        found |= page
        if not page or len(found) >= answer.get("total", 0):
            return list(found)


async def values(jetstream: Any, bucket: str, wanted: Sequence[str]) -> AsyncGenerator[Any, None]:
    """The stored values of these subjects and the marks of deleted keys, as raw messages of nats-py.

    A subject that never was is left out.
    """
    for start in range(0, len(wanted), _READ_AT_ONCE):
        chunk = wanted[start : start + _READ_AT_ONCE]
        for raw in await asyncio.gather(*(_value(jetstream, bucket, subject) for subject in chunk)):
            if raw is not None:
                yield raw


async def _value(jetstream: Any, bucket: str, subject: str) -> Any | None:
    try:
        return await jetstream.get_last_msg(f"KV_{bucket}", subject)
    except NotFoundError:
        return None
