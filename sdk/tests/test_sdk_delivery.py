"""How messages are handed over when many wait."""

from __future__ import annotations

import asyncio
import types

import numpy as np

from foliot.delivery import Delivery
from foliot_schemas import DelayBatch, DelayRow, Event, encode
from foliot_schemas.subjects import DELAY, EVENT


def raw(channel, message, *names):
    """A message as nats-py hands it over."""
    return types.SimpleNamespace(subject=channel.subject(*names), data=encode(message), headers=None)


async def test_an_event_stands_behind_one_observation_at_most():
    """However many wait: nats-py itself would hand over all that have come to one subscription before another's turn."""
    order = []

    async def note(message, _subject):
        order.append(type(message).__name__)

    async def reject(*what):
        order.append(what)

    delivery = Delivery(reject)
    batch = DelayBatch.of(np.zeros(0, DelayRow), node="node0", at_ns=1, interval_ns=1, bound_ns=-1, paths=())
    event = Event(id="e", kind="flap", who="node0.rail0", state="down", at_ns=1, since_ns=1)

    async def observations():
        for _ in range(5):
            await delivery.hand_over(DELAY, note, raw(DELAY, batch, "node0"), once=False)

    waiting = asyncio.create_task(observations())
    other = asyncio.create_task(delivery.hand_over(EVENT, note, raw(EVENT, event, "flap", "node0.rail0"), once=True))
    await asyncio.gather(waiting, other)
    assert order == ["DelayBatch", "Event", *["DelayBatch"] * 4]
