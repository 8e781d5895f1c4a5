"""Carries out what the coordinator of a rail orders of the nodes that are commanded from here."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.state.inventory import Destination
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.settings import strictest
from foliot_schemas import HomeMove, MoveAnswer, Reroute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.settings import Policy
    from foliot_schemas import MoveOrder, Placement
    from foliot_schemas.move import MoveStatus

FENCE = "fence"
"""What refuses an order of an older coordinator."""
_REMEMBERED = 256
"""Orders whose answers are given again: a coordinator has a few open at once, for a second each."""


@dataclass(slots=True)
class _Task:
    """An order that is being carried out, until all of it is known."""

    order: MoveOrder
    statuses: dict[Destination, MoveStatus] = field(default_factory=dict)
    homes: dict[Destination, Placement | None] = field(default_factory=dict)
    """Of what was commanded, the home that somebody had chosen before; None: the default."""
    guard: str = ""
    answer: MoveAnswer | None = None

    def moves(self) -> dict[Destination, HomeMove]:
        """What it moves."""
        return {moved_by(move): move for move in self.order.moves}

    def open(self) -> set[Destination]:
        """What was commanded and is not answered."""
        return self.homes.keys() - self.statuses.keys()

    def refuse(self, destination: Destination, guard: str) -> None:
        """Notes that a move is not commanded."""
        self.statuses[destination] = "refused"
        self.guard = self.guard or guard


class Mover:
    """Changes homes by order, while the lease is held, and takes back what a node does not do.

    Parameters:
        name: the remedy whose budget pays.
        policy: the most that may be done.
    """

    def __init__(self, view: FleetView, name: str, policy: Policy) -> None:
        self._view, self._name, self._policy = view, name, policy
        self._decider, self._homes = view.decider, view.selector.homes
        self._terms: dict[str, int] = {}
        """The highest of each rail's coordinators that was seen."""
        self._tasks: collections.OrderedDict[str, _Task] = collections.OrderedDict()
        self._answers: list[MoveAnswer] = []

    def hold(self) -> None:
        """Begins anew under another lease. Terms above it are of a count that the bus has lost."""
        self._terms = {rail: term for rail, term in self._terms.items() if term <= self._decider.lease}
        self._tasks.clear()

    def answers(self) -> list[MoveAnswer]:
        """Takes out the answers that are to be given."""
        answers, self._answers = self._answers, []
        return answers

    def take(self, order: MoveOrder, now_ns: int) -> list[Decision]:
        """Carries out an order once; one that was carried out is answered again."""
        is_former = order.term < self._terms.get(order.rail, 0)
        if not is_former:
            self._terms[order.rail] = order.term
        if not self._decider.lease:
            return []  # who holds it answers
        if is_former:
            self._view.coordination.refused_orders += 1
            statuses: list[MoveStatus] = ["refused"] * len(order.moves)
            self._answers.append(_answer(order, statuses, FENCE, now_ns))
            return []
        known = self._tasks.get(order.id)
        if known is not None and known.answer is not None:
            self._answers.append(known.answer)
        if known is not None or now_ns > order.deadline_ns or not order.moves:
            return []
        task = self._tasks[order.id] = _Task(order)
        if len(self._tasks) > _REMEMBERED:
            self._tasks.popitem(last=False)
        made: list[Decision] = []
        if order.take_back:
            self._take_back(task)
        else:
            made += self._move(task, now_ns)
        self._finish(task, now_ns)
        return made

    def settle(self, sent: Sent, status: MoveStatus, now_ns: int) -> None:
        """Takes a node's answer. The homes of what it did not do become what they were before.

        Where that cannot be, the lease is lost, and the homes with it; or its traffic goes to the new home after all.
        """
        told = {*_told(sent)}
        for task in self._tasks.values():
            if task.answer is not None or task.order.cause != sent.cause.event:
                continue
            moves = task.moves()
            for destination in task.open() & told:
                if status == "failed":
                    self._home(
                        destination, moves[destination].way, task.homes[destination], _cause_of(task, self._name)
                    )
                task.statuses[destination] = status
            self._finish(task, now_ns)

    def forget_node(self, node: str) -> None:
        """Forgets the orders that moved traffic of a node that has left for good."""
        for order in [
            order for order, task in self._tasks.items() if any(node in (each.node, each.peer) for each in task.moves())
        ]:
            del self._tasks[order]

    def is_moved(self, destination: Destination) -> bool:
        """Whether failover has moved it."""
        routing = self._view.routing
        return destination in routing.moved or (destination.node, destination.rail) in routing.away

    # -- inside -------------------------------------------------------------------------------------------------------

    def _move(self, task: _Task, now_ns: int) -> list[Decision]:
        """Commands moves, and makes their ways the homes of what is commanded."""
        order, wanted = task.order, collections.defaultdict[str, list["Placement"]](list)
        for destination, move in task.moves().items():
            if (guard := self._objection(destination, move.way, now_ns)) is not None:
                task.refuse(destination, guard)
            else:
                wanted[destination.node].append(move.way)
        if not wanted:
            return []
        cause, policy = _cause_of(task, self._name), strictest(self._policy, "advise" if order.advice else "act")
        request = DecisionRequest("reroute", order.who, cause, now_ns, now_ns, self._name, policy, order.evidence)
        orders = {node: Reroute(placements=tuple(ways)) for node, ways in wanted.items()}
        made, _ = self._decider.decide(request, orders)
        self._note(task, made, cause)
        guards = [refusal.policy for decision in made for refusal in decision.refusals]
        for destination in task.moves().keys() - task.homes.keys() - task.statuses.keys():
            task.refuse(destination, guards[0] if guards else "")
        return made

    def _note(self, task: _Task, made: Iterable[Decision], cause: Cause) -> None:
        """Chooses the homes of what was commanded."""
        for command in (command for decision in made for command in decision.commands):
            for way in command.placements:
                destination = Destination(command.node, way.peer, way.rail)
                before = self._homes.choice(destination)
                if command.advice:
                    task.statuses[destination] = "advised"
                # Where no choice can be stored now, the traffic comes home again, as after a loss.
                elif self._view.assign_home(destination, way, cause):
                    task.homes[destination] = before

    def _take_back(self, task: _Task) -> None:
        """Makes homes what they were before. What failover has moved since is failover's."""
        cause = _cause_of(task, self._name)
        for destination, move in task.moves().items():
            if not self._view.inventory.owns(destination.node) or not _is_way_of(destination, move.home):
                task.refuse(destination, "unknown")
            elif self.is_moved(destination) or self._home(destination, move.way, move.home, cause):
                task.statuses[destination] = "done"
        if task.statuses.keys() != task.moves().keys():
            del self._tasks[task.order.id]  # not now; it is ordered again

    def _home(self, destination: Destination, way: Placement, home: Placement | None, cause: Cause) -> bool:
        """Makes a home what it was before it was this way; False: not now."""
        return self._homes.of(destination) != way or self._view.assign_home(destination, home, cause)

    def _objection(self, destination: Destination, way: Placement, now_ns: int) -> Guard | None:
        """What speaks against a move, by what is known here: of a whole rail, the coordinator knows less."""
        view, node = self._view, destination.node
        if not (view.inventory.owns(node) and view.inventory.knows(node, way) and _is_way_of(destination, way)):
            return "unknown"
        if self._homes.is_pinned(destination):
            return "policy"
        if self.is_moved(destination) or (node, way.via) in view.routing.away:
            return "no-alternative"
        return None if view.selector.usable(node, way, now_ns) else "no-alternative"

    def _finish(self, task: _Task, now_ns: int) -> None:
        """Answers, if all moves are known."""
        moves = task.moves()
        if task.answer is None and moves.keys() == task.statuses.keys():
            statuses = [task.statuses[moved_by(move)] for move in task.order.moves]
            task.answer = _answer(task.order, statuses, task.guard, now_ns)
            self._answers.append(task.answer)


def moved_by(move: HomeMove) -> Destination:
    """The traffic that is moved."""
    return Destination(move.node, move.way.peer, move.way.rail)


def _is_way_of(destination: Destination, way: Placement | None) -> bool:
    """Whether it is a way of this traffic; None is the default one."""
    return way is None or (way.peer, way.rail, way.key) == (destination.peer, destination.rail, "")


def _answer(order: MoveOrder, statuses: Iterable[MoveStatus], guard: str, now_ns: int) -> MoveAnswer:
    return MoveAnswer(
        order=order.id, shard=order.shard, term=order.term, at_ns=now_ns, statuses=tuple(statuses), guard=guard
    )


def _cause_of(task: _Task, name: str) -> Cause:
    return Cause(task.order.cause, task.order.fault, name)


def _told(sent: Sent) -> Iterable[Destination]:
    order = sent.order
    if isinstance(order, Reroute):
        for way in order.placements:
            yield Destination(sent.command.node, way.peer, way.rail)
