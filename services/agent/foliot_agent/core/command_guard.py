"""Whether a command is carried out: the guards that every node keeps for itself. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_agent.settings import Policy
    from foliot_schemas import Command


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The decision on a command."""

    status: Literal["act", "advised", "refused"]
    reason: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The facts by which a command is judged, whatever its verb."""

    node: str
    policy: Policy
    now_ns: int
    synchronised: bool
    highest_lease: int


def judge(command: Command, standing: Standing, object_to: Callable[[Command], str]) -> Judgement:
    """Accepts a command, takes it as advice, or refuses it with the first reason found. A doubt does nothing.

    Parameters:
        object_to: the objection to its order; empty: none.
    """
    if reason := _fence(command, standing) or object_to(command):
        return Judgement(status="refused", reason=reason)
    if standing.policy == "off":
        return Judgement(status="refused", reason="agent.policy is off")
    if command.advice or standing.policy == "advise":
        return Judgement(status="advised", reason="advice" if command.advice else "agent.policy is advise")
    return Judgement(status="act")


def _fence(command: Command, standing: Standing) -> str:
    own = standing.node
    if command.node != own:
        return f"it is for {command.node}, this is {own}"
    if command.lease_revision <= 0:
        return "it carries no lease revision"
    if command.lease_revision < standing.highest_lease:
        return f"its lease revision {command.lease_revision} is past: {standing.highest_lease} was seen"
    if not standing.synchronised:
        return "the node's clock is not synchronised, so its deadline cannot be checked"
    if standing.now_ns > command.deadline_ns:
        return f"its deadline was over {(standing.now_ns - command.deadline_ns) / 1e6:.1f} ms ago"
    return ""
