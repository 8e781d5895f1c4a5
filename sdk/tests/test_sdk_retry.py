"""Waiting for the bus, and being told to end meanwhile."""

from __future__ import annotations

import asyncio

from foliot.bus.retry import heed_cancellation, until_done
from patience import patience


async def test_a_cancellation_that_comes_with_the_answer_is_heeded():
    """The wait itself forgets it in Python 3.11: whoever does not look goes on for ever."""
    answer, went_on = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def ask():
        await asyncio.wait_for(answer, patience(20))
        heed_cancellation()
        went_on.set()
        await asyncio.sleep(20)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(None)
    asking.cancel()
    async with asyncio.timeout(patience(20)):
        await asyncio.wait([asking])
    assert asking.cancelled()
    assert not went_on.is_set()


async def test_who_asks_until_there_is_an_answer_heeds_it_too():
    """A service that is told to end while it begins would go on until it is killed."""
    answer = asyncio.get_running_loop().create_future()
    asking = asyncio.create_task(until_done(lambda: asyncio.wait_for(answer, patience(20)), "asked"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(None)
    asking.cancel()
    async with asyncio.timeout(patience(20)):
        await asyncio.wait([asking])
    assert asking.cancelled()


async def test_who_was_not_cancelled_goes_on():
    """As if it were not there."""
    heed_cancellation()
