"""Fixtures of the sdk's tests."""

from __future__ import annotations

import pytest

from foliot.bus import missed_changes
from foliot.clock import Reader
from foliot.clock.writer import PageWriter
from patient_bus import wait_for_slow_servers


@pytest.fixture(autouse=True)
def slow_servers(monkeypatch):
    """No test asks for more than the bus's answer."""
    wait_for_slow_servers(monkeypatch)


@pytest.fixture
def no_looks(monkeypatch):
    """A watch hears messages, and looks for lost ones only when a test lets it.

    Looks and messages at the same time may tell a value twice.
    """
    monkeypatch.setattr(missed_changes, "_FIRST_PAUSE_S", 3_600.0)


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
