"""The order in which the probes of a tick leave."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from foliot.clock import HostClock
from foliot_probe.core.rate.send_order import of_tick, send_order
from foliot_probe.engine import Engine
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node

NOBODY = np.zeros(0, np.intp)


def sent(place, coded=NOBODY, full=NOBODY, *, ticks=1, seed=1):
    """Row and turn of each probe as they leave in each of some ticks, where all of these rows are due.

    A padded one's turn is 2.
    """
    random, rows, places = np.random.default_rng(seed), len(place), int(place.max()) + 1
    probes = of_tick(np.arange(rows), np.asarray(coded, np.intp), np.asarray(full, np.intp), rows)
    turn = np.where(probes.padded, 2, probes.turn)
    for _ in range(ticks):
        order, begins = send_order(probes, place[probes.row], rows, random)
        assert (np.diff(place[probes.row[order]]) >= 0).all()
        served = (*range(begins, places), *range(begins))
        leaving = [at for number in served for at in order if place[probes.row[at]] == number]
        yield list(zip(probes.row[leaving].tolist(), turn[leaving].tolist(), strict=True))


@pytest.mark.parametrize("places", [[0, 1], [0, 0, 0, 1], [0, 1, 2, 3, 3, 5]], ids=["alike", "uneven", "gap"])
def test_every_stream_is_equally_often_the_first_of_a_tick(places):
    """Whatever socket it has, and however many streams share that: the first packet finds cold caches."""
    place, ticks = np.array(places), 1_500
    first = np.bincount([leaving[0][0] for leaving in sent(place, ticks=ticks)], minlength=len(place)) / ticks

    assert first == pytest.approx(np.full(len(place), 1 / len(place)), abs=0.06)


def test_sockets_are_served_one_after_another_from_the_one_that_begins():
    """Each in one batch, round from the last to the first."""
    place = np.array([0, 1, 2, 0, 1, 2])
    for leaving in sent(place, coded=[0, 2], ticks=20):
        served = [int(place[row]) for row, _ in leaving]
        assert served == sorted(served, key=lambda number: (number - served[0]) % 3)


def test_an_engine_begins_its_ticks_with_every_socket(monkeypatch, free_port):
    """On loopback, where each stream has its own: all of them send in each tick, in the order that was drawn."""
    monkeypatch.setenv("FOLIOT_NATIVE", "off")
    port = free_port(socket.SOCK_DGRAM)
    own, peer = (node(name, port) for name in ("node0", "node1"))
    engine = Engine(own, HostClock("node0"), ProbeSettings(), 0)
    engine.packets._random = np.random.default_rng(1)
    assert engine.bind() == 0
    engine.set_peer(peer)
    engine.demand.set_in_use(frozenset(engine.table.rows))
    served, send_at = [], engine.packets._send_at
    monkeypatch.setattr(
        engine.packets, "_send_at", lambda number, *rest: (served.append(number), send_at(number, *rest))
    )
    for tick in range(1, 61):
        engine.speak(tick)
    engine.close()
    ticks = np.array(served[-90:]).reshape(-1, 3)  # the first ticks have the streams that are due by then

    assert set(ticks[:, 0].tolist()) == {0, 1, 2}
    assert (np.sort(ticks, axis=1) == [0, 1, 2]).all()
    assert ((ticks[:, 1:] - ticks[:, :-1]) % 3 == 1).all()
    assert engine.packets.take_report().sent.sum() >= len(served)
    assert not engine.packets.counts()


def node(name, port):
    """A node with three entropies on loopback addresses."""
    number = 1 + int(name.removeprefix("node"))
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="lo", address=f"127.77.{number}.1", clock=name, service_address="10.97.0.1",
        path_addresses=tuple(f"127.77.{number}.{1 + entropy}" for entropy in range(3)), entropies=(49_200, 49_201, 49_202),
    )  # fmt: skip
    return Node(name=name, nics=(nic,), probe_port=port)


def test_the_second_of_a_pair_comes_after_all_firsts_of_its_socket_and_padded_ones_last():
    """What lies between is the pairs' gap; a small one does not wait for a large one."""
    for leaving in sent(np.array([0, 0, 0, 0]), coded=[1, 3], full=[0, 3], ticks=20):
        turns = [turn for _, turn in leaving]
        assert turns == sorted(turns)
        assert sorted(leaving) == [(0, 2), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 2)]


def test_a_single_probe_is_padded_itself_and_a_pair_is_followed_by_one():
    """A pair of unlike probes would measure their sizes."""
    probes = of_tick(np.array([2, 5]), np.array([5]), np.array([2, 5]), 8)

    assert probes.row.tolist() == [2, 5, 5, 5]
    assert probes.turn.tolist() == [0, 0, 1, 2]
    assert probes.padded.tolist() == [True, False, False, True]
