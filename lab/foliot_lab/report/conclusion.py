"""The end of a run: its verdict, in the same words in the report and on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.report.contention_text import told as told_of_contention
from foliot_lab.report.contention_text import told_of_mismatch
from foliot_lab.report.figures_text import count_of, time_of
from foliot_lab.report.job_text import summary, told
from foliot_lab.report.replacement_text import told as told_of_replacement
from foliot_lab.report.report import Conclusion
from foliot_lab.report.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from foliot_lab.measure.host_latency import Steps
    from foliot_lab.measure.outages import Verdict
    from foliot_lab.report.map_report import MapReport
    from foliot_lab.report.report import Report
    from foliot_lab.scenario.spec import Scenario


def conclude(report: Report, scenario: Scenario, seen: Mapping[str, Verdict]) -> tuple[Report, Conclusion]:
    """The report with its verdict, and the verdict alone."""
    judged = verdicts(report, scenario, seen)
    conclusion = Conclusion(right=all(each.right for each in judged), outcomes=judged)
    return msgspec.structs.replace(report, verdict=conclusion), conclusion


def lines(report: Report, conclusion: Conclusion) -> Iterator[str]:
    """The last lines of a run: every outcome, jobs, contention, clocks' accuracy, the machine, loops' long steps."""
    for each in conclusion.outcomes:
        yield f"{'right' if each.right else 'WRONG'}  {each.fault:<4} {each.sentence}"
    if report.train is not None:
        yield summary(report.train)
    for job in report.jobs:
        yield told(job)
    for row in report.replacements:
        yield told_of_replacement(row)
    for said in report.contention:
        yield told_of_contention(said, report.contended)
    for mismatch in report.mismatches:
        yield told_of_mismatch(mismatch)
    if report.map is not None:
        yield _map(report.map)
    clocks = report.clocks
    if clocks.true_error_ns.p50 is not None:
        yield (
            f"clocks: {clocks.windows} windows; true error of the value used now: median "
            f"{clocks.true_error_ns.p50:.0f} ns,"
            f" p99 {clocks.true_error_ns.p99:.0f} ns, max {clocks.true_error_ns.max:.0f} ns; within the hard bound"
            f" {clocks.within_hard_bound:.2%}, within the statistical bound {clocks.within_bound:.2%}"
        )
    machine, lateness = report.machine, report.machine.scheduler_lateness_ms
    quota = "" if machine.speed >= 1 else f" of the {machine.speed:.0%} of it that the lab may use"
    yield (
        f"machine: {machine.idle_cpu:.0%} idle{quota}, {machine.stolen_cpu:.0%} stolen;"
        f" a sleeper is woken {lateness.p50} ms late (median), {lateness.p99} ms (p99)"
    )
    if machine.loops:
        yield _loops(machine.loops)


def _map(found: MapReport) -> str:
    """How far Foliot's map of links is true, in words."""
    took = "" if found.took_s is None else f", after {found.took_s:g} s"
    inferred = f"{found.inferred} inferred, " if found.inferred else ""
    return (
        f"map: the links of {found.right} of {count_of(found.paths, 'path')} are right{took}; {found.wrong} wrong, "
        f"{inferred}{found.unknown} unknown"
    )


def _loops(loops: Mapping[str, Steps]) -> str:
    """The long steps of all services' loops, in words."""
    count = sum(sum(steps.by_bound_ms.values()) for steps in loops.values())
    long = sum(steps.steps_over_10ms for steps in loops.values())
    own_long = sum(steps.own_over_10ms for steps in loops.values())
    slowest = max(loops, key=lambda name: loops[name].max_ms)
    busiest = max(loops, key=lambda name: loops[name].own_max_ms)
    return (
        f"loops: {long} of {count_of(count, 'step')} took 10 ms or more, at most {time_of(loops[slowest].max_ms)} "
        f"({slowest});"
        f" {own_long} by their own work, at most {time_of(loops[busiest].own_max_ms)} ({busiest})"
    )
