"""The services of ``foliot.v1``: each method passes a question on, and turns the answer into messages.

A large answer is made in steps. A thread would be no help: protobuf lets no other run while it makes a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from foliot_gateway.pace import Pace
from foliot_gateway.rpc import descriptors
from foliot_gateway.rpc.conversion import fields_of, into, make
from foliot_gateway.rpc.errors import refusing
from foliot_gateway.state import queries
from foliot_gateway.state.fleet import NodeView
from foliot_gateway.state.job_table import JobView, JobWhy
from foliot_gateway.state.live_feed import Change, Missed, State, Tiles, Told
from foliot_gateway.state.path_map import MapQuery, PathMap
from foliot_gateway.state.path_table import PathView
from foliot_gateway.state.queries import FEW_RECORDS, Health, WrongQueryError
from foliot_gateway.state.records import MOST_RECORDS, CommandView
from foliot_gateway.state.trace_store import Trace, TraceSummary
from foliot_schemas import ClockState, Event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    import msgspec

    from foliot_gateway.state.store import Store
    from foliot_gateway.subscription import Hub

    Ask = Callable[[Any], Iterable[msgspec.Struct | None]]

_SLICE_BYTES = 256 * 1024
"""Most bytes of one message: a sixteenth of what clients take by default."""
_TILES = 250
"""Tiles in one message: some 25 kB, made in a millisecond."""
_FIELDS: dict[type[msgspec.Struct], str] = {Tiles: "tiles", Told: "told", Missed: "missed", State: "state"}
"""Fields of WatchResponse."""
SERVED: tuple[type[msgspec.Struct], ...] = (
    NodeView, PathView, PathMap, ClockState, JobView, JobWhy, Event, CommandView, TraceSummary, Trace, Health, *_FIELDS,
)  # fmt: skip
"""Structs that answers consist of."""


def handlers(store: Store, hub: Hub) -> tuple[Any, ...]:
    """A generic handler for each service of the interface.

    Raises:
        TypeError, KeyError: a struct and its message do not fit together, or the interface has a method without code
            here.
    """
    for kind in SERVED:
        fields_of(kind)
    fleet, records = store.fleet, store.records
    lists: dict[str, Ask] = {
        "ListNodes": lambda _: fleet.nodes(),
        "ListPaths": lambda asked: fleet.paths(node=asked.node, nic=asked.nic),
        "GetMap": lambda asked: fleet.map(_map_query(asked)),
        "ListClocks": lambda _: fleet.clocks(),
        "ListJobs": lambda _: queries.jobs(store),
        "ListEvents": lambda asked: queries.events(
            store, limit=_limit(asked), kind=asked.kind, since_ns=asked.since_ns
        ),
        "ListCommands": lambda asked: records.commands(limit=_limit(asked), node=asked.node, fault=asked.fault),
        "ListTraces": lambda asked: store.traces.recent(_limit(asked)),
    }
    single: dict[str, Callable[[Any], msgspec.Struct]] = {
        "GetTrace": lambda asked: queries.trace(store, asked.trace_id, time.monotonic_ns()),
        "GetTraceOfEvent": lambda asked: queries.trace_of_event(store, asked.event, time.monotonic_ns()),
        "GetJob": lambda asked: queries.why(store, asked.job),
        "GetHealth": lambda _: queries.health(store, time.monotonic()),
    }

    async def watch(asked: Any) -> AsyncGenerator[bytes]:
        with hub.place():
            async with contextlib.aclosing(hub.follow(asked.after)) as following:
                async for changes in following:
                    for part in (part for change in changes for part in parts(change)):
                        yield part.encoded(_encode)
                        await asyncio.sleep(0)  # a reader may take one after the other without a pause

    made = {name: _in_slices(name, ask) for name, ask in lists.items()}
    made |= {name: _at_once(name, ask) for name, ask in single.items()}
    made["Watch"] = _streamed("Watch", watch)
    return tuple(
        grpc.method_handlers_generic_handler(name, {method.name: made[method.name] for method in service.methods})
        for name, service in descriptors.services().items()
    )


def parts(change: Change) -> tuple[Change, ...]:
    """A change as it goes out: as several where it tells of many tiles."""
    return change.encoded(_sliced) or (change,)


def _sliced(change: Change) -> tuple[Change, ...]:
    """The slices of a change with many tiles; empty of all others.

    A change that kept itself would have to wait for the garbage collector.
    """
    said = change.said
    if not isinstance(said, Tiles) or len(said.tiles) <= _TILES:
        return ()
    return tuple(
        Change(Tiles(whole=said.whole and not at, tiles=said.tiles[at : at + _TILES], gone=() if at else said.gone))
        for at in range(0, len(said.tiles), _TILES)
    )


def _encode(change: Change) -> bytes:
    said, response = change.said, descriptors.message("WatchResponse")
    told = response(**{_FIELDS[type(said)]: fields_of(type(said))(said)}, number=change.number)
    encoded: bytes = told.SerializeToString()
    return encoded


def _in_slices(method: str, ask: Ask) -> Any:
    response = descriptors.message(f"{method}Response")

    async def answer(asked: Any) -> AsyncGenerator[bytes]:
        part, size, pace = response(), 0, Pace()
        for entry in ask(asked):
            if entry is None:
                await pace.turn()
                continue
            entries = _entries(part, type(entry).__name__)
            await pace.keep(make(entry, entries.add))
            size += entries[-1].ByteSize()
            if size >= _SLICE_BYTES:
                yield await _encoded(part)
                part, size = response(), 0
        if size:
            yield await _encoded(part)

    return _streamed(method, answer)


def _entries(part: Any, name: str) -> Any:
    """Where a slice has its entries of a message: it is a list, or holds a message with several of them."""
    (field,) = part.DESCRIPTOR.fields
    if field.is_repeated:
        return getattr(part, field.name)
    (of_kind,) = (each.name for each in field.message_type.fields if each.message_type.name == name)
    return getattr(getattr(part, field.name), of_kind)


async def _encoded(message: Any) -> bytes:
    """A message as it is sent.

    Of a large one, measuring, encoding and sending take a millisecond for every half megabyte each.
    """
    await asyncio.sleep(0)
    encoded: bytes = message.SerializeToString()
    await asyncio.sleep(0)
    return encoded


def _streamed(method: str, answer: Callable[[Any], AsyncGenerator[bytes]]) -> Any:
    async def handle(asked: bytes, context: Any) -> AsyncGenerator[bytes]:
        async with refusing(method, context), contextlib.aclosing(answer(_read(method, asked))) as parts:
            async for part in parts:
                yield part

    return grpc.unary_stream_rpc_method_handler(handle)


def _at_once(method: str, ask: Callable[[Any], msgspec.Struct]) -> Any:
    response = descriptors.message(f"{method}Response")
    (field,) = response.DESCRIPTOR.fields

    async def handle(asked: bytes, context: Any) -> bytes:
        async with refusing(method, context):
            said = response()
            await Pace().keep(make(ask(_read(method, asked)), into(getattr(said, field.name))))
            return await _encoded(said)
        raise AssertionError("a refusal ends the request")

    return grpc.unary_unary_rpc_method_handler(handle)


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


def _map_query(asked: Any) -> MapQuery:
    names = ("source", "destination", "rail", "path", "link", "after")
    return MapQuery(
        limit=_limit(asked) if asked.HasField("limit") else 0, **{name: getattr(asked, name) for name in names}
    )


def _limit(asked: Any) -> int:
    limit: int = asked.limit if asked.HasField("limit") else FEW_RECORDS
    if not 1 <= limit <= MOST_RECORDS:
        raise WrongQueryError(f"The limit is from 1 to {MOST_RECORDS}, not {limit}.")
    return limit
