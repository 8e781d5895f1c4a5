"""Lost ranks, and groups that broke: what is said of them, and whether that is to be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.actions.guards import Objection
from foliot_remediator.core.remedies.replacement.workers import MEETING

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.guards import Guard
    from foliot_remediator.core.remedies.replacement.hearing import Hearing
    from foliot_remediator.core.remedies.replacement.workers import TrainingJob, Worker
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_schemas.event import Evidence

_LATE_NS = 1_500_000_000
"""How long after a step its worker's word of it may come: workers speak each half second, and nodes each second."""
_GRACE_NS = 3_000_000_000
"""How long what speaks for an event may be late before that is said: three words of a node."""
_LEAST_CONFIDENCE = 0.5
"""As for losses of NICs. A node that this process itself hears nothing of needs no confidence."""
_BY_STEPS = frozenset({"absent", "mismatch", "silent"})
"""Words after which a worker that does no step is held to be the one for which others wait."""
_NO_STEP = "no step"
_NODES = 2
"""So many must say that a group broke: one alone could have all others leave theirs."""
_WAITING = MEETING | {"broken"}
"""Stages in which a worker does no steps."""


@dataclass(slots=True)
class Loss:
    """An event that blames a rank, and calls for another process at once."""

    rank: int
    cause: Cause
    word: str
    """The event's state."""
    at_ns: int
    """When that was true. Times are those of this process."""
    since_ns: int
    confidence: float
    taken_ns: int
    """When it was heard."""
    process: int = 0
    """The number of the process that it blames; 0: it does not say."""


@dataclass(slots=True)
class Break:
    """An event that says that a job's group broke though none of its ranks is lost. It calls for a new group of them."""

    cause: Cause
    at_ns: int
    """When that was true. Times are those of this process."""
    since_ns: int
    generation: int
    """The generation of the group."""
    size: int
    """Its ranks."""
    taken_ns: int
    """When it was heard."""


class Verdict(NamedTuple):
    """What is to be done about what is said: nothing yet, unless one of these is said."""

    believed: bool = False
    is_over: bool = False
    """The rank has another process by now, or its work is done. Or there is another group."""
    against: Objection | None = None


def judge(loss: Loss, job: TrainingJob, hearing: Hearing, hung_ns: int) -> Verdict:
    """Whether a loss is believed. One node's word alone is not enough.

    What speaks for it must come from the rank's own node, or from this process's own ears, and from the node of another
    rank, which must be seen to wait.

    Parameters:
        hung_ns: how long a process that runs may do no step. It may be at work, as when it writes a checkpoint.
    """
    ranks, now_ns, read_ns = job.ranks(), hearing.now_ns, hearing.read_ns
    worker = ranks.get(loss.rank)
    if worker is None:
        evidence: Evidence = {"reason": "no process of this rank is known"}
        return _undecided(loss.taken_ns, "not-replaceable", evidence, now_ns)
    if worker.is_over or _is_another(loss, job, worker):
        return Verdict(is_over=True)
    others = [each for each in ranks.values() if each.node != worker.node and not each.is_over]
    after_ns = max(loss.at_ns, loss.since_ns + _LATE_NS)
    stepping = sum(each.stepped_since(after_ns) for each in others)
    waiting = sum(_waits_since(each, loss.since_ns, job.step_ns) for each in others)
    own = _own_word(loss, worker, read_ns, job.step_ns)
    evidence = {
        "own": own or f"{worker.state.alive}, {worker.state.stage}", "others": len(others), "others_waiting": waiting,
        "others_stepping": stepping,
    }  # fmt: skip
    if worker.stepped_since(after_ns) or (others and stepping == len(others)):
        return Verdict(against=Objection(guard="contradicted", evidence=evidence))
    if not (own and waiting):
        return _undecided(loss.taken_ns, "not-confirmed", evidence, now_ns)
    if loss.confidence < _LEAST_CONFIDENCE and not worker.is_silent(read_ns):
        evidence = {"confidence": loss.confidence, **evidence}
        return Verdict(against=Objection(guard="confidence", evidence=evidence))
    return Verdict(believed=own != _NO_STEP or now_ns - loss.since_ns >= hung_ns)


