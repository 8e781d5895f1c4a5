"""The gRPC server, in the event loop that also serves HTTP.

It has no TLS, as HTTP has none: both listen where operators and the fleet's services are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from foliot.settings import SettingsError
from foliot_gateway.rpc import descriptors, health, reflection, services

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_gateway.state.store import Store
    from foliot_gateway.subscription import Hub

_REQUEST_BYTES: Final = 64 * 1024
"""The longest id has 4,096 characters, and a request has two names."""
_METADATA_BYTES: Final = 16 * 1024
_QUESTIONS: Final = 100
"""Requests under way at once, besides those of live readers. Each reader may watch the health too."""
_PING_MS: Final = 60_000
_PONG_MS: Final = 20_000
"""A reader that has vanished without a word gives its place back after these two."""
_IDLE_MS: Final = 300_000
"""A connection without a request for so long is closed; a client opens another when it asks again."""


async def start(store: Store, hub: Hub, addresses: Iterable[tuple[str, int]]) -> Any:
    """A server that listens on each host and port.

    Close the hub before you stop it, as its readers have no end of their own.

    Raises:
        SettingsError: an address cannot be bound.
    """
    readers = store.settings.streams
    server = grpc.aio.server(
        maximum_concurrent_rpcs=2 * readers + _QUESTIONS,
        options=(
            ("grpc.max_receive_message_length", _REQUEST_BYTES),
            ("grpc.max_send_message_length", -1),  # a trace is one message; how large, its most spans say
            ("grpc.max_metadata_size", _METADATA_BYTES),
            ("grpc.max_concurrent_streams", readers + _QUESTIONS),
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.keepalive_timeout_ms", _PONG_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
            ("grpc.so_reuseport", 0),  # else two gateways would share a port, each with its own picture
        ),
    )
    server.add_generic_rpc_handlers((*services.handlers(store, hub), *reflection.handlers(health_pb2.DESCRIPTOR)))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(store, hub, descriptors.services()), server)
    for host, port in addresses:
        try:
            server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            await server.stop(None)
            raise SettingsError(
                f"gateway: gRPC cannot listen on {host}:{port}; gateway.grpc_port is another port, or 0 for none"
            ) from error
    await server.start()
    return server
