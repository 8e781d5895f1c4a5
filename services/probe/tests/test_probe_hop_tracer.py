"""The hops of paths: who is asked, how often, and whom one believes."""

from __future__ import annotations

from random import Random

import pytest

from foliot_probe.core.measure.hop_tracer import MOST_HOPS, HopTracer

MS = 1_000_000
SECOND = 1_000 * MS


class Network:
    """Routers that answer for each path by its hops; 0 does not answer.

    `quotes` says whether answers quote the packet.
    """

    def __init__(self, paths, rate_hz=1_000.0):
        self.paths, self.quotes, self.asked, self.now_ns = dict(paths), True, [], 0
        self.tracer = HopTracer(rate_hz, Random(1))
        for row in self.paths:
            self.tracer.begin(row, 0)

    def run(self, seconds):
        """Time goes on in steps of 10 ms; answers come at once."""
        until_ns = self.now_ns + round(seconds * SECOND)
        while self.now_ns < until_ns:
            self.now_ns += 10 * MS
            for ask in self.tracer.due(self.now_ns):
                self.asked.append((self.now_ns, ask))
                hops = self.paths[ask.row]
                if ask.ttl <= len(hops) and hops[ask.ttl - 1]:
                    token = ask.token if self.quotes else None
                    self.tracer.answered(ask.row, hops[ask.ttl - 1], token, self.now_ns)

    def known(self):
        """What the tracer has found."""
        return {row: self.tracer.hops(row) for row in self.paths}


@pytest.mark.parametrize(
    "hops",
    [(), (11,), (11, 22, 33), (11, 0, 33), (0, 22, 33), tuple(range(1, MOST_HOPS + 1))],
    ids=["none", "one", "three", "a silent one between", "a silent one first", "as many as there may be"],
)
@pytest.mark.parametrize("quotes", [True, False], ids=["quoted", "not quoted"])
def test_hops_are_found_in_their_order(hops, quotes):
    """Also where answers quote nothing, and where a router is silent."""
    network = Network({0: hops, 1: (77, 88)})
    network.quotes = quotes
    network.run(8)
    assert network.known() == {0: hops, 1: (77, 88)}
    assert network.tracer.take_changed() == [0, 1]
    assert network.tracer.take_changed() == []


def test_a_path_has_one_packet_on_its_way_and_all_together_keep_the_rate():
    """Thirty paths, 50 packets a second."""
    network = Network(dict.fromkeys(range(30), (11, 22)), rate_hz=50.0)
    network.run(4)
    assert 190 <= len(network.asked) <= 220
    sent = {}
    for at_ns, ask in network.asked:
        before_ns, answered = sent.get(ask.row, (-SECOND, True))
        assert answered or at_ns - before_ns >= 300 * MS
        sent[ask.row] = (at_ns, ask.ttl <= 2)


def test_a_path_that_goes_another_way_is_noticed_within_a_minute():
    """One hop that says something else brings all of them to be asked again."""
    network = Network({0: (11, 22, 33)})
    network.run(5)
    network.tracer.take_changed()
    network.paths[0] = (11, 29, 33, 44)
    network.run(70)
    assert network.known() == {0: (11, 29, 33, 44)}
    assert network.tracer.take_changed() == [0]


def test_a_path_that_stays_is_asked_for_its_own_hops_and_one_after_them():
    """By turns for the next and the one after that: nobody waits for both to be silent again."""
    network = Network({0: (11, 0, 33)})
    network.run(5)
    before = len(network.asked)
    network.run(120)
    assert [ask.ttl for _, ask in network.asked[before:]] == [1, 3, 5, 1, 3, 4]
    assert network.tracer.take_changed() == [0]


@pytest.mark.parametrize(
    "hops", [(11, 22, 33), (11, 22, 0, 44)], ids=["the last one", "the last one behind a silent one"]
)
@pytest.mark.parametrize("quotes", [True, False], ids=["quoted", "not quoted"])
def test_a_last_router_whose_answers_were_lost_is_found_later(hops, quotes):
    """Nothing else of the path has to change for that."""
    network = Network({0: (11, 22)})
    network.quotes = quotes
    network.run(8)
    assert network.known() == {0: (11, 22)}
    network.paths[0] = hops
    network.run(130)
    assert network.known() == {0: hops}


def test_nobody_is_asked_beyond_the_most_hops_that_a_path_may_have():
    """Such a path is asked for its own hops alone."""
    network = Network({0: tuple(range(1, MOST_HOPS + 1))})
    network.run(130)
    assert max(ask.ttl for _, ask in network.asked) == MOST_HOPS


