"""The agents of a simulated fleet in one process: they answer commands, and record arrivals of events and commands.

`bench.fleet` starts the process. On SIGTERM it writes its record, and ends.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import nats

from foliot_schemas import Command, Event, Outcome, decode, encode
from foliot_schemas.subjects import COMMAND, EVENT, OUTCOME


class Arrivals(msgspec.Struct, kw_only=True):
    """The events and commands that arrived, with their times (ns, at this subscriber)."""

    events: list[tuple[str, str, str, str, int]]
    """Id, kind, state, who, time."""
    commands: list[tuple[str, str, str, str, int]]
    """Id, verb, id of the event, node, time."""
    guards: dict[str, int]
    """Refusals by guard."""


class Agents:
    """Carries out each command at once and publishes the outcome. The `deaf` agents do nothing."""

    def __init__(self, client: Any, deaf: frozenset[str]) -> None:
        self._client = client
        self._deaf = deaf
        self.seen = Arrivals(events=[], commands=[], guards={})

    async def on_event(self, raw: Any) -> None:
        """Records an event."""
        now_ns = time.time_ns()
        event = decode(raw.data, Event)
        if event.kind == "refusal":
            self.seen.guards[event.policy] = self.seen.guards.get(event.policy, 0) + 1
        else:
            self.seen.events.append((event.id, event.kind, event.state, event.who, now_ns))

    async def on_command(self, raw: Any) -> None:
        """Records a command, and answers it."""
        now_ns = time.time_ns()
        command = decode(raw.data, Command)
        self.seen.commands.append((command.id, command.verb, command.cause, command.node, now_ns))
        if command.node in self._deaf:
            return
        outcome = Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status="done",
            cause=command.cause, started_ns=now_ns, moved_ns=now_ns, confirmed_ns=now_ns, away=command.away,
            back=command.back, placements=command.placements, fault=command.fault,
        )  # fmt: skip
        # Without waiting for the stream's acknowledgement: the cost of being an agent is not measured here.
        await self._client.publish(
            OUTCOME.subject(outcome.verb, outcome.node), encode(outcome), headers={"Nats-Msg-Id": outcome.id}
        )


async def main(url: str, deaf: frozenset[str]) -> Arrivals:
    """Answers until SIGTERM; returns the arrivals."""
    client = await nats.connect(url)
    agents = Agents(client, deaf)
    await client.subscribe(EVENT.all, cb=agents.on_event)
    await client.subscribe(COMMAND.all, cb=agents.on_command)
    await client.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    gc.collect()
    gc.freeze()
    await ended.wait()
    await client.close()
    return agents.seen


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(msgspec.msgpack.encode(asyncio.run(main(sys.argv[1], frozenset(sys.argv[3:])))))
