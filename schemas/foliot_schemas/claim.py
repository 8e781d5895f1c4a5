"""The claim of a node on something that only one node of a fleet may have."""

from __future__ import annotations

import msgspec

from foliot_schemas.bounds import Name, Text  # noqa: TC001 - msgspec reads annotations at run time


class Claim(msgspec.Struct, frozen=True, kw_only=True, tag="claim.v1"):
    """The claim of a node on a thing: bucket `claims`, key: the thing.

    A node makes it only if the thing is free, and removes it when it leaves.
    """

    node: Name
    """The node that has it."""
    host: Text = ""
    """Tells the host from another of the same name; empty: not known."""


def name_key(name: str) -> str:
    """The key of a node's name."""
    return f"node-{name}"


def index_key(index: int) -> str:
    """The key of a node's index."""
    return f"index-{index}"


def address_key(address: str) -> str:
    """The key of a NIC's own address."""
    return f"address-{address}"
