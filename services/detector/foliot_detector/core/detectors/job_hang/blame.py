"""Whom a job waits for that hangs, by what its ranks say of their collectives and nodes of their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot.analysis.hang import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot.analysis.hang import Verdict
    from foliot_detector.core.state.training_jobs import Rank, TrainingJob
    from foliot_schemas.event import Evidence

    _Told = dict[str, float | int | str | bool]

_S = 1_000_000_000
_STANDING_NS = _S
"""A rank is blamed that did nothing while the others waited, but for so long."""
_MOST_NAMES = 64
"""Ranks that are named for one hang, and nodes in an event."""
_DOUBT = 0.5
"""Confidence where others may know better."""


class Finding(NamedTuple):
    """Who is to be named, and why."""

    who: str
    state: str
    node: str
    confidence: float
    evidence: Evidence


class _Wait(NamedTuple):
    """A job whose ranks wait."""

    job: TrainingJob
    now_ns: int
    longest_ns: int
    """For how long one of them has waited."""
    present: dict[int, Rank]
    """Those of which something is known now, by rank."""
    verdict: Verdict
    told: _Told
    """The evidence that all findings share."""


def blamed(job: TrainingJob, now_ns: int, longest_ns: int) -> list[Finding]:
    """Whom to name for a hang: those that the wait blames; else those whose process does not run; else the job.

    Parameters:
        longest_ns: for how long one of its ranks has waited.
    """
    present = {
        number: rank for number, rank in job.ranks.items() if rank.is_fresh(now_ns) or rank.state.process == "gone"
    }
    verdict = judge({number: job.record(number) for number in present}, job.size)
    told: _Told = {
        "waited_s": round(longest_ns / _S, 1), "waiting": sum(bool(rank.open) for rank in present.values()),
        "heard": len(present), "size": job.size,
    }  # fmt: skip
    wait = _Wait(job, now_ns, longest_ns, present, verdict, told)
    return [*_by_collectives(wait)] or [*_by_process(wait)] or [*_nobody(wait)]


def nodes_of(job: TrainingJob) -> tuple[str, ...]:
    """The nodes of a job, as many as an event may name."""
    return tuple(sorted({rank.node for rank in job.ranks.values()})[:_MOST_NAMES])


def _by_collectives(wait: _Wait) -> Iterator[Finding]:
    """Those that the others wait for, by where each of them stands."""
    job, verdict = wait.job, wait.verdict
    for blame in verdict.blamed[:_MOST_NAMES]:
        rank = job.ranks.get(blame.rank)
        if rank is not None and blame.why != "dead" and _was_busy(rank, wait):
            continue
        why, confidence = _why(rank, blame.why, is_certain=verdict.is_certain)
        evidence: _Told = {
            **wait.told, "group": blame.group, "collective": blame.collective, "number": blame.number,
            "certain": verdict.is_certain,
        }  # fmt: skip
        node = nodes_of(job)[0] if rank is None else rank.node
        yield Finding(_name(job, blame.rank), why, node, confidence, evidence)


def _by_process(wait: _Wait) -> Iterator[Finding]:
    """Those whose process does not run. All have begun the same, as far as is known: they may not have done their part."""
    job, awaited = wait.job, wait.verdict.awaited
    idle = [number for number, rank in sorted(wait.present.items()) if _ails(rank)]
    missed = [number for number in awaited if (rank := job.ranks.get(number)) is not None and not rank.is_over]
    if not idle and len({job.ranks[number].node for number in missed}) == 1 and len(missed) == len(awaited):
        idle = missed  # a node that is gone with all of its ranks
    for number in idle[:_MOST_NAMES]:
        rank = job.ranks[number]
        why, confidence = _why(rank, "dead", is_certain=False)
        yield Finding(_name(job, number), why, rank.node, confidence, wait.told | _place(job, rank))


def _nobody(wait: _Wait) -> Iterator[Finding]:
    """The job itself, if all of its ranks speak."""
    if len(wait.present) == wait.job.size:
        rank = max(wait.present.values(), key=lambda each: each.waited_ns(wait.now_ns))
        yield Finding(wait.job.name, "stuck", rank.node, 1.0, wait.told | _place(wait.job, rank))


def _was_busy(rank: Rank, wait: _Wait) -> bool:
    """Whether a rank whose process runs began or ended something while others waited: it does not stand still."""
    return not _ails(rank) and wait.now_ns - rank.moved_ns < wait.longest_ns - _STANDING_NS


def _ails(rank: Rank) -> str:
    """What keeps a rank's process from its work; empty: it runs, and speaks."""
    if rank.is_over:
        return "dead"
    if rank.state.process == "stopped":
        return "stopped"
    return "" if rank.is_heard else "silent"


def _why(rank: Rank | None, why: str, *, is_certain: bool) -> tuple[str, float]:
    """What is to be said of a rank that is to blame, and how sure that is: its process goes before its collectives."""
    ails = "" if rank is None else _ails(rank)
    if ails:
        return ails, _DOUBT if ails == "silent" else 1.0
    return why, 1.0 if is_certain else _DOUBT


def _place(job: TrainingJob, rank: Rank) -> _Told:
    """Where a rank stands; where another stands, if it does not wait itself."""
    at = rank.open or next((other.open for other in job.ranks.values() if other.open), ())
    return {"group": at[0].group, "collective": at[0].name, "number": at[0].number} if at else {}


def _name(job: TrainingJob, rank: int) -> str:
    return f"{job.name}/rank{rank}"
