"""Tells what happens in a lab, in plain words. It waits a second, because messages arrive out of order."""

from __future__ import annotations

import asyncio
import collections
import heapq
from typing import TYPE_CHECKING, TextIO

from foliot.text.events import sentence
from foliot_lab.report.replace_orders import REPLACE, in_words
from foliot_schemas import Command, Event, Outcome, event_kinds

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.clock_truth import LabTime, Truth
    from foliot_lab.scenario.spec import FaultSpec

_GATHER_S = 0.4
"""Commands and outcomes of one fault are told together, because they come within milliseconds of one another."""
_UNASKED = "by themselves"
_HOLD_S = 1.0
"""Delay of a line after its event, so that lines stand in the order of their times. A line known later is written
when it is known. The delay is longer than `_GATHER_S`, and longer than the witness takes to look."""

_BY_THE_DOZEN = {"path", "anything"}
"""Kinds of event that come by the dozen. A lost NIC takes all its paths along, and every move for them is refused."""

_ACTIONS = {
    "link-down": ("cutting the cable of {where}", "plugging the cable of {where} in again"),
    "admin-down": ("setting {where} down, as an administrator would", "setting {where} up again"),
    "flap": ("{where} loses its link", "{where} has its link again"),
    "drop": ("{where} silently drops all packets, both ways", "{where} carries packets again"),
    "drop-one-way": ("{where} silently drops all packets, one way", "{where} carries packets again"),
    "loss": ("{where} drops {share:.0%} of its packets", "{where} drops nothing any more"),
    "loss-one-way": ("{where} drops {share:.0%} of its packets, one way", "{where} drops nothing any more"),
    "rate": ("{where} falls to {mbps:g} Mb/s", "{where} has its rate again"),
    "mtu": (
        "{where} silently drops packets of more than {bytes} bytes, both ways",
        "{where} carries packets of every size again",
    ),
    "reload": (
        "taking the device of {where} away, as a driver does that is reloaded",
        "{where} has a new device, and its carrier",
    ),
    "cpu": ("a hog takes {share:.0%} of every processor", "the hog is gone"),
    "kill": ("killing {where}", "{where} may start again"),
    "stop": ("stopping {where} (SIGSTOP)", "{where} goes on (SIGCONT)"),
    "clock-step": ("stepping the clock of {where} by {offset_ns:,} ns", "stepping the clock of {where} back"),
    "restart": ("restarting {where}", "{where} was restarted"),
    "partition": ("{where} do not hear each other any more", "{where} hear each other again"),
    "throttle": ("halting {where} for {share:.0%} of the time", "{where} runs freely again"),
    "data-slow": ("{where} waits {ms:g} ms longer for the data of each step", "{where} has its data in time again"),
    "compute-slow": ("{where} computes each step for {ms:g} ms longer", "{where} computes as before"),
    "hang": ("{where} begins no further step", "{where} goes on"),
    "mismatch": ("{where} begins another collective than the others", ""),
    "reset": ("resetting the connections of {where}, as a firewall does", ""),
    "cut-off": ("pulling all cables of {where}", "plugging all cables of {where} in again"),
    "xid": ("the kernel of {where} logs XID {number}", ""),
    "drain": ("draining {where}", "{where} may be used again"),
    "bus-cut": ("cutting {where} off the bus", "{where} is on the bus again"),
}


