"""Simulated shells of detector and remediator around the real cores.

They read in bursts, and timers run between bursts. An event loop delivers the content of a socket in pieces of a
buffer's size. As in asyncio and nats-py, a due timer runs before the messages that were read in the same round. So a
process that returns from a halt judges once before it has read anything.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from foliot_detector.core.pipeline import Pipeline
from foliot_lab.simulate.loop import MS
from foliot_remediator.core.actions.decision import Decision
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.shell.fleet_clock import FleetClock
from foliot_schemas import DelayBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_detector.settings import DetectorSettings
    from foliot_lab.simulate.bus import Bus
    from foliot_lab.simulate.loop import Loop
    from foliot_lab.simulate.processors import Process
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Event, Node

_TICK_NS = 10 * MS
_PIECE = 7
"""Messages read at once: 32 KiB, of batches of some 4.5 kB."""
_PUBLISH_NS = 200_000
_LEASE = 7


class Heard(NamedTuple):
    """A message of one process, and the time when that process wrote it into its connection."""

    at_ns: int
    message: Any


class Costs(NamedTuple):
    """Processor time of a step of a reader, ns."""

    of: dict[str, int]
    """The cost of a message, by channel."""
    tick_ns: int


class Reader:
    """A process that reads messages one after the other, and has a timer."""

    def __init__(self, name: str, loop: Loop, process: Process, bus: Bus, costs: Costs) -> None:
        self.name = name
        self.process = process
        self._loop = loop
        self._bus = bus
        self._costs = costs
        self._buffer: collections.deque[tuple[str, Any]] = collections.deque()
        self._awake = False
        self._due_ns = loop.now_ns + _TICK_NS
        for channel in costs.of:
            bus.subscribe(channel, name, self._arrive)
        loop.at(self._due_ns, self._ring)

    def take(self, message: Any, at_ns: int) -> int:
        """Gives a message to the core at a time; returns the time when all resulting messages have been published."""
        raise NotImplementedError

    def tick(self, at_ns: int) -> int:
        """Lets time pass in the core; returns as `take` does."""
        raise NotImplementedError

    def _arrive(self, channel: str, message: Any) -> None:
        self._buffer.append((channel, message))
        self._rouse()

    def _ring(self) -> None:
        if self._due_ns <= self._loop.now_ns:
            self._rouse()

    def _rouse(self) -> None:
        if not self._awake:
            self._awake = True
            self._loop.at(self.process.wake(self._loop.now_ns), self._turn)

    def _turn(self) -> None:
        at_ns = self._loop.now_ns
        piece = [self._buffer.popleft() for _ in range(min(_PIECE, len(self._buffer)))]
        if self._due_ns <= at_ns:
            at_ns = self.tick(self.process.work(at_ns, self._costs.tick_ns))
            self._due_ns = at_ns + _TICK_NS
            self._loop.at(self._due_ns, self._ring)
        # Each channel has a task of its own, which takes all messages read from it.
        for of in dict.fromkeys(channel for channel, _ in piece):
            for channel, message in piece:
                if channel == of:
                    at_ns = self.take(message, self.process.work(at_ns, self._costs.of[channel]))
        if at_ns > self._loop.now_ns:
            self._loop.at(at_ns, self._look_up)
        else:
            self._look_up()

    def _look_up(self) -> None:
        if self._buffer or self._due_ns <= self._loop.now_ns:
            self._turn()
        else:
            self._awake = False


class Detector(Reader):
    """The detector's service: see `foliot_detector.service`."""

    def __init__(
        self, loop: Loop, process: Process, bus: Bus, settings: DetectorSettings, nodes: Iterable[Node]
    ) -> None:
        super().__init__("detector", loop, process, bus, Costs({"delay": 900_000, "port": 200_000}, 150_000))
        self.core = Pipeline(settings)
        self.events: list[Heard] = []
        self.taken: list[Heard] | None = None
        """If this is a list, it keeps all messages that arrive."""
        self._measured_ns = loop.now_ns
        for node in nodes:
            self.core.observe(node)

    def take(self, message: Any, at_ns: int) -> int:
        """Gives the core an observation."""
        if self.taken is not None:
            self.taken.append(Heard(at_ns, message))
        return self._publish(self.core.observe(message, self._elapsed_ns(at_ns)), at_ns)

    def tick(self, at_ns: int) -> int:
        """Lets deadlines pass."""
        return self._publish(self.core.tick(self._elapsed_ns(at_ns)), at_ns)

    def _elapsed_ns(self, at_ns: int) -> int:
        before_ns, self._measured_ns = self._measured_ns, at_ns
        return at_ns - before_ns

    def _publish(self, events: list[Event], at_ns: int) -> int:
        for event in events:
            at_ns = self.process.work(at_ns, _PUBLISH_NS)
            self.events.append(Heard(at_ns, event))
            self._bus.publish(self.name, "event", event, at_ns)
        return at_ns


class VirtualFleetClock(FleetClock):
    """The remediator's clock, on virtual time."""

    def __init__(self, at_ns: int) -> None:
        super().__init__()
        self.at_ns = at_ns
        self._until_known = _Constant(at_ns)  # type: ignore[assignment]

    def local_ns(self) -> int:
        """The time of the simulation, which drives it."""
        return self.at_ns


class _Constant:
    def __init__(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def now_ns(self) -> int:
        return self._at_ns


class Service(Reader):
    """The remediator's service, which holds the lease: see `foliot_remediator.service`."""

    def __init__(
        self, loop: Loop, process: Process, bus: Bus, settings: RemediatorSettings, nodes: Iterable[Node]
    ) -> None:
        costs = Costs({"delay": 300_000, "port": 100_000, "event": 500_000, "outcome": 300_000}, 200_000)
        super().__init__("remediator", loop, process, bus, costs)
        self.core = Remediator(settings)
        self.decisions: list[Heard] = []
        self._clock = VirtualFleetClock(loop.now_ns)
        for node in nodes:
            self.core.observe(node, loop.now_ns)

    def take(self, message: Any, at_ns: int) -> int:
        """Gives the core a message."""
        self._clock.at_ns = at_ns
        if isinstance(message, DelayBatch):
            self._clock.learn(message)
        now_ns = self._clock.now_ns()
        self.core.hold(_LEASE, now_ns)
        return self._act(self.core.observe(message, now_ns), at_ns)

    def tick(self, at_ns: int) -> int:
        """Lets time pass."""
        self._clock.at_ns = at_ns
        now_ns = self._clock.now_ns()
        self.core.hold(_LEASE, now_ns)
        return self._act(self.core.tick(now_ns), at_ns)

    def _act(self, actions: list[Any], at_ns: int) -> int:
        for action in actions:
            at_ns = self.process.work(at_ns, _PUBLISH_NS)
            if not isinstance(action, Decision):
                self._bus.publish(self.name, "paths", action, at_ns)
                continue
            self.decisions.append(Heard(at_ns, action))
            for command in action.commands:
                self._bus.publish(self.name, "command", command, at_ns)
            for refusal in action.refusals:
                self._bus.publish(self.name, "event", refusal, at_ns)
        return at_ns
