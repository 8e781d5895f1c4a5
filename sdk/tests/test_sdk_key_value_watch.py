"""Which values a watch tells, in which order, and what it asks the bus for."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from types import SimpleNamespace

import nats.errors
import pytest
from nats.js.errors import NotFoundError

from foliot.bus.client import Bus
from foliot.bus.key_value_watch import WRITTEN, KeyValueWatch
from foliot.bus.missed_changes import MissedChanges
from foliot_schemas import NodePaths
from foliot_schemas.subjects import PATHS
from patience import patience

_MADE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def written(number, data, *, writer="remediator", key="node1", seq=0):
    """A message; of one that the bucket has, its number as well."""
    return SimpleNamespace(
        subject=PATHS.subject(key), data=data, headers={WRITTEN: f"{writer}/{number}"} if number else {}, seq=seq
    )


class Bucket:
    """A bucket that has one value; other messages may arrive just before it answers."""

    def __init__(self):
        self.value = None
        self.before_answer = []
        self.asked = []

    async def stream_info(self, _name):
        """As nats-py's."""
        self.asked.append("info")
        last = 0 if self.value is None else self.value.seq
        return SimpleNamespace(created=_MADE, state=SimpleNamespace(last_seq=last, messages=last and 1))

    async def get_msg(self, _name, seq, subject, *, next):  # noqa: A002 - as nats-py has it
        """As nats-py's."""
        assert next
        self.asked.append(subject)
        while self.before_answer:
            await self.before_answer.pop(0)()
        if self.value is None or self.value.seq < seq:
            raise NotFoundError
        return self.value

    async def get_last_msg(self, _name, subject):
        """As nats-py's."""
        self.asked.append(subject)
        if self.value is None:
            raise NotFoundError
        return self.value

    async def silent(self, _name, _subject):
        """Does not answer."""
        raise nats.errors.TimeoutError

    async def present(self):
        """Present values, as a watch reads them."""
        while self.before_answer:
            await self.before_answer.pop(0)()
        if self.value is not None:
            yield self.value


class Watching:
    """A watch of it, with what it tells."""

    def __init__(self, keys=("",)):
        self.bucket, self.told = Bucket(), []
        self.missed = MissedChanges(None, self.bucket, PATHS, of_node=True)
        for key in keys:
            subject = PATHS.subject(key) if key else PATHS.subject()
            watch = KeyValueWatch(None, self.bucket, PATHS, subject, stored=self.bucket.present, tell=self.tell)
            self.missed.watches.append(watch)
        self.watch = self.missed.watches[0]

    async def tell(self, _token, data):
        """Notes a value."""
        self.told.append(data)

    def hears(self, raw):
        """Lets a message arrive."""

        async def arrive():
            await self.watch._arrived(raw)

        return arrive


@pytest.mark.parametrize("later", [(2, "remediator"), (1, "its successor"), (0, "")])
async def test_a_late_message_does_not_hide_a_later_value(later):
    """The message of the later one may be lost, also while the present values are told."""
    number, writer = later
    for first in ("present", "look"):
        watching = Watching()
        if first == "look":
            await watching.watch.tell_present()
        watching.bucket.value = written(number, b"later", writer=writer, seq=2)
        watching.bucket.before_answer = [watching.hears(written(1, b"earlier"))]
        await (watching.watch.tell_present() if first == "present" else watching.missed.look())
        await watching.missed.look()

        assert watching.told == [b"earlier", b"later"]


