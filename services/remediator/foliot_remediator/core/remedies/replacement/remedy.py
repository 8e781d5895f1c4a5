"""The remedy of lost ranks: spares take their places, and the job's group is formed anew without them.

A loss is believed where the rank's own node, or this process's own ears, and the node of another rank say so. Ranks of
a node that is drained, or about to fail, go elsewhere at the end of a step. A group that broke though no rank is lost
is formed anew of the same ranks, if two nodes say so.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from foliot_remediator.core.actions.action_kinds import PlainKind
from foliot_remediator.core.actions.decision_request import DecisionRequest
from foliot_remediator.core.actions.fleet_view import is_refusal
from foliot_remediator.core.actions.guards import Budget, Objection
from foliot_remediator.core.remedies.replacement.case import Case, Straggler
from foliot_remediator.core.remedies.replacement.course import Course, Reason
from foliot_remediator.core.remedies.replacement.hearing import Hearing
from foliot_remediator.core.remedies.replacement.limits import Limits
from foliot_remediator.core.remedies.replacement.losses import Break, Loss
from foliot_remediator.core.remedies.replacement.planner import Planner
from foliot_remediator.core.remedies.replacement.spare_delays import SpareDelays
from foliot_remediator.core.remedies.replacement.troubled_nodes import TroubledNodes
from foliot_remediator.core.remedies.replacement.workers import Process, TrainingJobs
from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.settings import strictest
from foliot_schemas import DelayBatch, Drain, Event, ReplaceRank, WorkerBatch
from foliot_schemas.collective import MOST_RANKS
from foliot_schemas.event_kinds import HANG, HARDWARE, STRAGGLER, is_relief

if TYPE_CHECKING:
    from collections.abc import Collection

    from foliot_remediator.core.actions.command_ledger import Sent
    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.remedy import Seen
    from foliot_remediator.core.remedies.replacement.workers import TrainingJob
    from foliot_remediator.settings import Policy
    from foliot_schemas import Outcome
    from foliot_schemas.event import Evidence

NAME = "replacement"
_VERB = "replace-rank"
_UNBOUNDED = 1 << 31
_S = 1_000_000_000
_LOOK_NS, _GAP_NS = _S // 10, _S // 50
"""How often a job is looked at of which something stands, and the least time between two looks: a job of a thousand
nodes has a thousand words a second."""
_RETRY_NS = _S
"""How often what could not be done is tried again."""
_SETTLE_NS = _S
"""Who takes over waits for a word of every node: what the holder before has ordered shows in it."""
_UNKNOWN_NS = 60 * _S
"""How long an event about a job is kept that no node tells of."""
_OLD_NS = 3_600 * _S
"""An event from before is not acted upon."""
_MOST_CASES = 1_024
_SLOW = frozenset({"compute", "data", "processor", "halted"})
"""Causes of a slow rank that go with its process or its node."""


class Replacement:
    """See `Remedy`. It orders `replace-rank`."""

    name = NAME
    priority = 2

    def __init__(self, view: FleetView) -> None:
        settings = view.settings
        # A group forms with all of its nodes or not at all, so no part of an order is of use. Ranks are what counts,
        # and an order costs as many of them on each node. So they are counted here, by the hour, and the budget of
        # commands, a unit for each node, is kept by `nodes_at_once` alone.
        self.budget = Budget(_UNBOUNDED, settings.nodes_at_once // 2)
        self.kinds = (PlainKind(_VERB, settings.replace),)
        self.hears_traffic = settings.replace != "off" and any(limit.hops for limit in settings.spares)
        """Routers alone are asked for; where nobody asks for them, no spare is known to be near."""
        self._limits = Limits(settings)
        self._settings, self._view, self._decider = settings, view, view.decider
        self._jobs = TrainingJobs()
        self._troubled = TroubledNodes(NAME)
        self._delays = SpareDelays()
        self._planner = Planner(view, self._troubled, self._delays)
        self._cases: collections.OrderedDict[str, Case] = collections.OrderedDict()
        """By job."""
        self._looks = DueQueue()
        self._taken_ns = 0
        """When the lease was taken."""
        self._swept_ns = 0

    def hold(self, now_ns: int) -> None:
        """Forgets what it ordered under an earlier lease: another has spoken since."""
        self._taken_ns = now_ns
        for case in self._cases.values():
            case.course = None
        for name in self._cases:
            self._looks.put(name, now_ns + _SETTLE_NS)

    def observe(self, seen: Seen, news: Collection[str], now_ns: int) -> list[Decision]:  # noqa: ARG002 - as of `Remedy`
        """Takes what is said of ranks, of nodes, and by workers."""
        match seen:
            case Event():
                return self._take_event(seen, now_ns)
            case WorkerBatch():
                return self._take_workers(seen, now_ns)
            case DelayBatch():
                self._delays.take(seen, now_ns)
            case Drain():
                self._troubled.take_drain(seen)
                return self._stir_all(now_ns)
        return []

    def tick(self, overdue: Collection[Sent], now_ns: int) -> list[Decision]:
        """Looks at what stands, and asks again for what was not taken."""
        made: list[Decision] = []
        for sent in overdue:
            made += self._failed(sent, "no answer", now_ns)
        if now_ns - self._swept_ns >= _S:
            self._swept_ns = now_ns
            self._sweep(now_ns)
        for name in self._looks.take(now_ns):
            made += self._look(name, now_ns)
        return made

    def settle(self, sent: Sent, outcome: Outcome, now_ns: int) -> list[Decision]:
        """Says what a node did not do. It is asked again, as long as its workers do not take the generation."""
        return self._failed(sent, outcome.reason or outcome.status, now_ns) if is_refusal(outcome) else []

    def forget(self, nics: Collection[str]) -> None:
        """Keeps nothing of NICs."""

    def forget_node(self, node: str) -> None:
        """Forgets the processes of a node, and what befell it."""
        self._jobs.forget_node(node)
        self._troubled.forget_node(node)

    # -- in -----------------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event, now_ns: int) -> list[Decision]:
        if now_ns - event.at_ns > _OLD_NS:
            return []
        if event.kind == HARDWARE.name and event.who in self._view.inventory.nodes:
            self._troubled.take_hardware(event, now_ns)
            return self._stir_all(now_ns)
        if event.kind not in (HANG.name, STRAGGLER.name):
            return []
        name, rank = _rank_of(event.who)
        if rank is None:
            return self._take_job(event, now_ns)
        if is_relief(event):
            self._end(name, rank, event)
            return []
        self._blame(name, rank, event, now_ns)
        if (case := self._cases.get(name)) is not None:
            case.retry_ns = 0  # what could not be done until now may be less urgent
        at_ns = min(event.at_ns, now_ns)
        cause = Cause(event.id, event.fault, NAME)
        if event.kind == HANG.name:
            since_ns, process = min(event.since_ns, at_ns), round(event.number("process"))
            loss = Loss(rank, cause, event.state, at_ns, since_ns, event.confidence, now_ns, process)
            self._case(name, now_ns).blame(loss, now_ns)
        elif event.state in _SLOW and self._settings.replace_stragglers != "off":
            self._case(name, now_ns).slow(rank, Straggler(Reason(cause, event.state), at_ns), now_ns)
        return self._stir(name, now_ns)

    def _take_job(self, event: Event, now_ns: int) -> list[Decision]:
        """Takes what is said of a job of which no rank is to blame."""
        case = self._cases.get(event.who)
        if event.kind == STRAGGLER.name:
            return []
        if is_relief(event):
            if case is not None and case.broken is not None and event.at_ns >= case.broken.at_ns:
                case.broken = None
            return []
        if event.state == "broken":
            at_ns, cause = min(event.at_ns, now_ns), Cause(event.id, event.fault, NAME)
            generation, size = round(event.number("generation")), round(event.number("size"))
            case = self._case(event.who, now_ns)
            case.broken = Break(cause, at_ns, min(event.since_ns, at_ns), generation, size, now_ns)
            case.taken_ns = now_ns
            return self._stir(event.who, now_ns)
        if self._jobs.get(event.who) is None:
            return []
        objection = Objection(guard="not-replaceable", evidence={"reason": "no rank is to blame"})
        return self._object(objection, event.who, Cause(event.id, event.fault, NAME), now_ns)

    def _blame(self, name: str, rank: int, event: Event, now_ns: int) -> None:
        """Notes the node of a rank that was blamed for what may go with the node."""
        if event.kind == STRAGGLER.name and event.state not in _SLOW:
            return
        job = self._jobs.get(name)
        worker = None if job is None else job.ranks().get(rank)
        node = worker.node if worker is not None else next(iter(event.related.get("nodes", ())), "")
        if node in self._view.inventory.nodes:
            self._troubled.blame(node, min(event.at_ns, now_ns))

    def _end(self, name: str, rank: int, event: Event) -> None:
        """Takes that a rank is to blame no more."""
        case = self._cases.get(name)
        if case is None:
            return
        if event.kind == STRAGGLER.name:
            case.stragglers.pop(rank, None)
        elif (loss := case.losses.get(rank)) is not None and event.at_ns >= loss.at_ns:
            del case.losses[rank]

    def _take_workers(self, batch: WorkerBatch, now_ns: int) -> list[Decision]:
        job, case = self._jobs.get(batch.job), self._cases.get(batch.job)
        spares = [state for state in batch.workers if state.stage == "spare"]
        if case is not None and spares:
            known = [None if job is None else job.get(Process(batch.node, state.process)) for state in spares]
            if any(worker is None or worker.state.stage != "spare" for worker in known):
                case.retry_ns = 0  # a spare is new
        reports = self._view.health.reports
        self._jobs.take(batch, lambda at_ns: reports.here_ns(batch.node, at_ns, now_ns), now_ns)
        if self._troubled.take_xids(batch.node, batch.xids):
            return self._stir_all(now_ns)
        return self._stir(batch.job, now_ns) if case is not None else []

    def _case(self, name: str, now_ns: int) -> Case:
        case = self._cases.setdefault(name, Case(now_ns))
        self._cases.move_to_end(name)
        if len(self._cases) > _MOST_CASES:
            self._cases.popitem(last=False)
        return case

    def _stir(self, name: str, now_ns: int) -> list[Decision]:
        """Looks at a job at once, or soon if it was looked at just now."""
        case = self._cases.get(name)
        if case is None:
            return []
        if now_ns - case.looked_ns >= _GAP_NS:
            return self._look(name, now_ns)
        self._looks.put(name, case.looked_ns + _GAP_NS)
        return []

    def _stir_all(self, now_ns: int) -> list[Decision]:
        """Looks at every job that has ranks on a node that is to be left."""
        made: list[Decision] = []
        for job in self._jobs:
            if job.name in self._cases or self._troubled.has_any_of(job.ranks().values()):
                self._case(job.name, now_ns)
                made += self._stir(job.name, now_ns)
        return made

    def _sweep(self, now_ns: int) -> None:
        """Forgets jobs, finds those with ranks on nodes that are to be left, and which delays are to be measured."""
        self._jobs.expire(now_ns)
        for job in self._jobs:
            if job.name not in self._cases and self._troubled.has_any_of(job.ranks().values()):
                self._case(job.name, now_ns)
                self._looks.put(job.name, now_ns)
        if any(limit.p99_us for limit in self._settings.spares):
            self._delays.watch({pair for job in self._jobs for pair in self._planner.choice.pairs(job)})

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _look(self, name: str, now_ns: int) -> list[Decision]:
        """Looks at a job: what is under way, what is lost, and what is to go elsewhere."""
        case, job = self._cases.get(name), self._jobs.get(name)
        if case is None:
            return []
        case.looked_ns = now_ns
        if job is None:
            if now_ns - case.taken_ns > _UNKNOWN_NS:
                del self._cases[name]
            else:
                self._looks.put(name, now_ns + _RETRY_NS)
            return []
        self._looks.put(name, now_ns + _LOOK_NS)
        if self._decider.lease and now_ns - self._taken_ns < _SETTLE_NS:
            return []
        hearing = Hearing(self._view.health, now_ns)
        made = self._follow(case, job, hearing) + self._leave_to_nobody(case, job, now_ns)
        lost, doubts = case.urgent(job, self._troubled, hearing, round(self._settings.replace_hung_s * _S))
        broke, other = (None, []) if lost else case.broke(job, hearing)
        for rank, cause, objection in (*doubts, *other):
            made += self._object(objection, _who(name, rank), cause, now_ns)
        if broke is not None:
            return made + self._replace(case, job, {}, broke, hearing)
        if not lost:
            return made + self._look_ahead(case, job, hearing)
        if case.is_gathered(lost, job, now_ns):
            made += self._replace(case, job, lost, lost[min(lost)], hearing)
        return made

    def _look_ahead(self, case: Case, job: TrainingJob, hearing: Hearing) -> list[Decision]:
        """Looks at a job of which no rank is lost: some may be to go elsewhere."""
        case.gathered_ns = 0
        if not case.is_forming(job, hearing.now_ns) and (lost := case.planned(job, self._troubled, hearing)):
            return self._replace(case, job, lost, lost[min(lost)], hearing, at_step=True)
        if case.is_empty:
            del self._cases[job.name]
        return []

    def _leave_to_nobody(self, case: Case, job: TrainingJob, now_ns: int) -> list[Decision]:
        """Refuses all losses where several remediators share the fleet: each commands its own nodes alone."""
        made: list[Decision] = []
        if (sharded := self._sharded()) is not None:
            for rank, loss in case.losses.items():
                made += self._object(sharded, _who(job.name, rank), loss.cause, now_ns)
            case.losses.clear()
        return made

    def _replace(
        self, case: Case, job: TrainingJob, lost: dict[int, Reason], reason: Reason, hearing: Hearing, *,
        at_step: bool = False,
    ) -> list[Decision]:  # fmt: skip
        """Gives ranks to spares, or says why not; that is tried again after a while, or when there is a new spare.

        Parameters:
            lost: why each rank goes; empty: the same ranks form a group anew.
            reason: why a group is to be formed.
        """
        now_ns = hearing.now_ns
        if now_ns < case.retry_ns:
            return []
        case.retry_ns = now_ns + _RETRY_NS
        who = _who(job.name, min(lost, default=None))
        policy = self._policy(reason)
        against = self._forbidden(job, lost, policy, now_ns)
        if against is None and at_step and not job.step_ns:
            return []  # when a step ends is not known yet
        plan = against or self._planner.plan(case, job, lost, reason.word, hearing, at_step=at_step)
        if isinstance(plan, Objection):
            return self._object(plan, who, reason.cause, now_ns)
        request = DecisionRequest(
            _VERB, who, reason.cause, now_ns, now_ns, NAME, policy, plan.evidence,
            # A planned order counts until the step is done, and as long as another one after that.
            lasts_ns=plan.due_ns - now_ns + 2 * _S if at_step else 0,
        )  # fmt: skip
        decisions, _ = self._decider.decide(request, dict.fromkeys(plan.nodes, plan.order))
        commands = [command for decision in decisions for command in decision.commands]
        if any(command.advice for command in commands):
            case.answer(lost, reason)
        elif commands:
            asked = {command.node for command in commands}
            asked_ns = {node: now_ns if node in asked else 0 for node in plan.nodes}
            self._begin(case, job, Course(plan.order, request, lost, plan.due_ns, asked_ns))
        return decisions

    def _begin(self, case: Case, job: TrainingJob, course: Course) -> None:
        """Notes an order that goes out, in place of one that is under way."""
        now_ns, lost = course.request.now_ns, course.reasons
        if (before := case.course) is not None:
            pending = before.pending(job)
            case.failed |= {pending[rank] for rank in lost if rank in pending}
            course.reasons = {rank: before.reasons[rank] for rank in pending} | lost
        self._limits.spend(max(len(lost), 1), now_ns)
        job.note_generation(course.order.generation, now_ns)
        case.course, case.gathered_ns, case.retry_ns = course, 0, 0

    def _follow(self, case: Case, job: TrainingJob, hearing: Hearing) -> list[Decision]:
        """Sees to an order that is under way: it ends, is given up, or nodes are asked again."""
        course, now_ns = case.course, hearing.now_ns
        if course is None:
            return []
        if not self._decider.lease or course.is_done(job):
            case.course = None
            return []
        request = course.request._replace(base_ns=now_ns, now_ns=now_ns, lasts_ns=0)
        if course.is_given_up(job, now_ns):
            case.course = None
            case.answer(course.reasons, Reason(request.cause, course.order.cause))
            generation = course.order.generation
            behind = {each.node for each in course.members(job).values() if not each.is_settled(generation)}
            evidence: Evidence = {
                "generation": generation, "nodes_behind": len(behind), "node": min(behind, default=""),
                "waited_s": (now_ns - course.due_ns) / 1e9,
            }  # fmt: skip
            return self._object(Objection(guard="not-formed", evidence=evidence), request.who, request.cause, now_ns)
        late = course.late(job, hearing)
        if not late:
            return []
        decisions, _ = self._decider.decide(request, dict.fromkeys(late, course.order))
        for command in (command for decision in decisions for command in decision.commands):
            course.asked_ns[command.node] = now_ns
        return decisions

    def _forbidden(self, job: TrainingJob, lost: dict[int, Reason], policy: Policy, now_ns: int) -> Objection | None:
        """The objection of a guard that knows no spare yet; None: there is none."""
        if (sharded := self._sharded()) is not None:
            return sharded
        if not self._decider.lease:
            return Objection(guard="lease", evidence={"held": self._decider.held})
        if policy == "off":
            return Objection(guard="policy", evidence={"policy": policy, "ranks": len(lost)})
        return self._limits.object_to(job, max(len(lost), 1), now_ns)

    def _sharded(self) -> Objection | None:
        """The objection where several remediators share the fleet; None: this one has it alone."""
        coordination = self._view.coordination
        if not coordination.is_shared:
            return None
        return Objection(guard="sharded", evidence={"shards": len(coordination.shards)})

    def _policy(self, reason: Reason) -> Policy:
        settings = self._settings
        return strictest(settings.replace, settings.replace_stragglers) if reason.word in _SLOW else settings.replace

    # -- answers ------------------------------------------------------------------------------------------------------

    def _failed(self, sent: Sent, why: str, now_ns: int) -> list[Decision]:
        """Counts and says that a node did not do it, if anything of it is still wanted there.

        A node whose ranks were lost may have a process that is stopped, which takes no order.
        """
        order = sent.order
        case = self._cases.get(order.job) if isinstance(order, ReplaceRank) else None
        job = self._jobs.get(order.job) if isinstance(order, ReplaceRank) else None
        if case is None or job is None or case.course is None or case.course.order != order:
            return []
        return self._view.fail(sent, why, now_ns) if case.course.is_behind(job, sent.command.node) else []

    def _object(self, objection: Objection, who: str, cause: Cause, now_ns: int) -> list[Decision]:
        """Says what is not done. A process that stands by is silent."""
        if not self._decider.speaks:
            return []
        request = DecisionRequest(_VERB, who, cause, now_ns, now_ns, NAME)
        return self._decider.refuse(request, objection)


def _who(job: str, rank: int | None) -> str:
    """The name of a rank of a job, or of the job."""
    return job if rank is None else f"{job}/rank{rank}"


def _rank_of(who: str) -> tuple[str, int | None]:
    """The job and the rank that an event is about; no rank: it is about the job."""
    job, _, number = who.rpartition("/rank")
    if not job or not number.isdecimal() or len(number) > len(str(MOST_RANKS)):
        return who, None
    return job, int(number)
