"""Whether every outcome of a run was right, in plain words. Times are reported, not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_detector.settings import DetectorSettings
from foliot_lab.scenario import RECOVERY_S
from foliot_lab.train import words as of_job
from foliot_remediator.settings import RemediatorSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from foliot_lab.lateness import Machine
    from foliot_lab.pulses import Verdict
    from foliot_lab.report import FaultReport, Report, Unexplained
    from foliot_lab.scenario import FaultSpec, Scenario

_CUTS = frozenset({"link-down", "admin-down", "flap", "drop", "drop-one-way"})
"""Kinds that stop traffic for good: it must move."""
_DEGRADES = frozenset({"loss", "loss-one-way", "rate"})
"""Kinds that let traffic through: whether it moves is a matter of settings."""
_FLAP_MOVES = 2
"""Away and back once; the next time away must be the last until the flapping is over."""
_MOVES_OF_ONE = 2
"""Away and back. More is no wrong outcome: what was tried first may have been lost as well."""
_MOVES_OF_FABRIC_LINK = 3
"""To what is known to be good at once, by another path of the own rail a second later, and back."""
_MOST_DOUBLINGS = 32
_LEAST_IDLE, _MOST_LATE_MS = 0.1, 20.0
"""On a machine with less to spare, or on which a sleeper is woken later, events tell of the machine: probes and their receivers wait for a processor as
for a dead path."""
_STARTS = {
    "link-down": "{} lost its carrier",
    "admin-down": "{} was set down by an administrator",
    "flap": "{} flapped",
    "drop": "{} silently dropped everything",
    "drop-one-way": "{} silently dropped everything one way",
    "loss": "{} lost a share of its packets",
    "loss-one-way": "{} lost a share of its packets one way",
    "rate": "{} lost a part of its rate",
    "cpu": "{} was kept busy by something else",
    "kill": "{} was killed",
    "stop": "{} was stopped",
    "clock-step": "the clock of {} was stepped",
    "bus-cut": "{} was cut",
    "restart": "{} was restarted",
    "partition": "{} did not hear each other",
}


class Judgement(NamedTuple):
    """One fault's outcome, or, without a fault, that of the run as a whole."""

    fault_id: str
    right: bool
    sentence: str


def verdicts(report: Report, scenario: Scenario, seen: Mapping[str, Verdict]) -> list[Judgement]:
    """Every fault's outcome, then whether anything happened that no fault explains.

    Right is: traffic that was cut off moved to where it flows, if there is another way; nothing moved for troubles
    that are no path's; it went back once its way was healed; ten flaps cost two moves before they are damped; no flow
    broke; no rank of a job died, but for that of a host that was killed, and those that missed it; nothing happened that nobody can explain.
    """
    specs = {fault.id: fault for fault in scenario.faults}
    judged = []
    for fault in report.faults:
        findings = list(_findings(fault, specs[fault.id], scenario, seen.get(fault.id)))
        words = "; ".join([_STARTS[fault.kind].format(fault.where), *(words for _, words in findings)])
        judged.append(Judgement(fault.id, all(right for right, _ in findings), f"{words}."))
    if report.train is not None and report.train.deaths:
        right = any(of_job.ends_the_job(fault) for fault in report.faults)
        judged.append(Judgement("", right, f"The job ended before its time: {of_job.dead(report.train.deaths)}."))
    elif report.train is not None:
        judged.append(Judgement("", right=True, sentence="No rank of the job died."))
    strays = report.unexplained
    if strays.events or strays.commands:
        words = f"{_count(strays.events, 'event')} and {_count(strays.commands, 'command')} that no fault explains."
        judged.append(Judgement("", right=False, sentence=words))
    else:
        judged.append(Judgement("", right=True, sentence="Nothing happened that no fault explains."))
    return judged


def excuse(judged: Sequence[Judgement], machine: Machine, unexplained: Unexplained) -> str:
    """Why what was wrong may be the machine's doing; empty: nothing was wrong, or the machine kept up."""
    late_ms = machine.scheduler_lateness_ms.p99 or 0.0
    if all(judgement.right for judgement in judged):
        return ""
    if machine.idle_cpu >= _LEAST_IDLE and late_ms <= _MOST_LATE_MS:
        idle = unexplained.least_idle_cpu
        faults_right = all(judgement.right for judgement in judged if judgement.fault_id)
        if idle is None or idle >= _LEAST_IDLE or not faults_right:
            return ""
        return (
            f"In the seconds in question the machine was too busy to judge by: {idle:.0%} idle. What probes then miss looks like silence."
            " Run it again when nothing else runs."
        )
    return (
        f"The machine was too busy to judge by: {machine.idle_cpu:.0%} idle, and sleepers woken up to {late_ms:.0f} ms late."
        " Run it again when nothing else runs."
    )


