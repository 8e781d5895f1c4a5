"""``[gateway]``: where to listen, and how much to remember."""

from __future__ import annotations

import msgspec

MEBIBYTE = 1 << 20


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[gateway]`` of the settings."""

    host: str = "127.0.0.1"
    port: int = 8470
    """0: any free one. `host` and `port` are not used where `bind` or an activated socket says otherwise."""
    bind: tuple[str, ...] = ()
    """Addresses ``host:port`` to serve on, all at once, besides any activated socket."""
    grpc_port: int = 8471
    """Of gRPC, on `host`, or on each host of `bind`; 0: none."""
    hosts: tuple[str, ...] = ()
    """Further names, without port, that browsers and services reach the gateway by, as through a proxy; ``*``: any. See `foliot_gateway.http.host_guard`."""
    events: int = 10_000
    """Events kept, the newest; the stream has the older ones."""
    commands: int = 10_000
    """Commands kept with their outcomes, the newest."""
    traces: int = 2_000
    """Traces kept; the one that has had no new span for longest goes first."""
    trace_bytes: int = 64 * MEBIBYTE
    """Memory that traces may take, by estimate."""
    spans_per_trace: int = 4_000
    """Further spans of one trace are dropped: no single fault may push out the others."""
    body_bytes: int = 16 * MEBIBYTE
    """Largest body of spans, after decompression. A full batch of the SDK, 512 spans, is about 0.3 MiB."""
    streams: int = 500
    """Live pages and gRPC clients that watch, served at once."""
