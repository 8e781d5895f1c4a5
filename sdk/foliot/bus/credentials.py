"""Reads a credentials file: the name in its token. The server decides what it permits."""

from __future__ import annotations

import base64
import re
from typing import get_args

import msgspec

from foliot_schemas.permissions import Role

_TOKEN = re.compile(r"-+BEGIN NATS USER JWT-+\s*(\S+)\s*-+END NATS USER JWT-+")
ROLE_TAG = "role:"


class _Grant(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] = ()


class _Claims(msgspec.Struct, frozen=True):
    name: str
    nats: _Grant


def holder(text: str) -> tuple[Role, str]:
    """Reads the holder of these credentials: the role, and the name of the node or service as a subject token.

    Raises:
        ValueError: they were not made by `foliot keys`; the message says what is wrong.
    """
    found = _TOKEN.search(text)
    if found is None:
        raise ValueError("holds no NATS user JWT")
    try:
        _, payload, _ = found[1].split(".")
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
        roles = [tag.removeprefix(ROLE_TAG) for tag in claims.nats.tags if tag.startswith(ROLE_TAG)]
        return msgspec.convert(next(iter(roles)), Role), claims.name
    except (ValueError, StopIteration, msgspec.MsgspecError) as error:
        raise ValueError(
            f"its JWT has no tag role:…, one of {', '.join(get_args(Role))}; was it made by foliot keys?"
        ) from error
