"""Waiting for the bus, and being told to end meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from foliot.bus.retry import heed_cancellation, until_done
from patience import patience


async def looked_at(answered):
    """One request, after which somebody looks; who does not goes on for ever."""
    await answered()
    heed_cancellation()


async def repeated(answered):
    """A request that is repeated until it succeeds.

    A service that is told to end while it begins would go on until it is killed.
    """
    await until_done(answered, "asked")


@pytest.mark.parametrize("ask", [looked_at, repeated])
async def test_a_cancellation_that_comes_with_the_answer_is_heeded(ask):
    """The wait itself forgets it in Python 3.11."""
    answer, went_on = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def begin():
        await ask(lambda: asyncio.wait_for(answer, patience(20)))
        went_on.set()
        await asyncio.sleep(20)

    beginning = asyncio.create_task(begin())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(None)
    beginning.cancel()
    async with asyncio.timeout(patience(20)):
        await asyncio.wait([beginning])
    assert beginning.cancelled()
    assert not went_on.is_set()


async def test_who_was_not_cancelled_goes_on():
    """As if it were not there."""
    heed_cancellation()
