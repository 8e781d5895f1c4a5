"""Records the services' messages of a run, each with the lab time of its arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from foliot_schemas.subjects import CLOCK, COMMAND, EVENT, OUTCOME, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.bus.client import Bus
    from foliot_lab.measure.clock_truth import LabTime, Truth
    from foliot_schemas import ClockState, Command, Event, Outcome, WorkerBatch

Message = TypeVar("Message")


class Heard(msgspec.Struct, Generic[Message], frozen=True):
    """A message, and when it came in lab time."""

    at_ns: int
    message: Message


class Collector:
    """Keeps events, commands and outcomes, each id once, and what is told of workers.

    It judges every message about a clock by the truth.

    Parameters:
        truth: learns the clocks' states.
        on_heard: called with every event, command and outcome on arrival, for the narrator.
    """

    def __init__(
        self, lab: LabTime, truth: Truth, on_heard: Callable[[Heard[Event | Command | Outcome]], None] | None = None
    ) -> None:
        self.events: list[Heard[Event]] = []
        self.commands: list[Heard[Command]] = []
        self.outcomes: list[Heard[Outcome]] = []
        self.workers: list[Heard[WorkerBatch]] = []
        self._lab = lab
        self._truth = truth
        self._on_heard = on_heard
        self._seen: set[tuple[str, str]] = set()

    async def follow(self, bus: Bus) -> None:
        """Begins to listen."""
        await bus.subscribe(EVENT, self.event)
        await bus.subscribe(COMMAND, self.command)
        await bus.subscribe(OUTCOME, self.outcome)
        await bus.subscribe(CLOCK, self.clock)
        await bus.subscribe(WORKER, self.worker)

    async def event(self, event: Event, _subject: str = "") -> None:
        """Keeps an event."""
        if self._is_new("event", event.id):
            self.events.append(self._heard(event))

    async def command(self, command: Command, _subject: str = "") -> None:
        """Keeps a command."""
        if self._is_new("command", command.id):
            self.commands.append(self._heard(command))

    async def outcome(self, outcome: Outcome, _subject: str = "") -> None:
        """Keeps an outcome."""
        if self._is_new("outcome", outcome.id):
            self.outcomes.append(self._heard(outcome))

    async def worker(self, batch: WorkerBatch, _subject: str = "") -> None:
        """Keeps what a node tells of a job's processes."""
        self.workers.append(Heard(self._lab.now_ns(), batch))

    async def clock(self, state: ClockState, _subject: str = "") -> None:
        """Passes on the state of a clock that sync published."""
        self._truth.learn(state)

    def _is_new(self, kind: str, name: str) -> bool:
        """Whether this id is new. A publisher that saw no acknowledgement repeats itself; the first time counts."""
        if (kind, name) in self._seen:
            return False
        self._seen.add((kind, name))
        return True

    def _heard(self, message: Message) -> Heard[Message]:
        heard = Heard(self._lab.now_ns(), message)
        if self._on_heard is not None:
            self._on_heard(heard)  # type: ignore[arg-type]  # only the three kinds come here
        return heard
