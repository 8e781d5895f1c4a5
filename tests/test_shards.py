"""A fleet that is shared out: several detectors and remediators do together what one of each does.

Each hears of its own part alone.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec
import pytest

from draws import draws
from foliot.node.shard import WHOLE, Shard
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_lab.simulate.fault_storm import FaultStorm, StormSpec
from foliot_lab.simulate.probe_messages import ProbeMessages
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_remediator.core.actions.decision import Decision
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import Event, Outcome
from foliot_schemas.names import node_of

START = 1_800_000_000_000_000_000
TICK = 10_000_000
NODES = 120


class Said(NamedTuple):
    """What a fleet's detectors and remediators said, however many."""

    events: list[Event]
    commands: list
    refusals: list[Event]
    paths: dict
    """Per node and number of the writer, what was last written."""


class Central:
    """Detectors and remediators on one bus, in virtual time; agents do at once what they are told."""

    def __init__(self, shards: list[Shard], fleet: SyntheticFleet) -> None:
        silent = {"report_ms": 400.0, "late_silence_s": 2.5, "process_silence_s": 3_600.0}
        self.detectors = [Pipeline(DetectorSettings(**silent), shard) for shard in shards]
        self.remediators = [
            Remediator(
                RemediatorSettings(
                    primary="first", probation_s=1.0, healthy_within_s=1.0, clock_stale_s=3.5, moves_per_minute=100_000,
                    nics_away_share=1.0,
                ),
                shard,
            )
            for shard in shards
        ]  # fmt: skip
        self.now_ns = START
        self.said = Said([], [], [], {})
        for core in self.detectors:
            for number in range(fleet.nodes):
                core.observe(fleet.node(number))
        for core in self.remediators:
            for number in range(fleet.nodes):
                core.observe(fleet.node(number), START)
            core.hold(1, START)

    def advance(self, until_ns: int) -> None:
        """Lets time pass."""
        while self.now_ns + TICK <= until_ns:
            self.now_ns += TICK
            for detector in self.detectors:
                self._publish(detector.tick(TICK))
            for number, remediator in enumerate(self.remediators):
                self._act(number, remediator.tick(self.now_ns))

    def hear(self, message) -> None:
        """All of them, as the bus has it."""
        for detector in self.detectors:
            self._publish(detector.observe(message))
        self._tell(message)

    def _publish(self, events) -> None:
        self.said.events.extend(events)
        for event in events:
            self._tell(event)

    def _tell(self, message) -> None:
        for number, remediator in enumerate(self.remediators):
            self._act(number, remediator.observe(message, self.now_ns))

    def _act(self, number: int, actions) -> None:
        for action in actions:
            if isinstance(action, Decision):
                self.said.refusals.extend(action.refusals)
                self.said.commands.extend(action.commands)
                for command in action.commands:
                    self._answer(command)
            else:
                # Each shard has its own turns to write.
                self.said.paths[action.node, number] = msgspec.structs.replace(action, decided_ns=0)

    def _answer(self, command) -> None:
        outcome = Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status="done",
            started_ns=self.now_ns, moved_ns=self.now_ns, away=command.away, back=command.back,
            placements=command.placements, fault=command.fault,
        )  # fmt: skip
        self._tell(outcome)


def storm(seed: int, seconds: float = 3.0) -> StormSpec:
    """Enough of it that shards' borders lie in it."""
    return StormSpec(events_per_s=24.0, seconds=seconds, seed=seed, nic_share=0.4, report_s=0.4)


def cuts(seed: int) -> list[str]:
    """Borders through some of the storm's faults.

    Of six peers of a lost NIC, the farthest is another shard's; so is the end of a silent path.
    """
    fleet = SyntheticFleet(NODES, degree=6)
    steps = [*FaultStorm(storm(seed), fleet).steps()]
    lost, cut = ([step for step in steps if step.kind == kind] for kind in ("lose", "cut"))
    borders = [step.node + 3 for step in lost[::8]] + [max(step.node, step.peer) for step in cut[::8]]
    return sorted({fleet.name(border) for border in borders})


def weather(shards: list[Shard], spec: StormSpec) -> Central:
    """A storm over a fleet."""
    fleet = SyntheticFleet(NODES, degree=6, report_s=spec.report_s)
    central, messages = Central(shards, fleet), ProbeMessages(fleet)
    for number in range(fleet.nodes):
        central.hear(fleet.report(number, START))
    begin_ns = START + 500_000_000  # all are armed
    for step in FaultStorm(spec, fleet).steps():
        at_ns = begin_ns + round(step.at_s * 1e9)
        central.advance(at_ns)
        for message in messages.of(step, at_ns):
            central.hear(message)
    return central


def shards_at(*cuts: str) -> list[Shard]:
    """Those between the cuts."""
    bounds = ("", *cuts, "")
    return [Shard(*bound) for bound in itertools.pairwise(bounds)]


@pytest.mark.parametrize("seed", [2 + number for number in draws(1)])
def test_shards_say_together_what_one_says(seed):
    """The same events, and the same commands because of them; none is missing, none is said twice."""
    spec, borders = storm(seed), cuts(seed)
    whole, parts = weather([WHOLE], spec), weather(shards_at(*borders), spec)
    events = Counter((event.id, event.who, event.state) for event in whole.said.events)
    assert Counter((event.id, event.who, event.state) for event in parts.said.events) == events
    assert len(events) > 60
    assert {event.state for event in whole.said.events} == {"down", "up", "silent", "speaking"}

    def asked(central: Central) -> Counter:
        return Counter(
            (each.cause, each.verb, each.node, each.away, each.back, tuple(sorted(each.placements, key=str)))
            for each in central.said.commands
        )

    assert asked(parts) == asked(whole)
    assert {each.verb for each in whole.said.commands} == {"reroute", "restore"}
    assert {each.id for each in parts.said.refusals} == {each.id for each in whole.said.refusals}
    kept = {node: paths for (node, _), paths in whole.said.paths.items()}
    assert {node: paths for (node, _), paths in parts.said.paths.items()} == kept
    assert len(parts.said.paths) == len(kept)
    nodes_of = defaultdict(set)
    for each in whole.said.commands:
        nodes_of[each.cause].add(each.node)
    crossing = [cause for cause, nodes in nodes_of.items() if any(min(nodes) < cut <= max(nodes) for cut in borders)]
    assert len(crossing) > 2, "no fault touches two shards: the test shows nothing"


def test_a_shard_hears_of_its_nodes_and_their_peers_alone():
    """Six neighbours each, on a ring: three more at either end. Of paths it keeps those that begin or end with it."""
    first, end = "node000013", "node000027"
    parts = weather(shards_at(first, end), storm(1, seconds=0.5))
    heard = {f"node{number:06}" for number in range(10, 30)}
    detector, remediator = parts.detectors[1], parts.remediators[1]
    assert set(detector.inventory.nodes) == set(remediator.inventory.nodes) == heard
    paths = detector.inventory.paths
    ends = [(node_of(path.source), node_of(path.destination)) for path in map(paths.path, range(len(paths)))]
    assert all(any(first <= node < end for node in both) for both in ends)
    assert len(paths) > 100
