"""The rows of single faults and of runs with many failures, and what they come to. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import msgspec

from bench.figures import median, most
from bench.goal import Goal
from bench.ranks.draw import CASES, JOB
from foliot_lab.report.job_report import JobReport  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.report.replacement_report import ReplacementReport  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.ranks.draw import Lab, Trial
    from bench.ranks.failures import Outcome

_STEADY_SHARE = 0.8
"""State that goes at such a share of the link's rate goes at line rate: the rest is headers, acknowledgements, and the
start of the connection."""
_BITS = 8
_NO_SPARE = "no-spare"


class FoundFault(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of a fault."""

    id: str
    injected_ns: int
    detected_ns: int | None
    ranks: list[int] = []


class FoundMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of the machine."""

    idle_cpu: float
    stolen_cpu: float


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What rows need of a report."""

    faults: list[FoundFault]
    jobs: list[JobReport]
    replacements: list[ReplacementReport]
    machine: FoundMachine


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that took a rank, or one run with many failures; what does not apply is null."""

    fault: str
    """Its kind, or ``failures``: of a given number; or ``lasting``: for as long as the job ran."""
    tool: str
    rep: int
    """The seed."""
    id: str = ""
    """Of the fault in its run."""
    rank: int | None = None
    planned: bool | None = None
    """Whether the ranks left at the end of a step."""
    stall_s: float | None = None
    """The longest time without a step, less a usual one. Of many failures, the longest of them."""
    detect_s: float | None = None
    """From the fault to the first event about it."""
    command_s: float | None = None
    """From the event to the command; of what was planned, too."""
    copy_s: float | None = None
    copy_mbps: float | None = None
    lost_steps: int | None = None
    loss_equal: bool | None = None
    """Whether all losses were those of a run that lost no rank, to the bit; null: that run has too few steps."""
    total_s: float | None = None
    lost_work_s: float | None = None
    restart_s: float | None = None
    import_s: float | None = None
    failures: int = 1
    goodput: float | None = None
    samples_lost: int | None = None
    last_loss: float | None = None
    steps: int | None = None
    step_s: float | None = None
    calm_step_s: float | None = None
    loading_s: float | None = None
    number: int | None = None
    """Of an XID."""
    went_on: bool
    """Whether the rank went to a spare, or the run did all its steps."""
    said: str = ""
    """What speaks against it, by Foliot's word."""
    idle_cpu: float
    stolen_cpu: float


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """How a run's losses differ from those of one that lost no rank."""

    known: int
    """Steps that both have."""
    differs: int | None
    """The first step with another loss."""

    def equal(self, since: int, until: int) -> bool | None:
        """Whether the losses of some steps are the same; null: that is not known."""
        if self.differs is not None and self.differs < until:
            return False
        return None if until > self.known or since >= self.known else True


def rows_of(lab: Lab, seed: int, found: Found, steps_at: Sequence[int], losses: Losses) -> list[Row]:
    """The rows of a lab, one a fault that took a rank while a spare was free.

    Parameters:
        steps_at: how many steps the job had done at each fault, and at the end.
        losses: of the run.
    """
    faults = {fault.id: fault for fault in found.faults}
    return [
        _row(trial, seed, found, faults[trial.id], losses.equal(steps_at[number], steps_at[number + 1]))
        for number, trial in enumerate(lab.trials)
        if trial.id in faults and faults[trial.id].ranks and not _has_no_spare(found, trial)
    ]


def _has_no_spare(found: Found, trial: Trial) -> bool:
    """Whether the lab had no spare for a fault: the process of an earlier one was not there again."""
    own = [each for each in found.replacements if each.fault == trial.id and each.job == JOB]
    return bool(own) and own[0].to is None and own[0].refused == _NO_SPARE


def _row(trial: Trial, seed: int, found: Found, fault: FoundFault, equal: bool | None) -> Row:
    own = [each for each in found.replacements if each.fault == trial.id and each.job == JOB]
    taken = [each for each in own if each.to is not None and each.first_step_ns is not None]
    refused = sorted({each.refused for each in own if each.refused})
    idle: dict[str, Any] = {
        "idle_cpu": round(found.machine.idle_cpu, 3),
        "stolen_cpu": round(found.machine.stolen_cpu, 3),
    }
    if not taken:
        return Row(
            fault=trial.case, tool="foliot", rep=seed, id=trial.id, rank=fault.ranks[0], number=trial.number,
            loss_equal=equal, went_on=False, said="; ".join(refused) or "no replacement was ordered", **idle,
        )  # fmt: skip
    last = taken[-1]
    copy_s = (
        None if None in (last.formed_ns, last.copied_ns) else ((last.copied_ns or 0) - (last.formed_ns or 0)) * 1e-9
    )
    detected_s = None if fault.detected_ns is None else (fault.detected_ns - fault.injected_ns) * 1e-9
    since_ns = fault.detected_ns or fault.injected_ns
    return Row(
        fault=trial.case, tool="foliot", rep=seed, id=trial.id, rank=last.rank, planned=last.planned,
        number=trial.number, stall_s=round(max(each.stall_ms for each in taken) * 1e-3, 3),
        detect_s=None if detected_s is None else round(detected_s, 3),
        command_s=round((own[0].decided_ns - since_ns) * 1e-9, 3),
        copy_s=None if copy_s is None else round(copy_s, 3),
        copy_mbps=None if not copy_s or last.state_mb is None else round(last.state_mb * _BITS / copy_s, 1),
        lost_steps=sum(each.lost_steps for each in taken), loss_equal=equal, went_on=True, said="; ".join(refused), **idle,
    )  # fmt: skip


