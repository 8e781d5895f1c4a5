"""Draws labs from seeds: what befalls a training job, one thing after the other, with a rest after each."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec

from foliot_lab.scenario.spec import ClockSpec, FabricSpec, FaultSpec, JobSpec, Scenario, WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.scenario.spec import FaultKind

Case = Literal["compute", "data", "halted", "network", "clean", "long-step", "all-slow", "hang", "stop", "mismatch"]
CASES: tuple[Case, ...] = get_args(Case)
SLOW: tuple[Case, ...] = ("compute", "data", "halted", "network")
"""A rank is slow, and is to be named for this cause."""
ALIKE: tuple[Case, ...] = ("clean", "long-step", "all-slow")
"""Nobody is to be named."""
HUNG: tuple[Case, ...] = ("hang", "stop", "mismatch")
"""A rank holds up all others, and is to be named."""
HOSTS = 4
JOB = "pretrain"
_FIRST_S, _LASTS_S, _RESTS_S = 8.0, 12.0, 8.0
_TAIL_S = 4.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that befalls the job."""

    case: Case
    at_s: float
    for_s: float
    rank: int | None
    """Null: no rank is at fault."""
    fault: str | None
    """The id of its fault; null: nothing is done."""


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the lab, and its trials in their order."""

    scenario: Scenario
    trials: tuple[Trial, ...]


def cases(seed: int, only: Sequence[Case], count: int) -> list[Case]:
    """The cases of a lab's trials. By default half of them have a slow rank, drawn like the others.

    A mismatch ends the job, so it comes last, and once.
    """
    draw = random.Random(f"{seed}/cases")
    if only:
        drawn = [draw.choice(only) for _ in range(count)]
    else:
        slow = [SLOW[(seed + number) % len(SLOW)] for number in range((count + 1) // 2)]
        drawn = [*slow, *(draw.choice(ALIKE) for _ in range(count // 2))]
        draw.shuffle(drawn)
    last = "mismatch" in drawn
    return [case for case in drawn if case != "mismatch"] + (["mismatch"] if last else [])


def draw(seed: int, only: Sequence[Case], count: int) -> Lab:
    """The lab of a seed."""
    rng = random.Random(f"{seed}/ranks")
    faults: list[FaultSpec] = []
    trials: list[Trial] = []
    at_s = _FIRST_S
    paused: set[int] = set()
    for case in cases(seed, only, count):
        # One that went on by itself is given longer the next time, so each pauses once.
        rank = rng.choice([each for each in range(HOSTS) if case != "hang" or each not in paused] or [*range(HOSTS)])
        paused |= {rank} if case in {"hang", "long-step"} else set()
        for_s = round(rng.uniform(0.8, 1.0) * _LASTS_S, 1)
        done = _done(case, rank, rng)
        fault = None
        if done is not None:
            for_s = done.for_s or for_s
            fault = FaultSpec(
                id=f"f{len(faults) + 1}", at_s=at_s, kind=done.kind, where=done.where,
                for_s=None if case == "mismatch" else for_s, share=done.share, ms=done.ms, mbps=done.mbps,
            )  # fmt: skip
            faults.append(fault)
        trials.append(
            Trial(
                case=case, at_s=at_s, for_s=for_s, rank=rank if case in SLOW + HUNG else None,
                fault=None if fault is None else fault.id,
            )
        )  # fmt: skip
        at_s = round(at_s + for_s + _RESTS_S + rng.uniform(0.0, 1.0), 2)
    job = JobSpec(name=JOB, kind="train", use="foliot", gradient_mb=2.0, seed=rng.getrandbits(31))
    scenario = Scenario(
        fabric=FabricSpec(hosts=HOSTS, rails=1), clock=ClockSpec(seed=seed), workload=WorkloadSpec(kind="none"),
        jobs=(job,), faults=tuple(faults), duration_s=at_s + _TAIL_S,
    )  # fmt: skip
    return Lab(scenario=scenario, trials=tuple(trials))


class _Done(NamedTuple):
    """What is done to the lab."""

    kind: FaultKind
    where: str
    share: float | None = None
    ms: float | None = None
    mbps: float | None = None
    for_s: float | None = None
    """None: as long as any other trial."""


def _done(case: Case, rank: int, rng: random.Random) -> _Done | None:
    """What is done in a case; None: nothing."""
    if case == "clean":
        return None
    where = f"node{rank}/rank"
    of_case = {
        "compute": _Done("compute-slow", where, ms=round(rng.uniform(40.0, 160.0), 1)),
        "halted": _Done("throttle", where, share=round(rng.uniform(0.6, 0.85), 2)),
        "data": _Done("data-slow", where, ms=round(rng.uniform(40.0, 160.0), 1)),
        "long-step": _Done("hang", where, for_s=round(rng.uniform(0.5, 1.5), 2)),
        "all-slow": _Done("cpu", f"node{rank}", share=round(rng.uniform(0.3, 0.5), 2)),
        "network": _Done("rate", f"node{rank}.rail0", mbps=round(rng.uniform(80.0, 150.0), 1)),
        "hang": _Done("hang", where),
        "stop": _Done("stop", where),
        "mismatch": _Done("mismatch", where),
    }
    return of_case[case]
