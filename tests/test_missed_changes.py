"""What befell a port while the bus was away has its events however late the detector finds the bus again.

On a real server, with the detector halted meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from foliot.node.addressing import describe
from foliot.node.rtnetlink import LinkChange
from foliot.settings import NicSettings, NodeSettings
from foliot_probe.io.port_reader import PortReader
from foliot_schemas.subjects import EVENT, INVENTORY, PORT
from patience import patience
from virtual_clock import VirtualClock

pytestmark = pytest.mark.nats

OWN = NodeSettings(name="n", index=0, nics=(NicSettings(rail="r", number=0, device="e0", address="10.0.0.1"),))
WORDS_UNHEARD = 20
"""As many as a probe says in as many seconds."""


def link(downs, ups):
    """What the kernel says."""
    return LinkChange(
        name="e0", index=2, admin_up=True, carrier=ups > downs, carrier_down_count=downs, carrier_up_count=ups
    )


async def test_a_detector_that_finds_the_bus_long_after_the_probe_tells_each_loss(nats_server, bus, until):
    """Two losses in the order in which they were, although only words of after the second return reach it."""
    words, events, heard, clock = [], [], set(), VirtualClock(1_700_000_000_000_000_000)
    ports = PortReader(describe(OWN), clock, "boot", words.append)

    async def hear(event, _subject):
        if event.id not in heard:  # where a slow server's acknowledgement did not come in time, an event comes again
            events.append(event)
        heard.add(event.id)

    async def say(*changes):
        for change in changes:
            clock.advance(1_000_000_000)
            ports.changed(change)
        clock.advance(1_000_000_000)
        ports.tell_counters()
        while words:
            await bus.publish(PORT, words.pop(0), "n")

    async def say_until(holds):
        # Not once: of words that wait for a slow detector for more than a second, it takes the newest alone.
        async with asyncio.timeout(patience(60)):
            while not holds():
                await say()
                await asyncio.sleep(0.1)

    await bus.subscribe(EVENT, hear)
    await bus.put(INVENTORY, "n", describe(OWN))
    detector = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foliot_detector", env=os.environ | {"FOLIOT_BUS__URL": nats_server.settings.url}
    )
    try:
        downs = 0
        while not events:  # until it listens
            downs += 1
            await say(link(downs, downs), link(downs, downs + 1))
            await asyncio.sleep(0.1)
        await say_until(lambda: events[-1].number("carrier_down_count") == downs and events[-1].state == "up")
        events.clear()

        detector.send_signal(signal.SIGSTOP)
        await nats_server.kill()
        await until(lambda: not bus.connected)
        await say(link(downs + 1, downs + 1), link(downs + 1, downs + 2), link(downs + 2, downs + 2))
        await nats_server.start()
        await until(lambda: bus.connected)
        await say(link(downs + 2, downs + 3))
        for _ in range(WORDS_UNHEARD):
            await say()
        detector.send_signal(signal.SIGCONT)
        await say_until(lambda: len(events) >= 4)
    finally:
        detector.kill()
        await detector.wait()
    assert [event.state for event in events] == ["down", "up", "down", "up"]
    assert [event.number("carrier_down_count") - downs for event in events] == [1, 1, 2, 2]
