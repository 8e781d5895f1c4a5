"""Processes: one from which nothing comes at all, neither probes on any path nor messages on the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_detector.core.detectors.ending import ended
from foliot_schemas import Event

if TYPE_CHECKING:
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

_CHECKS = 10
"""Looks per silence time: a verdict is late by at most a tenth of it."""
_MOST = 2
"""Silence times that a process has at most if its words had gaps lately."""


class ProcessDownDetector:
    """Events of kind ``process``.

    A process is declared dead only if at least half of the nodes not yet dead spoke on the bus throughout the silence
    time. Where most are gone at once, it is the bus or this detector that was away.

    The times at which the others sent their words tell how long a node has been silent. So what this detector has not
    read yet, or has left out, is no silence. A node that never spoke here is not missed.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._silence_ns = round(inventory.settings.process_silence_s * 1e9)
        self._inventory = inventory
        self._dead: dict[str, Event] = {}
        self._checked_ns = 0
        self._heard_to_ns = 0
        """Until when at least half of the nodes have spoken."""
        self._quorum_since_ns: int | None = None

    def resume(self, event: Event) -> None:
        """Waits for a process that an earlier run said to be dead."""
        if event.kind == "process" and event.state == "dead":
            self._dead[event.who.partition("/")[0]] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:  # noqa: ARG002 - the fleet keeps the signs of life
        """Nothing: verdicts come with time."""
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Events for nodes that are missed, and for nodes that are back."""
        if now_ns - self._checked_ns < self._silence_ns // _CHECKS:
            return []
        self._checked_ns = now_ns
        self._dead = {node: death for node, death in self._dead.items() if node in self._inventory.nodes}
        liveness = self._inventory.liveness
        living = liveness.present(self._dead)
        heard_to_ns = liveness.heard_to_ns(living)
        # One that an earlier run missed has no time of its own here before it speaks on the bus.
        known = [node for node in self._dead if liveness.on_bus_ns(node)]
        until_ns = heard_to_ns or now_ns
        back = [node for node in known if until_ns - liveness.last_ns(node) < self._inventory.silence_ns(node)]
        events = [self._alive(node, now_ns) for node in back]
        before_ns, self._heard_to_ns = self._heard_to_ns, heard_to_ns
        silence_ns = liveness.silence_ns(living, self._silence_ns)
        # Of those cut off together one is always the first to have been silent for long; the others must have spoken
        # since.
        if now_ns - heard_to_ns > silence_ns // 2:
            self._quorum_since_ns = None
        elif self._quorum_since_ns is None or heard_to_ns - before_ns > silence_ns // 2:
            self._quorum_since_ns = heard_to_ns
        if self._quorum_since_ns is None or heard_to_ns - self._quorum_since_ns < silence_ns:
            return events
        speaking = liveness.count_speaking(living, heard_to_ns - silence_ns // 2)
        missed = liveness.quiet(living, heard_to_ns, self._silence_ns, _MOST)
        return events + [self._died(node, heard_to_ns, speaking) for node in missed]

    def _died(self, node: str, heard_to_ns: int, speaking: int) -> Event:
        since_ns = self._inventory.at_ns(node, self._inventory.liveness.last_ns(node))
        fault = f"{node}/probe/dead-{since_ns}"
        self._dead[node] = event = Event(
            id=fault,
            kind="process",
            who=f"{node}/probe",
            state="dead",
            at_ns=self._inventory.at_ns(node, heard_to_ns),
            since_ns=since_ns,
            evidence={
                "silent_ms": (heard_to_ns - self._inventory.liveness.last_ns(node)) / 1e6,
                "bus_silent_ms": (heard_to_ns - self._inventory.liveness.on_bus_ns(node)) / 1e6,
                "nodes_speaking": speaking,
            },
            fault=fault,
        )
        return event

    def _alive(self, node: str, now_ns: int) -> Event:
        death = self._dead.pop(node)
        at_ns = self._inventory.at_ns(node, now_ns)
        return ended(death, "alive", at_ns, {"silent_ms": (at_ns - death.since_ns) / 1e6})
