"""The verdict on a run in plain words: each outcome against its promise, and by how much it missed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from foliot_lab.report import job_text as of_job
from foliot_lab.report.figures_text import count_of, miss, time_of
from foliot_lab.report.outcome import Outcome
from foliot_lab.report.report import Held, Judged
from foliot_lab.scenario.promises import promise_of, takes_ranks
from foliot_lab.scenario.spec import trained
from foliot_lab.workload.train.places import at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from foliot_lab.measure.outages import Verdict
    from foliot_lab.report.report import Report
    from foliot_lab.scenario.spec import Scenario

_STARTS = {
    "link-down": "{} lost its carrier",
    "admin-down": "{} was set down by an administrator",
    "flap": "{} flapped",
    "drop": "{} silently dropped everything",
    "drop-one-way": "{} silently dropped everything one way",
    "loss": "{} lost a share of its packets",
    "loss-one-way": "{} lost a share of its packets one way",
    "rate": "{} lost a part of its rate",
    "mtu": "{} silently dropped large packets",
    "reload": "{} lost its device, which was made anew",
    "cpu": "{} was kept busy by something else",
    "kill": "{} was killed",
    "stop": "{} was stopped",
    "clock-step": "the clock of {} was stepped",
    "bus-cut": "{} was cut",
    "restart": "{} was restarted",
    "partition": "{} did not hear each other",
    "throttle": "{} was halted for a share of the time",
    "data-slow": "{} had its data late",
    "compute-slow": "{} computed for longer",
    "hang": "{} began no further step",
    "mismatch": "{} began another collective than the others",
    "reset": "the connections of {} were reset",
    "cut-off": "{} was cut off from everything",
    "xid": "the kernel of {} logged an error of a GPU",
    "drain": "{} was drained",
}


def verdicts(report: Report, scenario: Scenario, seen: Mapping[str, Verdict]) -> list[Judged]:
    """Every fault's outcome, then that of the run as a whole.

    A run is right if all of this holds:

    - Traffic that was cut off was found and moved to a way that flows as soon as promised, if there is another way.
    - Nothing moved for troubles that are not a path's.
    - Traffic went back as soon as promised once its way was healed.
    - Ten flaps cost two moves before they are damped.
    - No flow broke, and none stood still for longer than promised while a way lived.
    - No rank of a job died, other than that of a killed host and the ranks that missed it.
    - A lost rank of a job went to a spare as soon as promised, if one was free. No other rank did.
    - A fault explains every event and command.

    A scenario's expectations take the place of the promises.
    """
    specs = {fault.id: fault for fault in scenario.faults}
    judged = []
    for fault in report.faults:
        findings = list(Outcome(report, scenario, specs, fault).findings(seen.get(fault.id)))
        words = "; ".join([_STARTS[fault.kind].format(fault.where), *(each.words for each in findings if each.words)])
        held = [each.held for each in findings if each.held is not None]
        judged.append(Judged(fault.id, all(each.right for each in findings), f"{words}.", held))
    if report.train is not None and report.train.deaths and _only_lost(report, scenario):
        judged.append(Judged("", right=True, sentence="No rank of the job died but those that were taken from it."))
    elif report.train is not None and report.train.deaths:
        right = any(of_job.ends_the_job(fault) for fault in report.faults)
        judged.append(Judged("", right, f"The job ended before its time: {of_job.dead(report.train.deaths)}."))
    elif report.train is not None:
        judged.append(Judged("", right=True, sentence="No rank of the job died."))
    judged += _healthy(report)
    if report.flows:
        judged.append(_rests(report, scenario))
    judged.append(_strays(report, scenario))
    return judged


def _only_lost(report: Report, scenario: Scenario) -> bool:
    """Whether of a job that outlives its ranks only those processes died from which a fault takes the rank."""
    job = trained(scenario)
    if job is None or not job[1].outlives_ranks or report.train is None:
        return False
    places = [fault.where for fault in report.faults if takes_ranks(fault.kind, fault.where)]
    return all(any(at(where, [death.node]) for where in places) for death in report.train.deaths)


def _healthy(report: Report) -> Iterator[Judged]:
    """What is wrong about ranks that were replaced though nothing befell them."""
    for row in report.replacements:
        if row.fault is None and row.to is not None:
            words = f"Rank {row.rank} of {row.job} went from {row.from_} to {row.to} though nothing befell it there."
            yield Judged("", right=False, sentence=words)


def _rests(report: Report, scenario: Scenario) -> Judged:
    """Whether flows stood still for which no fault answers."""
    worst = max(report.flows, key=lambda flow: flow.gap_with_way_ms)
    own_ms, most_ms = scenario.expect.gap_ms, promise_of("", "").gap_ms
    was_ms = worst.gap_with_way_ms
    if own_ms is not None:
        worst = max(report.flows, key=lambda flow: flow.longest_gap_ms)
        was_ms, most_ms = worst.longest_gap_ms, own_ms
    right = was_ms <= most_ms
    held = [Held(what="gap_ms", promised=most_ms, was=was_ms, right=right)] if most_ms < math.inf else []
    if right:
        return Judged("", right=True, sentence="No flow stood still but for a fault.", held=held)
    what = f"{worst.id} stood still for {time_of(worst.longest_gap_ms)} though no fault was on its own rail"
    return Judged("", right=False, sentence=f"{what}, {miss(was_ms, most_ms, 'too long')}.", held=held)


def _strays(report: Report, scenario: Scenario) -> Judged:
    """Whether more happened without a fault to explain it than was expected."""
    strays, most = report.unexplained, scenario.expect.unexplained
    count = strays.events + strays.commands
    held = [Held(what="unexplained", promised=most, was=count, right=count <= most)]
    if not count:
        return Judged("", right=True, sentence="Nothing happened that no fault explains.", held=held)
    words = f"{count_of(strays.events, 'event')} and {count_of(strays.commands, 'command')} that no fault explains"
    more = "" if count <= len(strays.first) else ", ..."
    words += f" ({', '.join(strays.first)}{more})"
    if strays.least_idle_cpu is not None:
        words += f", the first while the machine was {strays.least_idle_cpu:.0%} idle"
    if most:
        words += f"; expected at most {most}"
    return Judged("", right=count <= most, sentence=f"{words}.", held=held)
