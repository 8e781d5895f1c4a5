"""Errors that a node's GPU driver writes to the kernel's log. They are few, and may be lost."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import (  # noqa: TC001 - msgspec reads annotations at run time
    Bound,
    Name,
    Text,
    Time,
    Word,
)

XID = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class GpuError(msgspec.Struct, frozen=True, kw_only=True, tag="gpu-error.v1", gc=False):
    """One error, by the number that NVIDIA gives its kind ("XID Errors", docs.nvidia.com/deploy/xid-errors)."""

    node: Name
    """The node that logged it."""
    at_ns: Time
    """When the kernel logged it, reference time as the node knows it."""
    bound_ns: Bound
    """Statistical bound of the node's clock; -1: it is not synchronised."""
    xid: XID
    """Its kind, by its number."""
    device: Word = ""
    """PCI address of the GPU; empty: the log does not say."""
    message: Text = ""
    """The rest of the line."""
