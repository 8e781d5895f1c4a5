"""OTLP/HTTP bodies to spans: protobuf, and the JSON of the same messages.

Format: opentelemetry.io/docs/specs/otlp. Its JSON is the proto3 mapping, with two exceptions that matter here. Trace
and span ids are hex digits instead of base64, and readers ignore unknown fields.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, get_args

import msgspec
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from foliot_gateway.state.trace_store import Span, SpanEvent, SpanKind, SpanStatus

_KINDS: tuple[SpanKind, ...] = ("internal", *get_args(SpanKind))
"""Kinds by their number in the protocol; 0, unspecified, counts as internal, as the protocol says."""
_STATUSES: tuple[SpanStatus, ...] = get_args(SpanStatus)
_IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}
_DEEPEST = 8
"""Deepest nesting of attribute values that is followed. A deeper value is shown as text."""
_GZIP = 31
"""zlib's window bits for a gzip header and the largest window."""


class OtlpError(ValueError):
    """The body is not what its headers promise."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """The spans of a body."""

    spans: tuple[Span, ...]
    broken: int
    """Spans whose ids are not ids; the sender is told how many."""


def inflate(body: bytes, coding: str, limit_bytes: int) -> bytes:
    """The body without its content coding: ``gzip``, ``deflate``, or ``identity`` (also empty).

    Raises:
        OtlpError: another coding, or the body is not of this coding.
        RequestEntityTooLarge: it is larger than `limit_bytes`.
    """
    match coding:
        case "" | "identity":
            data = body
        case "gzip" | "deflate":
            inflater = zlib.decompressobj(_GZIP if coding == "gzip" else zlib.MAX_WBITS)
            try:
                data = inflater.decompress(body, limit_bytes + 1)
            except zlib.error as error:
                raise OtlpError(f"The body is not {coding}: {error}.") from error
            if not inflater.eof and len(data) <= limit_bytes:
                raise OtlpError(f"The body's {coding} ends too early.")
        case _:
            raise OtlpError(f"The content coding {coding!r} is not known here; use gzip, deflate or none.")
    if len(data) > limit_bytes:
        raise RequestEntityTooLarge
    return data


def from_protobuf(body: bytes) -> Received:
    """The spans of a protobuf body.

    Raises:
        OtlpError: it is no ExportTraceServiceRequest.
    """
    try:
        return _received(ExportTraceServiceRequest.FromString(body))
    except DecodeError as error:
        raise OtlpError(f"The body is not a protobuf ExportTraceServiceRequest: {error}.") from error


def from_json(body: bytes) -> Received:
    """The spans of a JSON body.

    Raises:
        OtlpError: it is no ExportTraceServiceRequest.
    """
    try:
        document = _with_base64(msgspec.json.decode(body, type=dict[str, Any]))
        request = ParseDict(document, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (msgspec.MsgspecError, ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise OtlpError(f"The body is not a JSON ExportTraceServiceRequest: {error}.") from error
    return _received(request)


def _with_base64(value: Any) -> Any:
    """The document with its ids as the proto3 mapping reads them.

    Keys of attributes are no keys of the document, but values.
    """
    if isinstance(value, list):
        return [_with_base64(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _id(entry) if key in _IDS else _with_base64(entry) for key, entry in value.items()}
    return value


def _id(text: Any) -> str:
    """An id in base64. Text that is no hex gets one that is too short, so that its span counts as broken."""
    try:
        return base64.b64encode(bytes.fromhex(text)).decode()
    except (ValueError, TypeError):
        return "AA=="


def _received(request: Any) -> Received:
    spans = []
    broken = 0
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        service = str(resource.get("service.name", "unknown_service"))
        instance = str(resource.get("service.instance.id", ""))
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if _identified(span):
                    spans.append(_span(span, service, instance))
                else:
                    broken += 1
    return Received(spans=tuple(spans), broken=broken)


def _identified(span: Any) -> bool:
    """W3C Trace Context: 16 and 8 bytes, not all zero."""
    return (
        len(span.trace_id) == 16
        and any(span.trace_id)
        and len(span.span_id) == 8
        and any(span.span_id)
        and len(span.parent_span_id) in {0, 8}
    )


def _span(span: Any, service: str, instance: str) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if any(span.parent_span_id) else "",
        name=span.name,
        service=service,
        instance=instance,
        kind=_KINDS[span.kind] if 0 <= span.kind < len(_KINDS) else "internal",
        start_ns=span.start_time_unix_nano,
        end_ns=max(span.start_time_unix_nano, span.end_time_unix_nano),
        status=_STATUSES[span.status.code] if 0 <= span.status.code < len(_STATUSES) else "unset",
        message=span.status.message,
        attributes=_attributes(span.attributes),
        events=tuple(
            SpanEvent(name=event.name, at_ns=event.time_unix_nano, attributes=_attributes(event.attributes))
            for event in span.events
        ),
    )


def _attributes(pairs: Any, depth: int = 0) -> dict[str, Any]:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if depth >= _DEEPEST:
        return str(value)
    match kind:
        case "array_value":
            return [_value(entry, depth + 1) for entry in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values, depth + 1)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case _:
            return getattr(value, kind)
