"""``grpc.health.v1.Health``: serving while ``/healthz`` says 200.

It does not use the servicer of grpcio-health-checking. That holds a lock while it writes to a reader, so a slow one
holds up the others.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from foliot_gateway.state import queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from foliot_gateway.state.store import Store
    from foliot_gateway.subscription import Hub

_Status = health_pb2.HealthCheckResponse


class HealthServicer:
    """The service.

    Parameters:
        names: services that are as healthy as the gateway. The empty name is the gateway.
    """

    def __init__(self, store: Store, hub: Hub, names: Iterable[str]) -> None:
        self._store = store
        self._hub = hub
        self._names = frozenset(("", *names))

    async def Check(self, asked: Any, context: Any) -> Any:  # noqa: N802 - by this name it is registered, as are the next two
        """The health of one service."""
        if asked.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {asked.service!r} here.")
        return _Status(status=self._status(asked.service))

    async def List(self, _asked: Any, _: Any) -> Any:  # noqa: N802
        """The health of every service."""
        return health_pb2.HealthListResponse(
            statuses={name: _Status(status=self._status(name)) for name in sorted(self._names)}
        )

    async def Watch(self, asked: Any, _: Any) -> AsyncGenerator[Any]:  # noqa: N802
        """The health of one service, whenever it changes."""
        said = None
        async with contextlib.aclosing(self._hub.turns()) as turns:
            async for _turn in turns:
                status = self._status(asked.service)
                if status != said:
                    said = status
                    yield _Status(status=status)

    def _status(self, name: str) -> Any:
        if name not in self._names:
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if queries.health(self._store, time.monotonic()).healthy else _Status.NOT_SERVING
