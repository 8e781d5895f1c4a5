"""An actuator of an extension that fails: the agent goes on, says so to whoever asks, and tries again."""

from __future__ import annotations

import asyncio

import pytest

from foliot_agent.control import contained_actuator
from foliot_agent.control.contained_actuator import ContainedActuator
from foliot_schemas import Node, Placement

PEERS = [Node(name=f"node{number}", nics=()) for number in (1, 2)]
WAYS = [Placement(peer=peer.name, rail="rail0", via="rail1", entropy=0, key="7") for peer in PEERS]


class Fragile:
    """Fails in what `fails` names, and never ends what `hangs` names; see `Actuator`."""

    traffic = "queue-pairs"

    def __init__(self):
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.did = []
        self.done = asyncio.Event()
        """Set by whatever it does."""

    def make(self):
        """Fails, or is itself."""
        self._do("make")
        return self

    async def __aenter__(self):
        """Fails, or starts."""
        await self._may_hang("start")
        self._do("start")
        return self

    async def __aexit__(self, *_):
        """Fails, or ends."""
        self._do("end")

    async def join(self, peer):
        """Fails, or takes the peer."""
        await self._may_hang(f"join {peer.name}")
        self._do(f"join {peer.name}")

    async def leave(self, peer):
        """Fails, or lets the peer go."""
        self._do(f"leave {peer.name}")

    def check(self, _placement):
        """It is asked."""
        return "its own word"

    def present(self, placements):
        """All of them."""
        return tuple(placements)

    async def confirm(self, placements):
        """All of them."""
        return list(placements)

    async def _may_hang(self, what):
        if what in self.hangs:
            await asyncio.Event().wait()

    def _do(self, what):
        if what in self.fails:
            raise OSError(f"cannot {what}")
        self.did.append(what)
        self.done.set()


@pytest.fixture
def fragile():
    """The extension's."""
    return Fragile()


@pytest.fixture
def contained(fragile):
    """The same, held."""
    return ContainedActuator("queue-pairs", fragile.make)


@pytest.fixture
def at_once(monkeypatch):
    """What failed is tried again at once."""
    monkeypatch.setattr(contained_actuator, "_AGAIN_S", 0.0)


async def until_done(fragile, what):
    """Waits until it has done this."""
    while what not in fragile.did:
        fragile.done.clear()
        await fragile.done.wait()


@pytest.mark.parametrize(("stage", "said"), [("make", "cannot make"), ("start", "cannot start")])
async def test_one_that_does_not_start_is_refused_by_that(fragile, contained, stage, said):
    """And whoever comes and goes meanwhile ends nothing."""
    fragile.fails = {stage}
    async with contained:
        await contained.join(PEERS[0])
        await contained.leave(PEERS[0])
        assert contained.check(WAYS[0]) == f"the actuator of queue-pairs has not started: OSError: {said}"
        assert contained.present(WAYS) == ()
        assert await contained.confirm(WAYS) == []
    assert "end" not in fragile.did


async def test_one_that_did_not_start_is_started_later(fragile, at_once):
    """And told of all peers that came meanwhile and are still there."""
    contained = ContainedActuator("queue-pairs", fragile.make)
    fragile.fails = {"start"}
    async with contained:
        for peer in PEERS:
            await contained.join(peer)
        await contained.leave(PEERS[0])
        fragile.fails = set()
        await until_done(fragile, "join node2")
        assert "join node1" not in fragile.did
        assert contained.check(WAYS[1]) == "its own word"
    assert fragile.did[-1] == "end"


async def test_a_peer_that_it_did_not_take_is_refused_alone(fragile, contained):
    """Others are asked of the actuator itself."""
    fragile.fails = {"join node1"}
    async with contained:
        for peer in PEERS:
            await contained.join(peer)
        said = "the actuator of queue-pairs has not taken node1: OSError: cannot join node1"
        assert [contained.check(way) for way in WAYS] == [said, "its own word"]


@pytest.mark.parametrize("what", ["join", "leave"])
async def test_what_it_was_not_told_of_a_peer_is_told_later(fragile, at_once, what):
    """As it was the last time, once."""
    contained = ContainedActuator("queue-pairs", fragile.make)
    async with contained:
        if what == "leave":
            await contained.join(PEERS[0])
        fragile.fails = {f"{what} node1"}
        await (contained.join(PEERS[0]) if what == "join" else contained.leave(PEERS[0]))
        fragile.fails = set()
        await until_done(fragile, f"{what} node1")
    assert fragile.did.count(f"{what} node1") == 1


async def test_a_record_that_changed_is_told_whole_although_it_failed_to_let_the_old_one_go(fragile, at_once):
    """Else it would keep what it made for the old one, also when the peer has left."""
    contained = ContainedActuator("queue-pairs", fragile.make)
    async with contained:
        await contained.join(PEERS[0])
        fragile.fails = {"leave node1"}
        await contained.leave(PEERS[0])
        await contained.join(PEERS[0])
        await contained.leave(PEERS[0])
        fragile.fails = set()
        await until_done(fragile, "leave node1")
        await contained.join(PEERS[0])
    assert fragile.did == ["make", "start", "join node1", "leave node1", "join node1", "end"]


@pytest.mark.parametrize("what", ["start", "join node1"])
async def test_one_that_hangs_keeps_nobody_waiting(fragile, at_once, monkeypatch, what):
    """But for the first time, as long as the limit.

    Peers that it did not take by then are told later, and leave meanwhile.
    """
    monkeypatch.setattr(contained_actuator, "_CALL_S", 0.01)
    contained = ContainedActuator("queue-pairs", fragile.make)
    fragile.hangs = {what}
    async with contained:
        for peer in PEERS:
            await contained.join(peer)
        assert "TimeoutError: it took more than 0.01 s" in contained.check(WAYS[0])
        monkeypatch.setattr(contained_actuator, "_CALL_S", 60.0)
        while not contained._turn.locked():  # noqa: ASYNC110 - until it is tried again
            await asyncio.sleep(0)
        await contained.leave(PEERS[0])
        await contained.join(PEERS[1])
    assert "join node1" not in fragile.did


async def test_its_end_ends_nothing_else(fragile, contained):
    """Not even if it fails."""
    fragile.fails = {"end"}
    async with contained:
        pass
    assert fragile.did == ["make", "start"]


async def test_its_failures_are_not_all_logged(fragile, contained, monkeypatch):
    """The first at once: a fleet has many peers, and each of them may fail."""
    logged = []
    monkeypatch.setattr(contained_actuator.log, "error", lambda event, **fields: logged.append((event, fields)))
    fragile.fails = {f"join {peer.name}" for peer in PEERS}
    async with contained:
        for peer in PEERS:
            await contained.join(peer)
    said = {"traffic": "queue-pairs", "reason": "OSError: cannot join node1", "failures": 1}
    assert logged == [("actuator_failed", said)]
