"""Errors as gRPC has them: a status, the sentence, and the reason for programs as ``google.rpc.ErrorInfo``."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from foliot_gateway.state.queries import BusyError, NotFoundError, QueryError, WrongQueryError

_DETAILS = "grpc-status-details-bin"
"""The key under which clients look for a google.rpc.Status."""
_DOMAIN = "foliot"
_CODES: dict[type[QueryError], Any] = {
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    WrongQueryError: grpc.StatusCode.INVALID_ARGUMENT,
    BusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


async def refuse(context: Any, error: QueryError) -> None:
    """Ends a request with the error's status, sentence and reason."""
    code = _CODES[type(error)]
    trailing: tuple[tuple[str, bytes], ...] = ()
    if error.reason:
        status = status_pb2.Status(code=code.value[0], message=str(error))
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain=_DOMAIN))
        trailing = ((_DETAILS, status.SerializeToString()),)
    await context.abort(code, str(error), trailing)