def judge_break(broken: Break, job: TrainingJob, hearing: Hearing) -> Verdict:
    """Whether a group is believed to have broken though all of its ranks are there.

    Two nodes must say that a collective failed, or that the group did not form. All ranks must live, and do no steps.
    """
    ranks, generation = job.ranks().values(), broken.generation
    if ranks and all(worker.is_over or worker.state.generation > generation for worker in ranks):
        return Verdict(is_over=True)
    if job.generation > generation and hearing.now_ns - job.generation_ns < _GRACE_NS:
        return Verdict()  # an order is under way, maybe of another remediator
    living = [worker for worker in ranks if worker.lives(hearing.read_ns)]
    waiting = sum(_waits_since(worker, broken.since_ns, job.step_ns) for worker in living)
    nodes = {worker.node for worker in living if _has_left(worker, generation)}
    evidence: Evidence = {
        "nodes_broken": len(nodes), "ranks": max(len(ranks), broken.size), "ranks_alive": len(living),
        "ranks_waiting": waiting,
    }  # fmt: skip
    # Who says that its collective failed may have done a last step just before.
    if any(worker.stepped_since(broken.at_ns) and worker.state.stage not in _WAITING for worker in living):
        return Verdict(against=Objection(guard="contradicted", evidence=evidence))
    if len(nodes) < _NODES or waiting < max(len(ranks), broken.size):
        return _undecided(broken.taken_ns, "not-confirmed", evidence, hearing.now_ns)
    return Verdict(believed=True)


def _has_left(worker: Worker, generation: int) -> bool:
    """Whether a worker is out of the group of a generation: its collective failed, or it forms a later group."""
    stage = worker.state.stage
    return stage == "broken" or (stage in MEETING and worker.state.generation > generation)


def _waits_since(worker: Worker, since_ns: int, step_ns: int) -> bool:
    """Whether a worker is seen to do no steps since a time."""
    return worker.runs and (worker.state.stage in _WAITING or worker.stands_since(since_ns + _LATE_NS, step_ns))


def trouble(worker: Worker, read_ns: int) -> str:
    """Why a process cannot be of a group that forms, in one word; empty: it can."""
    if worker.is_gone:
        return "dead"
    if worker.is_silent(read_ns):
        return "silent"
    return "stopped" if worker.state.alive == "stopped" else ""


def witnessed(worker: Worker, members: Collection[Worker], generation: int) -> bool:
    """Whether another node has a process that waits for a group to form."""
    others = (each for each in members if each.node != worker.node)
    return any(each.runs and each.state.stage in _WAITING and not each.is_settled(generation) for each in others)


def _own_word(loss: Loss, worker: Worker, read_ns: int, step_ns: int) -> str:
    """What the rank's own node says of it, or what is not heard of that node; empty: nothing that speaks for it."""
    if found := trouble(worker, read_ns):
        return found
    return _NO_STEP if loss.word in _BY_STEPS and _waits_since(worker, loss.since_ns, step_ns) else ""


def _is_another(loss: Loss, job: TrainingJob, worker: Worker) -> bool:
    """Whether the rank's process is another than was blamed, or is in a group that was made after the event."""
    state = worker.state
    if loss.process not in (0, state.process):
        return True
    formed_ns = max(state.formed_ns, state.since_ns if state.stage in MEETING else 0)
    return (state.generation > 0 and formed_ns >= loss.at_ns) or worker.first_ns > loss.at_ns > job.first_ns


def _undecided(taken_ns: int, guard: Guard, evidence: Evidence, now_ns: int) -> Verdict:
    is_late = now_ns - taken_ns >= _GRACE_NS
    return Verdict(against=Objection(guard=guard, evidence=evidence) if is_late else None)
