"""The services of ``foliot.v1``: each method passes a question on, and turns the answer into messages.

A long answer goes out in slices, and the loop turns between two of them: it also serves HTTP and hears the bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from foliot_gateway.rpc import descriptors
from foliot_gateway.rpc.conversion import fields_of, to_message
from foliot_gateway.rpc.errors import FAILED, refuse
from foliot_gateway.state.fleet import NodeView
from foliot_gateway.state.live_feed import Change, Missed, State, Tiles, Told
from foliot_gateway.state.path_table import PathView
from foliot_gateway.state.queries import FEW_RECORDS, Health, QueryError, WrongQueryError
from foliot_gateway.state.records import CommandView
from foliot_gateway.state.trace_store import Trace, TraceSummary
from foliot_schemas import ClockState, Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

    import msgspec

    from foliot_gateway.state.queries import Queries
    from foliot_gateway.state.subscription import Hub

    Ask = Callable[[Any], Iterable[msgspec.Struct]]

log = structlog.get_logger()

_SLICE_BYTES = 256 * 1024
"""Of one message: a sixteenth of what clients take by default."""
_STEP_S = 0.002
"""A list is converted for so long at a time: an eighth of a frame of a live page, a fifth of a step that the log tells of."""
_TILES = 500
"""In one message, some 50 kB."""
_MANY = 1_000
"""Tiles, spans or outcomes in one struct that is converted in a thread: 10 µs each."""
_FIELDS: dict[type[msgspec.Struct], str] = {Tiles: "tiles", Told: "told", Missed: "missed", State: "state"}
"""Of WatchResponse."""
SERVED: tuple[type[msgspec.Struct], ...] = (
    NodeView, PathView, ClockState, Event, CommandView, TraceSummary, Trace, Health, *_FIELDS,
)  # fmt: skip
"""What answers consist of."""


class Services:
    """All methods, as generic handlers.

    Parameters:
        queries: answers questions.
        hub: tells changes.
    """

    def __init__(self, queries: Queries, hub: Hub) -> None:
        self._queries = queries
        self._hub = hub
        self._encoding = asyncio.Lock()
        """Many tiles are encoded by one reader at a time; the next finds them encoded."""

    def handlers(self) -> tuple[Any, ...]:
        """One for each service of the interface.

        Raises:
            ConversionError: a struct has a field that its message lacks.
            KeyError: the interface has a method without code here.
        """
        for kind in SERVED:
            fields_of(kind)
        queries = self._queries
        lists: dict[str, Ask] = {
            "ListNodes": lambda _: queries.nodes(),
            "ListPaths": lambda asked: queries.paths(node=asked.node, nic=asked.nic),
            "ListClocks": lambda _: queries.clocks(),
            "ListEvents": lambda asked: queries.events(limit=_limit(asked), kind=asked.kind, since_ns=asked.since_ns),
            "ListCommands": lambda asked: queries.commands(limit=_limit(asked), node=asked.node, fault=asked.fault),
            "ListTraces": lambda asked: queries.traces(limit=_limit(asked)),
        }
        single: dict[str, Callable[[Any], msgspec.Struct]] = {
            "GetTrace": lambda asked: queries.trace(asked.trace_id),
            "GetTraceOfEvent": lambda asked: queries.trace_of_event(asked.event),
            "GetHealth": lambda _: queries.health(),
        }
        made = {name: _in_slices(name, ask) for name, ask in lists.items()}
        made |= {name: _at_once(name, ask) for name, ask in single.items()}
        made["Watch"] = _streamed("Watch", self._watch)
        return tuple(
            grpc.method_handlers_generic_handler(name, {method.name: made[method.name] for method in service.methods})
            for name, service in descriptors.services().items()
        )

    async def _watch(self, asked: Any) -> AsyncGenerator[bytes]:
        with self._hub.place():
            async with contextlib.aclosing(self._hub.follow(asked.after)) as following:
                async for changes in following:
                    for change in changes:
                        for encoded in await self._encoded(change):
                            yield encoded

    async def _encoded(self, change: Change) -> tuple[bytes, ...]:
        if not isinstance(change.said, Tiles) or len(change.said.tiles) < _MANY:
            return change.encoded(_encode)
        async with self._encoding:
            return await asyncio.to_thread(change.encoded, _encode)


def _encode(change: Change) -> tuple[bytes, ...]:
    """What a reader is sent of a change: one message, or several where there are many tiles."""
    said = change.said
    response = descriptors.message("WatchResponse")
    if not isinstance(said, Tiles):
        told = response(**{_FIELDS[type(said)]: fields_of(type(said))(said)}, number=change.number)
        return (told.SerializeToString(),)
    slices = [said.tiles[first : first + _TILES] for first in range(0, len(said.tiles), _TILES)] or [()]
    parts = (
        Tiles(whole=said.whole and not index, tiles=tiles, gone=() if index else said.gone)
        for index, tiles in enumerate(slices)
    )
    return tuple(response(tiles=to_message(part)).SerializeToString() for part in parts)


def _in_slices(method: str, ask: Ask) -> Any:
    response = descriptors.message(f"{method}Response")
    (field,) = response.DESCRIPTOR.fields

    async def answer(asked: Any) -> AsyncGenerator[bytes]:
        part, size = response(), 0
        began_s = time.perf_counter()
        for entry in ask(asked):
            converted = await asyncio.to_thread(to_message, entry) if _is_large(entry) else to_message(entry)
            getattr(part, field.name).append(converted)
            size += converted.ByteSize()
            if size >= _SLICE_BYTES:
                yield part.SerializeToString()
                part, size = response(), 0
            if time.perf_counter() - began_s > _STEP_S:
                await asyncio.sleep(0)
                began_s = time.perf_counter()
        if size:
            yield part.SerializeToString()

    return _streamed(method, answer)


def _streamed(method: str, answer: Callable[[Any], AsyncGenerator[bytes]]) -> Any:
    async def handle(asked: bytes, context: Any) -> AsyncGenerator[bytes]:
        async with _refusing(method, context), contextlib.aclosing(answer(_read(method, asked))) as parts:
            async for part in parts:
                yield part

    return grpc.unary_stream_rpc_method_handler(handle)


def _at_once(method: str, ask: Callable[[Any], msgspec.Struct]) -> Any:
    response = descriptors.message(f"{method}Response")
    (field,) = response.DESCRIPTOR.fields

    def encode(said: msgspec.Struct) -> bytes:
        encoded: bytes = response(**{field.name: fields_of(type(said))(said)}).SerializeToString()
        return encoded

    async def handle(asked: bytes, context: Any) -> bytes:
        async with _refusing(method, context):
            said = ask(_read(method, asked))
            return await asyncio.to_thread(encode, said) if _is_large(said) else encode(said)
        raise AssertionError("a refusal ends the request")

    return grpc.unary_unary_rpc_method_handler(handle)


def _is_large(said: msgspec.Struct) -> bool:
    return any(len(getattr(said, name, ())) >= _MANY for name in ("spans", "outcomes"))


@contextlib.asynccontextmanager
async def _refusing(method: str, context: Any) -> AsyncIterator[None]:
    """Errors inside end their own request alone, with a status and a sentence."""
    try:
        yield
    except QueryError as error:
        await refuse(context, error)
    except Exception:  # the caller is told nothing of it
        log.exception("request_failed", method=method)
        await context.abort(grpc.StatusCode.INTERNAL, FAILED)


def _read(method: str, asked: bytes) -> Any:
    """The request in these bytes.

    Raises:
        WrongQueryError: they are anything else.
    """
    name = f"{method}Request"
    try:
        return descriptors.message(name).FromString(asked)
    except DecodeError:
        raise WrongQueryError(f"The request is no {descriptors.PACKAGE}.{name}.") from None


def _limit(asked: Any) -> int:
    limit: int = asked.limit if asked.HasField("limit") else FEW_RECORDS
    return limit
