"""How a service starts and ends: logs, signals, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot import telemetry
from foliot.bus import Bus
from foliot.clock import HostClock
from foliot.settings import BusSettings, LogLevel, SettingsError, TelemetrySettings, load
from foliot.skew import from_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from foliot.clock import Clock

EX_CONFIG = 78
"""Exit status for wrong configuration, from BSD's sysexits.h."""

_LEVELS: dict[LogLevel, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a service until it ends, SIGTERM or SIGINT; a wrong setting is said in one line.

    Raises:
        SystemExit: always.
    """
    try:
        set_up_logs(load(TelemetrySettings, "telemetry").log_level)
        asyncio.run(_until_signalled(main))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EX_CONFIG) from None
    raise SystemExit(0)


async def _until_signalled(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())
    signalled = False

    def stop() -> None:
        nonlocal signalled
        signalled = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # What is loaded now stays: a full collection over it costs tens of milliseconds in the middle of a fault.
    gc.collect()
    gc.freeze()
    try:
        await task
    except asyncio.CancelledError:
        if not signalled:
            raise


def set_up_logs(level: LogLevel = "info") -> None:
    """Coloured lines on a terminal, JSON elsewhere."""
    to_person = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if to_person else structlog.processors.JSONRenderer()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
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
async def on_bus(name: str, clock: Clock, node: str = "") -> AsyncIterator[Bus]:
    """A service's connection, for as long as it runs, and its spans on their way.

    Parameters:
        name: of the service.
        clock: dates its spans.
        node: that it runs on, if it belongs to one.

    Raises:
        SettingsError: a setting is wrong.
    """
    bus_settings, telemetry_settings = load(BusSettings, "bus"), load(TelemetrySettings, "telemetry")
    telemetry.start(name, clock, telemetry_settings, node=node)
    try:
        bus = await Bus.connect(bus_settings, name)
        try:
            yield bus
        finally:
            await bus.close()
    finally:
        telemetry.stop()


def node_clock(node: str) -> HostClock:
    """The host clock of a node, with the skew that a lab may inject."""
    return HostClock(node, from_environment())


def boot_id() -> str:
    """What tells this boot of the host from the next; ``FOLIOT_BOOT_ID`` overrides it, for hosts that share a kernel."""
    return os.environ.get("FOLIOT_BOOT_ID") or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
