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


def judge(
    command: Command,
    object_to: Callable[[Command], str],
    *,
    node: str,
    policy: Policy,
    now_ns: int,
    synchronised: bool,
    highest_lease: int,
) -> Judgement:
    """Accepts a command, takes it as advice, or refuses it with the first reason found. A doubt does nothing.

    Parameters:
        object_to: the objection to its order; empty: none.
    """
    if command.node != node:
        reason = f"it is for {command.node}, this is {node}"
    elif command.lease_revision <= 0:
        reason = "it carries no lease revision"
    elif command.lease_revision < highest_lease:
        reason = f"its lease revision {command.lease_revision} is past: {highest_lease} was seen"
    elif not synchronised:
        reason = "the node's clock is not synchronised, so its deadline cannot be checked"
    elif now_ns > command.deadline_ns:
        reason = f"its deadline was over {(now_ns - command.deadline_ns) / 1e6:.1f} ms ago"
    else:
        reason = object_to(command) or ("agent.policy is off" if policy == "off" else "")
    if reason:
        return Judgement(status="refused", reason=reason)
    if command.advice or policy == "advise":
        return Judgement(status="advised", reason="advice" if command.advice else "agent.policy is advise")
    return Judgement(status="act")
