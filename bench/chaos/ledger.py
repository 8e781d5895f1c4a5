"""Changes done twice, and messages lost: streams, logs and kernels, compared after the rounds.

There are two signs of *done twice*. A host's kernel made the same change more often than different commands asked for
it, within the time in which each could be carried out. Or an agent's log, which outlives it, says twice that it carried
out one command, with changes both times.

There are four signs of *lost*. The detector's log names an event that the stream lacks. The fault demands an event that
no service told. The remediator has still not taken an event of the stream after a while. A command has neither an
outcome nor a refusal ("no answer").
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import nats

from foliot.bus import connection
from foliot.bus.retry import until_done
from foliot_agent.core import overlay_layout as overlay
from foliot_agent.core.overlay_layout import Layout
from foliot_schemas import Command, Event, Outcome, decode
from foliot_schemas.subjects import COMMAND, EVENT, OUTCOME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bench.chaos.rounds import Demand, Result
    from bench.chaos.routes import Change
    from foliot_lab.services.lab import Lab

_SLACK_NS = 300_000_000
"""The time from the judgement of a command to the kernel's message about the change; a busy machine makes that long."""
_FETCH = 256
_PATIENCE_S = 60.0
_TAKEN_WITHIN_S, _LOOK_S = 15.0, 0.5
"""The time within which messages must be taken, and the pause between two looks. A server that was killed may have
forgotten the last acknowledgements, and delivers those messages again five seconds later."""
_DURABLES = {EVENT.stream: "remediator-events", OUTCOME.stream: "remediator-outcomes"}
_KIND = {"carrier": "flap", "silent": "path"}


class Kept(msgspec.Struct, kw_only=True):
    """The content of the streams."""

    events: dict[str, Event] = {}
    commands: dict[str, Command] = {}
    outcomes: dict[str, list[Outcome]] = {}
    """Outcomes by command."""
    waiting: dict[str, int] = {}
    """Messages that a durable consumer has not taken yet."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An event or change that was done twice or lost, and its time, which assigns it to a round."""

    kind: str
    at_ns: int
    what: str


async def read(lab: Lab) -> Kept:
    """Everything that the streams keep. A cluster that has just lost its leader takes a while to answer.

    Raises:
        TimeoutError: it did not within a minute.
    """
    async with asyncio.timeout(_PATIENCE_S):
        return await until_done(lambda: _read(lab), "ledger_awaited")


async def _read(lab: Lab) -> Kept:
    client = await nats.connect(**connection.options(lab.listener, "ledger"))
    stream, kept = client.jetstream(timeout=5), Kept()
    try:
        kept.waiting = await _waiting(stream)
        async for message in _all(stream, EVENT.stream):
            event = decode(message.data, Event)
            kept.events[event.id] = event
        async for message in _all(stream, COMMAND.stream):
            command = decode(message.data, Command)
            kept.commands[command.id] = command
        async for message in _all(stream, OUTCOME.stream):
            outcome = decode(message.data, Outcome)
            kept.outcomes.setdefault(outcome.command, []).append(outcome)
    finally:
        await client.close()
    return kept


async def _waiting(stream: Any) -> dict[str, int]:
    """By durable consumer, the messages that it has not taken although it had the time."""
    until_s = time.monotonic() + _TAKEN_WITHIN_S
    while True:
        waiting = {}
        for name, durable in _DURABLES.items():
            info = await stream.consumer_info(name, durable)
            waiting[durable] = int(info.num_pending) + int(info.num_ack_pending)
        if not any(waiting.values()) or time.monotonic() > until_s:
            return waiting
        await asyncio.sleep(_LOOK_S)


async def _all(stream: Any, name: str) -> Any:
    reading = await stream.pull_subscribe("", stream=name)
    left = (await stream.stream_info(name)).state.messages
    while left > 0:
        for message in await reading.fetch(_FETCH, timeout=5):
            await message.ack()
            left -= 1
            yield message


def audit(lab: Lab, kept: Kept, changes: list[Change], results: Iterable[Result]) -> list[Finding]:
    """All findings."""
    rounds = list(results)
    demands = [demand for result in rounds for demand in result.demands]
    found = [
        *_said_twice(lab, kept), *_changed_twice(lab, kept, changes), *_unstored(lab, kept),
        *_untold(lab, kept, demands),
        *_unanswered(lab, kept), *_untaken(kept, rounds),
    ]  # fmt: skip
    for result in rounds:
        for finding in found:
            if result.from_ns <= finding.at_ns <= result.until_ns:
                result.done_twice += finding.kind == "done twice"
                result.lost += finding.kind == "lost"
    return found


# -- done twice -------------------------------------------------------------------------------------------------------


def _said_twice(lab: Lab, kept: Kept) -> Iterator[Finding]:
    for host in lab.plan.hosts:
        did = collections.Counter(
            line["command"]
            for line in _log(lab.folder / f"{host}-agent.log", "outcome_made")
            if line["status"] == "done"
        )
        for command, times in did.items():
            if times > 1 and command in kept.commands:
                at_ns = _lab_ns(lab, kept.commands[command].issued_ns)
                yield Finding(kind="done twice", at_ns=at_ns, what=f"{host} says it did {command} {times} times")


