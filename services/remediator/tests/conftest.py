"""The fleet around a remediator, for each test anew."""

from __future__ import annotations

import functools

import pytest
from prepared import prepared
from remediator_world import World


@pytest.fixture
def world():
    """Four nodes on two rails, healthy, their remediator holding the lease."""
    return prepared(World)


@pytest.fixture
def make_world():
    """Makes a world of other size, with other settings, or without the lease (``lease=0``)."""
    return functools.partial(prepared, World)
