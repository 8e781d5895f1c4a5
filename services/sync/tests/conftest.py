"""Fleets whose truth is known, as fixtures."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from known_fleet import Fleet, Run

from foliot_sync.core.synchroniser import Synchroniser

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_sync.settings import SyncSettings


@pytest.fixture
def late_holdover(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred windows until a clock is in holdover.

    A lease that nobody gave back is free after 1.5 s, and a machine may stand still for more.
    """
    monkeypatch.setattr("foliot_sync.core.track.clock_records.HOLDOVER_AFTER_WINDOWS", 100)


@pytest.fixture
def start() -> Callable[..., Run]:
    """Makes a fleet with a synchroniser."""

    def make(settings: SyncSettings | None = None, **fleet: float) -> Run:
        return Run(Fleet(**fleet), Synchroniser(settings))

    return make


@pytest.fixture(scope="session")
def settled() -> Callable[..., Run]:
    """Makes fleets that have run well until a time; what befalls them later may be said then.

    Those that are alike are run once.
    """
    known: dict[tuple[object, ...], Run] = {}

    def make(until_s: float, **fleet: float) -> Run:
        key = until_s, *sorted(fleet.items())
        if key not in known:
            known[key] = Run(Fleet(**fleet), Synchroniser())
            known[key].to(until_s)
        return copy.deepcopy(known[key])

    return make
