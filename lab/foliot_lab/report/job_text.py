"""The report on jobs as text, for the terminal and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.scenario.promises import BREAKS
from foliot_lab.workload.train.places import at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from foliot_lab.report.job_report import JobReport
    from foliot_lab.report.report import FaultReport
    from foliot_lab.workload.train.record import Death, TrainReport

_FATAL = frozenset({"kill", "mismatch", BREAKS})
"""Kinds of fault that end a rank by themselves, done to it or to its host. Nothing starts a job again, so it ends with
the rank."""
_HOLD_UP = frozenset({"stop", "hang", "mismatch"})
"""Kinds that hold up the job while they last, done to a rank."""


def finding(
    fault: FaultReport, *, is_replaced: bool = False, taken: Collection[str] = ()
) -> Iterator[tuple[bool, str]]:
    """A finding on the job beside a fault: whether it is right, and its sentence; nothing without a job.

    Parameters:
        is_replaced: a spare is free for each rank that the fault takes from the job, which is to go on. It takes none
            where it breaks the group.
        taken: places from which other faults take ranks of a job that goes on without them.
    """
    seen = fault.train
    if seen is None:
        return
    deaths = [death for death in seen.deaths if not any(at(where, [death.node]) for where in taken)]
    if is_replaced:
        strangers = [death for death in deaths if fault.kind == BREAKS or not at(fault.where, [death.node])]
        if strangers:
            yield False, dead(strangers)
        elif seen.stuck:
            yield False, "the job made no step any more"
        else:
            yield True, "the job went on"
    elif deaths:
        yield ends_the_job(fault), dead(deaths)
    elif seen.longest is None:
        yield not seen.stuck, "the job made no step any more" if seen.stuck else "the job was not at any step"
    elif seen.stuck and "/rank" in fault.where and fault.kind in _HOLD_UP:
        yield True, f"no rank died, and step {seen.longest.step} waited for it for {seen.longest.ms * 1e-3:.0f} s"
    elif seen.stuck and not seen.longest.done:
        step = seen.longest
        yield False, f"no rank died, but step {step.step} of {step.node} was not over after {step.ms * 1e-3:.0f} s"
    else:
        before = "" if seen.before_ms is None else f" (before, in the median {seen.before_ms:.0f} ms)"
        stands = ", but the job made no step any more" if seen.stuck else ""
        yield not seen.stuck, f"no rank died, no step took longer than {seen.longest.ms:.0f} ms{before}{stands}"


def ends_the_job(fault: FaultReport) -> bool:
    """Whether no job of this kind survives a fault."""
    dead_ones = [death.node for death in (fault.train.deaths if fault.train else ())]
    return fault.kind in _FATAL and bool(at(fault.where, dead_ones))


def dead(deaths: list[Death]) -> str:
    """The rank that died first, its error, and the number of others."""
    first = min(deaths, key=lambda death: death.at_ns)
    more = f", and {len(deaths) - 1} more after it" if len(deaths) > 1 else ""
    return f"the rank of {first.node} died{more}: {first.reason}"


def summary(job: TrainReport) -> str:
    """The job's line under the verdict."""
    words = [f"job: {job.steps} steps of {job.ranks} ranks"]
    if job.asked is not None:
        words[0] = f"job: {job.steps} of {job.asked} steps of {job.ranks} ranks"
    if job.step_ms is not None and job.comm_ms is not None:
        words.append(f"{job.step_ms:.0f} ms each in the median, {job.comm_ms:.0f} ms of it all-reduce")
    if job.longest is not None:
        words.append(
            f"the longest {job.longest.ms:.0f} ms (step {job.longest.step} of {job.longest.node}, at "
            f"{job.longest_at_s:.1f} s)"
        )
    if job.lost_steps:
        words.append(f"{job.lost_steps} were done again")
    if job.first_loss is not None and job.last_loss is not None:
        words.append(f"loss from {job.first_loss:.3f} to {job.last_loss:.3f}")
    return "; ".join(words)


def told(job: JobReport) -> str:
    """One job's line under the verdict: its step and its slowest flow, alone and beside the others."""
    words = []
    if job.step_ms is not None:
        alone = "" if job.solo_step_ms is None else f" (alone, {job.solo_step_ms:.0f} ms)"
        words.append(f"{job.steps} steps, {job.step_ms:.0f} ms each in the median{alone}")
    if job.mbps is not None:
        alone = "" if job.solo_mbps is None else f" (alone, {job.solo_mbps:.0f})"
        words.append(f"{job.mbps:.0f} Mb/s{alone}")
    slowest = min(
        (flow for flow in job.flows if flow.share is not None), key=lambda flow: flow.share or 0, default=None
    )
    if slowest is not None:
        words.append(f"the slowest flow, {slowest.id}, had {slowest.share:.0%} of its rate alone")
    return f"job {job.name}: {'; '.join(words) or 'it did not run'}"
