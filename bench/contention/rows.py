"""The row of a trial, from the report of the lab that ran it. Pure.

The lab says what is true: of an event whether it is right, and of flows which of them shared a full fabric link.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bench.contention.draw import CONTENTION, NOTHING, OF_HOSTS, Policy
from bench.figures import least
from foliot_lab.report.contended import Contended  # noqa: TC001 - msgspec reads annotations at run time
from foliot_lab.report.contention_report import ContentionReport, MoveReport  # noqa: TC001 - likewise
from foliot_lab.report.job_report import JobReport  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.contention.draw import Trial

BUSY = 0.2
"""A run that leaves less of the processors idle is one of a machine that had something else to do."""
_LAST_S = 10
"""Seconds of the end of a run in which each flow should have what it could have."""

LeftOut = Literal["", "busy", "not as drawn", "unplaced", "not carried", "no report"]
"""Why a row counts for no goal: the machine had less than `BUSY` left; flows did not share links as the case has it, or
no entropies would make them; the machine cannot carry the lab; or the lab ended without a report."""


class FoundFault(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of a fault."""

    id: str
    injected_ns: int


class FoundMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of the machine."""

    idle_cpu: float


class FoundStrays(msgspec.Struct, frozen=True, kw_only=True):
    """What nothing explains."""

    events: int
    commands: int


class FoundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of an outcome."""

    fault: str
    right: bool
    sentence: str


class FoundVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The lab's own verdict."""

    right: bool
    outcomes: list[FoundOutcome]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a row needs of a lab's report."""

    jobs: list[JobReport]
    contended: list[Contended]
    contention: list[ContentionReport]
    moves: list[MoveReport]
    faults: list[FoundFault]
    unexplained: FoundStrays
    machine: FoundMachine
    verdict: FoundVerdict


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trial under one policy. Times count from the beginning of what is to be found; None: it did not happen."""

    workload: str
    """The case."""
    policy: Policy
    seed: int
    hosts: int
    icmp: bool
    """Whether routers answer."""
    expected: str
    """The verdict that is to be said; `none`; empty: whatever is true."""
    verdict: str = ""
    """What was said first; `none`; empty: there is no report."""
    named_link_right: bool | None = None
    """Of a fabric link that was named first. None: none was."""
    right: bool = False
    """What was expected was said, its place was right, and nothing else was said or done that nothing explains."""
    detected_s: float | None = None
    """Until what was expected was said, of the right place."""
    cure_s: float | None = None
    """Until the first second from which each flow of a collision had 95 % of its rate alone, for 5 s."""
    share_of_solo: float | None = None
    """Of what a job had alone: the least of the jobs, over the whole run."""
    slowest_share: float | None = None
    """Of what a flow had alone: the least of all flows, over the whole run."""
    end_share: float | None = None
    """The same of single seconds: the median of the last ten."""
    priority_share: float | None = None
    """The same of the job that matters most."""
    step_ms: float | None = None
    """Mean over the jobs of the median of their steps."""
    step_over_alone: float | None = None
    """Mean over the jobs of that median over the median alone."""
    moves: int = 0
    """Moves for contention. One that is taken back is two. Where hosts move flows: all changes of ways that the kernels
    had while the jobs ran."""
    reverted: int = 0
    """Moves that were taken back."""
    moves_after: int | None = None
    """Moves after the cure, within the time of the settings. None: there was no cure."""
    false_events: int = 0
    """Events about contention that are not so; all of them, where nothing is to be said."""
    false_moves: int = 0
    """Moves for an event that is not so, and all where no move can help."""
    unexplained: int = 0
    """All events and commands that nothing explains; where hosts move flows, events alone."""
    collisions: int = 0
    """Fabric links that flows shared while they were full, before the remediator moved anything for that."""
    flows: int = 0
    """The most flows that shared one of them."""
    truth: tuple[str, ...] = ()
    """These links."""
    place: str = ""
    """What was named first."""
    idle_cpu: float | None = None
    left_out: LeftOut = ""
    """Empty: the row counts for the goals."""
    lab: Literal["right", "wrong", "none"] = "none"
    """The lab's own verdict."""
    reasons: tuple[str, ...] = ()
    """The lab's sentences about what was not right; without a report, the last line that it printed."""
    tries: int = 1
    """How often it was run until this."""
    clock_seed: int
    """From which the fabric's hash follows."""


def row_without_report(trial: Trial, policy: Policy, why: LeftOut, said: str, tries: int = 1) -> Row:
    """The row of a trial that ended without a report.

    Parameters:
        said: all that the lab printed.
    """
    return Row(**_head(trial, policy, tries), left_out=why, reasons=tuple(said.strip().splitlines()[-1:]))


def row_of(trial: Trial, policy: Policy, found: Found, tries: int = 1) -> Row:
    """The row of a trial, from the report on it."""
    seen = _Seen(trial, policy, found)
    cure_s = seen.cure_s()
    return Row(
        **_head(trial, policy, tries), verdict=seen.first.verdict if seen.first else NOTHING,
        named_link_right=seen.named_link_right(), right=seen.is_right(), detected_s=_rounded(seen.detected_s()),
        cure_s=_rounded(cure_s), share_of_solo=least(job.share for job in found.jobs),
        slowest_share=least(job.slowest_share for job in found.jobs), end_share=_end_share(found.jobs),
        priority_share=_end_share([job for job in found.jobs if job.name == trial.priority]),
        step_ms=_mean(job.step_ms for job in found.jobs), step_over_alone=_mean(map(_over_alone, found.jobs)),
        moves=seen.moves(), reverted=sum(not move.kept for move in found.moves),
        moves_after=seen.moves_after(), false_events=len(seen.false_events()), false_moves=_changes(seen.false_moves()),
        unexplained=seen.strays(), collisions=len(seen.truth),
        flows=seen.sharing, truth=seen.truth, place=seen.first.place if seen.first else "",
        idle_cpu=round(found.machine.idle_cpu, 3), left_out=seen.left_out(),
        lab="right" if found.verdict.right else "wrong",
        reasons=tuple(
            f"{each.fault} {each.sentence}".strip() for each in found.verdict.outcomes if not each.right
        ),
    )  # fmt: skip


