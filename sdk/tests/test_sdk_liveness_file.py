"""A service's sign of life."""

from __future__ import annotations

import asyncio
import os

import pytest

from foliot.clock import BusClock
from foliot.runtime.liveness_file import beating
from foliot.runtime.service import on_bus
from foliot.settings import SettingsError
from patience import patience


async def test_the_file_grows_old_while_the_bus_is_away(tmp_path):
    """Neither made nor touched."""
    file = tmp_path / "alive"
    async with beating(str(file), lambda: False):
        assert not file.exists()

    file.touch()
    os.utime(file, (0, 0))
    async with beating(str(file), lambda: False):
        assert file.stat().st_mtime == 0


async def test_it_goes_on_until_the_work_ends(tmp_path):
    """And then the file is gone: what has ended is not alive."""
    file = tmp_path / "alive"
    async with beating(str(file), lambda: True):
        os.utime(file, (0, 0))
        async with asyncio.timeout(patience(20)):
            while file.stat().st_mtime == 0:  # noqa: ASYNC110 - it is the file that is awaited
                await asyncio.sleep(0.02)

    assert not file.exists()


async def test_a_file_that_cannot_be_written_stops_the_start(tmp_path):
    """A service that nobody could see alive would be ended for it."""
    with pytest.raises(SettingsError, match=r"health\.file: .*missing/alive cannot be written: No such file"):
        async with beating(str(tmp_path / "missing" / "alive"), lambda: True):
            pass


@pytest.mark.nats
async def test_a_service_on_the_bus_shows_that_it_lives(tmp_path, monkeypatch, nats_server, spans):
    """Where the settings name a file; without them, there is none."""
    file = tmp_path / "alive"
    monkeypatch.setenv("FOLIOT_BUS__URL", nats_server.settings.url)
    async with on_bus("sync", BusClock()):
        assert not file.exists()
    monkeypatch.setenv("FOLIOT_HEALTH__FILE", str(file))
    async with on_bus("sync", BusClock()):
        assert file.exists()

    assert not file.exists()
