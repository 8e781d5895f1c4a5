"""Fixtures of the sdk's tests."""

from __future__ import annotations

import pytest

from foliot.clock import Reader
from foliot.clock.writer import PageWriter
from patient_bus import wait_for_slow_servers


@pytest.fixture(autouse=True)
def patient_bus(monkeypatch):
    """No test asks for more than the bus's answer."""
    wait_for_slow_servers(monkeypatch)


@pytest.fixture
def place(tmp_path):
    """Where the page is."""
    return str(tmp_path / "clock")


@pytest.fixture
def writer(place):
    """The probe's side."""
    opened = PageWriter(place, "node3")
    yield opened
    opened.close()


@pytest.fixture
def reader(place):
    """Any process's side."""
    return Reader(place)
