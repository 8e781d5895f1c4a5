"""A simulated agent: it carries out its commands and publishes the outcomes.

It confirms nothing on the wire, and is not armed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.simulate.loop import MS
from foliot_schemas import Command, NodePaths, Outcome, Placement

if TYPE_CHECKING:
    from foliot_lab.simulate.bus import Bus
    from foliot_lab.simulate.loop import Loop
    from foliot_lab.simulate.node_clocks import Clock
    from foliot_lab.simulate.processors import Process

_BEGIN_NS = 1 * MS
_ROUTE_NS = 200_000
"""The time of a command, and of each route in it: netlink and the agent's own bookkeeping."""


class Agent:
    """The agent of one node.

    `ways` has the way of the traffic to each service address of a peer. `moved` is how many of them commands have
    changed.
    """

    def __init__(self, name: str, loop: Loop, process: Process, clock: Clock, bus: Bus) -> None:
        self.name = name
        self.process = process
        self.away: set[str] = set()
        self.moves: list[tuple[int, str, int]] = []
        """For each move: its time, its command, and the number of ways."""
        self._placements: dict[tuple[str, str], Placement] = {}
        self._backups: dict[tuple[str, str], Placement] = {}
        self._loop, self._clock, self._bus = loop, clock, bus
        self._free_ns = 0
        bus.subscribe("paths", f"{name}/agent", self._take_paths)
        bus.subscribe("command", f"{name}/agent", self._take_command)

    def ways(self) -> list[tuple[Placement, Placement]]:
        """The placement of each service address, and the one that its traffic takes."""
        return [
            (way, self._backups.get(key, way) if way.rail in self.away else way)
            for key, way in self._placements.items()
        ]

    def _take_paths(self, _channel: str, paths: NodePaths) -> None:
        if paths.node != self.name:
            return
        if not self._placements:
            self._placements = {(way.peer, way.rail): way for way in paths.placements}
        self._backups = {(way.peer, way.rail): way for way in paths.backups}

    def _take_command(self, _channel: str, command: Command) -> None:
        if command.node != self.name or command.advice:
            return
        start_ns = self.process.wake(max(self._loop.now_ns, self._free_ns))
        count = len(command.placements) + len(command.away) + len(command.back)
        self._free_ns = self.process.work(start_ns, _BEGIN_NS + count * _ROUTE_NS)
        self._loop.at(start_ns, self._judge, command, self._free_ns)

    def _judge(self, command: Command, done_ns: int) -> None:
        now_ns = self._loop.now_ns
        synchronised = self._clock.bound_ns(now_ns) >= 0
        if not synchronised or self._clock.now_ns(now_ns) > command.deadline_ns:
            self._answer(command, "refused", now_ns, now_ns)
            return
        self._loop.at(done_ns, self._do, command, now_ns)

    def _do(self, command: Command, began_ns: int) -> None:
        before = {(way.peer, way.rail): taken for way, taken in self.ways()}
        self.away |= set(command.away)
        self.away -= set(command.back)
        for way in command.placements:
            self._placements[way.peer, way.rail] = way
        after = {(way.peer, way.rail): taken for way, taken in self.ways()}
        self.moves.append((self._loop.now_ns, command.id, sum(before[key] != way for key, way in after.items())))
        self._answer(command, "done", began_ns, self._loop.now_ns)

    def _answer(self, command: Command, status: str, began_ns: int, now_ns: int) -> None:
        outcome = Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=self.name,
            status=status,  # type: ignore[arg-type]
            cause=command.cause, started_ns=self._clock.now_ns(began_ns), moved_ns=self._clock.now_ns(now_ns),
            away=command.away, back=command.back, placements=command.placements, fault=command.fault,
        )  # fmt: skip
        self._bus.publish(f"{self.name}/agent", "outcome", outcome, now_ns)
