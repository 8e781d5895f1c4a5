"""A remedy beside that of losses: it has verbs, a policy and a budget of its own."""

from __future__ import annotations

import pkgutil
import re
from types import SimpleNamespace

import msgspec
import pytest
from remediator_world import World

from foliot.settings import SettingsError
from foliot_remediator.core import remedies
from foliot_remediator.core.actions import command_ledger, remedy
from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.actions.guards import Budget
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.service import Service
from foliot_remediator.settings import RemediatorSettings
from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import Event, Reroute


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

    def object_to(self, _orders, _remedy):
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
        self.budget = Budget(per_minute=90, nodes_at_once=view.settings.nodes_at_once)
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
def make_tuned(monkeypatch):
    """Makes a world with that remedy; `world.tuning` is it."""
    made = []

    def make(view):
        made.append(Tuning(view))
        return made[-1]

    def make_tuned(**settings):
        world = World(**{"policies": {"tune": "act"}, **settings})  # none that was prepared with other remedies
        world.tuning = made[-1]
        return world

    monkeypatch.setattr(remedy, "registered", dict(remedy.registered))
    remedy.register("tuning", make)
    return make_tuned


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
    assert world.core.remedies["losses"].budget.moved(world.now_ns) == 0
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


@pytest.mark.parametrize(
    ("improve", "asks", "hears"), [("off", False, False), ("off", True, True), ("act", False, True)]
)
def test_traffic_is_told_only_where_a_remedy_asks_for_it(make_tuned, monkeypatch, improve, asks, hears):
    """One that does not say does not ask."""
    if asks:
        monkeypatch.setattr(Tuning, "hears_traffic", True, raising=False)
    assert make_tuned(improve=improve).core.hears_traffic is hears


def test_a_budget_of_more_than_half_is_clamped(make_tuned):
    """Whatever its remedy says."""
    assert make_tuned(nodes_at_once=5).core.decider.nodes_at_once("tuning") == 2


@pytest.fixture
def another(monkeypatch):
    """Registers one more remedy, of a name and a priority."""
    monkeypatch.setattr(remedy, "registered", dict(remedy.registered))

    def another(name, priority):
        def make(view):
            made = Tuning(view)
            made.name, made.priority, made.kinds = name, priority, ()
            return made

        remedy.register(name, make)

    return another


def test_each_module_of_the_folder_is_a_remedy(make_world):
    """Its own name is the module's, so that no list has to name it."""
    modules = [module.name for module in pkgutil.iter_modules(remedies.__path__)]
    assert modules == sorted(make_world().core.remedies)


def test_remedies_go_by_priority_and_then_by_name(make_tuned, another):
    """Losses are first."""
    for name, priority in (("later", 2), ("zeal", 1), ("gain", 1)):
        another(name, priority)
    names = ["losses", "contention", "gain", "tuning", "zeal", "later", "replacement"]
    assert [*make_tuned().core.remedies] == names


@pytest.mark.parametrize("priority", [0, -1, 1.5, True, "first", None])
def test_a_priority_that_is_none_stops_the_start(another, priority):
    """With a sentence; nothing goes before losses."""
    another("zeal", priority)
    said = (
        "extensions.modules: the remedy zeal: its priority must be a whole number, 1 or more, since losses have 0: "
        f"got {priority!r}"
    )
    with pytest.raises(SettingsError, match=re.escape(said)):
        Service(SimpleNamespace(), RemediatorSettings(), FleetClock())


def test_what_it_asks_makes_no_attempt_of_failover_be_forgotten(make_tuned, monkeypatch):
    """A number that is given twice is answered as the first time: nothing would be done."""
    monkeypatch.setattr(command_ledger, "_REMEMBERED", 4)
    world = make_tuned()
    world.answer = "failed"
    first = world.flap("node3.rail0", "down")
    for number in range(8):
        alive(world, number)
    again = world.run(2.0)
    assert {each.node for each in first} == {each.node for each in again}
    ids = [each.id for each in (*first, *again)]
    assert len(set(ids)) == len(ids)


def test_a_node_that_fails_rests_however_long_ago_it_was_asked_first(monkeypatch):
    """In a storm, its entry would be the oldest of all."""
    monkeypatch.setattr(command_ledger, "_REMEMBERED", 4)
    ledger, order = command_ledger.CommandLedger(), Reroute(away=("rail0",))
    requests = [DecisionRequest("reroute", "node3.rail0", Cause(f"e{number}", ""), 0, 0) for number in range(5)]

    def ask(request):
        command = ledger.write(request, "node0", order, lease=1, advice=False)
        return command_ledger.Sent(command, order, request.who, request.cause, None, request.remedy)

    sent = [ask(request) for request in requests[:4]]
    for _ in range(2):
        ledger.fail(sent[0], 0)
    ask(requests[4])
    assert ledger.is_done_with(requests[0], "node0", advice=False)


def test_nics_that_it_sent_away_keep_no_lost_nic_from_being_left(make_tuned):
    """The other way round they do: what is lost is not to be made worse."""
    world = make_tuned(nics_away=1)
    event = Event(id="e", kind="process", who="node0/probe", state="alive", at_ns=world.now_ns, since_ns=0)

    def sends_away(node):
        """The remedy asks for that."""
        return world.act(world.tuning.view.ask("tuning", event, {node: Reroute(away=("rail1",))}, world.now_ns))

    assert len(sends_away("node0")) == 1
    assert len(sends_away("node1")) == 0
    assert ("node3", ("rail0",)) in {(each.node, each.away) for each in world.flap("node3.rail0", "down")}
    world.core.routing.come_back("node0", "rail1")
    assert len(sends_away("node1")) == 0


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

    world.answer = None
    alive(world)
    world.answer = "done"
    for name in ("hold", "observe", "tick", "settle", "forget", "forget_node"):
        setattr(world.tuning, name, fail)
    world.see(world.outcome(world.commands[0], "done"))
    assert len(world.flap("node3.rail0", "down")) == 4
    world.core.hold(8, world.now_ns)
    world.flap("node3.rail0", "up")
    assert {command.verb for command in world.run(10.0)} == {"restore"}
    (failure,) = world.core.failures.news(world.now_ns)
    assert (failure.part, failure.reason) == ("tuning", "KeyError: 'a fault of its own'")
    assert failure.failures > 2
    assert not world.core.failures.news(world.now_ns)


def test_what_a_remedy_says_that_is_no_decision_holds_up_no_failover(make_tuned):
    """It is passed over as a failure."""
    world = make_tuned()
    world.tuning.observe = lambda *_: ["no decision"]
    assert len(world.flap("node3.rail0", "down")) == 4
    assert world.core.failures.news(world.now_ns)[0].part == "tuning"
