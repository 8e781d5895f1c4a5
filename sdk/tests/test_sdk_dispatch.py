"""How messages are handed over when many wait."""

from __future__ import annotations

import asyncio
import types

import numpy as np
import pytest

from foliot.bus.dispatch import Dispatch
from foliot.bus.recent_ids import RecentIds
from foliot_schemas import DelayBatch, DelayRow, Event, encode
from foliot_schemas.subjects import DELAY, EVENT


def raw(channel, message, *names):
    """A message as nats-py hands it over."""
    return types.SimpleNamespace(subject=channel.subject(*names), data=encode(message), headers=None)


async def test_an_event_stands_behind_one_observation_at_most():
    """However many wait: nats-py itself would hand over all that came to one subscription before another's turn."""
    order = []

    async def note(message, _subject):
        order.append(type(message).__name__)

    async def reject(*what):
        order.append(what)

    delivery = Dispatch(reject)
    batch = DelayBatch.of(np.zeros(0, DelayRow), node="node0", at_ns=1, interval_ns=1, bound_ns=-1, paths=())
    event = Event(id="e", kind="flap", who="node0.rail0", state="down", at_ns=1, since_ns=1)

    async def observations():
        for _ in range(5):
            await delivery.hand_over(DELAY, note, raw(DELAY, batch, "node0"), once=False)

    waiting = asyncio.create_task(observations())
    other = asyncio.create_task(delivery.hand_over(EVENT, note, raw(EVENT, event, "flap", "node0.rail0"), once=True))
    await asyncio.gather(waiting, other)
    assert order == ["DelayBatch", "Event", *["DelayBatch"] * 4]


async def test_an_observation_behind_which_none_waits_gives_no_turn():
    """Its reader waits for the next one, which gives others their turn."""
    told = []

    async def note(message, _subject):
        told.append(message.node)

    async def reject(*what):
        told.append(what)

    batch = DelayBatch.of(np.zeros(0, DelayRow), node="node0", at_ns=1, interval_ns=1, bound_ns=-1, paths=())
    taking = Dispatch(reject).hand_over(DELAY, note, raw(DELAY, batch, "node0"), once=False, more=False)
    with pytest.raises(StopIteration):
        taking.send(None)

    assert told == ["node0"]


async def test_what_is_refused_uses_up_no_id():
    """Whoever has something delivered under the id of a message to come does not keep that from being heard."""
    told = []

    async def note(message, _subject):
        told.append(message.who)

    async def reject(_subject, _data, reason):
        told.append(reason)

    delivery = Dispatch(reject)
    event = Event(id="e", kind="flap", who="node0.rail0", state="down", at_ns=1, since_ns=1)
    for subject in (EVENT.subject("flap", "node1.rail0"), "$KV.claims.node0", EVENT.subject("flap", "node0.rail0")):
        for _ in range(2):
            come = types.SimpleNamespace(subject=subject, data=encode(event), headers={"Nats-Msg-Id": "e"})
            await delivery.hand_over(EVENT, note, come, once=True)

    assert told == [
        *["its who is node0.rail0, its subject says node1_2erail0"] * 2,
        *["it was published as $KV.claims.node0, not below foliot.v1.event."] * 2,
        "node0.rail0",
    ]


def test_the_oldest_is_forgotten_first():
    """And a second coming does not make it younger."""
    recent = RecentIds(2)
    assert [recent.add(key) for key in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [key in recent for key in ("a", "b", "c")] == [False, True, True]
    assert recent.add("a")
