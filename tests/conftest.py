"""What the end-to-end tests need beside the root's fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from foliot.settings import BusSettings

sys.path.insert(0, str(Path(__file__).parent))  # for `machine`


@pytest.fixture
def bus_free_settings() -> BusSettings:
    """Settings that are never connected with."""
    return BusSettings()
