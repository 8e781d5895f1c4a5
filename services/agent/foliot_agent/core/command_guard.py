"""Whether a command is carried out: the guards that every node keeps for itself. Pure."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.core.routing_table import RoutingTable
    from foliot_agent.settings import Policy
    from foliot_schemas import Command, Node, Outcome, Placement

_REMEMBERED = 1_024
"""Outcomes kept to answer a command that comes twice: a day's worth at the most that budgets would allow one node."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a command."""

    status: Literal["act", "advised", "refused"]
    reason: str = ""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a command is judged by."""

    layout: Layout
    peers: Mapping[str, Node]
    routing: RoutingTable
    losses: FailedLinks
    policy: Policy
    now_ns: int
    synchronised: bool
    highest_lease: int


def judge(command: Command, situation: Situation) -> Judgement:
    """Accepts a command, takes it as advice, or refuses it with the first reason found. A doubt does nothing."""
    reason = _fence(command, situation) or _names(command, situation) or _losses(command, situation)
    if reason:
        return Judgement(status="refused", reason=reason)
    if situation.policy == "off":
        return Judgement(status="refused", reason="agent.policy is off")
    if command.advice or situation.policy == "advise":
        return Judgement(status="advised", reason="advice" if command.advice else "agent.policy is advise")
    return Judgement(status="act")


def _fence(command: Command, situation: Situation) -> str:
    own = situation.layout.node.name
    if command.node != own:
        return f"it is for {command.node}, this is {own}"
    if command.lease_revision <= 0:
        return "it carries no lease revision"
    if command.lease_revision < situation.highest_lease:
        return f"its lease revision {command.lease_revision} is past: {situation.highest_lease} was seen"
    if not situation.synchronised:
        return "the node's clock is not synchronised, so its deadline cannot be checked"
    if situation.now_ns > command.deadline_ns:
        return f"its deadline was over {(situation.now_ns - command.deadline_ns) / 1e6:.1f} ms ago"
    return ""


def _names(command: Command, situation: Situation) -> str:
    rails = situation.layout.rails
    if not (command.away or command.back or command.placements):
        return "it asks for nothing"
    for rail in (*command.away, *command.back):
        if rail not in rails:
            return f"the node has no NIC on {rail}"
    if both := sorted(set(command.away) & set(command.back)):
        return f"it sends {', '.join(both)} away and back at once"
    return next(filter(None, (unknown(placement, situation) for placement in command.placements)), "")


def unknown(placement: Placement, situation: Situation) -> str:
    """What of a placement the node does not know; empty if it knows all of it."""
    peer = situation.peers.get(placement.peer)
    if peer is None:
        return f"{placement.peer} is not in the inventory"
    for rail in (placement.rail, placement.via):
        if rail not in situation.layout.rails:
            return f"the node has no NIC on {rail}"
        if rail not in {nic.rail for nic in peer.nics}:
            return f"{placement.peer} has no NIC on {rail}"
    entropies = min(len(situation.layout.node.nic(placement.via).entropies), len(peer.nic(placement.via).entropies))
    if not 0 <= placement.entropy < entropies:
        return f"{placement.via} has {entropies} entropies, there is no number {placement.entropy}"
    return ""


def _losses(command: Command, situation: Situation) -> str:
    losses, routing = situation.losses, situation.routing
    for rail in command.back:
        if rail in losses.own:
            return f"the node's own NIC on {rail} is lost"
    for rail in command.away:
        if rail not in routing.away and not routing.can_leave(rail, losses.dead):
            return f"{rail} cannot be left: no backup that is alive is armed for any of its addresses"
    for placement in command.placements:
        if placement.via in losses.own:
            return f"the node's own NIC on {placement.via} is lost"
        told_ns = losses.told_ns(placement.peer, placement.via)
        if told_ns is not None and command.issued_ns <= told_ns:
            return f"{placement.peer} has said since that its NIC on {placement.via} is lost"
    return ""


class OutcomeCache:
    """Outcomes by command: the same command twice gets the same answer and does nothing twice.

    Parameters:
        earlier: what an earlier run of the agent answered.
    """

    def __init__(self, earlier: Iterable[Outcome] = ()) -> None:
        self._outcomes: collections.OrderedDict[str, Outcome] = collections.OrderedDict()
        for outcome in earlier:
            self.keep(outcome)

    def get(self, command: str) -> Outcome | None:
        """The answer given before, if any."""
        return self._outcomes.get(command)

    def keep(self, outcome: Outcome) -> None:
        """Remembers an answer."""
        self._outcomes[outcome.command] = outcome
        if len(self._outcomes) > _REMEMBERED:
            self._outcomes.popitem(last=False)
