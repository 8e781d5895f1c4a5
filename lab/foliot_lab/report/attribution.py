"""Attributes each event and each command to the fault that explains it.

A fault explains events and commands about things on its paths (`blast_radius.py`) between the injection and the end of
the recovery. The recovery ends `RECOVERY_NS` after the healing. The witness may see the traffic back on its former
route later. The recovery then ends `SETTLE_NS` after that: the return belongs to the fault, however long trust takes. A
fault that is not healed lasts to the end of the run.

The end of a trouble belongs to the fault that explained its beginning, however late it comes. A detector that has to
see thousands of packets before it says `sound` takes longer than any recovery of the traffic.

Times are those of arrival in the lab, so that no wrong clock can excuse itself. Several faults may explain an event.
Then the one that explained an earlier event of the same trace counts. Else it is one of this thing alone, before a cut
bus or a missing service, which explain anything; of several, the one injected last.

Contention that the lab saw itself explains its event, and all that follows from that event by its `cause`: the end,
the moves, what takes them back, and refusals. So does traffic that takes another way than the event says. The end of
what was said before second 0 needs no more: jobs that run alone first may load themselves. Where the lab has no jobs
and so no truth about it, contention may be a consequence of a fault. The fault, or Foliot's answer to it, has led the
traffic of two NICs over one link. It explains an event about flows that begin or end at a node of its NICs. Neither
counts among the fault's own events.

That a rank has no processor is explained where the lab saw itself that its process waited for one longer than those of
its peers. That a process is dead is explained where the lab saw itself that it stood still as long. Commands that follow
from either are not.

A cut bus or a missing service also explains everything that follows by its `cause` from an explained event. For all
other faults, a `cause` is not enough: the event must be about the fault's own things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot_lab.measure.outages import UNSEEN
from foliot_lab.report.blast_radius import Scope, scope
from foliot_schemas.event_kinds import CONTENTION, find, is_relief

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.outages import Verdict
    from foliot_lab.scenario.topology import FabricPlan
    from foliot_schemas import Command, Event

RECOVERY_NS = 20_000_000_000
"""The time that a scenario leaves after its last fault."""
SETTLE_NS = 2_000_000_000
"""The time for the outcome of a restore, and for anything else under way when the first pulse came back."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The things of a fault, and the time in which it may explain."""

    fault_id: str
    since_ns: int
    until_ns: int
    scope: Scope

    def lasts_at(self, at_ns: int) -> bool:
        """Whether the fault or its recovery was under way at a time."""
        return self.since_ns <= at_ns <= self.until_ns


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Each fault's events and commands in the order of arrival, and those that nothing explains."""

    events: dict[str, list[Heard[Event]]]
    commands: dict[str, list[Heard[Command]]]
    stray_events: list[Heard[Event]]
    stray_commands: list[Heard[Command]]


def spans(injections: Sequence[Injection], seen: Mapping[str, Verdict], fabric: FabricPlan, end_ns: int) -> list[Span]:
    """The things and times that each fault may explain; `seen` is the witness's verdict on it."""
    found = []
    for injection in injections:
        until_ns = end_ns
        if injection.healed_ns is not None:
            restored_ns = seen.get(injection.fault_id, UNSEEN).restored_ns
            until_ns = max(injection.healed_ns + RECOVERY_NS, (restored_ns or 0) + SETTLE_NS)
        found.append(
            Span(
                fault_id=injection.fault_id,
                since_ns=injection.injected_ns,
                until_ns=until_ns,
                scope=scope(injection.kind, injection.where, fabric),
            )
        )
    return found


def explain(
    events: Sequence[Heard[Event]], commands: Sequence[Heard[Command]], faults: Sequence[Span], *,
    right: Collection[str] | None = None, starved: frozenset[str] = frozenset(),
) -> Explained:  # fmt: skip
    """Sorts events and commands under the faults that explain them.

    Parameters:
        right: the ids of events about flows that are right by the lab's own truth, or end what was said before second
            0; None: it has no truth.
        starved: the ids of events about ranks without a processor, and processes that stood still, that are right by the
            lab's own samples.
    """
    return _Sorter(faults, right, starved).sort(events, commands)


class _Sorter:
    def __init__(self, faults: Sequence[Span], right: Collection[str] | None, starved: frozenset[str]) -> None:
        self._faults = sorted(faults, key=lambda span: (span.scope.anywhere, -span.since_ns))
        self._of_event: dict[str, Span] = {}
        self._of_trace: dict[str, Span] = {}
        self._right = right
        self._starved = starved
        self._of_flows: set[str] = set()
        """Ids of events about flows that are explained, and of those that follow from them."""

    def sort(self, events: Sequence[Heard[Event]], commands: Sequence[Heard[Command]]) -> Explained:
        found = Explained(
            events={span.fault_id: [] for span in self._faults},
            commands={span.fault_id: [] for span in self._faults},
            stray_events=[],
            stray_commands=[],
        )
        for event in sorted(events, key=lambda heard: heard.at_ns):
            span = self._event(event)
            if span is None:
                if self._is_of_flows(event):
                    self._of_flows.add(event.message.id)
                elif self._starved.isdisjoint((event.message.id, event.message.cause)):
                    found.stray_events.append(event)
            else:
                self._of_event[event.message.id] = span
                if event.message.fault:
                    self._of_trace.setdefault(event.message.fault, span)
                found.events[span.fault_id].append(event)
        for command in sorted(commands, key=lambda heard: heard.at_ns):
            span = self._command(command)
            if span is None and command.message.cause in self._of_flows:
                continue
            (found.stray_commands if span is None else found.commands[span.fault_id]).append(command)
        return found

    def _event(self, heard: Heard[Event]) -> Span | None:
        known = self._of_trace.get(heard.message.fault)
        begun = self._of_event.get(heard.message.cause)
        if begun is not None and _ends(heard.message, begun.scope):
            return begun
        for span in self._faults if known is None else (known, *self._faults):
            if span.lasts_at(heard.at_ns) and span.scope.has_event(heard.message):
                return span
        return self._following(heard.message.cause, heard.at_ns)

    def _command(self, heard: Heard[Command]) -> Span | None:
        cause = self._of_event.get(heard.message.cause)
        active = [span for span in self._faults if span.lasts_at(heard.at_ns)]
        judged = [(span, span.scope.parts_of(heard.message)) for span in active]
        parts = [any(part) for part in zip(*(parts for _, parts in judged), strict=True)]
        if parts and all(parts):
            return cause if cause in active else next(span for span, parts in judged if any(parts))
        return self._following(heard.message.cause, heard.at_ns)

    def _is_of_flows(self, heard: Heard[Event]) -> bool:
        event = heard.message
        if event.cause in self._of_flows:
            return True
        if self._right is not None:
            return event.id in self._right
        if event.kind != CONTENTION.name or is_relief(event):
            return False
        flows = event.related.get("flows", ())
        return any(span.lasts_at(heard.at_ns) and span.scope.has_end_of(flows) for span in self._faults)

    def _following(self, cause: str, at_ns: int) -> Span | None:
        span = self._of_event.get(cause)
        return span if span is not None and span.scope.anywhere and span.lasts_at(at_ns) else None


def _ends(event: Event, begun: Scope) -> bool:
    """Whether an event ends a trouble that belongs to a fault.

    The end of a rank's trouble may be told of another node: the one that has the rank by then.
    """
    kind = find(event.kind)
    return is_relief(event) and ((kind is not None and kind.concerns == "rank") or begun.has_event(event))
