"""What a listener reads of streams after its connection was lost."""

from __future__ import annotations

import datetime as dt

import nats.errors
import pytest
from nats.js.errors import NotFoundError

from foliot.bus.observer import Observer

BEGAN = dt.datetime(2026, 9, 21, tzinfo=dt.UTC)


class Streams:
    """Streams that do not say how far they are."""

    def __init__(self, error):
        self.error = error

    async def stream_info(self, _stream):
        """As nats-py's."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "where"),
    [(nats.errors.TimeoutError(), {"opt_start_time": BEGAN}), (NotFoundError(), {"opt_start_seq": 1})],
    ids=["slow", "absent"],
)
async def test_what_a_stream_had_before_the_start_is_not_shown_as_missed(monkeypatch, error, where):
    """Whether the stream was not there yet, or the bus was too slow to say how far it was."""
    listener, asked = Observer(lambda _sentence: None, lambda: round(BEGAN.timestamp() * 1e9)), []

    async def stored(_jetstream, stream, subject, **begin):
        del begin["deliver_policy"]
        asked.append((stream, subject, begin))
        return []

    monkeypatch.setattr(listener, "_jetstream", Streams(error))
    monkeypatch.setattr("foliot.bus.observer.stored", stored)
    kept = (("EVENTS", "foliot.v1.event.>"),)
    await listener._mark(stream for stream, _ in kept)

    assert await listener._missed(kept) == []
    assert asked == [("EVENTS", "foliot.v1.event.>", where)]
