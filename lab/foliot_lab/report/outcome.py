"""Judges the outcome of one fault: each of its findings is right or wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot.settings import read
from foliot_detector.core.detectors.port_flap.settings import PortFlapSettings
from foliot_detector.flap_rules import CountRule
from foliot_detector.settings import DetectorSettings
from foliot_lab.report import job_text as of_job
from foliot_lab.report.allowances import Allowance
from foliot_lab.report.figures_text import count_of, miss, time_of
from foliot_lab.report.report import Held
from foliot_lab.scenario.promises import BREAKS, CUTS, LETS_PASS, OF_PATHS, class_of, expected, promise_of, takes_ranks
from foliot_lab.scenario.spec import trained
from foliot_remediator.settings import RemediatorSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from foliot.settings import Section
    from foliot_detector.flap_rules import FlapRule
    from foliot_lab.measure.outages import Verdict
    from foliot_lab.report.replacement_report import ReplacementReport
    from foliot_lab.report.report import FaultReport, Report
    from foliot_lab.scenario.promises import Key
    from foliot_lab.scenario.spec import FaultSpec, Scenario

_FLAP_MOVES = 2
"""Moves in a flap: away and back once. The next time away must be the last until the flapping is over."""
_MOVES_OF_ONE = 2
"""Moves of one fault: away and back. More moves are no wrong outcome, because the first way tried may have been lost
as well."""
_MOVES_OF_FABRIC_LINK = 3
"""Moves of a fault of a fabric link. First at once to a way known to be good, then a second later to another path of
the own rail, then back."""
_MOST_DOUBLINGS = 32
_NAMED = 3
"""Pairs that a sentence names."""


class Finding(NamedTuple):
    """One statement about an outcome."""

    right: bool
    words: str
    held: Held | None = None


class Outcome:
    """Judges one fault."""

    def __init__(self, report: Report, scenario: Scenario, specs: Mapping[str, FaultSpec], fault: FaultReport) -> None:
        self._report = report
        self._scenario = scenario
        self._specs = specs
        self._spec = specs[fault.id]
        self._fault = fault
        self._promise = promise_of(fault.kind, fault.where)

    def findings(self, seen: Verdict | None) -> Iterator[Finding]:
        """The findings on the fault, each right or wrong, in the order of the sentence."""
        fault, spec = self._fault, self._spec
        if fault.kind in CUTS or self._own("moved_ms") is not None:
            yield from self._found(seen)
            yield self._moved(seen)
            if fault.moves and spec.lasts_s is not None:
                yield self._restored(spec.lasts_s, seen)
            if fault.kind == "flap":
                yield _damped(fault, spec.lasts_s or 0.0)
            elif fault.moves > (most := _MOVES_OF_FABRIC_LINK if "-spine" in fault.where else _MOVES_OF_ONE):
                yield Finding(True, f"on the way some pair's traffic changed its way {fault.moves} times, not {most}")
        else:
            yield from self._found(seen)
            if fault.kind not in LETS_PASS and seen is not None:
                moved = f"traffic was moved ({count_of(fault.moves, 'move')}) though no path was at fault"
                yield Finding(not fault.moves, moved if fault.moves else "no traffic was moved, rightly")
        yield from self._of_job()
        broken = [flow for flow in fault.flows if flow.errors]
        if broken:
            yield Finding(False, f"{count_of(len(broken), 'flow')} broke: {', '.join(flow.id for flow in broken)}")
        if fault.flows:
            yield self._gap(none_broke=not broken)

    def _of_job(self) -> Iterator[Finding]:
        """The findings on a training job: its ranks were replaced, or their group was formed anew, and it went on."""
        lacking = self._lacks_spares()
        if lacking is False:
            yield from self._replaced()
        elif lacking:
            yield Finding(True, "no spare was free for what it took")
        forms_anew = self._fault.kind == BREAKS and self._is_acted_on()
        if forms_anew:
            yield from self._formed_anew()
        told = of_job.finding(self._fault, is_replaced=lacking is False or forms_anew, taken=self._taken_by_others())
        yield from (Finding(right, words) for right, words in told)

    def _taken_by_others(self) -> list[str]:
        """The places from which other faults take ranks, of a job that goes on without them."""
        job = trained(self._scenario)
        if job is None or not job[1].outlives_ranks:
            return []
        others = (each for each in self._report.faults if each is not self._fault)
        return [each.where for each in others if takes_ranks(each.kind, each.where)]

    @property
    def _is_of_rank(self) -> bool:
        return class_of(self._fault.kind, self._fault.where) == "rank"

    def _is_told(self) -> bool:
        """Whether the job tells Foliot of its collectives."""
        scenario = self._scenario
        return any(job.use == "foliot" for job in scenario.jobs if job.kind == "train") or (
            scenario.workload.kind == "train" and scenario.train.use == "foliot"
        )

    def _own(self, key: Key) -> float | None:
        return expected(key, self._spec, self._scenario)

    def _found(self, seen: Verdict | None) -> Iterator[Finding]:
        """The finding on the detection of a fault that traffic noticed, or a job that tells of itself.

        The slow sweep finds a fault that no traffic noticed.
        """
        fault, own_ms = self._fault, self._own("found_ms")
        most_ms = self._promise.found_ms if own_ms is None else own_ms
        if most_ms == math.inf or (fault.kind == BREAKS and not self._is_acted_on()):
            return
        if own_ms is None and not (self._is_told() if self._is_of_rank else seen is not None and seen.interrupted):
            return
        off = fault.not_counted.found if own_ms is None else Allowance()
        lasted_ms = self._lasted_ms(fault.detected_ns)
        counted_ms = lasted_ms - off.ms
        held = Held(what="found_ms", promised=most_ms, was=None, right=counted_ms <= most_ms)
        if fault.detected_ns is None:
            words = "" if held.right else f"nobody found it in {time_of(lasted_ms)}, promised within {time_of(most_ms)}"
            yield Finding(held.right, words, held)
            return
        held = msgspec.structs.replace(held, was=round(counted_ms, 3))
        words = f"found after {time_of(lasted_ms)}{self._off(off)}, {miss(counted_ms, most_ms, 'too late')}"
        yield Finding(held.right, "" if held.right else words, held)

    def _lacks_spares(self) -> bool | None:
        """Whether fewer spares were free than the fault took ranks; None: nothing of a fault's ranks is promised."""
        job, ranks = trained(self._scenario), len(self._fault.ranks)
        most_ms = self._promise.stall_ms if self._own("stall_ms") is None else 0.0
        if job is None or not ranks or most_ms == math.inf or self._fault.kind == BREAKS or not self._is_acted_on():
            return None
        own = [row for row in self._report.replacements if row.fault == self._fault.id]
        if own and own[0].to is not None:
            return False  # processes that lost their ranks before may be spares again
        _, spec = job
        before = [each for each in self._report.faults if each.injected_ns < self._fault.injected_ns]
        taken = {row.rank for row in self._rows(before)}
        hit = [each for each in before if takes_ranks(each.kind, each.where) and not each.ranks]
        return spec.spares * spec.ranks_per_host - len(taken) - len(hit) < ranks

    def _is_acted_on(self) -> bool:
        """Whether the job's ranks can be replaced, and the remediator may."""
        job = trained(self._scenario)
        acts = self._scenario.services.get("remediator.replace", "act") == "act"
        return job is not None and job[1].is_replaceable and acts

    def _rows(self, faults: Collection[FaultReport]) -> list[ReplacementReport]:
        """The ranks that were given to spares because of these faults."""
        ids = {fault.id for fault in faults}
        return [row for row in self._report.replacements if row.fault in ids and row.to is not None]

    def _replaced(self) -> Iterator[Finding]:
        """The finding on the ranks that the fault took from the job."""
        fault, own_ms = self._fault, self._own("stall_ms")
        most_ms = self._promise.stall_ms if own_ms is None else own_ms
        if most_ms == math.inf:
            return
        rows = self._rows([fault])
        missing = sorted({*fault.ranks} - {row.rank for row in rows if row.first_step_ns is not None})
        off = fault.not_counted.found if own_ms is None else Allowance()
        if missing:
            lasted_ms = self._lasted_ms(None)
            held = Held(what="stall_ms", promised=most_ms, was=None, right=lasted_ms - off.ms <= most_ms)
            words = f"rank {', '.join(map(str, missing))} was not replaced in {time_of(lasted_ms)}{self._off(off)}"
            if held.right:
                yield Finding(True, "it was over before its rank had to be replaced", held)
            else:
                yield Finding(False, f"{words}, promised within {time_of(most_ms)}", held)
            return
        stall_ms = max(row.stall_ms for row in rows)
        went = ", ".join(f"rank {row.rank} went to {row.to}" for row in rows)
        yield self._stood(f"{went}, and the job stood for {time_of(stall_ms)}", stall_ms, most_ms, off)

    def _formed_anew(self) -> Iterator[Finding]:
        """The finding on how long the job stood for whose group broke."""
        fault, own_ms = self._fault, self._own("stall_ms")
        most_ms = self._promise.stall_ms if own_ms is None else own_ms
        if most_ms == math.inf or fault.train is None or fault.train.stall_ms is None:
            return
        for row in self._rows([fault]):
            yield Finding(False, f"rank {row.rank} went to {row.to} though none was lost")
        off = fault.not_counted.found if own_ms is None else Allowance()
        yield self._stood(f"the job stood for {time_of(fault.train.stall_ms)}", fault.train.stall_ms, most_ms, off)

    def _stood(self, words: str, stall_ms: float, most_ms: float, off: Allowance) -> Finding:
        """The finding on a time without a step."""
        was_ms = max(0.0, stall_ms - off.ms)
        held = Held(what="stall_ms", promised=most_ms, was=round(was_ms, 3), right=was_ms <= most_ms)
        missed = "" if held.right else f"{self._off(off)}, {miss(was_ms, most_ms, 'too long')}"
        return Finding(held.right, f"{words}{missed}", held)

    def _moved(self, seen: Verdict | None) -> Finding:
        fault, own_ms = self._fault, self._own("moved_ms")
        most_ms = self._promise.moved_ms if own_ms is None else own_ms
        off = fault.not_counted.moved if own_ms is None else Allowance()
        lasted_ms = self._lasted_ms(fault.moved_ns)
        counted_ms = lasted_ms - off.ms
        held = Held(what="moved_ms", promised=most_ms, was=None, right=counted_ms <= most_ms)
        if fault.moved_ns is not None:
            held = msgspec.structs.replace(held, was=round(counted_ms, 3))
            words = f"both directions of every pair flowed again after {time_of(lasted_ms)}"
            if not held.right:
                words += f"{self._off(off)}, {miss(counted_ms, most_ms, 'too late')}"
            return Finding(held.right, words, held if most_ms < math.inf else None)
        unasked = self._unasked(seen)
        if unasked is not None:
            return unasked
        assert seen is not None
        if held.right:
            no_way = fault.not_counted.no_way_ms >= lasted_ms - most_ms
            why = "there is no other way to move to" if no_way else "it was over before traffic had to be moved"
            return Finding(True, f"{why}{self._off(off)}")
        words = (
            f"{count_of(seen.interrupted, 'pair')} fell silent and did not all move in "
            f"{time_of(lasted_ms)}{self._off(off)}"
        )
        return Finding(False, f"{words}, promised within {time_of(most_ms)}", held)

    def _unasked(self, seen: Verdict | None) -> Finding | None:
        """The finding on traffic that did not move: why it need not have, or cannot be judged; None: it had to move."""
        fault = self._fault
        if _forbidden(self._scenario):
            return Finding(True, "nothing was to be moved by its policy")
        if seen is None:
            return Finding(False, "nobody watched the wire")
        if not seen.interrupted:
            # A fabric link carries only what the switches' hash put on it; a NIC carries all of its pairs.
            idle = fault.where.startswith("rail") or self._is_left()
            return Finding(idle, "no pair was cut off")
        return None

    def _restored(self, lasts_s: float, seen: Verdict | None) -> Finding:
        fault, own_s = self._fault, self._own("back_s")
        held_s = self._held_back_s() if own_s is None else 0.0
        most_s = self._promise.back_s + held_s if own_s is None else own_s
        off = fault.not_counted.back if own_s is None else Allowance()
        healed_ns = fault.injected_ns + round(lasts_s * 1e9) if fault.healed_ns is None else fault.healed_ns
        if fault.restored_ns is None:
            left_s = self._scenario.duration_s - self._spec.at_s - lasts_s
            if left_s - off.ms * 1e-3 < most_s:
                return Finding(True, f"the run was over before it could be trusted again{_astray(seen)}")
            held = Held(what="back_s", promised=most_s, was=None, right=False)
            words = (
                f"it was healed and is not used again{_astray(seen)} after {left_s:.1f} s{self._off(off)}, "
                f"promised within {most_s:.1f} s"
            )
            return Finding(False, words, held)
        took_s = (fault.restored_ns - healed_ns) * 1e-9
        counted_s = took_s - off.ms * 1e-3
        held = Held(what="back_s", promised=most_s, was=round(counted_s, 3), right=counted_s <= most_s)
        words = f"all of it was back {took_s:.1f} s after the healing"
        if not held.right:
            words += f"{self._off(off)}, {miss(counted_s * 1e3, most_s * 1e3, 'too late')}"
        return Finding(held.right, words, held if most_s < math.inf else None)

    def _gap(self, *, none_broke: bool) -> Finding:
        """The finding on the longest time in which a flow stood still."""
        flows, own_ms = self._fault.flows, self._own("gap_ms")
        longest = max(flows, key=lambda flow: flow.longest_gap_ms)
        said = f"the longest gap was {longest.longest_gap_ms:.0f} ms"
        if none_broke:
            said = f"no flow broke, {said}"
        worst = max(flows, key=lambda flow: flow.gap_with_way_ms)
        was_ms, most_ms = worst.gap_with_way_ms, math.inf if _forbidden(self._scenario) else self._promise.gap_ms
        if own_ms is not None:
            worst, was_ms, most_ms = longest, longest.longest_gap_ms, own_ms
        held = Held(what="gap_ms", promised=most_ms, was=was_ms, right=was_ms <= most_ms)
        if held.right:
            return Finding(True, said, held if most_ms < math.inf else None)
        why = "while a way lived" if own_ms is None and was_ms == worst.longest_gap_ms else "in all"
        if was_ms < worst.longest_gap_ms:
            why = "beyond what the want of a way explains"
        return Finding(
            False,
            f"{said}; {worst.id} stood still for {time_of(was_ms)} {why}, {miss(was_ms, most_ms, 'too long')}",
            held,
        )

    def _lasted_ms(self, until_ns: int | None) -> float:
        """The time from the injection until this happened, or else to the end of the fault or of the run."""
        fault = self._fault
        if until_ns is None:
            until_ns = fault.healed_ns
        if until_ns is None:
            return (self._scenario.duration_s - self._spec.at_s) * 1e3
        return (until_ns - fault.injected_ns) * 1e-6

    def _off(self, off: Allowance) -> str:
        """The part of a time that is not counted, and the reason."""
        if off.ms < 1.0:
            return ""
        moved = off is self._fault.not_counted.moved
        why = ["no way lived"] if moved and self._fault.not_counted.no_way_ms >= 1.0 else []
        why += [f"{each} ({self._specs[each].kind})" for each in off.because if each in self._specs]
        return f" ({time_of(off.ms)} of it not counted: {', '.join(why) or 'other faults were on its paths'})"

    def _is_left(self) -> bool:
        """Whether an earlier fault had sent this NIC's traffic away, and it was not back yet."""
        return any(
            other.injected_ns <= self._fault.injected_ns
            and other.moved_ns is not None
            and (other.restored_ns is None or other.restored_ns > self._fault.injected_ns)
            for other in self._before()
        )

    def _before(self) -> Iterator[FaultReport]:
        """The earlier faults of paths at the same place."""
        for other in self._report.faults:
            here = other.where == self._fault.where and other.kind in OF_PATHS
            if here and other.id != self._fault.id and other.injected_ns <= self._fault.injected_ns:
                yield other

    def _held_back_s(self) -> float:
        """The longest delay that is right before a return.

        It is the probation, which doubles with each loss. For a NIC, the detector's rule comes before it.
        """
        spec, scenario = self._spec, self._scenario
        losses = (spec.times or 1) + sum(self._specs[other.id].times or 1 for other in self._before())
        remediator = _settings(scenario, "remediator", RemediatorSettings)
        held_s = min(remediator.probation_s * 2.0 ** min(losses - 1, _MOST_DOUBLINGS), remediator.longest_probation_s)
        if not spec.where.startswith("rail") and losses > 1:
            ports = _settings(scenario, "detector", DetectorSettings).parts()[PortFlapSettings]
            held_s += _suppressed_s(ports.rule(), losses)
        return held_s


