"""The HTTP interface: every handler passes a question on, and returns the answer."""

import time
from importlib.metadata import version
from typing import Annotated

from litestar import Litestar, Response, Router, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.params import Parameter, QueryParameter

from foliot_gateway.http import metrics, problems, static_page
from foliot_gateway.http.otlp_receiver import receive_traces
from foliot_gateway.http.sse import get_stream, in_places
from foliot_gateway.pace import Pace
from foliot_gateway.state import path_map, queries
from foliot_gateway.state.fleet import NodeView
from foliot_gateway.state.job_table import JobView, JobWhy
from foliot_gateway.state.path_map import MapQuery, PathMap
from foliot_gateway.state.path_table import PathView
from foliot_gateway.state.queries import FEW_RECORDS, Health, QueryError
from foliot_gateway.state.records import MOST_RECORDS, CommandView
from foliot_gateway.state.store import Store
from foliot_gateway.state.trace_store import Trace, TraceSummary
from foliot_gateway.subscription import Hub
from foliot_schemas import ClockState, Event

Known = NamedDependency[Store]
Limit = Annotated[int, Parameter(ge=1, le=MOST_RECORDS, description="At most so many")]
Node = Annotated[str, Parameter(description="Only of this node")]


@get("/api/v1/fleet", tags=["fleet"])
async def get_fleet(store: Known) -> tuple[NodeView, ...]:
    """Every node and its NICs: link, whether their traffic was moved, counters."""
    return await Pace().keep(store.fleet.nodes())


@get("/api/v1/paths", tags=["fleet"])
async def get_paths(
    store: Known,
    node: Node = "",
    nic: Annotated[str, Parameter(description="Only paths that begin or end at this NIC")] = "",
) -> tuple[PathView, ...]:
    """Every path: state, one-way delays, probes sent and received, whether traffic takes it."""
    return await Pace().keep(store.fleet.paths(node=node, nic=nic))


@get("/api/v1/map", tags=["fleet"])
async def get_map(
    store: Known,
    *,
    begin: Annotated[str, QueryParameter(name="from", description="Only paths from this node or NIC")] = "",
    end: Annotated[str, QueryParameter(name="to", description="Only paths to this node or NIC")] = "",
    rail: Annotated[str, Parameter(description="Only paths of this rail")] = "",
    path: Annotated[str, Parameter(description="Only this path")] = "",
    link: Annotated[str, Parameter(description="Only paths that cross this link")] = "",
    limit: Limit = MOST_RECORDS,
    after: Annotated[str, Parameter(description="Only paths after this one: the last one of the answer before")] = "",
) -> PathMap:
    """Over which links each path goes, which paths share a link, and which routers the links join."""
    asked = MapQuery(source=begin, destination=end, rail=rail, path=path, link=link, after=after, limit=limit)
    return path_map.collected(await Pace().keep(store.fleet.map(asked)))


@get("/api/v1/clocks", tags=["fleet"])
async def get_clocks(store: Known) -> tuple[ClockState, ...]:
    """The last state of each clock by sync. Times are of the clock itself."""
    return store.fleet.clocks()


@get("/api/v1/jobs", tags=["jobs"])
async def get_jobs(store: Known) -> tuple[JobView, ...]:
    """Every job: registered ones, and groups of nodes that talk to each other."""
    return await Pace().keep(queries.jobs(store))


@get("/api/v1/jobs/{job:str}", tags=["jobs"])
async def get_job(store: Known, job: Annotated[str, Parameter(description="Name of the job")]) -> JobWhy:
    """A job: its flows, the slowest of them, and the trouble that this one suffers from."""
    return queries.why(store, job)


@get("/api/v1/events", tags=["records"])
async def get_events(
    store: Known,
    limit: Limit = FEW_RECORDS,
    kind: Annotated[str, Parameter(description="Only of this kind: flap, path, and so on")] = "",
    since: Annotated[int, Parameter(description="Only of this reference time or later, in nanoseconds")] = 0,
) -> tuple[Event, ...]:
    """Events with their evidence, newest first."""
    return queries.events(store, limit=limit, kind=kind, since_ns=since)


@get("/api/v1/events/trace", tags=["traces"])
async def get_trace_of_event(
    store: Known,
    event: Annotated[str, Parameter(description="The event's id; percent-encode it, it may hold / > and #")],
) -> Trace:
    """The trace of the fault that an event belongs to."""
    return queries.trace_of_event(store, event, time.monotonic_ns())


@get("/api/v1/commands", tags=["records"])
async def get_commands(
    store: Known,
    limit: Limit = FEW_RECORDS,
    node: Node = "",
    fault: Annotated[str, Parameter(description="Only those that this fault led to, see `fault` of an event")] = "",
) -> tuple[CommandView, ...]:
    """Commands and armed moves with their outcomes, newest first."""
    return store.records.commands(limit=limit, node=node, fault=fault)


@get("/api/v1/traces", tags=["traces"])
async def get_traces(store: Known, limit: Limit = FEW_RECORDS) -> tuple[TraceSummary, ...]:
    """The recent traces, newest first."""
    return await Pace().keep(store.traces.recent(limit))


@get("/api/v1/traces/{trace_id:str}", tags=["traces"])
async def get_trace(store: Known, trace_id: Annotated[str, Parameter(description="32 hex digits")]) -> Trace:
    """A trace: its spans by their start, with the ids of their parents."""
    return queries.trace(store, trace_id, time.monotonic_ns())


@get("/metrics", tags=["health"], media_type="text/plain; version=0.0.4")
async def get_metrics(store: Known) -> bytes:
    """The metrics that Prometheus scrapes."""
    return metrics.render(store, await Pace().keep(store.fleet.nodes()))


@get("/healthz", tags=["health"])
async def get_health(store: Known) -> Response[Health]:
    """200 while every part does its work, else 503; either way it says which part does not."""
    health = queries.health(store, time.monotonic())
    return Response(health, status_code=200 if health.healthy else 503)


def make(store: Store, hub: Hub) -> Litestar:
    """The application that shows what is known, to those who ask and to those who follow."""
    return Litestar(
        route_handlers=[
            get_fleet,
            get_paths,
            get_map,
            get_clocks,
            get_jobs,
            get_job,
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
            QueryError: problems.on_query_error,
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
