"""The gateway's shell: the bus fills the store, HTTP and gRPC show it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import uvicorn

from foliot import settings as sources
from foliot import tracing
from foliot.bus.client import Bus
from foliot.bus.retry import until_done
from foliot.clock import BusClock
from foliot.runtime import systemd
from foliot.runtime.service import until_closed
from foliot.settings import BusSettings, SettingsError, TelemetrySettings
from foliot.text.messages import happened_ns
from foliot_gateway.http import api, host_guard, sockets
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.records import MOST_RECORDS
from foliot_gateway.state.store import Store
from foliot_gateway.subscription import Hub
from foliot_schemas import WireError
from foliot_schemas.subjects import (
    CLOCK,
    CLOCKS,
    COMMAND,
    DELAY,
    DRAINS,
    EVENT,
    FLOW,
    HOPS,
    INVENTORY,
    JOBS,
    OUTCOME,
    PATHS,
    PORT,
    REJECTED,
    SERVICES,
    WORKER,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator

    from foliot_schemas import (
        ClockState,
        Command,
        DelayBatch,
        Drain,
        Event,
        FlowBatch,
        HopBatch,
        Job,
        Node,
        NodePaths,
        Outcome,
        PortState,
        Rejected,
        WorkerBatch,
    )

log = structlog.get_logger()

_FRESH_NS = 10_000_000_000
"""The gateway caught up with an outcome older than this, and did not show it as it happened: it gets no span."""
_LOOK_S = 0.2
_GATHER_S = 0.1
"""How long delays and flows may wait for others. Pages are told of them as seldom (`subscription`)."""
_GRACE_S = 5
"""Time for readers to be told the end. It takes them milliseconds, but the machine may stand still for some seconds
just then."""


class Feed:
    """Takes every message that the bus shows into the store."""

    def __init__(self, store: Store, clock: BusClock) -> None:
        self._store = store
        self._clock = clock

    async def follow(self, bus: Bus) -> None:
        """Subscribes to everything."""
        await bus.subscribe_kept(EVENT, self._event, durable="gateway-event")
        await bus.subscribe_kept(COMMAND, self._command, durable="gateway-command")
        await bus.subscribe_kept(OUTCOME, self._outcome, durable="gateway-outcome")
        await bus.subscribe(PORT, self._port)
        await bus.subscribe(DELAY, self._delays, gather_s=_GATHER_S)
        await bus.subscribe(FLOW, self._flows, gather_s=_GATHER_S)
        await bus.subscribe(HOPS, self._hops)
        await bus.subscribe(WORKER, self._workers)
        await bus.subscribe(CLOCK, self._clock_state)
        await bus.subscribe(REJECTED, self._rejected)
        await bus.watch(INVENTORY, self._node)
        await bus.watch(PATHS, self._wanted)
        await bus.watch(JOBS, self._job)
        await bus.watch(DRAINS, self._drain)
        await bus.watch(CLOCKS, self._clock_kept)

    async def _event(self, event: Event, _: str) -> None:
        self._store.event(event)

    async def _command(self, command: Command, _: str) -> None:
        self._store.command(command)

    async def _outcome(self, outcome: Outcome, _: str) -> None:
        """Takes an outcome: the last hop of a fault's trace is that the gateway can show it."""
        fresh = self._clock.now_ns() - happened_ns(outcome) < _FRESH_NS
        if not (fresh and outcome.fault):
            self._store.outcome(outcome)
            return
        with tracing.span(
            "show event",
            fault=outcome.fault,
            kind="consumer",
            node=outcome.node,
            verb=outcome.verb,
            status=outcome.status,
            outcome=outcome.id,
        ):
            self._store.outcome(outcome)

    async def _port(self, port: PortState, _: str) -> None:
        self._clock.learn(port.at_ns)
        self._store.heard_s = time.monotonic()
        self._store.fleet.fold_port(port)

    async def _delays(self, batch: DelayBatch, _: str) -> None:
        self._clock.learn(batch.at_ns)
        self._store.heard_s = time.monotonic()
        self._store.lateness.add(batch.late_ns)
        try:
            self._store.fleet.fold_delays(batch)
        except ValueError as error:
            raise WireError(str(error)) from error

    async def _flows(self, batch: FlowBatch, _: str) -> None:
        self._clock.learn(batch.at_ns)
        try:
            self._store.jobs.fold_flows(batch)
        except ValueError as error:
            raise WireError(str(error)) from error

    async def _workers(self, batch: WorkerBatch, _: str) -> None:
        self._clock.learn(batch.at_ns)
        try:
            self._store.jobs.fold_workers(batch)
        except ValueError as error:
            raise WireError(str(error)) from error

    async def _hops(self, batch: HopBatch, _: str) -> None:
        try:
            self._store.fleet.fold_hops(batch)
        except ValueError as error:
            raise WireError(str(error)) from error

    async def _clock_state(self, state: ClockState, _: str) -> None:
        self._store.fleet.fold_clock(state)

    async def _clock_kept(self, _: str, state: ClockState | None) -> None:
        if state is not None:
            self._store.fleet.fold_clock(state)

    async def _rejected(self, rejected: Rejected, _: str) -> None:
        # By the contract's services alone: a publisher could name any number of others.
        service = rejected.service if rejected.service in SERVICES else "other"
        if rejected.unstored:
            self._store.not_stored(service, time.monotonic())
        else:
            self._store.rejected[service] += 1

    async def _node(self, name: str, node: Node | None) -> None:
        self._store.fleet.fold_node(name, node)

    async def _job(self, name: str, job: Job | None) -> None:
        self._store.jobs.fold_job(name, job)

    async def _drain(self, node: str, drain: Drain | None) -> None:
        self._store.fleet.fold_drain(node, drain)

    async def _wanted(self, node: str, wanted: NodePaths | None) -> None:
        self._store.fleet.fold_wanted(node, wanted)


