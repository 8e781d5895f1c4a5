"""Orders of other verbs, and of other classes of traffic, on one node."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest
from emulated import NO_ECHO, Agent, command

from foliot.settings import SettingsError
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.control import action_handlers, actuator_kinds
from foliot_agent.control.action_handlers import Confirmed, NodeView, Result
from foliot_agent.control.actuator_kinds import ActuatorKind
from foliot_agent.control.command_runner import CommandRunner
from foliot_agent.control.kernel_backend import KernelBackend
from foliot_agent.control.route_handler import RouteHandler
from foliot_lab.services import emulated_actuator
from foliot_schemas import Command, Confirmation, Outcome, Placement, Reroute, orders
from virtual_clock import VirtualClock

WAY = Placement(peer="node1", rail="rail0", via="rail1", entropy=0, key="qp-17")


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark", tag_field="verb"):
    """Sets a word."""

    word: str


class Marker:
    """Keeps the word in memory, see `ActionHandler`."""

    verbs = ("mark",)

    def __init__(self, clock):
        self.clock, self.word, self.times = clock, "", 0

    def check(self, order, _command):
        """One word may not be."""
        return "it is a bad word" if order.word == "bad" else ""

    async def apply(self, order):
        """Sets it."""
        before, self.word, self.times = self.word, order.word, self.times + 1
        return Result(status="done", done=order, undo=Mark(word=before), changed_ns=self.clock.now_ns())

    async def confirm(self, result, _fault):
        """It is there."""
        return Confirmed(expected=1, at_ns=self.clock.now_ns() if self.word == result.done.word else 0)


class QueuePairs:
    """Moves queue pairs in memory, see `Actuator`; `refused` are not moved, `silent` not confirmed."""

    traffic = "queue-pairs"

    def __init__(self):
        self.placed, self.refused, self.silent = {}, False, False

    def check(self, placement):
        """Keys look like ``qp-17``."""
        return "" if placement.key.startswith("qp-") else f"{placement.key!r} is no queue pair"

    def present(self, placements):
        """By key."""
        return tuple(self.placed[each.key] for each in placements if each.key in self.placed)

    async def set_placements(self, placements):
        """Puts them."""
        if self.refused:
            raise ActuatorError("the NIC refuses")
        self.placed |= {each.key: each for each in placements}

    async def confirm(self, placements):
        """All, or none."""
        return (
            []
            if self.silent
            else [Confirmation(peer=each.peer, rail=each.rail, at_ns=9, round_trip_ns=1) for each in placements]
        )


@pytest.fixture
def mark():
    """The verb, known to this process."""
    orders.register(Mark)
    yield
    orders.forget(Mark)


@pytest.fixture
async def agent(mark, free_port):
    """One that knows a peer and has a handler of `mark`."""
    port = free_port(socket.SOCK_DGRAM)
    made, peer = Agent(0, port, VirtualClock()), Agent(1, port, VirtualClock())
    await made.meet(peer)
    made.marker = Marker(made.clock)
    made.handlers.append(made.marker)
    made.arm("off")
    yield made
    for each in (made, peer):
        each.exchange.close()


def asked(agent, order, name="c1", **more):
    """A command that carries an order."""
    shell = command(agent, name, **more)
    fields = {
        field: getattr(shell, field)
        for field in ("id", "node", "cause", "issued_ns", "deadline_ns", "lease_revision", "advice")
    }
    return Command.of(order, **fields)


async def test_an_order_is_carried_out_by_the_handler_of_its_verb(agent):
    """Confirmed by it, and answered with what was done and what undoes it."""
    agent.clock.advance(5)
    await agent.commands.on_command(asked(agent, Mark(word="x")))
    (outcome,) = agent.outcomes
    assert (outcome.verb, outcome.status, outcome.expected) == ("mark", "done", 1)
    assert (outcome.moved_ns, outcome.confirmed_ns) == (agent.clock.now_ns(),) * 2
    assert (outcome.order(), outcome.undo_order()) == (Mark(word="x"), Mark(word=""))
    assert outcome.id == "c1/outcome/node0"


async def test_what_all_verbs_have_in_common_holds_for_it(agent):
    """Twice is once, advice is not followed, a deadline counts, and its own check is heard."""
    await asyncio.gather(*(agent.commands.on_command(asked(agent, Mark(word="x"))) for _ in range(2)))
    await agent.commands.on_command(asked(agent, Mark(word="y"), "c2", advice=True))
    await agent.commands.on_command(asked(agent, Mark(word="y"), "c3", deadline_ns=-1))
    await agent.commands.on_command(asked(agent, Mark(word="bad"), "c4"))
    said = {outcome.command: (outcome.status, outcome.reason) for outcome in agent.outcomes}
    assert said["c1"] == ("done", "")
    assert said["c2"] == ("advised", "advice")
    assert (said["c3"][0], "deadline" in said["c3"][1]) == ("refused", True)
    assert said["c4"] == ("refused", "it is a bad word")
    assert (agent.marker.times, agent.marker.word) == (1, "x")


@pytest.mark.parametrize(
    ("verb", "action", "reason"),
    [
        (
            "replace-rank",
            {"verb": "replace-rank", "rank": 3},
            "the verb replace-rank is not known here; known are mark, reroute, restore",
        ),
        ("mark", {"verb": "mark"}, "the order is no mark: "),
        ("mark", {}, "the order is no mark: "),
        ("reroute", {"verb": "reroute", "away": "rail0"}, "the order is no reroute: "),
    ],
)
async def test_an_order_that_cannot_be_read_is_answered(agent, verb, action, reason):
    """Who asked for it would else wait, and ask again."""
    told = msgspec.structs.replace(command(agent), verb=verb, action=action)
    await agent.commands.on_command(told)
    (outcome,) = agent.outcomes
    assert (outcome.verb, outcome.status, outcome.action) == (verb, "refused", {})
    assert outcome.reason.startswith(reason)


@pytest.mark.parametrize(
    ("broken", "status", "reason"), [("apply", "failed", "RuntimeError: broken"), ("confirm", "done", "")]
)
async def test_a_handler_that_breaks_is_answered_for(agent, monkeypatch, broken, status, reason):
    """The command is not asked for again and again; what was done counts as not confirmed."""

    async def breaks(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(agent.marker, broken, breaks)
    await agent.commands.on_command(asked(agent, Mark(word="x")))
    (outcome,) = agent.outcomes
    assert (outcome.status, outcome.reason, outcome.confirmed_ns) == (status, reason, 0)
    assert bool(outcome.action) == (status == "done")


async def test_a_verb_has_one_handler(agent):
    """Two would both be asked."""
    with pytest.raises(ValueError, match="the verb mark has two handlers"):
        CommandRunner(
            node="node0", policy="act", handlers=[agent.marker, Marker(agent.clock)], clock=agent.clock, publish=print,
            fence=agent.commands.fence, restart_cache=agent.restart_cache,
        )  # fmt: skip


def test_a_handler_of_a_name_is_registered_once(agent, monkeypatch):
    """And made for the node when the agent starts."""
    view = NodeView(layout=agent.layout, peers=agent.peers, clock=agent.clock, restart_cache=agent.restart_cache)
    monkeypatch.setattr(action_handlers, "_makers", {})
    action_handlers.register("mark", lambda view: Marker(view.clock))
    assert [handler.verbs for handler in action_handlers.registered(view)] == [("mark",)]
    with pytest.raises(ValueError, match="there is a handler named mark already"):
        action_handlers.register("mark", Marker)


# -- other classes of traffic ------------------------------------------------------------------------------------------


@pytest.fixture
def pairs(agent):
    """An actuator of queue pairs beside that of service addresses."""
    made = QueuePairs()
    routes = RouteHandler(
        situation=agent.situation, move_queue=agent.move_queue, confirmer=NO_ECHO, clock=agent.clock, others=[made]
    )
    agent.commands = CommandRunner(
        node="node0", policy="act", handlers=[routes], clock=agent.clock, publish=agent.outcomes.append,
        fence=agent.commands.fence, restart_cache=agent.restart_cache,
    )  # fmt: skip
    return made


def moved(*ways, **more):
    """An order for queue pairs."""
    return Reroute(traffic="queue-pairs", placements=ways, **more)


async def test_traffic_of_a_class_is_moved_by_its_actuator_alone(agent, pairs):
    """By a verb of Foliot's own; the ways of service addresses stay."""
    before = agent.actuator.routing.way(("node1", "rail0"))
    await agent.commands.on_command(asked(agent, moved(WAY)))
    home = msgspec.structs.replace(WAY, via="rail0")
    await agent.commands.on_command(asked(agent, moved(home), "c2"))
    await agent.commands.on_command(asked(agent, moved(home), "c3"))
    first, second, third = agent.outcomes
    assert (first.status, first.expected, first.confirmed_ns, first.placements) == ("done", 1, 9, ())
    assert (first.order(), first.undo_order()) == (moved(WAY), moved())
    assert (second.order(), second.undo_order()) == (moved(home), moved(WAY))
    assert third.status == "already"
    assert agent.actuator.routing.way(("node1", "rail0")) == before


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (Reroute(traffic="sockets", placements=(WAY,)), "no actuator of this node moves sockets"),
        (moved(), "queue-pairs is moved by placements, and by nothing else"),
        (moved(WAY, away=("rail0",)), "queue-pairs is moved by placements, and by nothing else"),
        (moved(msgspec.structs.replace(WAY, key="x")), "'x' is no queue pair"),
    ],
)
async def test_what_no_actuator_can_move_is_refused(agent, pairs, order, reason):
    """The reason is its own."""
    await agent.commands.on_command(asked(agent, order))
    (outcome,) = agent.outcomes
    assert (outcome.status, outcome.reason) == ("refused", reason)
    assert pairs.placed == {}