def test_a_path_in_doubt_is_asked_at_once():
    """As when it falls silent and comes back by another way."""
    network = Network({0: (11, 22), 1: (11, 23)})
    network.run(5)
    network.paths[0] = (11, 24)
    network.tracer.doubt([0], network.now_ns)
    network.run(3)
    assert network.known() == {0: (11, 24), 1: (11, 23)}


def test_routers_that_fell_silent_have_some_time_until_the_path_is_unknown():
    """They may have better things to do for a while. After that, the path may go anywhere."""
    network = Network({0: (11, 22), 1: (11, 23)})
    network.run(5)
    network.tracer.take_changed()
    network.paths |= {0: (11,), 1: (11, 0)}
    network.run(63)
    assert network.known() == {0: (11, 22), 1: (11, 23)}
    network.paths[1] = (11, 23)
    network.run(20)
    assert network.known() == {0: (11,), 1: (11, 23)}
    assert network.tracer.take_changed() == [0]


def test_a_link_that_is_lost_for_seconds_is_no_other_way_however_often_it_is_in_doubt():
    """Each path that falls silent beside a path, and each that speaks again, brings it in doubt anew."""
    network = Network({0: (11, 22), 1: (11, 23)})
    network.run(5)
    network.tracer.take_changed()
    network.paths[0] = ()
    for _ in range(5):
        network.tracer.doubt([0], network.now_ns)
        network.run(1.5)
    network.paths[0] = (11, 22)
    network.tracer.doubt([0], network.now_ns)
    network.run(4)
    assert network.tracer.take_changed() == []
    assert network.tracer.is_sure(0)


def test_what_is_forged_or_late_is_not_believed():
    """Another token, a path that waits for nothing, and a single answer that quotes nothing."""
    tracer = HopTracer(1_000.0, Random(1))
    tracer.begin(0, 0)
    tracer.answered(0, 66, None, 0)
    (ask,) = tracer.due(MS)
    tracer.answered(0, 66, ask.token ^ 1, MS)
    tracer.answered(1, 66, ask.token, MS)
    tracer.answered(0, 66, None, MS)  # it may be: a second one would have to say so
    now_ns = MS
    while tracer.hops(0) is None:
        now_ns += 10 * MS
        for each in tracer.due(now_ns):
            if each.ttl == 1:
                tracer.answered(0, 11, each.token, now_ns)
    assert tracer.hops(0) == (11,)


def test_a_path_that_ended_is_asked_no_more():
    """Its row may be another's, of which nothing is known."""
    network = Network({0: (11,), 1: (12,)})
    network.run(5)
    network.tracer.end(0)
    assert network.tracer.hops(0) is None
    network.asked.clear()
    network.run(130)
    assert {ask.row for _, ask in network.asked} == {1}
    network.tracer.begin(0, network.now_ns)
    network.paths[0] = (99,)
    network.run(5)
    assert network.known() == {0: (99,), 1: (12,)}


def test_a_path_is_sure_while_its_routers_say_the_same():
    """Not before it was asked, nor while it is in doubt, nor after a router fell silent."""
    network = Network({0: (11, 22), 1: (11, 23)})
    tracer = network.tracer
    assert not tracer.is_sure(0)
    network.run(5)
    assert tracer.is_sure(0)
    assert tracer.take_asked() == {0, 1}
    tracer.doubt([0, 9], network.now_ns)
    assert (tracer.is_sure(0), tracer.is_sure(1), tracer.is_sure(9)) == (False, True, False)
    network.run(1)
    assert tracer.is_sure(0)
    assert tracer.take_asked() == {0}
    network.paths[1] = (11,)
    network.run(63)
    assert tracer.hops(1) == (11, 23)
    assert not tracer.is_sure(1)


def test_a_doubt_during_a_round_asks_for_another_round():
    """The routers that have answered may have done so before the path went elsewhere."""
    network = Network({0: (11, 22)})
    network.run(5)
    network.tracer.doubt([0], network.now_ns)
    while network.tracer.waiting or network.asked[-1][1].ttl != 1:
        network.run(0.01)
    network.tracer.doubt([0], network.now_ns)
    network.paths[0] = (11, 22)
    asked = len(network.asked)
    network.run(2)
    assert network.tracer.is_sure(0)
    assert [ask.ttl for _, ask in network.asked[asked:]] == [2, 4, 1, 2, 3]