class Narrator:
    """Writes one line for each event, with the seconds since the workload started.

    Parameters:
        named: the lab's name of a thing, by Foliot's.
    """

    def __init__(self, time: LabTime, truth: Truth, out: TextIO, named: Callable[[str], str] = str) -> None:
        self._time = time
        self._truth = truth
        self._out = out
        self._named = named
        self.zero_ns = time.now_ns()
        """Second 0, lab time."""
        self._gathered: dict[tuple[str, ...], list[Event | Command | Outcome]] = {}
        self._held: list[tuple[int, str]] = []
        """A heap of lines with the lab times of their events."""

    def start(self, faults: tuple[FaultSpec, ...], in_s: float = 0.0) -> None:
        """Sets second 0 to now, or to a moment ahead."""
        self.zero_ns = self._time.now_ns() + round(in_s * 1e9)
        self._faults = {fault.id: fault for fault in faults}

    def say(self, text: str, *, at_ns: int | None = None, who: str = "lab") -> None:
        """Writes one line, in its turn."""
        now_ns = self._time.now_ns()
        at_ns = at_ns or now_ns
        seconds = (at_ns - self.zero_ns) * 1e-9
        heapq.heappush(self._held, (at_ns, f"{seconds:9.3f} s  {who:<11} {text}\n"))
        wait_s = min(max(0.0, _HOLD_S - (now_ns - at_ns) * 1e-9), _HOLD_S)  # times of a wrong clock may lie ahead
        asyncio.get_running_loop().call_later(wait_s, self._write, at_ns)

    def finish(self) -> None:
        """Writes all lines that are held, and those that wait to be told together."""
        for key in list(self._gathered):
            self._tell(key)
        if self._held:
            self._write(max(at_ns for at_ns, _ in self._held))

    def _write(self, until_ns: int) -> None:
        while self._held and self._held[0][0] <= until_ns:
            self._out.write(heapq.heappop(self._held)[1])
        self._out.flush()

    def injected(self, injection: Injection) -> None:
        """A fault began or ended."""
        edge = injection.edges[-1]
        fault = self._faults[injection.fault_id]
        words = _ACTIONS[injection.kind][0 if edge.down else 1]
        self.say(words.format_map({name: getattr(fault, name) for name in fault.__struct_fields__}), at_ns=edge.at_ns)

    def moved(self, changed: int, moved_ns: int, injected_ns: int) -> None:
        """The witness saw all pairs flow again."""
        after_ms = (moved_ns - injected_ns) * 1e-6
        self.say(f"on the wire: {changed} pairs changed their way, all flow after {after_ms:.1f} ms", at_ns=moved_ns)

    def hear(self, message: Event | Command | Outcome) -> None:
        """Tells of an event or refusal, and of commands and of outcomes, those of one fault together.

        Events that come by the dozen are told together as well.
        """
        if not isinstance(message, Event):
            self._gather((type(message).__name__, message.verb, message.fault or message.cause), message)
            return
        kind = event_kinds.find(message.kind)
        if kind is not None and kind.concerns in _BY_THE_DOZEN:
            self._gather(("Event", message.kind, message.state, message.policy), message)
        else:
            self._tell_events([message])

    def _gather(self, key: tuple[str, ...], message: Event | Command | Outcome) -> None:
        if key not in self._gathered:
            self._gathered[key] = []
            asyncio.get_running_loop().call_later(_GATHER_S, self._tell, key)
        self._gathered[key].append(message)

    def _tell(self, key: tuple[str, ...]) -> None:
        messages = self._gathered.pop(key, [])
        events = [message for message in messages if isinstance(message, Event)]
        commands = [message for message in messages if isinstance(message, Command)]
        outcomes = [message for message in messages if isinstance(message, Outcome)]
        if events:
            self._tell_events(events)
        if commands:
            self._tell_commands(commands)
        if outcomes:
            self._tell_outcomes(outcomes)

    def _tell_events(self, events: list[Event]) -> None:
        first = min(events, key=lambda event: event.at_ns)
        named = self._named(first.who)
        who = named if len(events) == 1 else f"{named} and {len(events) - 1} more"
        kind = event_kinds.find(first.kind)
        speaker = "detector" if kind is None else kind.publisher
        self.say(sentence(first, who), at_ns=self._lab_ns(first.at_ns), who=speaker)

    def _tell_commands(self, commands: list[Command]) -> None:
        if commands[0].verb == REPLACE:
            self._tell_replacements(commands)
        nodes = sorted({command.node for command in commands})
        verb = commands[0].verb
        advice = " (as advice)" if commands[0].advice else ""
        told = f"{nodes[0]} is told" if len(nodes) == 1 else f"{len(nodes)} nodes are told ({', '.join(nodes)})"
        self.say(
            f"{verb}: {told}{advice}",
            who="remediator",
            at_ns=self._lab_ns(min(command.issued_ns for command in commands)),
        )

    def _tell_replacements(self, commands: list[Command]) -> None:
        at_ns = self._lab_ns(min(command.issued_ns for command in commands))
        for words in sorted({words for command in commands for words in in_words(command)}):
            self.say(words, who="remediator", at_ns=at_ns)

    def _tell_outcomes(self, outcomes: list[Outcome]) -> None:
        counts = collections.Counter(_action(outcome) for outcome in outcomes)
        words = ", ".join(_counted(count, status) for status, count in counts.most_common())
        confirmed = sum(len(outcome.confirmations) for outcome in outcomes)
        expected = sum(outcome.expected for outcome in outcomes)
        wire = f"; {confirmed} of {expected} pairs confirmed on the wire" if expected else ""
        if outcomes[0].verb == REPLACE:  # processes confirm it, no packet does
            wire = ""
        reasons = sorted({outcome.reason for outcome in outcomes if outcome.status in {"refused", "failed"}})
        why = f"; {'; '.join(reasons)}" if reasons else ""
        last_ns = max(max(outcome.moved_ns, outcome.confirmed_ns, outcome.started_ns) for outcome in outcomes)
        self.say(f"{outcomes[0].verb}: {words}{wire}{why}", who="agents", at_ns=self._lab_ns(last_ns))

    def _lab_ns(self, reference_ns: int) -> int:
        raw_ns = self._truth.raw_ns(reference_ns)
        return self._time.now_ns() if raw_ns is None else self._time.of_raw(raw_ns)


def _action(outcome: Outcome) -> str:
    """The action of an outcome, or the reason for none.

    A node moves something by itself only if there was something to move.
    """
    return _UNASKED if outcome.armed and outcome.status == "done" else outcome.status


def _counted(count: int, status: str) -> str:
    return f"{count} by itself" if status == _UNASKED and count == 1 else f"{count} {status}"
