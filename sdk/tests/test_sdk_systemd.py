"""What systemd is told, read from a socket as systemd's own."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from foliot.runtime import systemd
from patience import patience


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(patience(20))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_a_service_says_that_it_is_ready_and_what_it_does(manager):
    """Both in one message."""
    systemd.ready("keeps the ways of node0")
    assert manager.recv(256) == b"READY=1\nSTATUS=keeps the ways of node0"


def test_without_a_manager_nothing_is_told(monkeypatch):
    """A service started by hand, or whose manager is gone, just goes on."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.ready("")
    monkeypatch.setenv("NOTIFY_SOCKET", "@nobody-is-here")
    systemd.ready("")


async def test_the_watchdog_hears_of_the_event_loop_again_and_again(manager, monkeypatch):
    """As long as the loop turns; an interval that is meant for another process is not ours."""
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    systemd.keep_watchdog()
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    systemd.keep_watchdog()
    for _ in range(3):
        assert await asyncio.to_thread(manager.recv, 256) == b"WATCHDOG=1"
