"""Whom a job waits for that hangs, by what its ranks say of their collectives and nodes of their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot.analysis.hang import judge
from foliot_detector.core.detectors.job_hang.finding import DOUBT, MOST_NAMES, Finding, S, name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot.analysis.hang import Verdict
    from foliot_detector.core.detectors.job_hang.finding import Told
    from foliot_detector.core.state.training_jobs import Rank, TrainingJob

_STANDING_NS = S
"""A rank is blamed that did nothing while the others waited, but for so long."""


class _Wait(NamedTuple):
    """A job whose ranks wait."""

    job: TrainingJob
    now_ns: int
    longest_ns: int
    """For how long one of them has waited."""
    present: dict[int, Rank]
    """Those of which something is known now, by rank."""
    verdict: Verdict
    told: Told
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
    told: Told = {
        "waited_s": round(longest_ns / S, 1), "waiting": sum(bool(rank.open) for rank in present.values()),
        "heard": len(present), "size": job.size,
    }  # fmt: skip
    wait = _Wait(job, now_ns, longest_ns, present, verdict, told)
    return [*_by_collectives(wait)] or [*_by_process(wait)] or [*_nobody(wait)]


def _nodes(job: TrainingJob) -> tuple[str, ...]:
    """The nodes of a job, as many as an event may name."""
    return tuple(sorted({rank.node for rank in job.ranks.values()})[:MOST_NAMES])


def _finding(wait: _Wait, who: str, node: str, judged: tuple[str, float], evidence: Told) -> Finding:
    at_ns = wait.job.at_ns(node, wait.now_ns)
    nodes = (node,) if who != wait.job.name else _nodes(wait.job)
    state, confidence = judged
    return Finding(who, state, nodes, at_ns, at_ns - wait.longest_ns, confidence, evidence)


def _by_collectives(wait: _Wait) -> Iterator[Finding]:
    """Those that the others wait for, by where each of them stands."""
    job, verdict = wait.job, wait.verdict
    for blame in verdict.blamed[:MOST_NAMES]:
        rank = job.ranks.get(blame.rank)
        if rank is not None and blame.why != "dead" and _was_busy(rank, wait):
            continue
        judged = _why(rank, blame.why, is_certain=verdict.is_certain)
        evidence: Told = {
            **wait.told, "group": blame.group, "collective": blame.collective, "number": blame.number,
            "certain": verdict.is_certain,
        }  # fmt: skip
        node = _nodes(job)[0] if rank is None else rank.node
        yield _finding(wait, name(job.name, blame.rank), node, judged, evidence)


def _by_process(wait: _Wait) -> Iterator[Finding]:
    """Those whose process does not run. All have begun the same, as far as is known: they may not have done their part."""
    job, awaited = wait.job, wait.verdict.awaited
    idle = [number for number, rank in sorted(wait.present.items()) if _ails(rank)]
    missed = [number for number in awaited if (rank := job.ranks.get(number)) is not None and not rank.is_over]
    if not idle and len({job.ranks[number].node for number in missed}) == 1 and len(missed) == len(awaited):
        idle = missed  # a node that is gone with all of its ranks
    for number in idle[:MOST_NAMES]:
        rank = job.ranks[number]
        yield _finding(
            wait, name(job.name, number), rank.node, _why(rank, "dead", is_certain=False), wait.told | _place(job, rank)
        )


def _nobody(wait: _Wait) -> Iterator[Finding]:
    """The job itself, if all of its ranks speak."""
    if len(wait.present) == wait.job.size:
        rank = max(wait.present.values(), key=lambda each: each.waited_ns(wait.now_ns))
        yield _finding(wait, wait.job.name, rank.node, ("stuck", 1.0), wait.told | _place(wait.job, rank))


def _was_busy(rank: Rank, wait: _Wait) -> bool:
    """Whether a rank whose process runs began or ended something while others waited: it does not stand still.

    Nor does one whose group failed or forms.
    """
    is_late = wait.now_ns - rank.moved_ns >= wait.longest_ns - _STANDING_NS
    return not _ails(rank) and (rank.is_paused or not is_late)


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
        return ails, DOUBT if ails == "silent" else 1.0
    return why, 1.0 if is_certain else DOUBT


def _place(job: TrainingJob, rank: Rank) -> Told:
    """Where a rank stands; where another stands, if it does not wait itself."""
    at = rank.open or next((other.open for other in job.ranks.values() if other.open), ())
    return {"group": at[0].group, "collective": at[0].name, "number": at[0].number} if at else {}
