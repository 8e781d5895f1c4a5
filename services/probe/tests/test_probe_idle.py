"""Paths for which others stand: who sends what, what is told of them, and when they are probed again."""

from __future__ import annotations

import pytest

from foliot.clock import HostClock
from foliot_probe.core.rate import demand
from foliot_probe.core.stream_table import StreamKey
from foliot_probe.engine import Engine
from foliot_probe.reports import Reporter
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node, NodePaths, Placement, Witness

SETTINGS = ProbeSettings(full_every=0)
TICK_NS = SETTINGS.tick_ms * 1_000_000
SECOND = 25
"""Ticks."""
FAREWELL_S = 2
SILENCE_NS = 1_000_000_000
"""`detector.late_silence_s`."""
MINUTE_NS = 60_000_000_000


def node(name, number):
    """A node with one NIC of four entropies, on the loopback device."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="lo", address="127.0.0.1", clock=name, service_address="10.97.0.1",
        path_addresses=tuple(f"127.97.{entropy}.{number}" for entropy in range(4)), entropies=(1, 2, 3, 4),
    )  # fmt: skip
    return Node(name=name, nics=(nic,), probe_port=17_947)


class Both:
    """Two nodes that probe each other in virtual time. Row and entropy of a path are the same number."""

    def __init__(self):
        self.nodes = [node("a", 1), node("b", 2)]
        self.now_ns = self.ticks = 0
        self.engines, self.reporters = [None, None], [None, None]
        for each in (0, 1):
            self.start(each)

    def start(self, each):
        """A node's probe starts, or starts anew."""
        if self.engines[each] is not None:
            self.engines[each].close()
        clock = HostClock(self.nodes[each].name)
        engine = self.engines[each] = Engine(self.nodes[each], clock, SETTINGS, self.now_ns)
        self.reporters[each] = Reporter(engine, clock, SETTINGS, self.now_ns)
        assert engine.bind() == 0
        _, begun = engine.set_peer(self.nodes[1 - each])
        self.reporters[each].begin(begun)

    def use(self, each, *entropies):
        """What a node's traffic takes."""
        keys = frozenset(StreamKey(self.nodes[1 - each].name, "rail0", entropy) for entropy in entropies)
        self.engines[each].demand.set_in_use(keys)

    def know(self, each, *routes):
        """The routes of a node's paths, by entropy."""
        for row, route in enumerate(routes):
            self.engines[each].demand.set_route(row, route)

    def run(self, seconds):
        """Time passes. Returns how many probes each node sent on each path."""
        self._take_sent()
        for _ in range(round(seconds * SECOND)):
            self.now_ns += TICK_NS
            self.ticks += 1
            for engine in self.engines:
                engine.listen(self.now_ns)
                engine.speak(self.ticks)
        return self._take_sent()

    def _take_sent(self):
        sent = [engine.packets._sent[:4].tolist() for engine in self.engines]
        for engine in self.engines:
            engine.packets._sent[:] = 0
        return sent

    def incoming(self, each):
        """The probes that a node has heard and of which it has both stamps, since the last call."""
        return self.engines[each].packets.sessions.incoming.take_completed()

    def skip(self, seconds):
        """Time passes in which the probes stand still."""
        self.ticks += seconds * SECOND
        self.now_ns += seconds * SECOND * TICK_NS

    def let_pass(self, seconds):
        """As `run`, for whole multiples of five seconds: of each five the probes stand still for four."""
        found = [[0] * 4, [0] * 4]
        for _ in range(seconds // 5):
            self.skip(4)
            found = [[*map(sum, zip(*each, strict=True))] for each in zip(found, self.run(1), strict=True)]
        return found

    def rates(self):
        """The same in words, by node, of two seconds."""
        words = {0: "idle", 1: "swept", 5: "fast", 6: "fast"}  # in units of the slow sweep
        return [" ".join(words[round(probes / 10)] for probes in sent) for sent in self.run(2)]

    def forget_use(self, each):
        """As ten minutes later."""
        self.run(0.1)
        self.engines[each].demand._kept_until[:] = 0

    def told_of(self, each):
        """The paths that a node reports to send on and to hear, and how many each message names."""
        self.told(each)
        self.run(0.4)
        sent, heard, sizes = self.told(each)
        return sorted(sent), sorted(heard), sizes

    def told(self, each):
        """What a node reports of its paths: by witness, probes by entropy; and how many paths each message names."""
        found, sizes = {Witness.SOURCE: {}, Witness.DESTINATION: {}}, []
        for batch in self.reporters[each].delays(self.now_ns):
            sizes.append(len(batch.paths))
            batch.check()
            for row in batch.rows():
                probes = row["sent" if row["witness"] == Witness.SOURCE else "received"]
                found[int(row["witness"])][int(batch.paths[row["path"]][-1])] = int(probes)
        return found[Witness.SOURCE], found[Witness.DESTINATION], sizes


@pytest.fixture
def both(monkeypatch):
    """They know each other, use their first path, and measure no clocks. Their packet loops are numpy's."""
    monkeypatch.setenv("FOLIOT_NATIVE", "off")
    monkeypatch.setattr(demand, "neighbours", lambda *_: frozenset())
    made = Both()
    for each in (0, 1):
        made.use(each, 0)
    made.run(3)
    for each in (0, 1):
        made.told(each)
    yield made
    for engine in made.engines:
        engine.close()


def test_of_paths_with_one_route_one_is_probed(both):
    """That in use stands for the others, else the first one; of what is alone or unknown, nothing changes."""
    both.use(0, 2)
    both.forget_use(0)
    both.know(0, 7, 7, 7, 0)
    both.run(FAREWELL_S)
    assert both.rates() == ["idle idle fast swept", "fast swept swept swept"]
    both.use(0, 3)
    both.forget_use(0)
    both.know(0, 0, 7, 7, 9)
    both.run(FAREWELL_S)
    assert both.rates()[0] == "swept swept idle fast"


def test_nothing_is_told_of_what_idles_and_all_else_as_before(both):
    """One node's way idles: its words of it and the receiver's are left out, and the way back is told."""
    assert both.told_of(0) == both.told_of(1) == ([0, 1, 2, 3], [0, 1, 2, 3], [8])
    both.know(0, 7, 7, 7, 8)
    both.run(FAREWELL_S)
    assert both.told_of(0) == ([0, 3], [0, 1, 2, 3], [8])
    assert both.told_of(1) == ([0, 1, 2, 3], [0, 3], [8])
    both.know(1, 7, 7, 7, 8)
    both.run(FAREWELL_S)
    for each in (0, 1):
        assert both.told_of(each) == ([0, 3], [0, 3], [4])


def test_the_last_probes_before_are_told(both):
    """A receiver that claims a lost probe is to say that it heard the next one."""
    both.know(0, 7, 7, 7, 7)
    both.know(1, 7, 7, 7, 7)
    both.run(0.2)
    both.told(1)
    heard = dict.fromkeys(range(4), 0)
    for _ in range(FAREWELL_S * 5):
        both.run(0.2)
        for entropy, probes in both.told(1)[1].items():
            heard[entropy] += probes
    assert all(heard[entropy] >= 4 for entropy in (1, 2, 3))


def test_what_was_heard_a_while_before_a_report_is_not_told(both):
    """Where a node reports seldom: it would look like a silence."""
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S + 1)
    both.engines[1].packets.heard_last_ns()[1:4] = both.engines[1].packets._listened_ns - SILENCE_NS
    assert both.told(1)[1].keys() == {0}


