"""What a listener reads of streams after its connection was lost."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import nats.errors
import pytest
from nats.js.errors import NotFoundError

from foliot.bus.observer import Observer

BEGAN = dt.datetime(2026, 9, 21, tzinfo=dt.UTC)


LATER = BEGAN + dt.timedelta(hours=1)


def made(at, last):
    """What nats-py says of a stream."""
    return SimpleNamespace(created=at, state=SimpleNamespace(last_seq=last))


class Streams:
    """Streams that answer this at the start, and later that."""

    def __init__(self, first, later):
        self.first, self.later = first, later

    async def stream_info(self, _stream):
        """As nats-py's."""
        said, self.first = self.first, self.later
        if isinstance(said, Exception):
            raise said
        return said


@pytest.mark.parametrize(
    ("first", "later", "where"),
    [
        (nats.errors.TimeoutError(), made(BEGAN, 9), {"opt_start_time": BEGAN}),
        (NotFoundError(), made(LATER, 9), {"opt_start_seq": 1}),
        (made(BEGAN, 5), made(BEGAN, 9), {"opt_start_seq": 6}),
        (made(BEGAN, 5), made(LATER, 9), {"opt_start_seq": 1}),
        (made(BEGAN, 5), made(BEGAN, 3), {"opt_start_seq": 1}),
    ],
    ids=["slow", "absent", "same", "made anew", "an older copy"],
)
async def test_what_a_stream_had_before_the_start_is_not_shown_as_missed(monkeypatch, first, later, where):
    """Whether the bus was too slow to say how far the stream was, or it was not there yet.

    All that one made anew has is new.
    """
    listener, asked = Observer(lambda _sentence: None, lambda: round(BEGAN.timestamp() * 1e9)), []

    async def stored(_jetstream, stream, subject, **begin):
        del begin["deliver_policy"]
        asked.append((stream, subject, begin))
        return []

    monkeypatch.setattr(listener, "_jetstream", Streams(first, later))
    monkeypatch.setattr("foliot.bus.observer.stored", stored)
    kept = (("EVENTS", "foliot.v1.event.>"),)
    await listener._mark(stream for stream, _ in kept)

    assert await listener._missed(kept) == []
    assert asked == [("EVENTS", "foliot.v1.event.>", where)]