async def test_a_message_that_comes_after_what_a_look_found_is_not_told_if_it_is_older():
    """A node would go back to ways that its remediator has changed its mind about."""
    watching = Watching()
    await watching.watch.tell_present()
    watching.bucket.value = written(2, b"later", seq=2)
    await watching.missed.look()
    await watching.watch._arrived(written(1, b"earlier"))
    await watching.watch._arrived(written(3, b"newest"))

    assert watching.told == [b"later", b"newest"]


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_late_message_of_a_former_holder_is_not_told(looks, is_known):
    """A parted route kept it back. Whether its writer was heard before, and whether a look came between."""
    watching = Watching()
    if is_known:
        watching.bucket.value = written(7, b"first", writer="former.5", seq=1)
    await watching.watch.tell_present()
    watching.bucket.value = written(1, b"successor's", writer="successor.9", seq=2)
    if not looks:
        await watching.watch._arrived(watching.bucket.value)
    for raw in (written(8, b"late", writer="former.5"), written(9, b"later", writer="former.5")):
        if looks:
            await watching.missed.look()
        await watching.watch._arrived(raw)
    await watching.missed.look()

    assert watching.told == [b"first"] * is_known + [b"successor's"]


@pytest.mark.parametrize("answers", [False, True])
async def test_a_value_of_a_lower_lease_is_told_if_the_bucket_has_it(monkeypatch, answers):
    """A former holder's was stored after its successor's, who is to hear it; or the bus counts leases anew."""
    watching = Watching()
    await watching.watch.tell_present()
    await watching.watch._arrived(written(1, b"before", writer="remediator.9"))
    watching.bucket.value = written(8, b"now", writer="another.5", seq=2)
    if not answers:
        monkeypatch.setattr(watching.bucket, "get_last_msg", watching.bucket.silent)
    await watching.watch._arrived(watching.bucket.value)
    assert watching.told[1:] == [b"now"] * answers
    await watching.missed.look()
    await watching.watch._arrived(written(9, b"next", writer="another.5"))

    assert watching.told == [b"before", b"now", b"next"]


async def test_watches_of_a_bucket_that_stored_nothing_ask_one_question_together():
    """A node watches the record of each of its peers, and a fleet has many nodes."""
    watching = Watching(keys=("node1", "node2", "node3"))
    watching.bucket.value = written(1, b"value", seq=7)
    for watch in watching.missed.watches:
        await watch.tell_present()
    watching.bucket.asked.clear()
    for _ in range(2):
        await watching.missed.look()
    assert watching.bucket.asked == ["info", "info"]

    watching.bucket.value = written(2, b"value", seq=8)
    await watching.missed.look()
    assert watching.bucket.asked[2:] == ["info", *(PATHS.subject(key) for key in ("node1", "node2", "node3"))]


async def test_a_bucket_that_has_lost_its_last_values_is_read_from_its_beginning():
    """A server may come back with an older copy, and give the same numbers again."""
    watching = Watching()
    watching.bucket.value = written(1, b"lost", seq=9)
    await watching.watch.tell_present()
    watching.bucket.value = written(1, b"restored", writer="its successor", seq=5)
    await watching.missed.look()

    assert watching.told == [b"lost", b"restored"]


@pytest.mark.nats
async def test_a_bucket_that_was_made_anew_is_read_from_its_beginning(nats_server):
    """A server that lost its memory counts from 1 again, and watchers at other servers lose no connection."""
    writer, reader = [await Bus.connect(nats_server.settings, name) for name in ("writer", "reader")]
    told = {}

    async def changed(name, _paths):
        told[name] = True

    async def put(name):
        await writer.put(PATHS, name, NodePaths(node=name, lease_revision=1))

    for _ in range(5):
        await put("node1")
    await reader.watch(PATHS, changed)
    (subscription,) = [each for each in reader._client._subs.values() if each.subject.startswith("$KV.")]
    await subscription.unsubscribe()  # hears as little as one of which the server does not know
    await writer._stream.delete_stream(f"KV_{PATHS.name}")
    writer._buckets.forget()
    for name in ("node2", "node3"):
        await put(name)
        async with asyncio.timeout(patience(60)):
            while name not in told:
                with contextlib.suppress(nats.errors.Error):  # a busy machine may not answer in time
                    await reader._missed[PATHS.name].look()
    assert [*told] == ["node1", "node2", "node3"]
    for bus in (writer, reader):
        await bus.close()
