"""Leases, on a real NATS server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from foliot.bus import lease as lease_module
from foliot.bus.lease import Lease, counted
from foliot_schemas.subjects import LEASES
from patience import patience

pytestmark = pytest.mark.nats


@pytest.fixture
def slow_leases(monkeypatch):
    """Leases that end so late that a machine which stands still for some seconds lets go of none."""
    slow = msgspec.structs.replace(LEASES, name="slow", keep_s=6.0)
    monkeypatch.setattr(lease_module, "LEASES", slow)
    return slow


async def test_a_lease_has_one_holder_and_a_number_that_rises(buses):
    """A standby takes over when the holder lets go, with a higher fence."""
    one, other = buses
    first, second = Lease(one, "role", "one"), Lease(other, "role", "other")
    holding = asyncio.create_task(first.run())
    async with asyncio.timeout(patience(20)):
        fence = await first.taken()
        waiting = asyncio.create_task(second.run())
        for _ in range(50):
            await asyncio.sleep(0.02)
            assert not (first.revision and second.revision)
        holding.cancel()
        taken = await second.taken()
    waiting.cancel()

    assert first.revision == 0
    assert taken > fence


async def test_a_bus_that_lost_its_memory_counts_leases_anew(buses):
    """Known by when it began to; while the bucket is gone, it says nothing."""
    one, _ = buses
    store = await one.store(LEASES)
    revisions = [await store.put("role", b"") for _ in range(3)]
    before = await counted(one)
    await one._stream.delete_stream(f"KV_{LEASES.name}")
    lost = await counted(one)
    one._buckets.forget()
    after = await counted(one)

    assert (before.last, lost, after.last) == (revisions[-1], None, 0)
    assert after.since_ns > before.since_ns


async def test_a_lasting_lease_is_held_while_the_bus_says_nothing(buses, slow_leases):
    """Others are let go as soon as they might be somebody else's.

    The lasting one is let go, too, as soon as the bus says that it is.
    """
    one, other = buses
    leases = Lease(one, "strict", "one"), Lease(one, "lasting", "one", lasting=True)
    async with asyncio.timeout(patience(60)), asyncio.TaskGroup() as tasks:
        store = await one.store(slow_leases)
        for _ in range(3):
            await store.put("other", b"")  # so that the next memory's revisions are none of this one's
        holding = [tasks.create_task(lease.run()) for lease in leases]
        _, fence = [await lease.taken() for lease in leases]
        await one._stream.delete_stream(f"KV_{slow_leases.name}")
        while leases[0].revision:  # noqa: ASYNC110 - a lease is polled by design
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        assert leases[1].revision == fence
        other._buckets.forget()
        await (await other.store(slow_leases)).put("lasting", b"somebody else")
        while leases[1].revision:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        for task in holding:
            task.cancel()


async def test_a_renewal_whose_answer_was_lost_is_its_own(buses, slow_leases):
    """The key has moved on by the holder's own hand: it goes on under the same fence.

    By somebody else's hand, it is lost.
    """
    one, _ = buses
    lease = Lease(one, "role", "one")
    holding = asyncio.create_task(lease.run())
    async with asyncio.timeout(patience(30)):
        fence, store = await lease.taken(), await one.store(slow_leases)
        for _ in range(3):
            moved = await store.put("role", lease._record)
            while lease._last <= moved:
                assert lease.revision == fence
                await asyncio.sleep(0.01)
        await store.put("role", b"somebody else")
        while lease.revision:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    holding.cancel()


async def test_a_lease_that_lapsed_unclaimed_is_taken_again_at_once(buses, slow_leases):
    """Where its answers came late, it need not wait until its own key has ended. It has another fence."""
    one, _ = buses
    lease = Lease(one, "role", "one")
    holding = asyncio.create_task(lease.run())
    async with asyncio.timeout(patience(30)):
        fence, store = await lease.taken(), await one.store(slow_leases)
        while lease.revision in {0, fence}:
            lease._until_s = lease._until_s if lease.revision != fence else 0.0
            await store.get("role")  # it never ends
            await asyncio.sleep(0.01)
    assert lease.revision > fence
    holding.cancel()


async def test_a_lease_of_another_is_not_taken_for_its_own_by_its_number(buses, slow_leases):
    """A bus that lost its memory counts anew, and another may be given the number that this holder had."""
    one, _ = buses
    lease, store = Lease(one, "role", "one"), await one.store(slow_leases)
    lease._last = await store.put("role", b"somebody else")
    with pytest.raises(KeyWrongLastSequenceError):
        await lease._take(store)
    assert lease.held_by_another


async def test_it_is_let_go_before_the_bus_is_asked_to_hand_it_on(buses, slow_leases, monkeypatch):
    """The bus may give it to another before its answer is here, and two would hold it."""
    one, _ = buses
    lease, held = Lease(one, "role", "one"), []
    holding = asyncio.create_task(lease.run())
    async with asyncio.timeout(patience(30)):
        await lease.taken()
        store = await one.store(slow_leases)
        delete = store.delete

        async def asked(*of_what, **more):
            held.append(lease.revision)
            await delete(*of_what, **more)

        monkeypatch.setattr(store, "delete", asked)
        holding.cancel()
        await asyncio.wait([holding])
    assert held == [0]


class Store:
    """A bucket of leases with the one key, and what it holds."""

    def __init__(self, value):
        self.value, self.revision = value, 1

    async def get(self, _key):
        """What the key holds."""
        if self.value is None:
            raise KeyNotFoundError
        return SimpleNamespace(value=self.value, revision=self.revision)

    async def create(self, _key, value):
        """Takes the key."""
        self.value, self.revision = value, self.revision + 1
        return self.revision

    async def update(self, _key, _value, *, last):
        """Refuses: somebody else has written."""
        raise KeyWrongLastSequenceError


async def test_who_does_not_hold_it_knows_whether_another_does():
    """From the bus: while another holds it, when the key is free, and when it was taken away."""
    store, known = Store(b"somebody else"), []

    async def found(_bucket):
        return store

    lease = Lease(SimpleNamespace(store=found), "role", "one")
    for value in (store.value, None, b"somebody else"):
        store.value = value
        await lease._step()
        known.append(lease.held_by_another)
    assert known == [True, False, True]
