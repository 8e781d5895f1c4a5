"""Carries out what hosts decide by a policy of theirs: a remedy of the remediator, in place of its improvements.

The hosts of a trial have no process of their own for that. So the remediator decides in their place, each flow by
itself and by what its sender knows. That takes a report a millisecond or two longer than on the host. Flows move as
the remediator moves them: by another home of their traffic.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

from bench.contention.host_policies.sight import Delays, Sight
from foliot_remediator.core.actions import remedy
from foliot_remediator.core.actions.fleet_view import is_refusal
from foliot_remediator.core.actions.guards import Budget
from foliot_remediator.core.remedies.contention.mover import Mover
from foliot_schemas import DelayBatch, HomeMove, MoveOrder, Placement
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bench.contention.host_policies.sight import HostPolicy
    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_remediator.core.state.flow_reports import FlowHistory
    from foliot_remediator.core.state.inventory import Destination
    from foliot_schemas import Outcome

    MakePolicy = Callable[[random.Random], HostPolicy]

_PER_MINUTE = 6_000
"""Ten flows that move after each round: no policy has a budget."""
_FLOW_NS = 2_000_000_000
"""A flow of which nothing was said for so long is over, or its sender is away."""
_BUSY_SHARE = 0.8
"""Of a word of half a second: a flow that had data on its way for no more had nothing for a round of 100 ms."""
_DEADLINE_NS = 2_000_000_000
_SUSPENDED_NS = 60_000_000_000
"""``tcp_plb_suspend_rto_sec``: after a lost path, a flow stays where failover takes it for one to two of these."""


class HostMoves:
    """See `Remedy`: each host moves its own flows.

    Parameters:
        make: makes the policy for a flow, with what it draws by.
    """

    priority = 1
    kinds = ()
    hears_traffic = True

    def __init__(self, view: FleetView, name: str, make: MakePolicy) -> None:
        self.name = name
        self.budget = Budget(_PER_MINUTE, view.settings.nodes_at_once // 2)
        self._view = view
        self._make = make
        self._mover = Mover(view, name, "act")
        self._delays = Delays()
        self._policies: dict[str, HostPolicy] = {}
        """By flow that sends."""
        self._moving: dict[str, str] = {}
        """By flow that was told to move, the order; until its node has answered, it is not told to move again."""
        self._suspended_ns: dict[str, int] = {}
        """By flow that failover has moved, until when it is left alone."""

    def hold(self, now_ns: int) -> None:  # noqa: ARG002 - as of `Remedy`
        """Begins anew."""
        self._mover.hold()
        self._policies.clear()
        self._moving.clear()

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:  # noqa: ARG002 - likewise
        """Takes what a receiver says of its paths, which is a round of all flows that it gets."""
        if not isinstance(seen, DelayBatch):
            return []
        self._delays.take(seen, now_ns)
        if not self._view.decider.lease:
            return []
        flows = [*self._view.flows.since(now_ns - _FLOW_NS)]
        return [
            each
            for flow, history in flows if history.destination.peer == seen.node
            for each in self._round(flow, history, now_ns)
        ]  # fmt: skip

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Takes back what nobody answered."""
        made: list[Decision] = []
        for sent in overdue:
            made += self._view.fail(sent, "no answer", now_ns)
            self._mover.settle(sent, "failed", now_ns)
        self._take_answers()
        return made

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Takes back what a node did not do."""
        made = self._view.take_back(sent, outcome, now_ns)
        self._mover.settle(sent, "failed" if is_refusal(outcome) else "done", now_ns)
        self._take_answers()
        return made

    def forget(self, nics: Collection[str]) -> None:
        """Forgets the delays and flows of NICs that are gone."""
        self._delays.forget(nics)
        for memory in (self._policies, self._suspended_ns, self._moving):
            for flow in [flow for flow in memory if not {*flow.split(">")}.isdisjoint(nics)]:
                del memory[flow]

    def forget_node(self, node: str) -> None:
        """Forgets what was moved of a node that is gone."""
        self._mover.forget_node(node)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _round(self, flow: str, history: FlowHistory, now_ns: int) -> list[Decision]:
        """Lets the sender of a flow decide, unless the flow sends nothing or is on its way, or failover has moved it."""
        destination = history.destination
        if self._mover.is_moved(destination):
            chance = random.Random(f"{flow}/{now_ns}")
            self._suspended_ns[flow] = now_ns + round(_SUSPENDED_NS * chance.uniform(1, 2))
        is_left = now_ns < self._suspended_ns.get(flow, 0) or not self._view.flows.is_sending(flow, now_ns)
        if is_left:
            self._policies.pop(flow, None)
            return []
        if flow in self._moving:
            return []
        if flow not in self._policies:
            self._policies[flow] = self._make(random.Random(f"{flow}/{now_ns}"))
        way = self._view.routing.way(destination)
        entropy = self._policies[flow].decide(self._sight(history, way, now_ns))
        return [] if entropy is None else self._move(flow, destination, way, entropy, now_ns)

    def _sight(self, history: FlowHistory, way: Placement, now_ns: int) -> Sight:
        node, peer = history.destination.node, way.peer
        others = (
            entropy for entropy in range(self._view.inventory.entropies(node, peer, way.via)) if entropy != way.entropy
        )
        return Sight(
            now_ns=now_ns, present=way.entropy,
            heard=self._delays.between(nic_name(node, way.via), nic_name(peer, way.via)),
            others=tuple(
                entropy for entropy in others if self._view.selector.usable(node, _by(way, entropy), now_ns)
            ),
            pauses=history.last.limited_share <= _BUSY_SHARE,
        )  # fmt: skip

    def _move(self, flow: str, destination: Destination, way: Placement, entropy: int, now_ns: int) -> list[Decision]:
        """Orders a move as a rail's coordinator does."""
        cause = f"{flow}/{self.name}-{now_ns}"
        order = MoveOrder(
            id=cause, shard=self._view.coordination.role, rail=destination.rail, term=self._view.decider.lease,
            who=flow, cause=cause, fault=cause, issued_ns=now_ns, deadline_ns=now_ns + _DEADLINE_NS,
            moves=(HomeMove(node=destination.node, way=_by(way, entropy)),),
        )  # fmt: skip
        self._moving[flow] = order.id
        made = self._mover.take(order, now_ns)
        self._take_answers()
        return made

    def _take_answers(self) -> None:
        """Lets flows decide anew whose orders were carried out or refused."""
        answered = {answer.order for answer in self._mover.answers()}
        if answered:
            self._moving = {flow: order for flow, order in self._moving.items() if order not in answered}


def register(name: str, make: MakePolicy) -> None:
    """Adds the remedy that moves flows by a policy to those of this process."""
    remedy.register(name, functools.partial(HostMoves, name=name, make=make))


def _by(way: Placement, entropy: int) -> Placement:
    return Placement(peer=way.peer, rail=way.rail, via=way.via, entropy=entropy)
