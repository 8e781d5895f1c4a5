"""Confirmation on the wire: who answers, who does not, and whose answer counts."""

from __future__ import annotations

import asyncio
import time

import pytest

from foliot.node.addressing import describe
from foliot_agent.core.peer_protocol import Seal
from foliot_agent.peers import echo_confirm
from foliot_agent.peers.echo_confirm import EchoConfirmer
from foliot_schemas.notice import Echo
from virtual_clock import VirtualClock

_SEAL = Seal("a key that the fleet shares")
_TRIP_NS = 300_000


class Wire:
    """Carries echoes to peers that answer at once, or from the given sending on, or never."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.sent: dict[str, int] = {}
        self.answers_from: dict[str, int] = {}
        self.confirmer: EchoConfirmer

    def seal(self, message: Echo) -> bytes:
        """As the exchange does."""
        return _SEAL.close(message)

    def send(self, datagram: bytes, source: str, destination: str, port: int) -> None:
        """As the exchange does; the answer comes one trip later."""
        self.sent[destination] = self.sent.get(destination, 0) + 1
        if self.sent[destination] >= self.answers_from.get(destination, 1):
            self.clock.advance(_TRIP_NS)
            echo = _SEAL.open(datagram)
            self.confirmer.take(Echo(node="peer", token=echo.token, answer=True), lambda answer: None)

    async def confirm(self, *destinations, stands=lambda _: True):
        """Of routes that nobody moves, unless said otherwise."""
        return await self.confirmer.confirm(destinations, stands)


@pytest.fixture
def wire(settings_of):
    """Between node 0 and two peers."""
    made = Wire(VirtualClock())
    peers = {f"node{index}": describe(settings_of(index)) for index in (1, 2)}
    made.confirmer = EchoConfirmer(made, describe(settings_of(0)), peers, made.clock)
    return made


async def test_every_destination_that_answers_is_confirmed_once(wire):
    """With its round trip; nobody is asked again."""
    confirmed = await wire.confirm(("node1", "rail0"), ("node2", "rail1"))
    assert [(each.peer, each.rail, each.round_trip_ns) for each in confirmed] == [
        ("node1", "rail0", _TRIP_NS),
        ("node2", "rail1", _TRIP_NS),
    ]
    assert wire.sent == {"10.200.0.2": 1, "10.201.0.3": 1}


async def test_one_that_answers_late_has_the_round_trip_of_the_echo_it_answered(wire):
    """The echoes that were lost before do not count into it."""
    wire.answers_from["10.200.0.2"] = 3
    (confirmation,) = await wire.confirm(("node1", "rail0"))
    assert (wire.sent["10.200.0.2"], confirmation.round_trip_ns) == (3, _TRIP_NS)


async def test_one_that_never_answers_is_given_up_and_the_others_are_told(wire, monkeypatch):
    """Its answer, should it come after all, is nobody's."""
    monkeypatch.setattr(echo_confirm, "GIVE_UP_S", 0.5)
    wire.answers_from["10.200.0.2"] = 1_000
    confirmed = await wire.confirm(("node1", "rail0"), ("node2", "rail0"))
    assert [each.peer for each in confirmed] == ["node2"]
    assert wire.confirmer._waiting == {}


async def test_a_stall_of_the_own_process_is_no_silence_of_the_peers(wire, monkeypatch):
    """It lasted longer than a peer is waited for, and nobody was asked by then."""
    monkeypatch.setattr(echo_confirm, "GIVE_UP_S", 0.2)
    asyncio.get_running_loop().call_soon(time.sleep, 0.3)
    (confirmation,) = await wire.confirm(("node1", "rail0"))
    assert (confirmation.peer, wire.sent["10.200.0.2"]) == ("node1", 1)


async def test_a_peers_echo_goes_back_as_an_answer_with_its_token(wire):
    """And confirms nothing here."""
    answers: list[Echo] = []
    wire.confirmer.take(Echo(node="node1", token=7, answer=False), answers.append)
    assert answers == [Echo(node="node0", token=7, answer=True)]


async def test_an_unknown_peer_is_not_waited_for(wire):
    """It is not confirmed either."""
    assert await wire.confirm(("node9", "rail0")) == []


async def test_what_was_moved_on_since_is_not_confirmed(wire, monkeypatch):
    """Its answer comes by another way than the one that was asked about; it is not waited for either."""
    monkeypatch.setattr(echo_confirm, "GIVE_UP_S", 60.0)
    wire.answers_from["10.200.0.2"] = 2

    def stands(destination):
        return destination[0] != "node1" or not wire.sent.get("10.200.0.2")

    confirmed = await wire.confirm(("node1", "rail0"), ("node2", "rail1"), stands=stands)
    assert [each.peer for each in confirmed] == ["node2"]
    assert wire.sent["10.200.0.2"] == 1


async def test_an_answer_that_comes_after_the_next_move_confirms_nothing(wire, monkeypatch):
    """It was on its way when the traffic was moved on."""
    monkeypatch.setattr(echo_confirm, "GIVE_UP_S", 60.0)
    moved = []
    answer, wire.confirmer.take = wire.confirmer.take, lambda *given: (moved.append(True), answer(*given))
    assert await wire.confirm(("node1", "rail0"), stands=lambda _: not moved) == []
