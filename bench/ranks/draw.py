"""Draws labs from seeds: what takes a rank away from a training job, one thing after the other, with a rest after each.

Foliot chooses the spare, so nobody knows beforehand which hosts have ranks later on. A fault is drawn of those hosts
that most likely have one. One that hits none takes no rank, and makes no row.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from foliot_lab.scenario.spec import ClockSpec, FabricSpec, FaultSpec, JobSpec, Scenario, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

Case = Literal["kill", "stop", "cut-off", "drain", "xid"]
CASES: tuple[Case, ...] = get_args(Case)
RANKS, SPARES = 4, 2
HOSTS = RANKS + SPARES
JOB = "pretrain"
GRADIENT_MB = 2.0
XIDS_FAILED, XIDS_DEGRADED = (48, 79, 95, 119, 140), (64, 74, 156)
"""Some after which ranks go at once, and some after which they go at the end of a step."""
_FIRST_S = 5.0
_LASTS_S: dict[Case, float | None] = {"kill": 1.0, "stop": 8.0, "cut-off": 9.0, "drain": 6.0, "xid": None}
_REPLACED_S = 4.0
"""After a fault that is over at once, or never: until the rank went on elsewhere."""
_WAITS_S = 32.0
"""A process that was cut off hears of no order, waits for one, and then ends."""
_TAIL_S = 2.0
_LONG_AGO = 3
"""So many hosts that were hit longest ago have ranks with most likelihood."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One fault."""

    id: str
    case: Case
    number: int | None
    """Of an XID."""


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the lab, and its faults in their order."""

    scenario: Scenario
    trials: tuple[Trial, ...]


def cases(seed: int, only: Sequence[Case], count: int) -> list[Case]:
    """The kinds of a lab's faults: each as often as any other, by the labs together.

    No host is used again after an XID, so at most as many as there are spares come, and last. Hosts that were cut off
    have a spare late, so these come right before.
    """
    among = list(only) or list(CASES)
    drawn = [among[(seed * count + number) % len(among)] for number in range(count)]
    others: list[Case] = [case for case in among if case != "xid"]
    for number, case in enumerate(drawn):
        if case == "xid" and drawn[:number].count("xid") >= SPARES:
            drawn[number] = others[number % len(others)] if others else "xid"
    drawn = drawn if others else drawn[:SPARES]
    random.Random(f"{seed}/cases").shuffle(drawn)
    return sorted(drawn, key=lambda case: (case == "xid", case == "cut-off"))


def draw(seed: int, only: Sequence[Case], count: int, job_seed: int, rest_s: float = 8.0) -> Lab:
    """The lab of a seed.

    Parameters:
        count: of its faults.
        rest_s: from the end of a fault to the next. In it the lost process comes back as a spare.
    """
    rng = random.Random(f"{seed}/ranks")
    faults: list[FaultSpec] = []
    trials: list[Trial] = []
    at_s = _FIRST_S
    spared = [f"node{host}" for host in range(RANKS, HOSTS)]
    waiting = [f"node{host}" for host in range(RANKS)]
    rng.shuffle(waiting)
    waiting += spared  # in the order in which they were hit
    for case in cases(seed, only, count):
        host = waiting.pop(rng.randrange(min(_LONG_AGO, len(waiting) - SPARES)) if len(waiting) > SPARES else 0)
        number = None
        if case == "xid":
            number = rng.choice(rng.choice((XIDS_FAILED, XIDS_DEGRADED)))
        else:
            waiting.append(host)
        name = f"f{len(faults) + 1}"
        faults.append(
            FaultSpec(
                id=name, at_s=at_s, kind=case, where=f"{host}/rank" if case in {"kill", "stop"} else host,
                for_s=_LASTS_S[case], number=number,
            )
        )  # fmt: skip
        trials.append(Trial(id=name, case=case, number=number))
        at_s = round(
            at_s
            + max(_REPLACED_S, _LASTS_S[case] or 0.0)
            + rest_s
            + (_WAITS_S if case == "cut-off" else 0.0)
            + rng.uniform(0.0, 1.0),
            2,
        )
    job = JobSpec(name=JOB, kind="train", use="foliot", gradient_mb=GRADIENT_MB, seed=job_seed, spares=SPARES)
    return Lab(
        scenario=Scenario(
            fabric=FabricSpec(hosts=HOSTS, rails=1, spines=2), clock=ClockSpec(seed=seed),
            workload=WorkloadSpec(kind="none"), jobs=(job,), faults=tuple(faults), duration_s=at_s + _TAIL_S,
        ),
        trials=tuple(trials),
    )  # fmt: skip
