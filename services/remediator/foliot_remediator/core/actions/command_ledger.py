"""Commands: built so that the same decision has the same id, and followed until they are answered."""

from __future__ import annotations

import collections
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_schemas import Command
from foliot_schemas.bounds import fitting
from foliot_schemas.orders import verb_of

if TYPE_CHECKING:
    from foliot_remediator.core.state.routing_table import Cause
    from foliot_schemas import Order, Verb

_GRACE_NS = 3_000_000_000
"""After its deadline a command is not carried out any more; an answer may still wait for confirmations, two seconds, and be on its way."""
_ATTEMPTS = 2
"""Commands of one kind to one node for one cause, as fast as they are refused, fail or are not answered, each planned anew."""
_FIRST_REST_NS, _LONGEST_REST_NS = 1_000_000_000, 30_000_000_000
"""A node that failed as often as it may is asked again after this long, and after twice as long each time, up to the longest: a bad second costs
seconds, and nothing stays away for ever because of a bad minute."""
_FORGIVEN_NS = 2 * _LONGEST_REST_NS
"""A failure of this long ago counts no more."""
_MOST_DOUBLINGS = 8
FIRST = "losses"
"""The remedy that was there before there were others: the ids of its commands do not name it."""
_REMEMBERED = 65_536
"""(scope, verb, node) whose attempts are counted."""


@dataclass(slots=True)
class Sent:
    """A command that is not answered yet, and what it is about."""

    command: Command
    order: Order
    who: str
    cause: Cause
    undo: Order | None
    """What makes the beliefs about the node what they were before; None: none were changed."""
    remedy: str
    """Whose it is."""


def scope_of(cause: Cause, remedy: str) -> str:
    """What ids of commands and refusals begin with: two remedies may ask the same of a node because of one event."""
    return cause.event if remedy == FIRST else f"{cause.event}/{remedy}"


class CommandLedger:
    """Numbers attempts and keeps what is on its way."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self._attempts: collections.OrderedDict[tuple[str, Verb, str], int] = collections.OrderedDict()
        self._failures: collections.OrderedDict[tuple[str, Verb, str], tuple[int, int]] = collections.OrderedDict()
        self._unanswered: collections.Counter[str] = collections.Counter()
        """Per node, its commands in `sent`."""
        self._deadlines: list[tuple[int, str]] = []

    def advised(self, scope: str, verb: Verb, node: str) -> bool:
        """Whether the node was commanded so for this cause; `scope`, here and below, is `scope_of` it."""
        return (scope, verb, node) in self._attempts

    def failures(self, scope: str, verb: Verb, node: str, now_ns: int) -> int:
        """How often it refused, failed or did not answer lately."""
        count, at_ns = self._failures.get((scope, verb, node), (0, 0))
        return count if now_ns - at_ns < _FORGIVEN_NS else 0

    def is_resting(self, scope: str, verb: Verb, node: str, now_ns: int) -> bool:
        """Whether it failed as often as it may, or more, and so lately that it had better not be asked again yet."""
        over = self.failures(scope, verb, node, now_ns) - _ATTEMPTS
        if over < 0:
            return False
        rest_ns = min(_FIRST_REST_NS << min(over, _MOST_DOUBLINGS), _LONGEST_REST_NS)
        return now_ns - self._failures[scope, verb, node][1] < rest_ns

    def fail(self, sent: Sent, now_ns: int) -> int:
        """Counts a failure, and returns how many there are."""
        command, scope = sent.command, scope_of(sent.cause, sent.remedy)
        count = self.failures(scope, command.verb, command.node, now_ns) + 1
        self._failures[scope, command.verb, command.node] = count, now_ns
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        return count

    def send(self, sent: Sent) -> None:
        """A command goes out, to be answered."""
        command = sent.command
        if command.id not in self.sent:
            self._unanswered[command.node] += 1
        self.sent[command.id] = sent
        heapq.heappush(self._deadlines, (command.deadline_ns, command.id))

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

        Its id follows from cause, remedy, verb and node. The lease's revision is part of it, because an agent answers a known id as it did
        before, and it may have refused a former holder's; so is the number of the attempt, from the second on.
        """
        verb = verb_of(order)
        scope = scope_of(cause, remedy)
        key = (scope, verb, node)
        attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
        if len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)
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
        """Whether a node has."""
        return node in self._unanswered

    def overdue(self, now_ns: int) -> list[Sent]:
        """Takes out what will not be answered any more."""
        late = []
        while self._deadlines and now_ns > self._deadlines[0][0] + _GRACE_NS:
            sent = self.settle(heapq.heappop(self._deadlines)[1])
            if sent is not None:
                late.append(sent)
        return late
