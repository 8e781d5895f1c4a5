"""The HTTP interface: every handler reads what is known and returns it."""

import time
from importlib.metadata import version
from typing import Annotated

import msgspec
from litestar import Litestar, Response, Router, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.params import Parameter

from foliot_gateway.http import metrics, problems, static_page
from foliot_gateway.http.otlp_receiver import receive_traces
from foliot_gateway.http.sse import Hub, get_stream, in_places
from foliot_gateway.state.fleet import NodeView
from foliot_gateway.state.path_table import PathView
from foliot_gateway.state.records import CommandView
from foliot_gateway.state.store import Store
from foliot_gateway.state.trace_store import Trace, TraceSummary
from foliot_schemas import ClockState, Event, event_kinds

Known = NamedDependency[Store]
Limit = Annotated[int, Parameter(ge=1, le=10_000, description="At most so many")]
Node = Annotated[str, Parameter(description="Only of this node")]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gateway does its work, and of each part whether it does."""

    healthy: bool
    parts: dict[str, str]


@get("/api/v1/fleet", tags=["fleet"])
async def get_fleet(store: Known) -> tuple[NodeView, ...]:
    """Every node and its NICs: link, whether their traffic was moved, counters."""
    return store.fleet.nodes()


@get("/api/v1/paths", tags=["fleet"])
async def get_paths(
    store: Known,
    node: Node = "",
    nic: Annotated[str, Parameter(description="Only paths that begin or end at this NIC")] = "",
) -> tuple[PathView, ...]:
    """Every path: state, one-way delays, probes sent and received, whether traffic takes it."""
    return store.fleet.paths(node=node, nic=nic)


@get("/api/v1/clocks", tags=["fleet"])
async def get_clocks(store: Known) -> tuple[ClockState, ...]:
    """What sync last said of each clock. Times are of the clock itself."""
    return store.fleet.clocks()


@get("/api/v1/events", tags=["records"])
async def get_events(
    store: Known,
    limit: Limit = 100,
    kind: Annotated[str, Parameter(description="Only of this kind: flap, path, and so on")] = "",
    since: Annotated[int, Parameter(description="Only of this reference time or later, in nanoseconds")] = 0,
) -> tuple[Event, ...]:
    """Events with their evidence, newest first."""
    found = store.records.events(limit=limit, kind=kind, since_ns=since)
    if kind and not found and event_kinds.find(kind) is None:
        known = ", ".join(each.name for each in event_kinds.kinds())
        raise problems.ProblemError(400, f"There is no kind of event {kind}; there are {known}.", "no-such-kind")
    return found


@get("/api/v1/events/trace", tags=["traces"])
async def get_trace_of_event(
    store: Known,
    event: Annotated[str, Parameter(description="The event's id; percent-encode it, it may hold / > and #")],
) -> Trace:
    """The trace of the fault that an event belongs to."""
    known = store.records.event(event)
    if known is None:
        raise problems.ProblemError(404, f"There is no event {event} among those the gateway keeps.", "no-such-event")
    trace_id = store.trace_of(known)
    if not trace_id:
        raise problems.ProblemError(404, f"The event {event} belongs to no fault, so it has no trace.", "no-fault")
    trace = store.traces.get(trace_id, time.monotonic_ns())
    if trace is None:
        raise problems.ProblemError(
            404,
            f"No span of the event's trace {trace_id} is here: none has arrived yet, or they were let go.",
            "no-spans",
        )
    return trace


@get("/api/v1/commands", tags=["records"])
async def get_commands(
    store: Known,
    limit: Limit = 100,
    node: Node = "",
    fault: Annotated[str, Parameter(description="Only those that this fault led to, see `fault` of an event")] = "",
) -> tuple[CommandView, ...]:
    """Commands and armed moves with their outcomes, newest first."""
    return store.records.commands(limit=limit, node=node, fault=fault)


@get("/api/v1/traces", tags=["traces"])
async def get_traces(store: Known, limit: Limit = 100) -> tuple[TraceSummary, ...]:
    """The recent traces, newest first."""
    return store.traces.recent(limit)


@get("/api/v1/traces/{trace_id:str}", tags=["traces"])
async def get_trace(store: Known, trace_id: Annotated[str, Parameter(description="32 hex digits")]) -> Trace:
    """A trace: its spans by their start, with the ids of their parents."""
    trace = store.traces.get(trace_id.lower(), time.monotonic_ns())
    if trace is None:
        raise problems.ProblemError(
            404, f"There is no trace {trace_id} among those the gateway keeps.", "no-such-trace"
        )
    return trace


@get("/metrics", tags=["health"], media_type="text/plain; version=0.0.4")
async def get_metrics(store: Known) -> bytes:
    """What Prometheus scrapes."""
    return metrics.render(store)


@get("/healthz", tags=["health"])
async def get_health(store: Known) -> Response[Health]:
    """200 while every part does its work, else 503; either way it says which part does not."""
    parts = {
        "bus": "connected" if store.bus_connected else "not connected: what is shown is what was last heard",
        "history": "read" if store.history_read else "not read: events and commands from before the start are missing",
    }
    unstoring = store.unstoring(time.monotonic())
    parts["store"] = f"does not store what comes from: {', '.join(unstoring)}" if unstoring else "stores"
    healthy = store.bus_connected and store.history_read and not unstoring
    return Response(Health(healthy=healthy, parts=parts), status_code=200 if healthy else 503)


def make(store: Store, hub: Hub) -> Litestar:
    """The application that shows what is known, to those who ask and to those who follow."""
    return Litestar(
        route_handlers=[
            get_fleet,
            get_paths,
            get_clocks,
            get_events,
            get_trace_of_event,
            get_commands,
            get_traces,
            get_trace,
            get_metrics,
            get_health,
            Router("/", route_handlers=[get_stream], middleware=[in_places(hub)]),
            receive_traces,
            static_page.get_page,
            static_page.get_asset,
        ],
        dependencies={
            "store": Provide(lambda: store, sync_to_thread=False),
            "hub": Provide(lambda: hub, sync_to_thread=False),
        },
        exception_handlers={
            problems.ProblemError: problems.on_problem,
            HTTPException: problems.on_http,
            Exception: problems.on_failure,
        },
        openapi_config=OpenAPIConfig(
            title="Foliot",
            version=version("foliot-gateway"),
            description="The fleet, its paths and clocks, what happened and why.",
            render_plugins=[JsonRenderPlugin(path=["/openapi.json", "/"]), YamlRenderPlugin()],
        ),
        # The services' own logging stays as it is.
        logging_config=None,
    )