class _Server(uvicorn.Server):
    """uvicorn, without its hands on the process's signals: `foliot.runtime.service` has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    store: Store,
    listening: list[socket.socket],
    names: Iterable[str] = (),
    rpc_at: Iterable[tuple[str, int]] = (),
    now_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Serves what is known until cancelled; requests under way are finished.

    Parameters:
        names: names of the gateway, besides those that need no setting.
        rpc_at: host and port of each address that serves gRPC.
        now_ns: tells reference time.
    """
    hub = Hub(store, now_ns)
    rpc = await _serve_rpc(store, hub, tuple(rpc_at))
    app = host_guard.HostGuard(api.make(store, hub), names)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=_GRACE_S)
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(listening))
    looking = asyncio.ensure_future(hub.run())
    try:
        (first, *_), _ = await asyncio.wait({serving, looking}, return_when=asyncio.FIRST_COMPLETED)
        await first
    finally:
        await _end(looking)
        # Streams have no end of their own, and the server waits for what is under way.
        hub.close()
        server.should_exit = True
        await asyncio.gather(serving, *([rpc.stop(_GRACE_S)] if rpc else []))


async def _serve_rpc(store: Store, hub: Hub, at: tuple[tuple[str, int], ...]) -> Any:
    """The server of gRPC, or None.

    The page, HTTP and the traces are worth more than the one way of asking that cannot be served.
    """
    if not at:
        return None
    try:
        # A gateway without gRPC does not load it: it takes 13 MB of memory.
        from foliot_gateway.rpc import server  # noqa: PLC0415

        started = await server.start(store, hub, at)
    except ImportError as error:
        log.warning("grpc_not_served", reason=f"{error}; install grpcio, or set gateway.grpc_port to 0")
    except SettingsError as error:
        log.warning("grpc_not_served", reason=str(error))
    else:
        log.info("gateway_listening_grpc", at=[f"{host}:{port}" for host, port in at])
        return started
    return None


async def main() -> None:
    """Runs the gateway until cancelled."""
    settings = sources.load(GatewaySettings, "gateway")
    bus_settings = sources.load(BusSettings, "bus")
    spans = sources.load(TelemetrySettings, "telemetry")
    names = host_guard.named(settings, spans.endpoint)
    adopted, made = sockets.open_all(settings)
    if made and spans.endpoint:
        # Our own spans come back to ourselves; the fleet's address of us may be one that only others can reach.
        spans = msgspec.structs.replace(spans, endpoint=sockets.url(made[0]))
    clock = BusClock("gateway")
    store = Store(settings, BusClock("gateway").now_ns)  # of a clock that learns from nobody
    tracing.start("gateway", clock, spans)
    log.info("gateway_listening", urls=[sockets.url(each) for each in made], adopted=len(adopted))
    addresses = sockets.rpc_addresses(settings)
    serving = asyncio.ensure_future(serve(store, [*adopted, *made], names, addresses, clock.now_ns))
    filling = asyncio.ensure_future(_fill(store, clock, bus_settings))
    try:
        # Neither ends by itself: the first that does has failed, and takes the gateway along.
        (first, *_), _ = await asyncio.wait({serving, filling}, return_when=asyncio.FIRST_COMPLETED)
        await first
    finally:
        await _end(filling)
        # The last spans are sent to our own receiver, so it closes after them.
        await asyncio.to_thread(tracing.stop)
        await _end(serving)


async def _end(work: asyncio.Future[None]) -> None:
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _fill(store: Store, clock: BusClock, settings: BusSettings) -> None:
    """Follows the bus until cancelled; HTTP is served meanwhile, and ``/healthz`` says that the bus is away."""
    bus = await Bus.connect(settings, "gateway")
    systemd.tell("STATUS=on the bus")
    # Before what comes over it is shown.
    store.bus_connected = bus.connected
    try:
        async with until_closed(bus):
            await Feed(store, clock).follow(bus)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_read_history(store, bus))
                tasks.create_task(_watch(store, bus))
    finally:
        await bus.close()


async def _watch(store: Store, bus: Bus) -> None:
    while True:
        store.bus_connected = bus.connected
        await asyncio.sleep(_LOOK_S)


async def _read_history(store: Store, bus: Bus) -> None:
    """Reads what happened before the start, once: the last messages of the streams."""
    for channel, take in ((EVENT, store.event), (COMMAND, store.command), (OUTCOME, store.outcome)):
        await until_done(functools.partial(bus.replay, channel, MOST_RECORDS, take), "history_retried")
    store.past_read()
    log.info("history_read", events=len(store.records.events(limit=MOST_RECORDS)))
