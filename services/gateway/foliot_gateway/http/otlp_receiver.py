"""The OTLP/HTTP receiver: ``POST /v1/traces``, protobuf or JSON."""

import time
from typing import Any

import structlog
from litestar import Request, Response, post
from litestar.di import NamedDependency
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from foliot_gateway.http import otlp_decoder
from foliot_gateway.http.problems import ProblemError
from foliot_gateway.state.store import Store

log = structlog.get_logger()

_PROTOBUF = "application/x-protobuf"
_JSON = "application/json"


@post("/v1/traces", status_code=200, request_max_body_size=None, tags=["telemetry"])
async def receive_traces(request: Request[Any, Any, Any], store: NamedDependency[Store]) -> Response[bytes]:
    """Takes spans as OTLP/HTTP sends them: protobuf or JSON, plain, gzip or deflate."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in {_PROTOBUF, _JSON}:
        raise ProblemError(
            415, f"Spans come as {_PROTOBUF} or {_JSON}, not as {media_type or 'a body without a type'}."
        )
    limit_bytes = store.settings.body_bytes
    try:
        body = await _body(request, limit_bytes)
        coding = request.headers.get("content-encoding", "").strip().lower()
        data = otlp_decoder.inflate(body, coding, limit_bytes)
        received = otlp_decoder.from_json(data) if media_type == _JSON else otlp_decoder.from_protobuf(data)
    except otlp_decoder.TooLargeError as error:
        raise ProblemError(413, str(error)) from error
    except otlp_decoder.OtlpError as error:
        raise ProblemError(400, str(error)) from error
    added = store.traces.add(received.spans, time.monotonic_ns())
    store.spans_refused += received.broken
    if added.dropped or received.broken:
        log.warning("spans_dropped", over_limit=added.dropped, broken=received.broken)
    return Response(_answer(media_type, received.broken, added.dropped), media_type=media_type)


async def _body(request: Request[Any, Any, Any], limit_bytes: int) -> bytes:
    """The body as sent; reading stops at the limit, whatever its length claims."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit_bytes:
            raise otlp_decoder.TooLargeError(f"The body is larger than {limit_bytes} bytes; send smaller batches.")
        parts.append(part)
    return b"".join(parts)


def _answer(media_type: str, broken: int, dropped: int) -> bytes:
    """Full success is an empty message; otherwise it says how many spans were not kept, and why."""
    if not broken and not dropped:
        return b"{}" if media_type == _JSON else b""
    reason = f"{broken} spans have no proper ids, {dropped} are over the limit of their trace"
    if media_type == _JSON:
        return b'{"partialSuccess":{"rejectedSpans":"%d","errorMessage":"%s"}}' % (broken + dropped, reason.encode())
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = broken + dropped
    answer.partial_success.error_message = reason
    serialized: bytes = answer.SerializeToString()
    return serialized
