"""Registers the jobs of a scenario on the lab's bus while they run, as `foliot job` does."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING

from foliot.bus.retry import BUS_ERRORS
from foliot.cli.job import JobError, Registration, Wish
from foliot_lab.scenario.job_traffic import hosts_of, rails_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from foliot.settings import BusSettings
    from foliot_lab.scenario.spec import FabricSpec, JobSpec


def wishes(jobs: Sequence[JobSpec], fabric: FabricSpec) -> dict[int, Wish]:
    """What is registered of which job, by its number.

    Left out are jobs past Foliot, and those with a host and rail of which another job has traffic, too: a NIC belongs
    to one job.
    """
    owners = collections.Counter(nic for job in jobs for nic in _nics(job, fabric))
    return {
        number: Wish(job.name, hosts_of(job, fabric), rails_of(job, fabric), priority=job.priority)
        for number, job in enumerate(jobs)
        if job.over == "service" and all(owners[nic] == 1 for nic in _nics(job, fabric))
    }


def _nics(job: JobSpec, fabric: FabricSpec) -> list[tuple[str, str]]:
    if job.over != "service":
        return []
    return [(host, rail) for host in hosts_of(job, fabric) for rail in rails_of(job, fabric)]


@contextlib.asynccontextmanager
async def registered(settings: BusSettings, wish: Wish | None) -> AsyncIterator[None]:
    """Keeps a job registered for the length of the block; None: it is not to be.

    The job runs whether or not the bus answers. What keeps it from being registered is said on standard error.
    """
    if wish is None:
        yield
        return
    registration = Registration(settings, wish)
    keeping = asyncio.ensure_future(registration.keep())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    with contextlib.suppress(JobError, *BUS_ERRORS):
        await registration.end()