def _head(trial: Trial, policy: Policy, tries: int) -> dict[str, Any]:
    fabric = trial.scenario.fabric
    return {
        "workload": trial.case, "policy": policy, "seed": trial.seed, "hosts": fabric.hosts, "icmp": fabric.icmp,
        "expected": trial.expected, "clock_seed": trial.scenario.clock.seed, "tries": tries,
    }  # fmt: skip


class _Seen:
    """A trial beside what was found."""

    def __init__(self, trial: Trial, policy: Policy, found: Found) -> None:
        self._trial = trial
        self._found = found
        self._by_hosts = policy in OF_HOSTS
        moved_ns = min((move.at_ns for move in found.moves), default=math.inf)
        before = [each for each in found.contended if each.since_ns < moved_ns]
        self.truth = tuple(sorted({each.link for each in before}))
        self.sharing = max((len(each.flows) for each in before), default=0)
        self._origin_ns = self._begun_ns()
        since_ns = self._origin_ns or 0
        self._said = sorted(
            (each for each in found.contention if each.detected_ns >= since_ns), key=lambda each: each.detected_ns
        )
        self.first = self._said[0] if self._said else None
        self._hits = [each for each in self._said if each.verdict == trial.expected and each.right]

    def _begun_ns(self) -> int | None:
        begun = {job.name: job.began_ns for job in self._found.jobs}
        return begun.get(self._trial.origin) or next(
            (fault.injected_ns for fault in self._found.faults if fault.id == self._trial.origin), None
        )

    def left_out(self) -> LeftOut:
        """Why the row counts for no goal."""
        if self._found.machine.idle_cpu < BUSY:
            return "busy"
        # If something was moved for no reason, it is the reason for what flows share.
        return "" if self._is_as_drawn() or self.strays() else "not as drawn"

    def moves(self) -> int:
        """How often flows were moved."""
        if self._by_hosts:
            return sum(flow.moves for job in self._found.jobs for flow in job.flows)
        return _changes(self._found.moves)

    def strays(self) -> int:
        """What nothing explains. Hosts that move flows by a policy need no event for that."""
        strays = self._found.unexplained
        return strays.events + (0 if self._by_hosts else strays.commands)

    def named_link_right(self) -> bool | None:
        """Of the first event that names a fabric link."""
        return next((each.right is True for each in self._said if each.verdict == CONTENTION), None)

    def is_right(self) -> bool:
        """Whether all was said that is to be said, and nothing else."""
        if self.false_events() or self.strays():
            return False
        return bool(self._hits) if self._trial.expected not in {NOTHING, ""} else self._found.verdict.right

    def detected_s(self) -> float | None:
        """Until what was expected was said."""
        if self._origin_ns is None or not self._hits:
            return None
        return (self._hits[0].detected_ns - self._origin_ns) * 1e-9

    def cure_s(self) -> float | None:
        """Until all collisions that were named were over for good."""
        cured_ns = self._cured_ns()
        return None if cured_ns is None or self._origin_ns is None else (cured_ns - self._origin_ns) * 1e-9

    def moves_after(self) -> int | None:
        """How much was moved after that."""
        cured_ns = self._cured_ns()
        if cured_ns is None:
            return None
        until_ns = cured_ns + self._trial.after_s * 1e9
        return _changes([move for move in self._found.moves if cured_ns < move.at_ns <= until_ns])

    def false_events(self) -> list[ContentionReport]:
        """What was said of contention and is not so, or was not to be said."""
        return [each for each in self._found.contention if not each.right or self._trial.expected == NOTHING]

    def false_moves(self) -> list[MoveReport]:
        """What was moved and should not have been."""
        so = {each.event for each in self._found.contention if each.right and each.verdict == CONTENTION}
        helps = self._trial.expected in {CONTENTION, ""}
        return [move for move in self._found.moves if not helps or move.event not in so]

    def _is_as_drawn(self) -> bool:
        shared = self._trial.shared
        return shared is None or shared.least <= self.sharing <= shared.most

    def _cured_ns(self) -> int | None:
        if self._trial.expected != CONTENTION or not self._hits:
            return None
        cured = [each.cured_ns for each in self._hits]
        return None if None in cured else max(filter(None, cured))


def _changes(moves: Iterable[MoveReport]) -> int:
    """How often ways changed for these moves."""
    return sum(1 if move.kept else 2 for move in moves)


def _end_share(jobs: Sequence[JobReport]) -> float | None:
    shares = ([second.slowest_share for second in job.seconds[-_LAST_S:]] for job in jobs)
    known = ([share for share in some if share is not None] for some in shares)
    return least(statistics.median(some) for some in known if some)


def _over_alone(job: JobReport) -> float | None:
    return None if job.step_ms is None or not job.solo_step_ms else job.step_ms / job.solo_step_ms


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _rounded(statistics.fmean(known)) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