def test_what_idles_says_so_each_half_minute_in_messages_of_its_own(both):
    """So that a receiver that missed it knows, and readers see that the path lives."""
    for each in (0, 1):
        both.know(each, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.told(1)
    sent, told = [0] * 4, {}
    for step in range(30):
        if step % 5 == 0:
            both.skip(4)  # of half a minute, the probes stand still for all but six seconds
        sent = [sum(pair) for pair in zip(sent, both.run(0.2)[0], strict=True)]
        _, heard, sizes = both.told(1)
        assert sizes[0] == 2
        assert all(size <= 6 for size in sizes[1:])
        for entropy in heard.keys() - {0}:
            told[entropy] = told.get(entropy, 0) + heard[entropy]
    assert sent[1:] == [1, 1, 1]
    assert told == {1: 1, 2: 1, 3: 1}


def test_probes_of_what_idles_measure_nothing(both):
    """Their stamps come half a minute late, by the next probe: a queue of then is none of now."""
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.incoming(1)
    both.let_pass(35)
    heard = both.incoming(1)
    assert set(heard.row.tolist()) == {0}
    before = both.engines[1].packets.sessions.heard_sequence[1:4]
    both.know(0, 7, 0, 0, 0)
    both.run(3)
    heard = both.incoming(1)
    assert set(heard.row.tolist()) == {0, 1, 2, 3}
    assert all((heard.sequence[heard.row == row] > last).all() for row, last in enumerate(before, 1))


def test_what_is_not_known_any_more_is_probed_at_once(both):
    """And told again as soon as it is heard."""
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.know(0, 7, 0, 0, 0)
    assert both.rates()[0] == "fast swept swept swept"
    assert both.told_of(1)[1] == [0, 1, 2, 3]


def test_traffic_makes_an_idle_path_fast_at_once_and_keeps_it_for_ten_minutes(both):
    """It may come back to where it was."""
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.use(0, 2)
    assert both.rates()[0] == "swept idle fast idle"
    both.skip(590)
    assert both.rates()[0] == "swept idle fast idle"
    both.let_pass(20)
    assert both.rates()[0] == "idle idle fast idle"


def test_a_home_that_traffic_has_left_does_not_idle(both):
    """By it alone shows when the traffic may come back."""
    away = Placement(peer="b", rail="rail0", via="rail1", entropy=0)
    home = Placement(peer="b", rail="rail0", via="rail0", entropy=2)
    paths = NodePaths(node="a", lease_revision=1, placements=(away,), homes=(home,))
    demanded = both.engines[0].demand
    demanded.set_in_use(demand.in_use(both.engines[0].table.rows, paths), demand.homes(paths))
    both.forget_use(0)
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    assert both.rates()[0] == "idle idle swept idle"


def test_a_path_of_the_clocks_mesh_does_not_idle(both):
    """Whoever of both ends wants it."""
    both.engines[1].demand.wish_ms[3] = 200
    both.engines[1].demand._wished = True
    both.know(0, 7, 7, 7, 7)
    both.know(1, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    for sent in both.run(2):
        assert sent[1:3] == [0, 0]
        assert sent[3] >= 10


def test_a_peer_that_starts_anew_hears_all_paths_and_learns_who_idles(both):
    """Else it would miss them: it knows of none that another stands for it."""
    for each in (0, 1):
        both.know(each, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.start(1)
    both.use(1, 0)
    both.run(1)
    assert both.told_of(1)[1] == [0, 1, 2, 3]
    both.run(10)
    assert both.told_of(1)[1] == [0]
    assert both.rates()[0] == "fast idle idle idle"


def test_a_path_on_which_the_peer_was_never_heard_does_not_idle(both):
    """Its overlay may not be there yet. As soon as it is heard, the path idles."""
    both.use(0, 1)
    both.forget_use(0)
    both.engines[0].demand._is_met[2:4] = False
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    assert both.rates()[0] == "idle fast swept swept"
    both.start(1)
    both.run(10)
    assert both.rates()[0] == "idle fast idle idle"


def test_an_idle_path_that_is_not_heard_for_minutes_is_told_again(both):
    """Something is wrong: five of its probes are missing."""
    both.know(0, 7, 7, 7, 7)
    both.run(FAREWELL_S)
    both.engines[1].packets.heard_last_ns()[1:4] -= 2 * MINUTE_NS
    assert both.told_of(1)[1] == [0]
    both.engines[1].packets.heard_last_ns()[1:4] -= MINUTE_NS
    assert both.told_of(1)[1] == [0, 1, 2, 3]
