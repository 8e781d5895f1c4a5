"""Commands: built so that the same decision has the same id, and followed until they are answered."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foliot_schemas import Command

if TYPE_CHECKING:
    from foliot_remediator.ways import Cause
    from foliot_schemas import Placement, Verb

_GRACE_NS = 1_000_000_000
"""After its deadline a command is not carried out any more; this long an answer may still be on its way."""
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

    def attempts(self, cause: Cause, verb: Verb, node: str) -> int:
        """How often the node was commanded so for this cause."""
        return self._attempts.get((cause.event, verb, node), 0)

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
        self._attempts.move_to_end(key)
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
