"""One fleet for all tests of the containers."""

from __future__ import annotations

import sys

import pytest
from compose_fleet import Fleet, engine


@pytest.fixture(scope="session")
def fleet():
    """A fleet that is up; afterwards nothing of it is left."""
    reason = engine()
    if reason:
        pytest.skip(reason)
    fleet = Fleet()
    try:
        fleet.up()
        yield fleet
    except AssertionError:
        sys.stderr.write(fleet.compose("logs", "--tail", "5"))
        raise
    finally:
        fleet.down()
        assert fleet.left() == ""
