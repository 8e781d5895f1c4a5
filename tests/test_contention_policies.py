"""Policies by which each host moves its own flows: what they decide, and that the remediator carries it out."""

import random
import subprocess
import sys

import numpy as np
import pytest
from contention_world import LINE, ContentionWorld, flow

from bench.contention import host_policies
from bench.contention.draw import OF_HOSTS
from bench.contention.host_policies.best_of_two import BestOfTwo
from bench.contention.host_policies.rehash import Rehash
from bench.contention.host_policies.remedy import register
from bench.contention.host_policies.sight import QUEUE_NS, Delays, Heard, Sight
from foliot.runtime.extensions import extend
from foliot_remediator.core.actions import remedy
from foliot_schemas import DelayBatch, DelayRow, Witness

ROUND = 100_000_000
BASE = 200_000
"""The delay of a path without a queue."""
FULL = BASE + 40_000_000
POLICIES = {"rehash": Rehash, "best-of-two": BestOfTwo}


class Rounds:
    """A flow on entropy 0 of four, as its sender sees it; `queues` has the delays of all paths that have one."""

    def __init__(self, policy, *, others=(1, 2, 3), seed=1):
        self.policy = policy(random.Random(seed))
        self.others = others
        self.now_ns = 0
        self.heard = {}
        self.present = 0

    def tell(self, *, pauses=False, **delays_ns):
        """The next round, with probes of these paths (`p0` and so on); returns what is decided."""
        self.now_ns += ROUND
        for name, delay_ns in delays_ns.items():
            first = Heard(self.now_ns, delay_ns, BASE, delay_ns)
            self.heard[int(name[1:])] = self.heard.get(int(name[1:]), first).then(self.now_ns, delay_ns, BASE)
        return self.policy.decide(Sight(self.now_ns, self.present, self.heard, self.others, pauses))

    def until_moved(self, most=100, **told):
        """How many rounds it takes until the flow moves, and where; None: it does not."""
        for number in range(1, most + 1):
            if (chosen := self.tell(**told)) is not None:
                return number, chosen
        return None


@pytest.mark.parametrize(("pauses", "rounds"), [(False, 12), (True, 3)])
def test_rehash_moves_after_congested_rounds_in_a_row(pauses, rounds):
    """Sooner when the flow pauses; and after as many again, as long as there is a queue."""
    seen = Rounds(Rehash)
    for _ in range(3):
        assert seen.until_moved(p0=BASE + QUEUE_NS, pauses=pauses)[0] == rounds


def test_rehash_begins_anew_after_a_round_without_a_queue():
    """A round of which no probe tells is none."""
    seen = Rounds(Rehash)
    assert seen.until_moved(11, p0=FULL) is None
    assert seen.tell(p0=BASE + QUEUE_NS - 1) is None
    assert seen.until_moved(11, p0=FULL) is None
    assert seen.until_moved(50) is None
    assert seen.tell(p0=FULL) is not None


def test_rehash_draws_among_all_other_ways():
    """Also those that have a queue; where there is none that works, the flow stays."""
    seen = Rounds(Rehash)
    assert {seen.until_moved(p0=FULL, p1=FULL, p2=FULL, p3=BASE)[1] for _ in range(50)} == {1, 2, 3}
    assert Rounds(Rehash, others=()).until_moved(p0=FULL) is None


@pytest.mark.parametrize("policy", POLICIES.values())
def test_a_flow_whose_path_has_no_queue_stays(policy):
    """However often a single round is late."""
    seen = Rounds(policy)
    for _ in range(50):
        assert seen.tell(p0=BASE, p1=BASE, p2=BASE, p3=BASE) is None
        assert seen.tell(p0=BASE + QUEUE_NS + 1_000_000, p1=BASE, p2=BASE, p3=BASE) is None


