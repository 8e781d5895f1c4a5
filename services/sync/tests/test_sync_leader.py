"""The leader, which begins with the states that the bucket has kept."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import nats.errors
import pytest

from foliot.clock import BusClock
from foliot_sync.settings import SyncSettings
from foliot_sync.shell import leader as leader_module
from foliot_sync.shell.clock_census import ClockCensus
from foliot_sync.shell.clock_listener import ClockListener
from foliot_sync.shell.leader import Leader
from patience import patience

KEPT = {"node0": "its state"}


class SlowBucket:
    """A bucket that answers the third time that it is asked."""

    def __init__(self):
        self.asked = 0

    async def present(self, _bucket):
        """Every key's value."""
        self.asked += 1
        if self.asked < 3:
            raise nats.errors.TimeoutError
        return KEPT


def leading(bus):
    """A leader that holds its lease."""
    made = Leader(
        bus, BusClock(), SyncSettings(), shards=("sync",), census=ClockCensus({}), following=ClockListener(bus), holder="one"
    )  # fmt: skip
    made._lease = SimpleNamespace(revision=1)
    return made


@pytest.fixture
def soon_given_up(monkeypatch):
    """A bucket that is asked once more only if it has to be."""
    monkeypatch.setattr(leader_module, "_READ_S", -1.0)
    monkeypatch.setattr(leader_module, "_AGAIN_S", 0.0)


async def test_a_slow_bucket_is_waited_for_where_nothing_else_tells_the_common_time(soon_given_up):
    """The common time would jump to what the hosts' own clocks say."""
    assert await leading(SlowBucket())._kept_states() == KEPT


async def test_who_has_heard_the_states_does_not_wait_for_the_bucket(soon_given_up):
    """Clocks go on by them."""
    leader = leading(SlowBucket())
    leader._following.states = dict(KEPT)
    assert await leader._kept_states() == {}


async def test_a_cancellation_that_comes_with_the_kept_states_is_heeded():
    """nats-py's wait forgets it in Python 3.11, and the leader would wait for a lease that nobody renews any more."""
    answer = asyncio.get_running_loop().create_future()
    leader = leading(SimpleNamespace(present=lambda _bucket: asyncio.wait_for(answer, patience(20))))
    reading = asyncio.create_task(leader._kept_states())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result({})
    reading.cancel()
    async with asyncio.timeout(patience(20)):
        await asyncio.wait([reading])
    assert reading.cancelled()
