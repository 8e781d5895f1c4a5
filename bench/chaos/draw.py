"""Draws the actions of a round, from the seed and its number alone, so that rounds may be run in any pieces."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.scenario.topology import FabricPlan

Victim = Literal["probe", "agent", "sync", "detector", "remediator", "gateway", "nats", "nats-member"]
Means = Literal["SIGKILL", "SIGSTOP", "SIGTERM"]
Moment = Literal["before", "event", "command", "restore"]
FaultName = Literal["carrier", "silent"]

SERVICES: tuple[Victim, ...] = ("probe", "agent", "sync", "detector", "remediator", "gateway")
_ON_A_NODE = {"probe", "agent"}
_SHORTEST_STOP_S, _LONGEST_STOP_S = 0.3, 3.0
_MOST_BEFORE_S = 0.5
_MOST_LATE_S = 0.02
"""The greatest delay after the awaited event. An event and its command are a few milliseconds apart."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round: a fault and a victim."""

    number: int
    fault: FaultName
    nic: str
    victim: Victim
    process: str
    """The process to strike. Empty for a member of the bus cluster that leads a stream: the round finds out which
    one that is."""
    means: Means
    stopped_s: float
    moment: Moment
    delay_s: float
    """The delay after the moment or, if that is before the fault, ahead of it."""
    fresh_nic: str
    """The NIC that loses its carrier afterwards, to show that Foliot works."""


def draw(seed: int, number: int, victims: Sequence[Victim], plan: FabricPlan) -> Round:
    """The round of this number. Each victim has its turn; chance decides the rest."""
    chance = random.Random(f"{seed}/{number}")
    nics = [f"{host}.{rail}" for host in plan.hosts for rail in plan.rails]
    victim, nic = victims[number % len(victims)], chance.choice(nics)
    # Half the time on the node that has the fault, else on one of its peers.
    node = nic.partition(".")[0] if chance.random() < 0.5 else chance.choice(plan.hosts)
    servers = [name for name in plan.central if name.startswith("nats")]
    member = chance.choice([*servers, ""])
    process = {"nats": servers[0], "nats-member": member}.get(victim, victim)
    moment: Moment = chance.choice(("before", "event", "command", "restore"))
    return Round(
        number=number,
        fault=chance.choice(("carrier", "silent")),
        nic=nic,
        victim=victim,
        process=f"{node}/{victim}" if victim in _ON_A_NODE else process,
        means=chance.choice(("SIGKILL", "SIGSTOP", "SIGTERM")),
        stopped_s=round(chance.uniform(_SHORTEST_STOP_S, _LONGEST_STOP_S), 2),
        moment=moment,
        delay_s=round(chance.uniform(0.0, _MOST_BEFORE_S if moment == "before" else _MOST_LATE_S), 4),
        fresh_nic=chance.choice(nics),
    )