def _changed_twice(lab: Lab, kept: Kept, changes: list[Change]) -> Iterator[Finding]:
    asked = collections.defaultdict(list)
    for command in kept.commands.values():
        if not command.advice:
            span = (_lab_ns(lab, command.issued_ns), _lab_ns(lab, command.deadline_ns) + _SLACK_NS)
            for part in _parts(lab, command):
                asked[part].append((*span, command.id))
    for outcome in (each for told in kept.outcomes.values() for each in told if each.armed):
        # No command asked for changes that a node made by itself.
        over_ns = max(outcome.started_ns, outcome.moved_ns)  # if it was so already, there is no time of the move
        span = (_lab_ns(lab, outcome.started_ns), _lab_ns(lab, over_ns) + _SLACK_NS)
        for part in _parts(lab, outcome):
            asked[part].append((*span, ""))
    made = collections.defaultdict(list)
    for change in changes:
        made[change[1:]].append(change.at_ns)
    for part, spans in asked.items():
        for from_ns, until_ns, command_id in (span for span in spans if span[2]):
            times = [at_ns for at_ns in made.get(part, ()) if from_ns <= at_ns <= until_ns]
            askers = sum(begin <= until_ns and from_ns <= end for begin, end, _ in spans)
            if len(times) > askers:
                what = f"the kernel of {part[0]} made {part[1:]} {len(times)} times while {command_id} was good"
                yield Finding(kind="done twice", at_ns=times[-1], what=what)


def _parts(lab: Lab, command: Command | Outcome) -> Iterator[tuple[str, int, str, str]]:
    """The changes that a command asks for, or that a node reports as its own, in the form of the kernel's messages."""
    nodes = {node.name: node for node in lab.nodes}
    layout = Layout.of(lab.settings(command.node))
    for placement in command.placements:
        for first in (overlay.IN_FORCE_TABLE, overlay.BACKUP_TABLE):
            route = overlay.route(layout, nodes[placement.peer], placement, first)
            yield command.node, route.table, route.destination, route.gateway
    for rails, gateway in ((command.away, "away"), (command.back, "")):
        for rail in rails:
            rule = overlay.away_rule(layout, rail)
            yield command.node, rule.table, rule.prefix.partition("/")[0], gateway


# -- lost -------------------------------------------------------------------------------------------------------------


def _unstored(lab: Lab, kept: Kept) -> Iterator[Finding]:
    """Events that the detector decided and the stream lacks."""
    known_ns = {event.id: event.at_ns for event in kept.events.values()}
    for line in _log(lab.folder / "detector.log", "event_published"):
        if line["id"] not in known_ns:
            yield Finding(kind="lost", at_ns=_logged_ns(lab, line), what=f"event {line['id']} is not in the stream")


def _untold(lab: Lab, kept: Kept, demands: list[Demand]) -> Iterator[Finding]:
    for demand in demands:
        kind = _KIND[demand.fault]
        told = any(
            event.kind == kind and event.state in {"down", "silent"} and demand.nic in event.who
            and demand.from_ns - _SLACK_NS <= _lab_ns(lab, event.at_ns) <= demand.until_ns
            for event in kept.events.values()
        )  # fmt: skip
        if not told:
            yield Finding(kind="lost", at_ns=demand.from_ns, what=f"nobody told that {demand.nic} was {demand.fault}")


def _unanswered(lab: Lab, kept: Kept) -> Iterator[Finding]:
    given_up = {event.evidence.get("command") for event in kept.events.values() if event.policy == "agent"}
    for command in kept.commands.values():
        if command.id not in kept.outcomes and command.id not in given_up:
            yield Finding(
                kind="lost", at_ns=_lab_ns(lab, command.issued_ns), what=f"command {command.id} was never answered"
            )


def _untaken(kept: Kept, rounds: list[Result]) -> Iterator[Finding]:
    for durable, waiting in kept.waiting.items():
        if waiting:
            yield Finding(kind="lost", at_ns=rounds[-1].until_ns, what=f"{waiting} messages wait for {durable}")


# -- logs and times ---------------------------------------------------------------------------------------------------


def _log(path: Path, event: str) -> Iterator[dict[str, Any]]:
    for text in path.read_text(errors="replace").splitlines():
        if f'"{event}"' in text:
            line = json.loads(text)
            if line.get("event") == event:
                yield line


def _logged_ns(lab: Lab, line: dict[str, Any]) -> int:
    return lab.time.now_ns() - round(
        (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(line["timestamp"])).total_seconds() * 1e9
    )


def _lab_ns(lab: Lab, reference_ns: int) -> int:
    raw_ns = lab.truth.raw_ns(reference_ns)
    return 0 if raw_ns is None else lab.time.of_raw(raw_ns)
