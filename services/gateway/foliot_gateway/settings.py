"""``[gateway]``: where to listen, and for how many."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[gateway]`` of the settings."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {"events", "commands", "traces", "trace_bytes", "spans_per_trace", "body_bytes"}
    )

    host: str = "127.0.0.1"
    port: int = 8470
    """0: any free one. `host` and `port` are not used where `bind` or an activated socket says otherwise."""
    bind: tuple[str, ...] = ()
    """Addresses ``host:port`` to serve on, all at once, besides any activated socket."""
    grpc_port: int = 8471
    """Port of gRPC, on `host`, or on each host of `bind`; 0: none."""
    hosts: tuple[str, ...] = ()
    """Further names, without port, by which browsers and services reach the gateway, as through a proxy. ``*``: any.
    See `foliot_gateway.http.host_guard`."""
    streams: int = 500
    """Live pages and gRPC clients that watch, served at once."""
