"""Errors as gRPC has them: a status, the sentence, and the reason for programs as ``google.rpc.ErrorInfo``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from google.rpc import error_details_pb2, status_pb2

from foliot_gateway.state.queries import BusyError, NotFoundError, QueryError, WrongQueryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = structlog.get_logger()

_DETAILS = "grpc-status-details-bin"
"""The key under which clients look for a google.rpc.Status."""
_DOMAIN = "foliot"
_CODES: dict[type[QueryError], Any] = {
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    WrongQueryError: grpc.StatusCode.INVALID_ARGUMENT,
    BusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


@contextlib.asynccontextmanager
async def refusing(method: str, context: Any) -> AsyncIterator[None]:
    """Lets errors inside end their own request alone."""
    try:
        yield
    except QueryError as error:
        code = _CODES[type(error)]
        trailing: tuple[tuple[str, bytes], ...] = ()
        if error.reason:
            status = status_pb2.Status(code=code.value[0], message=str(error))
            status.details.add().Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=_DOMAIN))
            trailing = ((_DETAILS, status.SerializeToString()),)
        await context.abort(code, str(error), trailing)
    except Exception:  # the caller is told nothing of it
        log.exception("request_failed", method=method)
        await context.abort(grpc.StatusCode.INTERNAL, "The gateway failed on this request; its log says why.")
