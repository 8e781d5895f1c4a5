"""What becomes of messages when a service is too slow, or the bus has no room to keep them."""

from __future__ import annotations

import asyncio
import collections
import resource
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from structlog.testing import capture_logs

from foliot.bus import connection, load_shedding
from foliot.bus.client import Bus
from foliot_schemas import DelayBatch, DelayRow, Event, NodePaths, Rejected
from foliot_schemas.subjects import DELAY, EVENT, PATHS, REJECTED
from patience import patience

pytestmark = pytest.mark.nats


def batch(number: int) -> DelayBatch:
    """Delays of no path, told apart by their time."""
    rows = np.zeros(0, DelayRow)
    return DelayBatch.of(rows, node="node0", at_ns=number, interval_ns=1, bound_ns=1, paths=())


async def test_a_reader_that_falls_behind_leaves_the_oldest_out_and_says_so(bus_settings, monkeypatch, until):
    """Of observations only the newest are worth anything; a queue that is read in order would be late for ever."""
    monkeypatch.setattr(load_shedding, "_MOST", 64)
    monkeypatch.setattr(load_shedding, "_FEW", 8)
    # However long the machine stands still meanwhile, what waits is left out for its number alone.
    monkeypatch.setattr(load_shedding, "time", SimpleNamespace(monotonic=lambda: 100.0))
    reader, writer = [await Bus.connect(bus_settings, name) for name in ("reader", "writer")]
    goes_on, heard = asyncio.Event(), []

    async def slow(message, subject):
        heard.append(message.at_ns)
        await goes_on.wait()

    await reader.subscribe(DELAY, slow)
    await writer.publish(DELAY, batch(0), "node0")
    await until(lambda: heard)
    for number in range(1, 500):
        await writer.publish(DELAY, batch(number), "node0")
    subscription = next(each for each in reader._client._subs.values() if each.subject.startswith("foliot."))
    await until(lambda: subscription._pending_queue.qsize() == 499)
    with capture_logs() as logs:
        goes_on.set()
        await until(lambda: heard[-1] == 499)

    assert heard == [0, *range(heard[1], 500)]
    assert len(heard) < 12
    assert reader.counts["behind"] == 500 - len(heard)
    assert [log["event"] for log in logs][:1] == ["fell_behind"]
    for bus in (reader, writer):
        await bus.close()


def test_what_waited_for_a_second_is_left_out_up_to_what_is_recent(monkeypatch):
    """A hundred messages a second come, and ten can be taken."""
    now_s, counts = 100.0, collections.Counter()
    monkeypatch.setattr(load_shedding.time, "monotonic", lambda: now_s)
    behind = load_shedding.LoadShedding("foliot.v1.delay.>", counts)
    came_s, taken, ages_s = [], 0, []
    for _ in range(100):  # ten seconds
        came_s += [now_s - 0.1 + 0.01 * number for number in range(1, 11)]
        while taken < len(came_s):
            taken += 1
            if not behind.is_behind(len(came_s) - taken):
                ages_s.append(now_s - came_s[taken - 1])
                break
        now_s += 0.1
    assert 0.8 < max(ages_s) < 1.2
    assert counts["behind"] == taken - len(ages_s) > 700
    assert sum(age_s > 0.4 for age_s in ages_s) > 10  # it does not leave out more than needed


def test_a_reader_that_keeps_up_leaves_nothing_out(monkeypatch):
    """Bursts of a second's messages, each taken in time."""
    now_s, counts = 100.0, collections.Counter()
    monkeypatch.setattr(load_shedding.time, "monotonic", lambda: now_s)
    behind = load_shedding.LoadShedding("foliot.v1.delay.>", counts)
    for _ in range(20):
        for waiting in reversed(range(1_000)):
            assert not behind.is_behind(waiting)
            now_s += 0.0009
        now_s += 0.1
    assert not counts


async def test_events_are_never_left_out(bus_settings, monkeypatch, until):
    """However many wait: each of them is decided upon, or caught up with."""
    monkeypatch.setattr(load_shedding, "_MOST", 4)
    reader, writer = [await Bus.connect(bus_settings, name) for name in ("reader", "writer")]
    heard = collections.Counter()

    async def slow(message, subject):
        heard[message.id] += 1
        await asyncio.sleep(0.001)

    await reader.subscribe_kept(EVENT, slow, durable="reader")
    for number in range(200):
        event = Event(id=f"e{number}", kind="flap", who="x", state="down", at_ns=number, since_ns=number)
        writer.publish_kept(EVENT, event, "flap", "x")
    await until(lambda: len(heard) == 200)

    assert set(heard.values()) == {1}
    assert reader.counts["behind"] == 0
    for bus in (reader, writer):
        await bus.close()


async def test_with_a_full_disk_events_still_arrive_and_the_lost_durability_is_said(nats_server, until):
    """The fast path needs no disk.

    Once there is room, and the server was started anew, everything is stored that waited.
    """
    reader, writer = [await Bus.connect(nats_server.settings, name) for name in ("reader", "writer")]
    heard, said = [], []

    async def arrived(message, subject):
        heard.append(message.id)

    async def rejected(message, subject):
        said.append(message)

    await reader.subscribe_kept(EVENT, arrived, durable="reader")
    await reader.subscribe(REJECTED, rejected)
    limits = resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)  # no file may grow: what a full disk is to the server
    resource.prlimit(nats_server.process.pid, *limits)
    event = Event(id="e1", kind="flap", who="x", state="down", at_ns=1, since_ns=1)
    writer.publish_kept(EVENT, event, "flap", "x")
    await until(lambda: heard and said)
    assert heard == ["e1"]
    assert isinstance(said[0], Rejected)
    assert (said[0].service, said[0].subject, said[0].unstored) == ("writer", "foliot.v1.event.flap.x", True)
    assert writer.counts["kept"] == 0

    await nats_server.kill()
    await nats_server.start()
    await until(lambda: writer.counts["kept"] == 1)
    assert (await writer._stream.stream_info("EVENTS")).state.messages == 1
    assert heard == ["e1"]
    for bus in (reader, writer):
        await bus.close()


async def test_a_watch_that_begins_while_the_bus_is_slow_waits_for_it(nats_server, monkeypatch, until):
    """A server may stand still for longer than a request waits: its disk is busy, or its machine.

    A service that gave up would begin all anew.
    """
    flush, told = connection.flush, []

    async def then_the_server_stands_still(of):
        await flush(of)
        nats_server.process.send_signal(signal.SIGSTOP)

    async def tell(key, message):
        told.append((key, message))

    one, other = [await Bus.connect(nats_server.settings, name) for name in ("one", "other")]
    paths = NodePaths(node="node1", lease_revision=1)
    await one.put(PATHS, "node1", paths)
    monkeypatch.setattr(connection, "flush", then_the_server_stands_still)
    with capture_logs() as logs, monkeypatch.context() as hasty:
        hasty.setattr(other._stream, "_timeout", 0.05)
        beginning = asyncio.ensure_future(other.watch(PATHS, tell))
        await until(lambda: "present_awaited" in {log["event"] for log in logs} or beginning.done())
    nats_server.process.send_signal(signal.SIGCONT)
    await asyncio.wait_for(beginning, patience(20))

    assert told == [("node1", paths)]
    for bus in (one, other):
        await bus.close()
