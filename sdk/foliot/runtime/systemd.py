"""Notifies systemd of a service's readiness, status and life (sd_notify(3)). Without systemd it does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

_BEATS = 3
"""Signs of life per watchdog interval. sd_watchdog_enabled(3) advises two, so one more may come late."""


def tell(*lines: str) -> None:
    """Sends assignments such as ``READY=1`` to the service manager, if there is one that listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as told:
        told.connect(address)
        told.send("\n".join(lines).encode())


def ready(status: str) -> None:
    """Tells systemd that the service does its work, with a status in words."""
    tell("READY=1", f"STATUS={status}")


def keep_watchdog() -> None:
    """Tells systemd from the event loop, again and again, that it turns: a service whose loop hangs is restarted."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    if interval_us.isdecimal() and os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
        _beat(asyncio.get_running_loop(), int(interval_us) / 1_000_000 / _BEATS)


def _beat(loop: asyncio.AbstractEventLoop, every_s: float) -> None:
    tell("WATCHDOG=1")
    loop.call_later(every_s, _beat, loop, every_s)
