"""Commands: built so that the same decision has the same id, and followed until they are answered."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foliot_schemas import Command

if TYPE_CHECKING:
    from foliot_remediator.ways import Cause
    from foliot_schemas import Placement, Verb

_GRACE_NS = 3_000_000_000
"""After its deadline a command is not carried out any more; an answer may still wait for confirmations, two seconds, and be on its way."""
_FORGIVEN_NS = 30_000_000_000
"""A node that failed this long ago may be asked again: nothing stays away for ever because of a bad minute."""
_REMEMBERED = 65_536
"""(cause, verb, node) whose attempts are counted."""


@dataclass(slots=True)
class Parts:
    """What is wanted of one node."""

    away: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)

    @property
    def moves(self) -> int:
        """Service addresses, or whole rails, that it sends another way."""
        return len(self.away) + len(self.back) + len(self.placements)


@dataclass(slots=True)
class Sent:
    """A command that is not answered yet, and what it is about."""

    command: Command
    who: str
    cause: Cause
    undo: Parts
    """What makes the beliefs about the node what they were before."""


class Desk:
    """Numbers attempts and keeps what is on its way."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self._attempts: collections.OrderedDict[tuple[str, Verb, str], int] = collections.OrderedDict()
        self._failures: collections.OrderedDict[tuple[str, Verb, str], tuple[int, int]] = collections.OrderedDict()
        self._commanded_ns: dict[tuple[str, str, str], int] = {}

    def advised(self, cause: Cause, verb: Verb, node: str, now_ns: int) -> int:  # noqa: ARG002 - advice does not age
        """How often the node was commanded so for this cause."""
        return self._attempts.get((cause.event, verb, node), 0)

    def failures(self, cause: Cause, verb: Verb, node: str, now_ns: int) -> int:
        """How often it refused, failed or did not answer lately."""
        count, at_ns = self._failures.get((cause.event, verb, node), (0, 0))
        return count if now_ns - at_ns < _FORGIVEN_NS else 0

    def fail(self, sent: Sent, now_ns: int) -> int:
        """Counts a failure, and returns how many there are."""
        command = sent.command
        count = self.failures(sent.cause, command.verb, command.node, now_ns) + 1
        self._failures[sent.cause.event, command.verb, command.node] = count, now_ns
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        return count

    def commanded_ns(self, node: str, rail: str, peer: str = "") -> int:
        """When the node was last told a way to a service address, or, without a peer, to send a rail away or back; 0: never."""
        return self._commanded_ns.get((node, peer, rail), 0)

    def send(self, sent: Sent) -> None:
        """A command goes out, to be answered."""
        command = sent.command
        self.sent[command.id] = sent
        told = [("", rail) for rail in (*command.away, *command.back)] + [
            (way.peer, way.rail) for way in command.placements
        ]
        for peer, rail in told:
            self._commanded_ns[command.node, peer, rail] = command.issued_ns

    def settle(self, command: str) -> Sent | None:
        """Takes out a command that was answered."""
        return self.sent.pop(command, None)

    def write(
        self, node: str, verb: Verb, parts: Parts, cause: Cause, *,
        issued_ns: int, deadline_ns: int, lease: int, advice: bool,
    ) -> Command:  # fmt: skip
        """The command for a node.

        Its id follows from cause, verb and node. The lease's revision is part of it, because an agent answers a known id as it did
        before, and it may have refused a former holder's; so is the number of the attempt, from the second on.
        """
        key = (cause.event, verb, node)
        attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
        if len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)
        suffix = "" if attempt == 1 else f"/{attempt}"
        return Command(
            id=f"{cause.event}/{verb}/{node}/{lease}{suffix}", verb=verb, node=node, cause=cause.event,
            issued_ns=issued_ns, deadline_ns=deadline_ns, lease_revision=lease, away=tuple(parts.away),
            back=tuple(parts.back), placements=tuple(parts.placements), advice=advice, fault=cause.fault,
        )  # fmt: skip

    def nodes(self) -> set[str]:
        """Nodes that have not answered yet."""
        return {sent.command.node for sent in self.sent.values()}

    def overdue(self, now_ns: int) -> list[Sent]:
        """Takes out what will not be answered any more."""
        late = [sent for sent in self.sent.values() if now_ns > sent.command.deadline_ns + _GRACE_NS]
        for sent in late:
            del self.sent[sent.command.id]
        return late
