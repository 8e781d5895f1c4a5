"""Errors as ``application/problem+json`` (RFC 9457), in sentences that a person can act on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from foliot_gateway.state.queries import BusyError, NotFoundError, QueryError, WrongQueryError

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
_STATUSES: dict[type[QueryError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    WrongQueryError: HTTPStatus.BAD_REQUEST,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a request."""

    status: int
    title: str
    detail: str
    reason: str = ""
    """One word for programs, where they have a choice to make: ``no-such-event``, ``no-such-kind``, ``no-fault``,
    ``no-spans``, ``no-such-trace``, ``no-such-job``, ``busy``, ``not-my-name``."""


def on_query_error(_: Request[Any, Any, Any], error: QueryError) -> Response[Problem]:
    """Answers a question that has no answer."""
    return _response(_STATUSES[type(error)], str(error), error.reason)


def on_http(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Answers with a refusal, of the framework or of a handler, in a sentence.

    The framework's are: no such address, a wrong parameter, a wrong method.
    """
    if isinstance(error, ValidationException):
        detail = f"The parameters of {request.url.path} are wrong: {_parameters(error)}."
    elif error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing at {request.url.path}; /schema lists what there is."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}; /schema lists what it takes."
    else:
        detail = f"{error.detail.rstrip('.')}."
    return _response(error.status_code, detail)


def on_failure(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Answers after a fault of the gateway's own."""
    log.error("request_failed", path=request.url.path, exc_info=error)
    return _response(500, "The gateway failed on this request; its log says why.")


def _parameters(error: ValidationException) -> str:
    wrong = error.extra if isinstance(error.extra, list) else []
    return "; ".join(f"{each['key']}: {each['message']}" for each in wrong if "key" in each) or error.detail


def problem(status: int, detail: str, reason: str = "") -> Problem:
    """A problem with the title of its status."""
    return Problem(status=status, title=HTTPStatus(status).phrase, detail=detail, reason=reason)


def _response(status: int, detail: str, reason: str = "") -> Response[Problem]:
    return Response(problem(status, detail, reason), status_code=status, media_type=MEDIA_TYPE)