def _settings(scenario: Scenario, name: str, kind: type[Section]) -> Section:
    """The scenario's settings of a service. The setting that arms agents is the agents' own."""
    prefix = f"{name}."
    given: dict[str, object] = {
        key.removeprefix(prefix): value for key, value in scenario.services.items() if key.startswith(prefix)
    }
    given.pop("armed", None)
    return read(kind, name, {name: given}, {}, source="scenario")


def _suppressed_s(rule: FlapRule, flaps: int) -> float:
    """For how long so many flaps at once keep a port from being used, after the last. Outages are not at once."""
    if isinstance(rule, CountRule):
        seen = {"falls": flaps, "transitions": 2 * flaps, "outages": 0}[rule.counts]
        return max(rule.window_s, rule.hold_s) if seen >= rule.least else 0.0
    penalty = min(flaps * rule.penalty, rule.ceiling)
    return rule.half_life_s * math.log2(penalty / rule.reuse) if penalty > rule.suppress else 0.0


def _astray(seen: Verdict | None) -> str:
    """The pairs that are not back on their former way, in words."""
    pairs = () if seen is None else seen.astray
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return f" by {', '.join(map(str, pairs[:_NAMED]))}{more}" if pairs else ""


def _damped(fault: FaultReport, lasts_s: float) -> Finding:
    over_ns = fault.injected_ns + round(lasts_s * 1e9)
    # The return after the last flap ends the damping.
    moves = fault.moves - (1 if fault.restored_ns is not None and fault.restored_ns > over_ns else 0)
    return Finding(moves <= _FLAP_MOVES, f"it cost {count_of(moves, 'move')} before it was damped")


def _forbidden(scenario: Scenario) -> bool:
    """Whether a setting makes commands mere advice, or forbids them."""
    return any(scenario.services.get(name) in {"off", "advise"} for name in ("remediator.reroute", "agent.policy"))
