"""A scheduler's own credentials suffice to register a job, and for no more."""

from __future__ import annotations

import pytest

from foliot.bus.one_shot import OneShot
from foliot.cli.job import Registration, Wish
from foliot_schemas import Nic, Node
from foliot_schemas.subjects import INVENTORY, JOBS

pytestmark = pytest.mark.nats


async def test_a_scheduler_registers_and_ends_jobs(secured):
    """It reads the inventory, which nodes write."""
    await secured.bus("detector")  # which makes the buckets
    agent = await secured.bus("agent", "node3")
    nic = Nic(
        name="node3.rail0", rail="rail0", device="eth0", address="10.0.0.3", clock="node3",
        service_address="10.200.0.3", path_addresses=(), entropies=(),
    )  # fmt: skip
    await agent.put(INVENTORY, "node3", Node(name="node3", nics=(nic,)))
    registration = Registration(secured.settings_for("scheduler"), Wish("pretrain-7", ("node3",)))
    await registration.write()
    async with OneShot(secured.settings_for("reader"), role="reader") as visit:
        (job,) = (await visit.present(JOBS)).values()
        assert (job.name, job.nics) == ("pretrain-7", ("node3.rail0",))
        await registration.end()
        assert await visit.present(JOBS) == {}
