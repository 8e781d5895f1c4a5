"""A remedy beside that of losses: it has verbs, a policy and a budget of its own."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from foliot_remediator.core.actions import remedy
from foliot_remediator.core.actions.guards import Budget
from foliot_schemas import Event


class Tune(msgspec.Struct, frozen=True, kw_only=True, tag="tune", tag_field="verb"):
    """So many of something, on a node."""

    count: int


class TuneKind:
    """Believes what is tuned, see `ActionKind`."""

    verb = "tune"
    can_wait = False

    def __init__(self, policy):
        self.policy = policy
        self.tuned = {}

    def units(self, order):
        """A count is a unit."""
        return order.count

    def within(self, order, units):
        """A smaller count."""
        return Tune(count=min(order.count, max(units, 0)))

    def object_to(self, _orders):
        """Nothing."""

    def lost(self, _who):
        """Nothing is."""
        return ""

    def apply(self, node, order, _cause):
        """Counts up; the undo counts down."""
        self.tuned[node] = self.tuned.get(node, 0) + order.count
        return Tune(count=-order.count)

    def sent(self, _command, _order):
        """Nobody asks for it."""


class Tuning:
    """Tunes every node by ten when node 0's process is said to be alive, see `Remedy`."""

    name = "tuning"
    priority = 1

    def __init__(self, view):
        self.view = view
        self.kind = TuneKind(view.settings.policies.get("tune", "off"))
        self.kinds = (self.kind,)
        self.budget = Budget(per_minute=90, nodes_at_once=view.settings.nodes_at_once // 2)
        self.settled, self.forgotten = [], []

    def hold(self, _now_ns):
        """Nothing to be judged."""

    def observe(self, seen, _news, now_ns):
        """Events alone."""
        if not (isinstance(seen, Event) and seen.kind == "process"):
            return []
        orders = {node: Tune(count=10) for node in self.view.inventory.nodes}
        return self.view.ask(self.name, seen, orders, now_ns)

    def tick(self, overdue, now_ns):
        """What nobody answered is asked again."""
        return self.view.ask_again(overdue, now_ns)

    def settle(self, sent, outcome, now_ns):
        """What was refused is taken back."""
        self.settled.append(outcome.status)
        return self.view.take_back(sent, outcome, now_ns)

    def forget(self, nics):
        """Notes them."""
        self.forgotten += nics

    def forget_node(self, node):
        """Notes it."""
        self.forgotten.append(node)


@pytest.fixture
def make_tuned(make_world):
    """Makes a world with that remedy; `world.tuning` is it."""
    made = []

    def make(view):
        made.append(Tuning(view))
        return made[-1]

    def make_tuned(**settings):
        world = make_world(**{"policies": {"tune": "act"}, **settings})
        world.tuning = made[-1]
        return world

    remedy.register("tuning", make)
    yield make_tuned
    remedy.unregister("tuning")


def alive(world, number=1):
    """The event that the remedy answers; the commands given."""
    return world.see(
        Event(id=f"alive{number}", kind="process", who="node0/probe", state="alive", at_ns=world.now_ns, since_ns=0)
    )


def test_its_orders_are_commanded_and_taken_to_be_in_force(make_tuned):
    """By its verb, and answered to it."""
    world = make_tuned()
    commands = alive(world)
    assert [(each.verb, each.action, each.away) for each in commands] == [
        ("tune", {"verb": "tune", "count": 10}, ())
    ] * 4
    assert commands[0].id == "alive1/tuning/tune/node0/7"
    assert world.tuning.kind.tuned == dict.fromkeys(world.names, 10)
    assert world.tuning.settled == ["done"] * 4


def test_what_it_spends_is_not_taken_from_failover(make_tuned):
    """Nor the other way round: each minute has a budget of each."""
    world = make_tuned(moves_per_minute=10)
    assert sum(each.action["count"] for number in range(3) for each in alive(world, number)) == 90
    assert [refusal.evidence["moves_per_minute"] for refusal in world.refusals] == [90]
    assert world.core.losses.budget.moved(world.now_ns) == 0
    assert len(world.flap("node3.rail0", "down")) == 4


def test_half_of_the_nodes_at_once_are_left_to_failover(make_tuned):
    """Nodes that do not answer it cannot hold up a reroute."""
    world = make_tuned(nodes_at_once=4)
    world.answer = None
    assert len(alive(world)) == 2
    assert world.guards() == ["nodes-at-once"]
    assert len(world.flap("node3.rail0", "down")) == 4


@pytest.mark.parametrize(("policies", "guards"), [({}, ["policy"]), ({"tune": "advise"}, [])])
def test_it_has_a_policy_of_its_own(make_tuned, policies, guards):
    """Without one, nothing is done; advice changes no beliefs."""
    world = make_tuned(policies=policies)
    assert all(each.advice for each in alive(world))
    assert world.guards() == guards
    assert world.tuning.kind.tuned == {}


def test_a_refusal_is_taken_back_and_said(make_tuned):
    """By its own undo."""
    world = make_tuned()
    world.answer = "refused"
    alive(world)
    assert world.tuning.kind.tuned == dict.fromkeys(world.names, 0)
    assert world.guards() == ["agent"] * 4


def test_what_is_not_answered_is_asked_again_by_whose_it_is(make_tuned):
    """A second attempt has another id."""
    world = make_tuned()
    world.answer = None
    alive(world)
    world.answer = "done"
    again = world.run(6.0)
    assert {each.id for each in again} == {f"alive1/tuning/tune/{name}/7/2" for name in world.names}


def test_losses_come_first(make_tuned):
    """Whoever has less priority is asked first."""
    world = make_tuned()
    assert [each.name for each in world.core.remedies] == ["losses", "tuning"]


def test_a_name_or_a_verb_is_taken_once(make_tuned):
    """A second one of either is refused."""
    with pytest.raises(ValueError, match="there is a remedy named tuning already"):
        remedy.register("tuning", lambda _view: None)
    world = make_tuned()
    other = SimpleNamespace(verb="tune")
    with pytest.raises(ValueError, match="the verb tune has two kinds of action"):
        world.core.decider.register("other", world.tuning.budget, [other])


def test_a_remedy_that_fails_holds_up_no_failover(make_tuned):
    """With every message and tick, at the start of a lease too; what it failed of is put down to be logged."""
    world = make_tuned()

    def fail(*_):
        raise KeyError("a fault of its own")

    for name in ("hold", "observe", "tick", "forget", "forget_node"):
        setattr(world.tuning, name, fail)
    assert len(world.flap("node3.rail0", "down")) == 4
    world.core.hold(8, world.now_ns)
    world.flap("node3.rail0", "up")
    assert {command.verb for command in world.run(10.0)} == {"restore"}
    assert set(world.core.failed) == {("tuning", "KeyError: 'a fault of its own'")}