def _findings(
    fault: FaultReport, spec: FaultSpec, scenario: Scenario, seen: Verdict | None
) -> Iterator[tuple[bool, str]]:
    if fault.kind in _CUTS:
        yield _moved(fault, scenario, seen)
        if fault.moves and spec.lasts_s is not None:
            yield _restored(fault, spec, spec.lasts_s, scenario)
        if fault.kind == "flap":
            yield _damped(fault, spec.lasts_s or 0.0)
        elif fault.moves > (most := _MOVES_OF_FABRIC_LINK if "-spine" in fault.where else _MOVES_OF_ONE):
            yield True, f"on the way some pair's traffic changed its way {fault.moves} times, not {most}"
    elif fault.kind not in _DEGRADES and seen is not None:
        yield (False, f"traffic was moved ({_count(fault.moves, 'move')}) though no path was at fault") if fault.moves else (
            True, "no traffic was moved, rightly"
        )  # fmt: skip
    yield from of_job.finding(fault)
    broken = [flow for flow in fault.flows if flow.errors]
    if broken:
        yield False, f"{_count(len(broken), 'flow')} broke: {', '.join(flow.id for flow in broken)}"
    elif fault.flows:
        gap_ms = max(flow.longest_gap_ms for flow in fault.flows)
        yield True, f"no flow broke, the longest gap was {gap_ms:.0f} ms"


def _moved(fault: FaultReport, scenario: Scenario, seen: Verdict | None) -> tuple[bool, str]:
    if fault.moved_ns is not None:
        return True, f"both directions of every pair flowed again after {_ms(fault.injected_ns, fault.moved_ns)}"
    if _forbidden(scenario):
        return True, "nothing was to be moved by its policy"
    if not _has_another_way(fault, scenario):
        return True, "there is no other way to move to"
    if seen is None:
        return False, "nobody watched the wire"
    if not seen.interrupted:
        # A fabric link carries only what the switches' hash put on it; a NIC carries all of its pairs.
        return fault.where.startswith("rail"), "no pair was cut off"
    return False, f"{_count(seen.interrupted, 'pair')} fell silent and did not all move"


def _restored(fault: FaultReport, spec: FaultSpec, lasts_s: float, scenario: Scenario) -> tuple[bool, str]:
    if fault.restored_ns is not None:
        healed_ns = fault.injected_ns + round(lasts_s * 1e9)
        return True, f"all of it was back {(fault.restored_ns - healed_ns) * 1e-9:.1f} s after the healing"
    if scenario.duration_s - spec.at_s - lasts_s < RECOVERY_S + _held_s(spec, scenario):
        return True, "the run was over before it could be trusted again"
    return False, "it was healed and is not used again"


def _held_s(spec: FaultSpec, scenario: Scenario) -> float:
    """How long what has flapped is rightly held back: by the probation that doubles, and a NIC by the detector's rule before that."""
    if spec.times is None:
        return 0.0
    remediator = msgspec.convert(_section(scenario, "remediator"), RemediatorSettings)
    held_s = min(remediator.probation_s * 2.0 ** min(spec.times - 1, _MOST_DOUBLINGS), remediator.longest_probation_s)
    if not spec.where.startswith("rail"):
        held_s += msgspec.convert(_section(scenario, "detector"), DetectorSettings).rule().held_s(spec.times)
    return held_s


def _section(scenario: Scenario, name: str) -> dict[str, object]:
    """The scenario's settings of a service; whether agents are armed is the agents' own."""
    prefix = f"{name}."
    given: dict[str, object] = {
        key.removeprefix(prefix): value for key, value in scenario.services.items() if key.startswith(prefix)
    }
    given.pop("armed", None)
    return given


def _damped(fault: FaultReport, lasts_s: float) -> tuple[bool, str]:
    over_ns = fault.injected_ns + round(lasts_s * 1e9)
    # The return after the last flap is the end of the damping.
    moves = fault.moves - (1 if fault.restored_ns is not None and fault.restored_ns > over_ns else 0)
    return moves <= _FLAP_MOVES, f"it cost {_count(moves, 'move')} before it was damped"


def _has_another_way(fault: FaultReport, scenario: Scenario) -> bool:
    return scenario.fabric.rails > 1 or (fault.where.startswith("rail") and scenario.fabric.spines > 1)


def _forbidden(scenario: Scenario) -> bool:
    """Whether a setting says that commands are advice, or none at all."""
    return any(scenario.services.get(name) in {"off", "advise"} for name in ("remediator.reroute", "agent.policy"))


def _ms(since_ns: int, until_ns: int) -> str:
    return f"{(until_ns - since_ns) * 1e-6:.1f} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
