"""Commands: built so that the same decision has the same id, and followed until they are answered."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.routing_table import FIRST
from foliot_schemas import Command
from foliot_schemas.bounds import fitting
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_schemas import Order, Verb

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
"""Questions of each remedy whose attempts are counted."""


class Question(NamedTuple):
    """A request to a node, made again and again until it is done."""

    remedy: str
    event: str
    """The reason."""
    verb: Verb
    node: str


_Value = TypeVar("_Value")
_ByRemedy: TypeAlias = collections.defaultdict[str, collections.OrderedDict[Question, _Value]]


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
    """The beginning of the ids of commands and refusals.

    Two remedies may ask the same of a node because of one event. Ids of the first remedy do not name it.
    """
    return cause.event if remedy == FIRST else f"{cause.event}/{remedy}"


class CommandLedger:
    """Numbers attempts and keeps what is on its way."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        # By remedy, so that none makes those of another be forgotten: a number that is given twice is an answer that was given before.
        self._attempts: _ByRemedy[int] = collections.defaultdict(collections.OrderedDict)
        self._failures: _ByRemedy[tuple[int, int]] = collections.defaultdict(collections.OrderedDict)
        self._unanswered: collections.Counter[str] = collections.Counter()
        """Per node, its commands in `sent`."""
        self._deadlines = DueQueue()

    def advised(self, question: Question) -> bool:
        """Whether the node was commanded so for this reason."""
        return question in self._attempts[question.remedy]

    def failures(self, question: Question, now_ns: int) -> int:
        """How often the node refused, failed or did not answer lately."""
        count, at_ns = self._failures[question.remedy].get(question, (0, 0))
        return count if now_ns - at_ns < _FORGIVEN_NS else 0

    def is_resting(self, question: Question, now_ns: int) -> bool:
        """Whether the node failed as often as it may, or more, so lately that it had better not be asked again yet."""
        over = self.failures(question, now_ns) - _ATTEMPTS
        if over < 0:
            return False
        rest_ns = min(_FIRST_REST_NS << min(over, _MOST_DOUBLINGS), _LONGEST_REST_NS)
        return now_ns - self._failures[question.remedy][question][1] < rest_ns

    def fail(self, sent: Sent, now_ns: int) -> int:
        """Counts a failure, and returns how many there are."""
        question = Question(sent.remedy, sent.cause.event, sent.command.verb, sent.command.node)
        count = self.failures(question, now_ns) + 1
        _remember(self._failures, question, (count, now_ns))
        return count

    def send(self, sent: Sent) -> None:
        """Notes a command that goes out, to be answered."""
        command = sent.command
        if command.id not in self.sent:
            self._unanswered[command.node] += 1
        self.sent[command.id] = sent
        self._deadlines.put(command.id, command.deadline_ns)

    def settle(self, command: str) -> Sent | None:
        """Takes out a command that was answered."""
        sent = self.sent.pop(command, None)
        if sent is not None:
            node = sent.command.node
            self._unanswered[node] -= 1
            if not self._unanswered[node]:
                del self._unanswered[node]
        return sent

    def write(
        self, node: str, order: Order, cause: Cause, *, remedy: str,
        issued_ns: int, deadline_ns: int, lease: int, advice: bool,
    ) -> Command:  # fmt: skip
        """The command that carries an order to a node.

        Its id follows from cause, remedy, verb, node and the lease's revision. An agent answers a known id as it did
        before, and it may have refused a former holder's. From the second attempt on, the id also has the number of the
        attempt.
        """
        verb = verb_of(order)
        scope = scope_of(cause, remedy)
        question = Question(remedy, cause.event, verb, node)
        attempt = self._attempts[remedy].get(question, 0) + 1
        _remember(self._attempts, question, attempt)
        suffix = "" if attempt == 1 else f"/{attempt}"
        return Command.of(
            order, id=fitting(f"{scope}/{verb}/{node}/{lease}{suffix}"), node=node, cause=cause.event,
            issued_ns=issued_ns, deadline_ns=deadline_ns, lease_revision=lease, advice=advice, fault=cause.fault,
        )  # fmt: skip

    @property
    def busy(self) -> int:
        """How many nodes have commands to answer."""
        return len(self._unanswered)

    def is_busy(self, node: str) -> bool:
        """Whether a node has commands to answer."""
        return node in self._unanswered

    def overdue(self, now_ns: int) -> list[Sent]:
        """Takes out the commands that will not be answered any more."""
        late = map(self.settle, self._deadlines.take(now_ns - _GRACE_NS - 1))
        return [sent for sent in late if sent is not None]


def _remember(by_remedy: _ByRemedy[_Value], question: Question, value: _Value) -> None:
    table = by_remedy[question.remedy]
    table[question] = value
    if len(table) > _REMEMBERED:
        table.popitem(last=False)
