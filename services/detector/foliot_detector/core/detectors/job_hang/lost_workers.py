"""Ranks that a job has lost, and groups that broke though none is lost, by what nodes tell of its workers.

They tell of their processes, their stages and their steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_detector.core.detectors.job_hang.finding import CONFIRMED_NS, DOUBT, MOST_NAMES, Finding, S, name
from foliot_detector.core.state.workers import FRESH_NS
from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_detector.core.detectors.job_hang.finding import Told
    from foliot_detector.core.state.workers import Worker, WorkerJob

_SEEN_NS = S // 10
"""A rank is lost that was gone for so long, where no other has missed it yet. Who ends a job as a whole ends its
processes within a moment."""
_USUAL_TIMES = 3
"""Who does no step for so many times as long as usual stands."""
_NONE_LOST_NS = FRESH_NS + CONFIRMED_NS
"""A group must have been broken for so long before none of its ranks is lost: by then, a node that is cut off has been
silent for long enough to be named."""


class _Look(NamedTuple):
    """A job as it is now."""

    job: WorkerJob
    now_ns: int
    hold_ns: int
    live: list[Worker]
    """Those that have a rank and could do steps, as their nodes said lately: one at least."""
    generation: int
    """The highest of these."""
    oldest: Worker
    """The one of these that was told of first."""
    broken: int
    """How many of these have missed somebody: a collective of theirs failed."""
    stood_ns: int
    """For how long one of them has done no step; 0: not all of those that could do steps stand."""


def lost(
    job: WorkerJob, held: dict[int, Worker], waited: Callable[[int], int], now_ns: int, hold_ns: int
) -> list[Finding]:  # fmt: skip
    """The ranks that are gone, and those that ail while all others do no steps. If none does: the job, if it broke.

    Parameters:
        held: its workers, by the ranks that they have.
        waited: for how long a rank has waited in a collective, in ns; 0 also where none is recorded.
        hold_ns: for how long the others must have stood where nobody says that a rank is gone.
    """
    live = [worker for worker in held.values() if worker.is_live and worker.is_fresh(now_ns)]
    if not live:
        return []
    look = _Look(
        job, now_ns, hold_ns, live,
        generation=max(worker.state.generation for worker in live),
        oldest=min(live, key=lambda each: each.first_ns),
        broken=sum(worker.state.stage == "broken" for worker in live),
        stood_ns=_stood_ns(job, live, waited, now_ns, hold_ns),
    )  # fmt: skip
    judged = (_gone(look, worker) or _ailing(look, worker) for _, worker in sorted(held.items()))
    found = [finding for finding in judged if finding is not None][:MOST_NAMES]
    return found or _broken(look, held)


def _gone(look: _Look, worker: Worker) -> Finding | None:
    """A rank whose process is gone, or that has given up, and whose place nobody else has."""
    if not worker.is_lost or worker.state.generation < look.generation or not look.oldest.knew(worker):
        return None
    gave_up = worker.state.stage == "failed"
    since_ns = min(worker.state.since_ns if gave_up else worker.over_at_ns, worker.at_ns)
    return _finding(look, worker, "dead", 1.0, since_ns, confirmed_ns=0 if look.broken else _SEEN_NS)


def _ailing(look: _Look, worker: Worker) -> Finding | None:
    """A rank of whose node nothing is heard, or whose process is stopped or silent, while all others stand."""
    if not look.stood_ns or not worker.is_live or not look.oldest.knew(worker):
        return None
    if worker.state.generation < look.generation or not (state := _ails(look.job, worker, look.hold_ns)):
        return None
    confidence = 1.0 if state == "stopped" else DOUBT
    return _finding(look, worker, state, confidence, _at_ns(look, worker) - look.stood_ns, confirmed_ns=CONFIRMED_NS)


def _broken(look: _Look, held: dict[int, Worker]) -> list[Finding]:
    """The job whose group broke, as where a firewall reset its connections, if all of its ranks are there and stand."""
    is_whole = len(look.live) == len(held) == look.job.size
    if not (is_whole and look.broken and look.stood_ns):
        return []
    if any(worker.state.generation < look.generation or _ails(look.job, worker, look.hold_ns) for worker in look.live):
        return []
    missing = [worker for _, worker in sorted(held.items()) if worker.state.stage == "broken"]
    first = min(missing, key=lambda worker: worker.turned_ns)
    if look.now_ns - first.turned_ns < _NONE_LOST_NS:
        return []
    at_ns = _at_ns(look, first)
    since_ns = max(min(first.state.since_ns, at_ns), 1 - FAR_NS)
    evidence: Told = {
        "waited_s": round((at_ns - since_ns) / S, 1), "broken": look.broken, "heard": len(look.live),
        "size": look.job.size, "generation": look.generation, "rank": first.state.rank, "reason": first.state.reason,
    }  # fmt: skip
    nodes = tuple(dict.fromkeys(worker.node for worker in (first, *missing)))[:MOST_NAMES]
    return [Finding(look.job.name, "broken", nodes, at_ns, since_ns, 1.0, evidence, confirmed_ns=0)]


def _stood_ns(
    job: WorkerJob, live: list[Worker], waited: Callable[[int], int], now_ns: int, hold_ns: int
) -> int:  # fmt: skip
    """For how long one of those that could do steps has done none; 0: not all of them stand, or none is left.

    Those stand whose collectives failed. Others must have done nothing for long: nodes tell of new steps once a second.
    """
    longest_ns = 0
    for worker in live:
        if _ails(job, worker, hold_ns):
            continue
        stood_ns = max(worker.stood_ns(now_ns), waited(worker.state.rank))
        patience_ns = max(hold_ns - CONFIRMED_NS, _USUAL_TIMES * worker.usual_step_ns())
        if worker.state.stage != "broken" and stood_ns < patience_ns:
            return 0
        longest_ns = max(longest_ns, stood_ns, 1)
    return longest_ns


def _ails(job: WorkerJob, worker: Worker, hold_ns: int) -> str:
    """What is amiss with a worker that nobody says to be gone; empty: nothing that its node would know."""
    long_ns = max(hold_ns - CONFIRMED_NS, FRESH_NS)
    if job.told_ns - max(worker.told_ns, job.silent_from_ns) >= long_ns:  # others have spoken since
        return "dead"
    if worker.state.alive == "stopped":
        return "stopped"
    return "silent" if worker.at_ns - worker.state.heard_ns >= long_ns else ""


def _finding(
    look: _Look, worker: Worker, state: str, confidence: float, since_ns: int, *, confirmed_ns: int
) -> Finding:  # fmt: skip
    at_ns, since_ns = max(_at_ns(look, worker), since_ns), max(since_ns, 1 - FAR_NS)
    evidence: Told = {
        "waited_s": round((at_ns - since_ns) / S, 1), "broken": look.broken, "heard": len(look.live),
        "size": look.job.size, "generation": worker.state.generation, "process": worker.state.process,
    }  # fmt: skip
    return Finding(
        name(look.job.name, worker.state.rank), state, (worker.node,), at_ns, since_ns, confidence, evidence,
        confirmed_ns, worker.state.process,
    )  # fmt: skip


def _at_ns(look: _Look, worker: Worker) -> int:
    """The present by the clock of a worker's node."""
    return min(worker.at_ns + look.now_ns - worker.told_ns, FAR_NS - 1)
