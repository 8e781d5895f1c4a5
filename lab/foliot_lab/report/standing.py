"""Events that a process is dead, of one that stood still for as long by the lab's own count. Pure.

On a busy machine, a process may wait for a processor for seconds. The detector rightly says that it is dead or stalled,
though no fault befell it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.measure.host_latency import SECOND_NS
from foliot_lab.report.message_times import lab_ns
from foliot_schemas.event_kinds import PROCESS, is_relief

if TYPE_CHECKING:
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.report.evidence import Evidence
    from foliot_schemas import Event

_BORNE_OUT = 0.75
"""Share of a silence for which the process stood still by the lab's count. Its last word may have been on its way."""


def stood_still(evidence: Evidence) -> frozenset[str]:
    """The ids of events that a process is dead which stood still.

    It had no processor, as the kernel counts for its first thread. Or a step of its loop was as long, whatever it waited
    for. The kernel counts a wait when it is over, and the lab counts steps over the whole run.
    """
    dead = (each for each in evidence.events if each.message.kind == PROCESS.name and not is_relief(each.message))
    return frozenset(each.message.id for each in dead if _still_ns(each, evidence) >= _BORNE_OUT * _silent_ns(each))


def _silent_ns(dead: Heard[Event]) -> int:
    return dead.message.at_ns - dead.message.since_ns


def _still_ns(dead: Heard[Event], evidence: Evidence) -> float:
    """For how long the process stood still from its last word to the first new one."""
    since_ns = _at_ns(dead, evidence) - _silent_ns(dead)
    until_ns = next(
        (_at_ns(each, evidence) for each in evidence.events if each.message.cause == dead.message.id), evidence.end_ns
    )
    process = dead.message.who
    seconds = (each for each in evidence.seconds if since_ns < each.until_ns <= until_ns + SECOND_NS)
    waited_ns = sum(each.waited_s.get(process, 0.0) for each in seconds) * 1e9
    steps = evidence.machine.loops.get(process)
    return max(waited_ns, 0.0 if steps is None else steps.max_ms * 1e6)


def _at_ns(heard: Heard[Event], evidence: Evidence) -> int:
    return lab_ns(evidence.truth, evidence.lab, heard.message.at_ns, heard.at_ns)
