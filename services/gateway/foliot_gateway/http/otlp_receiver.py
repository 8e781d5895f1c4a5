"""The OTLP/HTTP receiver: ``POST /v1/traces``, protobuf or JSON."""

import time
from typing import Any

import structlog
from google.protobuf.json_format import MessageToJson
from litestar import Request, Response, post
from litestar.di import NamedDependency
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from foliot_gateway.http import otlp_decoder
from foliot_gateway.state.store import Store

log = structlog.get_logger()

MOST_BYTES = 16 << 20
"""Most bytes of a body, after decompression too. A full batch of the SDK, 512 spans, is about 0.3 MiB."""
_PROTOBUF = "application/x-protobuf"
_JSON = "application/json"


@post("/v1/traces", status_code=200, request_max_body_size=MOST_BYTES, tags=["telemetry"])
async def receive_traces(request: Request[Any, Any, Any], store: NamedDependency[Store]) -> Response[bytes]:
    """Takes spans as OTLP/HTTP sends them: protobuf or JSON, plain, gzip or deflate."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in {_PROTOBUF, _JSON}:
        known = f"Spans come as {_PROTOBUF} or {_JSON}, not as {media_type or 'a body without a type'}."
        raise HTTPException(known, status_code=415)
    try:
        coding = request.headers.get("content-encoding", "").strip().lower()
        data = otlp_decoder.inflate(await request.body(), coding, MOST_BYTES)
        received = otlp_decoder.from_json(data) if media_type == _JSON else otlp_decoder.from_protobuf(data)
    except RequestEntityTooLarge as error:
        too_large = f"The body is larger than {MOST_BYTES} bytes; send smaller batches."
        raise HTTPException(too_large, status_code=413) from error
    except otlp_decoder.OtlpError as error:
        raise HTTPException(str(error), status_code=400) from error
    dropped = store.traces.add(received.spans, time.monotonic_ns())
    store.spans_refused += received.broken
    # Full success is an empty message; otherwise it says how many spans were not kept, and why.
    answer = ExportTraceServiceResponse()
    if dropped or received.broken:
        log.warning("spans_dropped", over_limit=dropped, broken=received.broken)
        answer.partial_success.rejected_spans = received.broken + dropped
        answer.partial_success.error_message = (
            f"{received.broken} spans have no proper ids, {dropped} are over the limit of their trace"
        )
    encoded = MessageToJson(answer, indent=None).encode() if media_type == _JSON else answer.SerializeToString()
    return Response(encoded, media_type=media_type)