def test_best_of_two_moves_to_the_better_of_the_paths_that_it_has_drawn():
    """By what is told of them after that."""
    seen = Rounds(BestOfTwo)
    assert seen.tell(p0=FULL, p1=BASE, p2=BASE, p3=BASE) is None
    delays = {1: FULL // 2, 2: FULL // 4, 3: FULL // 3}
    chosen = seen.tell(p0=FULL, **{f"p{entropy}": delay_ns for entropy, delay_ns in delays.items()})
    drawn = random.Random(1).sample((1, 2, 3), 2)
    assert chosen == min(drawn, key=delays.get)


def test_best_of_two_draws_again_where_neither_is_clearly_better():
    """Until it has drawn one that is."""
    seen = Rounds(BestOfTwo)
    assert seen.until_moved(p0=FULL, p1=round(0.81 * FULL), p2=FULL, p3=2 * FULL) is None
    moved = [Rounds(BestOfTwo).until_moved(p0=FULL, p1=round(0.79 * FULL), p2=FULL, p3=FULL)]
    assert moved[0][1] == 1


def test_best_of_two_waits_for_word_of_the_paths_that_it_has_drawn():
    """For a second at most: then those count that were heard, and else it draws again."""
    seen = Rounds(BestOfTwo)
    seen.tell(p0=FULL, p1=BASE, p2=BASE, p3=BASE)
    assert seen.until_moved(25, p0=FULL) is None
    seen = Rounds(BestOfTwo, others=(1, 2))
    seen.tell(p0=FULL, p1=BASE, p2=BASE)
    assert seen.until_moved(9, p0=FULL, p1=BASE) is None
    assert seen.tell(p0=FULL, p1=BASE) == 1


def test_best_of_two_rests_after_a_move():
    """For one or two seconds: what it is told is of before."""
    for seed in range(5):
        seen = Rounds(BestOfTwo, seed=seed)
        told = {"p0": FULL, "p1": BASE, "p2": BASE, "p3": BASE}
        assert seen.until_moved(2, **told) is not None
        assert 11 <= seen.until_moved(22, **told)[0] <= 21


def test_best_of_two_goes_by_averages():
    """A path that others fill seems free now and then."""
    seen = Rounds(BestOfTwo, others=(1,))
    for _ in range(50):
        assert seen.until_moved(9, p0=FULL, p1=FULL) is None
        assert seen.tell(p0=FULL, p1=BASE) is None
    assert seen.until_moved(8, p0=FULL, p1=BASE) is not None


def test_best_of_two_moves_to_no_path_that_failed_meanwhile():
    """It is none of the others any more."""
    seen = Rounds(BestOfTwo, others=(1,))
    seen.tell(p0=FULL, p1=BASE)
    seen.others = ()
    assert seen.until_moved(p0=FULL, p1=BASE) is None


def test_best_of_two_knows_nothing_of_a_way_that_it_has_just_taken():
    """What was drawn against the old one does not count, nor does its delay."""
    seen = Rounds(BestOfTwo, others=(1, 2, 3))
    seen.tell(p0=FULL, p1=BASE, p2=BASE, p3=BASE)
    seen.present, seen.others = 1, (0, 2, 3)
    assert seen.until_moved(p0=FULL, p1=BASE, p2=BASE, p3=BASE) is None


def test_a_host_is_told_the_median_of_each_round_and_the_least_ever():
    """By the receiver alone; a report without a delay changes nothing."""
    delays, paths = Delays(), ("a.rail0>b.rail0#0", "a.rail0>b.rail0#1", "b.rail0>a.rail0#0")
    rows = [(0, Witness.DESTINATION, 500, 900), (1, Witness.DESTINATION, 0, 0), (2, Witness.SOURCE, 0, 0)]
    delays.take(_batch(rows, paths), 1)
    delays.take(_batch([(0, Witness.DESTINATION, 700, 800)], paths), 2)
    assert delays.between("a.rail0", "b.rail0") == {0: Heard(2, 800, 500, pytest.approx(900, abs=1e-3))}
    assert delays.between("b.rail0", "a.rail0") == {}
    delays.forget({"b.rail0"})
    assert delays.between("a.rail0", "b.rail0") == {}


def _batch(told, paths):
    rows = np.zeros(len(told), DelayRow)
    for row, (path, witness, least_ns, median_ns) in zip(rows, told, strict=True):
        row["path"], row["witness"], row["least_ns"], row["median_ns"] = path, witness, least_ns, median_ns
    return DelayBatch.of(rows, node="b", at_ns=1, interval_ns=ROUND, bound_ns=0, paths=paths)


class QueuedWorld(ContentionWorld):
    """Probes wait in the queue of each link between routers that several flows share."""

    EVERY = 1

    def rows(self, name, paths):
        """What a node says of its paths, with delays."""
        rows, shared = super().rows(name, paths), self.shared()
        rows["least_ns"] = [BASE if shared.isdisjoint(self.links(path)) else FULL for path in paths] if shared else BASE
        rows["median_ns"] = np.where(rows["received"] > 0, rows["least_ns"], 0)
        return rows

    def shared(self):
        """The links between routers that more than one flow crosses now."""
        ways = [self.links(f"{name}#{self.way_of(name).entropy}")[1:-1] for name in self.flows]
        links = [link for way in ways for link in way]
        return {link for link in links if links.count(link) > 1}


TWO = (flow(0, 2), flow(1, 3))


@pytest.fixture(params=POLICIES)
def policy(request, monkeypatch):
    """The remediator of each world made from now on moves flows by this policy."""
    monkeypatch.setattr(remedy, "registered", dict(remedy.registered))
    register(request.param, POLICIES[request.param])
    return request.param


@pytest.fixture
def world(policy):
    """Two flows that begin on the first spine of four."""
    return world_of(TWO)


def world_of(flows, **settings):
    """A world that was idle before these flows."""
    world = QueuedWorld(nodes=4, improve="off", **settings)
    world.flows = dict.fromkeys(flows, LINE)
    return world


def moves(world, seconds):
    """Who is told within a time to move what: the node, the peer and the entropy."""
    before = len(world.commands)
    world.run(seconds)
    assert {each.verb for each in world.commands[before:]} <= {"reroute", "restore"}
    return [
        (each.verb, each.node, way.peer, way.entropy) for each in world.commands[before:] for way in each.placements
    ]


def first_moves(world, seconds):
    """As `moves`, of the first second in which anything moves."""
    return next(filter(None, (moves(world, 1.0) for _ in range(round(seconds)))), [])


def rates(world):
    """What each flow gets, of a whole link."""
    return [rate / LINE for rate in world.rates().values()]


def test_flows_part_though_each_host_decides_alone(world):
    """And stay there: a flow alone on its links has no queue."""
    assert {each[:3] for each in moves(world, 30.0)} <= {("reroute", "node0", "node2"), ("reroute", "node1", "node3")}
    assert rates(world) == [1.0, 1.0]
    assert not moves(world, 20.0)
    assert not world.core.routing.moved  # where they go is their home
    assert world.guards() == []


def test_nothing_moves_while_no_flow_has_a_queue(policy):
    """Nor does a flow that sends nothing."""
    assert not moves(world_of(TWO[:1]), 10.0)
    silent = world_of(TWO)
    silent.muted = {"node0"}
    assert {each[1] for each in [*first_moves(silent, 30.0), *moves(silent, 5.0)]} == {"node1"}


def test_a_lost_nic_is_left_as_before(policy, monkeypatch):
    """What failover has moved is failover's, and stays where it takes it for a while after that."""
    monkeypatch.setattr(host_policies.remedy, "_SUSPENDED_NS", 200 * ROUND)
    world = world_of(TWO[:1], rails=2)
    world.run(1.0)
    world.flap("node2.rail0", "down")
    moves(world, 3.0)
    assert world.way_of(TWO[0]).via == "rail1"
    world.flap("node2.rail0", "up")
    assert {each[0] for each in moves(world, 10.0)} <= {"restore"}
    assert world.way_of(TWO[0]).via == "rail0"
    world.flows = dict.fromkeys(TWO, LINE)
    world.muted = {"node1"}
    assert not moves(world, 10.0)
    assert {each[1] for each in first_moves(world, 35.0)} == {"node0"}


def test_what_a_node_refuses_is_not_its_home(world):
    """It is decided anew."""
    world.answer = "refused"
    assert moves(world, 5.0)
    assert [world.way_of(name).entropy for name in TWO] == [0, 0]
    world.answer = "done"
    for _ in range(60):
        if rates(world) == [1.0, 1.0]:
            break
        world.run(1.0)
    assert rates(world) == [1.0, 1.0]


def test_what_nobody_answers_is_not_its_home(world):
    """It is said that a node did not answer."""
    world.answer = None
    assert moves(world, 3.0)
    world.flows = {}
    world.run(6.0)
    assert {*world.guards()} == {"agent"}
    assert [world.way_of(name).entropy for name in TWO] == [0, 0]


def test_hosts_that_cannot_be_commanded_decide_nothing(world):
    """While another remediator holds the lease."""
    world.core.hold(0, world.now_ns, held_by_another=True)
    assert not moves(world, 10.0)
    world.core.hold(9, world.now_ns)
    assert first_moves(world, 10.0)


def test_what_is_known_of_a_node_that_left_is_forgotten(policy):
    """Its delays above all: it may come back to another place."""
    world = world_of(TWO)
    world.run(1.0)
    remedies = world.core.remedies[policy]
    assert remedies._delays.between("node0.rail0", "node2.rail0")
    world.flows = {}
    remedies.forget({"node2.rail0"})
    remedies.forget_node("node2")
    assert not remedies._delays.between("node0.rail0", "node2.rail0")
    assert [*remedies._policies] == [TWO[1]]


@pytest.mark.parametrize("name", OF_HOSTS)
def test_the_remediator_of_a_trial_loads_the_policy(name, monkeypatch):
    """As an extension; in the process of another service it adds nothing, and needs nothing of the remediator's."""
    monkeypatch.setattr(remedy, "registered", dict(remedy.registered))
    (module,) = OF_HOSTS[name]["extensions.modules"]
    document = {"extensions": {"modules": [module]}}
    extend("probe", document)
    assert name not in remedy.registered
    extend("remediator", document)
    core = ContentionWorld(improve="off").core
    assert name in core.remedies
    assert core.hears_traffic
    said = f"import sys, {module} as m; m.extend('probe'); sys.exit('foliot_remediator' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
