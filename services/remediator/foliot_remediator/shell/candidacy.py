"""The leases of the coordinators: one for each rail of the fleet, for which this process stands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from foliot.bus.lease import Lease
from foliot_schemas.bounds import MOST_RAILS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot.bus.client import Bus

_ROLE = "coordinator"
"""Begins the name of the role. No shard has a role that begins so."""


class Candidacy:
    """Takes the lease of each rail that nobody coordinates.

    Parameters:
        holder: the name of this process in the leases.
    """

    def __init__(self, bus: Bus, holder: str) -> None:
        self._bus, self._holder = bus, holder
        self._leases: dict[str, Lease] = {}
        self._wanted: dict[str, None] = {}
        self._more = asyncio.Event()
        self._elected = asyncio.Event()

    @property
    def terms(self) -> dict[str, int]:
        """The revisions of the leases that are held, by rail."""
        return {rail: lease.revision for rail, lease in self._leases.items() if lease.revision}

    @property
    def led(self) -> frozenset[str]:
        """The rails that somebody coordinates, by what the bus said last."""
        return frozenset(rail for rail, lease in self._leases.items() if lease.revision or lease.held_by_another)

    def stand_for(self, rails: Iterable[str]) -> None:
        """Stands for these rails too, as many as a node may have."""
        for rail in rails:
            if rail not in self._wanted and len(self._wanted) < MOST_RAILS:
                self._wanted[rail] = None
                self._more.set()

    async def elected(self) -> None:
        """Waits until any of them has been taken."""
        await self._elected.wait()

    async def run(self) -> None:
        """Takes the leases when they are free, and renews them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._more.clear()
                for rail in self._wanted.keys() - self._leases.keys():
                    lease = self._leases[rail] = Lease(self._bus, f"{_ROLE}-{rail}", self._holder)
                    tasks.create_task(lease.run())
                    tasks.create_task(self._await(lease))
                await self._more.wait()

    async def _await(self, lease: Lease) -> None:
        await lease.taken()
        self._elected.set()
