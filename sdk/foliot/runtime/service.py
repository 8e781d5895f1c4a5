"""Starts and ends a service: logs, signals, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot import native, tracing
from foliot.bus.client import Bus
from foliot.bus.connection import BusClosedError
from foliot.clock import HostClock
from foliot.clock.lab_clock import VARIABLE, lab_clock
from foliot.runtime import loop_steps, systemd
from foliot.runtime.extensions import extend
from foliot.runtime.liveness_file import beating
from foliot.settings import BusSettings, HealthSettings, LogLevel, SettingsError, TelemetrySettings, load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from foliot.clock import Clock

EX_CONFIG = 78
"""Exit status for wrong configuration, from BSD's sysexits.h."""

EX_UNAVAILABLE = 69
"""Exit status when the bus has closed the connection for good. A supervisor then starts the service anew."""

_SO_NETNS_COOKIE = 71
"""asm-generic/socket.h; Python's socket module does not have it."""
_PATIENCE_S = 5.0
"""A boot does not wait for a bus that is away. After this the service counts as started, and says what it waits for."""

_FULL, _LONG_S = 2, 0.02
"""The garbage collector's oldest generation, and a collection that an event should not have to wait for."""


def run(name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a service until it ends or is signalled, then raises `SystemExit`; reports a wrong setting in one line."""
    try:
        settings = load(TelemetrySettings, "telemetry")
        set_up_logs(settings.log_level)
        extend(name)
        native.tell()
        steps = loop_steps.Steps.kept(settings.loop_steps)
        keep_what_is_loaded()
        with asyncio.Runner(loop_factory=steps.loop) as runner:
            runner.run(_until_signalled(main, steps))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EX_CONFIG) from None
    except BusClosedError as error:
        sys.stderr.write(f"the bus closed the connection: {error}\n")
        raise SystemExit(EX_UNAVAILABLE) from None
    raise SystemExit(0)


async def _until_signalled(main: Callable[[], Coroutine[Any, Any, None]], steps: loop_steps.Steps) -> None:
    loop = asyncio.get_running_loop()
    telling = loop.create_task(loop_steps.tell(steps))
    task = loop.create_task(main())
    signalled = False

    def stop() -> None:
        nonlocal signalled
        signalled = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    systemd.keep_watchdog()
    try:
        await task
    except asyncio.CancelledError:
        if not signalled:
            raise
    finally:
        telling.cancel()


def keep_what_is_loaded() -> None:
    """Spares the garbage collector the objects that are loaded now and stay.

    Later it spares those whose full collection takes long.

    A full collection over them would come in the middle of a fault, and cost tens of milliseconds, or a second in a
    fleet of 100,000 nodes.
    """
    if "numpy" in sys.modules:
        # numpy.unique loads it at its first call, which is at the first fault: 7 ms, or 30 where there is no bytecode.
        importlib.import_module("numpy.ma")
    gc.collect()
    gc.freeze()
    if not any(isinstance(callback, _Keeping) for callback in gc.callbacks):
        gc.callbacks.append(_Keeping())


class _Keeping:
    """Hears from the garbage collector when it begins and ends.

    Objects that survive a long full collection are not looked through again. A cycle among them that dies later is not
    freed. These are few objects each time, and as seldom as the memory of a fleet grows by so much.
    """

    def __init__(self) -> None:
        self._began_s = 0.0

    def __call__(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        elif about["generation"] == _FULL and time.perf_counter() - self._began_s > _LONG_S:
            gc.freeze()


def set_up_logs(level: LogLevel = "info") -> None:
    """Coloured lines on a terminal, JSON elsewhere."""
    to_person = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if to_person else structlog.processors.JSONRenderer()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *([] if to_person else [structlog.processors.format_exc_info]),
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@contextlib.asynccontextmanager
async def on_bus(name: str, clock: Clock, node: str = "", *, wait: bool = True) -> AsyncIterator[Bus]:
    """A service's connection for as long as it runs. Its spans are sent meanwhile.

    Parameters:
        clock: dates its spans.
        node: the node that it runs on, if it belongs to one. Then others must make streams and buckets, and it waits
            for them.
        wait: whether to wait for the bus. A service that does not, awaits `Bus.opened` before it subscribes.

    Raises:
        SettingsError: a setting is wrong.
        BusClosedError: the server has closed the connection for good.
    """
    bus_settings, telemetry_settings = load(BusSettings, "bus"), load(TelemetrySettings, "telemetry")
    health_file = load(HealthSettings, "health").file
    tracing.start(name, clock, telemetry_settings, node=node)
    try:
        bus = Bus.later(bus_settings, name, makes=not node)
        try:
            async with until_closed(bus):
                if wait:
                    await opened(bus)
                async with beating(health_file, lambda: bus.connected):
                    yield bus
        finally:
            await bus.close()
    finally:
        tracing.stop()


async def opened(bus: Bus) -> None:
    """Waits for the bus, and tells systemd so."""
    status = f"waits for the bus at {bus.url}"
    systemd.tell(f"STATUS={status}")
    patience = asyncio.get_running_loop().call_later(_PATIENCE_S, systemd.ready, status)
    try:
        await bus.opened()
    finally:
        patience.cancel()
    systemd.tell("STATUS=on the bus")


@contextlib.asynccontextmanager
async def until_closed(bus: Bus) -> AsyncIterator[None]:
    """Ends the work inside by `BusClosedError` when the server closes the connection for good."""
    inside = asyncio.current_task()
    assert inside is not None
    watch = asyncio.ensure_future(bus.closed())
    watch.add_done_callback(lambda ended: None if ended.cancelled() else inside.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if watch.done() and not watch.cancelled():
            inside.uncancel()
            watch.result()
        raise
    finally:
        watch.cancel()


def node_clock(node: str) -> HostClock:
    """The host clock of a node, or the one that a lab has made of it."""
    path = os.environ.get(VARIABLE, "")
    return lab_clock(node, path) if path else HostClock(node)


def boot_id() -> str:
    """The id of the host's present boot; ``FOLIOT_BOOT_ID`` overrides it.

    A container's boot is that of its network namespace: a new one has new devices, whose counters begin again, on the
    same kernel.
    """
    given = os.environ.get("FOLIOT_BOOT_ID")
    return given or Path("/proc/sys/kernel/random/boot_id").read_text().strip() + _namespace()


def _namespace() -> str:
    """The number that the kernel gave this network namespace alone, until it boots; empty before Linux 5.14."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as any_socket:
        try:
            cookie = any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:
            return ""
    return f"-{int.from_bytes(cookie, sys.byteorder)}"