async def test_nothing_is_moved_onto_a_lost_nic(agent, pairs):
    """Whatever class it is of."""
    agent.losses._own["rail1"] = "fault"
    await agent.commands.on_command(asked(agent, moved(WAY)))
    assert agent.outcomes[0].reason == "the node's own NIC on rail1 is lost"


async def test_what_its_actuator_cannot_do_or_confirm_is_said(agent, pairs):
    """Refused by the host: failed. Not seen to go that way: not confirmed."""
    pairs.refused = True
    await agent.commands.on_command(asked(agent, moved(WAY)))
    pairs.refused, pairs.silent = False, True
    await agent.commands.on_command(asked(agent, moved(WAY), "c2"))
    failed, doubtful = agent.outcomes
    assert (failed.status, failed.reason, failed.expected) == ("failed", "the NIC refuses", 0)
    assert (doubtful.status, doubtful.expected, doubtful.confirmed_ns) == ("done", 1, 0)


def test_the_settings_choose_what_moves_service_addresses(agent, monkeypatch):
    """By its name; a class of its own is there as soon as it is registered, once."""
    view = NodeView(layout=agent.layout, peers=agent.peers, clock=agent.clock, restart_cache=agent.restart_cache)
    kind = ActuatorKind("pairs", lambda _view: QueuePairs(), "queue-pairs")
    assert actuator_kinds.others(view) == []
    monkeypatch.setattr(actuator_kinds, "_kinds", dict(actuator_kinds._kinds))
    actuator_kinds.register(kind)
    assert [each.traffic for each in actuator_kinds.others(view)] == ["queue-pairs"]
    with pytest.raises(ValueError, match="or one of queue-pairs, already"):
        actuator_kinds.register(ActuatorKind("more-pairs", lambda _view: QueuePairs(), "queue-pairs"))
    emulated_actuator.extend("agent")
    with pytest.raises(SettingsError, match=r"agent\.actuator: 'pairs' is none of emulated, overlay"):
        actuator_kinds.backend("pairs", view)
    made = [type(actuator_kinds.backend(name, view)) for name in ("overlay", "emulated")]
    assert made == [KernelBackend, emulated_actuator.EmulatedBackend]


def test_answers_with_an_order_survive_a_restart(agent, tmp_path):
    """As JSON, which has no types of its own."""
    from foliot_agent.control.restart_cache import RestartCache  # noqa: PLC0415

    outcome = Outcome.of(Mark(word="x"), Mark(word=""), id="o", command="c", verb="mark", node="node0", status="done")
    RestartCache(str(tmp_path), "node0", "boot").keep_answer(outcome)
    assert RestartCache(str(tmp_path), "node0", "boot").recall().answers == (outcome,)
