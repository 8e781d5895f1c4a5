"""Commands: built so that the same decision has the same id, and followed until they are answered."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.routing_table import FIRST
from foliot_schemas import Command
from foliot_schemas.bounds import fitting
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from foliot_remediator.core.actions.decision_request import DecisionRequest
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_schemas import Order, Verb

_DEADLINE_NS = 2_000_000_000
"""After the event, nodes refuse the command."""
_GRACE_NS = 3_000_000_000
"""How long an answer may come after its command's deadline. The command is not carried out any more by then. Its
answer may still wait for confirmations, two seconds, and be on its way."""
_ATTEMPTS = 2
"""Commands of one kind to one node for one cause that may fail in a row without a rest. Each is planned anew, as
soon as the last was refused, failed or was not answered."""
_FIRST_REST_NS, _LONGEST_REST_NS = 1_000_000_000, 30_000_000_000
"""A node that failed as often as it may rests for the first time, then for twice as long each time, up to the
longest. So a bad second costs seconds, and nothing stays away for ever because of a bad minute."""
_FORGIVEN_NS = 2 * _LONGEST_REST_NS
"""A failure of this long ago counts no more."""
_MOST_DOUBLINGS = 8
_REMEMBERED = 65_536
"""Questions of each remedy of which it is known what became of them."""


class Question(NamedTuple):
    """A remedy's request to a node, made again and again until it is done."""

    event: str
    """The reason."""
    verb: Verb
    node: str


@dataclass(slots=True)
class _Tried:
    """The course of a question so far."""

    commands: int = 0
    failures: int = 0
    failed_ns: int = 0


@dataclass(slots=True)
class Sent:
    """A command that is not answered yet, and what it is about."""

    command: Command
    order: Order
    who: str
    cause: Cause
    undo: Order | None
    """The order that makes the beliefs about the node what they were before; None: none were changed."""
    remedy: str
    """The remedy that sent it."""


def scope_of(cause: Cause, remedy: str) -> str:
    """The beginning of the ids of commands and refusals: two remedies may ask the same because of one event."""
    return cause.event if remedy == FIRST else f"{cause.event}/{remedy}"


class CommandLedger:
    """Numbers attempts and keeps what is on its way."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        # By remedy, so that none makes those of another be forgotten: a number that is given twice is an answer that
        # was given before.
        self._tried: collections.defaultdict[str, collections.OrderedDict[Question, _Tried]] = collections.defaultdict(
            collections.OrderedDict
        )
        self.busy: collections.Counter[str] = collections.Counter()
        """Per node with commands to answer, how many they are."""
        self._deadlines = DueQueue()

    def is_done_with(self, request: DecisionRequest, node: str, *, advice: bool) -> bool:
        """Whether a node was advised so already, or failed as often as it may too lately to be asked again yet."""
        tried = self._tried[request.remedy].get(Question(request.cause.event, request.verb, node))
        if tried is None or advice:
            return tried is not None
        over = tried.failures - _ATTEMPTS
        if over < 0:
            return False
        rest_ns = min(_FIRST_REST_NS << min(over, _MOST_DOUBLINGS), _LONGEST_REST_NS)
        return request.now_ns - tried.failed_ns < rest_ns

    def fail(self, sent: Sent, now_ns: int) -> int:
        """Counts that the node refused, failed or did not answer, and returns how often it did lately."""
        tried = self._of(sent.remedy, Question(sent.cause.event, sent.command.verb, sent.command.node))
        tried.failures = tried.failures + 1 if now_ns - tried.failed_ns < _FORGIVEN_NS else 1
        tried.failed_ns = now_ns
        return tried.failures

    def send(self, sent: Sent) -> None:
        """Notes a command that goes out, to be answered."""
        command = sent.command
        if command.id not in self.sent:
            self.busy[command.node] += 1
        self.sent[command.id] = sent
        self._deadlines.put(command.id, command.deadline_ns)

    def settle(self, command: str) -> Sent | None:
        """Takes out a command that was answered."""
        sent = self.sent.pop(command, None)
        if sent is not None:
            node = sent.command.node
            self.busy[node] -= 1
            if not self.busy[node]:
                del self.busy[node]
        return sent

    def write(self, request: DecisionRequest, node: str, order: Order, *, lease: int, advice: bool) -> Command:
        """The command that carries an order to a node.

        Its id follows from cause, remedy, verb, node, the lease's revision, and the number of a further attempt. An
        agent answers a known id as it did before, and it may have refused a former holder's.
        """
        verb, cause = verb_of(order), request.cause
        tried = self._of(request.remedy, Question(cause.event, verb, node))
        tried.commands += 1
        suffix = "" if tried.commands == 1 else f"/{tried.commands}"
        return Command.of(
            order, id=fitting(f"{scope_of(cause, request.remedy)}/{verb}/{node}/{lease}{suffix}"), node=node,
            cause=cause.event, fault=cause.fault, lease_revision=lease, advice=advice, issued_ns=request.now_ns,
            evidence=request.evidence or {},
            # A node whose clock is ahead dates its events so; nobody's deadline is to be later for that.
            deadline_ns=min(request.base_ns, request.now_ns) + max(_DEADLINE_NS, request.lasts_ns),
        )  # fmt: skip

    def overdue(self, now_ns: int) -> list[Sent]:
        """Takes out the commands that will not be answered any more."""
        late = map(self.settle, self._deadlines.take(now_ns - _GRACE_NS - 1))
        return [sent for sent in late if sent is not None]

    def _of(self, remedy: str, question: Question) -> _Tried:
        table = self._tried[remedy]
        tried = table.setdefault(question, _Tried())
        table.move_to_end(question)  # a failure's rest begins, however long ago the first attempt was
        if len(table) > _REMEMBERED:
            table.popitem(last=False)
        return tried
