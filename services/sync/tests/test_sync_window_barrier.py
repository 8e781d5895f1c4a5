"""When a window is closed."""

from __future__ import annotations

import asyncio

from foliot_sync.shell.window_barrier import WindowBarrier
from patience import patience

PATIENT_S = 60.0
"""A window whose patience, half a minute, no test outlasts."""


async def spoken(barrier, nodes):
    """A window at whose end these nodes speak."""
    gathering = asyncio.create_task(barrier.gather())
    await asyncio.sleep(0)
    for node in nodes:
        barrier.heard(node)
    return gathering


async def test_a_window_is_closed_once_all_have_spoken():
    """Who spoke at the end of the last one is waited for, and nobody else."""
    barrier = WindowBarrier(PATIENT_S)
    (await spoken(barrier, ["node1", "node2"])).cancel()
    gathering = await spoken(barrier, ["node2"])
    await asyncio.sleep(0)
    assert not gathering.done()
    barrier.heard("node1")
    async with asyncio.timeout(patience(20)):
        await gathering


async def test_who_is_silent_is_waited_for_once():
    """Its silence costs one window some patience; the next is closed without it."""
    barrier = WindowBarrier(0.1)
    await (await spoken(barrier, ["node1", "node2"]))
    await (await spoken(barrier, ["node1"]))
    barrier.window_s = PATIENT_S
    async with asyncio.timeout(patience(20)):
        await (await spoken(barrier, ["node1"]))


async def test_what_was_said_before_the_end_does_not_count():
    """A node that speaks in mid-window is one whose clock is not yet in step; it is not waited for."""
    barrier = WindowBarrier(0.05)
    await barrier.gather()
    barrier.heard("node1")
    barrier.heard("node2")
    barrier.window_s = PATIENT_S
    async with asyncio.timeout(patience(20)):
        await (await spoken(barrier, ["node3"]))
