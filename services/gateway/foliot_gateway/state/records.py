"""The newest events, and the newest commands with what became of them. The streams keep the rest."""

from collections import Counter
from operator import attrgetter
from typing import Literal, TypeVar

import msgspec

from foliot.text.messages import happened_ns
from foliot_schemas import Command, Event, Outcome, OutcomeStatus, Verb, event_kinds, orders

MOST_RECORDS = 10_000
"""Events kept, and commands with their outcomes: the newest ones, and as many as an answer may have. The streams
have the older ones."""
_MOST_OUTCOMES = 4_096
"""Most outcomes of one command: an armed move has one of every peer."""
OTHER = "other"
_SLACK = 8
"""Old records are let go an eighth of the limit at a time, so that the sort they need is paid once for many."""

Key = TypeVar("Key")
_at = attrgetter("at_ns")


class CommandView(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what became of it; or a node's own armed move, which no command asked for."""

    id: str
    verb: Verb
    node: str
    at_ns: int
    """When it was issued; of an armed move, when it began."""
    status: OutcomeStatus | Literal["pending"]
    """Of the last outcome."""
    armed: bool
    fault: str
    command: Command | None
    outcomes: tuple[Outcome, ...]
    """In the order of their times."""


class Records:
    """The newest events and commands."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}
        self._commands: dict[tuple[str, str], CommandView] = {}
        """By the command's id and its node: nodes that move by themselves for one fault give their moves one id."""
        self.event_counts: Counter[str] = Counter()
        """By kind, all that were ever taken. Those of unknown kinds count together, as `OTHER`: a sender that makes
        up names makes no more series."""
        self.command_counts: Counter[str] = Counter()
        """By verb; those of unknown verbs likewise."""
        self.outcome_counts: Counter[tuple[str, str]] = Counter()
        """By verb and status."""

    def add_event(self, event: Event) -> bool:
        """Takes an event; False: it is known."""
        if event.id in self._events:
            return False
        self._events[event.id] = event
        self.event_counts[OTHER if event_kinds.find(event.kind) is None else event.kind] += 1
        _let_go(self._events)
        return True

    def add_command(self, command: Command) -> bool:
        """Takes a command; False: it is known. Its outcomes may have come before it."""
        known = self._commands.get((command.id, command.node))
        if known is not None and known.command is not None:
            return False
        self._join(command.id, command, () if known is None else known.outcomes)
        self.command_counts[_counted(command.verb)] += 1
        return True

    def add_outcome(self, outcome: Outcome) -> bool:
        """Takes an outcome; False: it is known, or one too many."""
        known = self._commands.get((outcome.command, outcome.node))
        outcomes = () if known is None else known.outcomes
        if len(outcomes) >= _MOST_OUTCOMES or any(outcome.id == other.id for other in outcomes):
            return False
        self._join(outcome.command, None if known is None else known.command, (*outcomes, outcome))
        self.outcome_counts[_counted(outcome.verb), outcome.status] += 1
        return True

    def event(self, event_id: str) -> Event | None:
        """The event of this id, if it is kept."""
        return self._events.get(event_id)

    def all_events(self) -> tuple[Event, ...]:
        """All events that are kept, in the order of their arrival."""
        return tuple(self._events.values())

    def events(self, *, limit: int, kind: str = "", since_ns: int = 0) -> tuple[Event, ...]:
        """Newest first: events of a kind (empty: any) whose time is `since_ns` or later."""
        chosen = [event for event in self._events.values() if kind in {"", event.kind} and event.at_ns >= since_ns]
        return tuple(sorted(chosen, key=_at, reverse=True)[:limit])

    def commands(self, *, limit: int, node: str = "", fault: str = "") -> tuple[CommandView, ...]:
        """Newest first: the commands of a node, and of a fault (empty: any)."""
        chosen = [
            command
            for command in self._commands.values()
            if node in {"", command.node} and fault in {"", command.fault}
        ]
        return tuple(sorted(chosen, key=_at, reverse=True)[:limit])

    def _join(self, command_id: str, command: Command | None, outcomes: tuple[Outcome, ...]) -> None:
        outcomes = tuple(sorted(outcomes, key=happened_ns))
        said: Command | Outcome = outcomes[-1] if command is None else command
        self._commands[command_id, said.node] = CommandView(
            id=command_id,
            verb=said.verb,
            node=said.node,
            at_ns=outcomes[0].started_ns if command is None else command.issued_ns,
            status=outcomes[-1].status if outcomes else "pending",
            armed=any(outcome.armed for outcome in outcomes),
            fault=said.fault,
            command=command,
            outcomes=outcomes,
        )
        _let_go(self._commands)


def _counted(verb: str) -> str:
    return OTHER if orders.find(verb) is None else verb


def _let_go(records: dict[Key, Event] | dict[Key, CommandView]) -> None:
    if len(records) > MOST_RECORDS:
        kept = MOST_RECORDS - MOST_RECORDS // _SLACK
        for key in sorted(records, key=lambda each: records[each].at_ns)[:-kept]:
            del records[key]