def row_of(outcome: Outcome, losses: Losses) -> Row:
    """The row of a run with many failures."""
    trial, made = outcome.trial, outcome.account
    idle = {"idle_cpu": outcome.idle_cpu, "stolen_cpu": outcome.stolen_cpu}
    common: dict[str, Any] = {
        "fault": "lasting" if trial.failures is None else "failures", "tool": trial.tool, "rep": trial.rep, "failures": outcome.failures,
        "went_on": outcome.finished, **idle,
    }  # fmt: skip
    if made is None:
        return Row(**common, said="it did no two steps")
    return Row(
        **common, stall_s=made.longest_s, lost_steps=made.lost_steps, loss_equal=losses.equal(0, made.steps),
        total_s=made.total_s, lost_work_s=made.lost_work_s, restart_s=made.restart_s, import_s=made.import_s,
        goodput=made.goodput, samples_lost=made.samples_lost, last_loss=made.last_loss, steps=made.steps,
        step_s=made.step_s, calm_step_s=made.calm_step_s, loading_s=made.loading_s,
    )  # fmt: skip


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one kind."""

    fault: str
    n: int
    went_on: int
    loss_equal: int
    loss_unknown: int
    lost_steps: int
    stall_p50_s: float | None
    stall_max_s: float | None
    command_p50_s: float | None
    command_max_s: float | None
    copy_p50_s: float | None
    copy_mbps_p50: float | None


def by_case(rows: Sequence[Row]) -> list[Sum]:
    """A line for each kind of single faults that there is."""
    return [
        Sum(
            fault=case, n=len(own), went_on=sum(row.went_on for row in own),
            loss_equal=sum(row.loss_equal is True for row in own),
            loss_unknown=sum(row.loss_equal is None for row in own), lost_steps=sum(row.lost_steps or 0 for row in own),
            stall_p50_s=median(row.stall_s for row in own), stall_max_s=most(row.stall_s for row in own),
            command_p50_s=median(row.command_s for row in own), command_max_s=most(row.command_s for row in own),
            copy_p50_s=median(row.copy_s for row in own), copy_mbps_p50=median(row.copy_mbps for row in own),
        )
        for case in CASES
        if (own := [row for row in rows if row.fault == case])
    ]  # fmt: skip


def goals(rows: Sequence[Row], link_mbps: float) -> list[Goal]:
    """The goals of single faults, and of many failures. Who was not replaced has no stall, and counts as endless."""
    single = [row for row in rows if row.fault in CASES]
    made = _single(single, link_mbps) if single else []
    for fault, what in (("failures", "many failures"), ("lasting", "failures without an end")):
        of_tool = {tool: [row for row in rows if row.fault == fault and row.tool == tool and row.went_on and row.total_s]
                   for tool in ("foliot", "torchrun")}  # fmt: skip
        pairs = [
            (one.total_s or 0.0) / (other.total_s or 1.0)
            for one in of_tool["foliot"]
            for other in of_tool["torchrun"]
            if one.rep == other.rep
        ]
        if pairs:
            share = statistics.median(pairs)
            made.append(Goal(f"{what}: at most half of torchrun's time", len(pairs), f"{share:.2f}", share <= 0.5))
    return made


def _single(rows: Sequence[Row], link_mbps: float) -> list[Goal]:
    went_on = [row for row in rows if row.went_on]
    judged = [row for row in went_on if row.loss_equal is not None]
    equal = sum(row.loss_equal is True for row in judged)
    lost = sum(row.lost_steps or 0 for row in went_on)
    made = [
        Goal("the rank goes to a spare", len(rows), str(len(went_on)), len(went_on) == len(rows)),
        Goal("losses equal to the bit", len(judged), str(equal), bool(judged) and equal == len(judged)),
        Goal("no step is lost", len(went_on), f"{lost} lost", not lost),
    ]
    unplanned = [row for row in rows if not (row.planned if row.planned is not None else row.fault == "drain")]
    planned = [row for row in rows if row not in unplanned]
    if unplanned:
        stalls = [_endless(row) for row in unplanned]
        made += [
            Goal("unplanned: stall at most 5 s in the median", len(stalls), f"{statistics.median(stalls):.2f} s", statistics.median(stalls) <= 5.0),
            Goal("unplanned: stall at most 8 s", len(stalls), f"{max(stalls):.2f} s", max(stalls) <= 8.0),
        ]  # fmt: skip
    if planned:
        stalls = [_endless(row) for row in planned]
        rates = [row.copy_mbps for row in planned if row.copy_mbps is not None]
        made.append(Goal("planned: stall at most 1 s in the median", len(stalls), f"{statistics.median(stalls):.2f} s", statistics.median(stalls) <= 1.0))  # fmt: skip
        if rates:
            rate = statistics.median(rates)
            made.append(Goal("planned: state at line rate", len(rates), f"{rate:.0f} Mb/s of {link_mbps:g}", rate >= _STEADY_SHARE * link_mbps))  # fmt: skip
    xids = [row.command_s for row in rows if row.fault == "xid" and row.command_s is not None]
    if xids:
        made.append(Goal("xid: command within 1 s", len(xids), f"{max(xids):.2f} s", max(xids) <= 1.0))
    return made


def _endless(row: Row) -> float:
    return float("inf") if row.stall_s is None else row.stall_s
