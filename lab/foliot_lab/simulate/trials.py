"""Trials of doing no harm: a fleet, a disturbance, and the events and commands that no fault explains.

Other trials time a true silence. A trial follows from its seed and number alone. It begins in the state of one of a few
fleets that have settled, so that no trial has to wait for its fleet.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from foliot_lab.simulate.disturbances import disturb, lasting_ns
from foliot_lab.simulate.fleet import Fleet
from foliot_lab.simulate.loop import MS, SECOND
from foliot_lab.simulate.transcript import transcript
from foliot_schemas import event_kinds
from foliot_schemas.names import node_of, parse_path, rail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foliot_schemas import Event

_AFTERMATH_NS = 1_500 * MS
"""The time after a disturbance: a path is reported silent at the latest a second and some after it was last heard."""
_LIVES = 8
_UNSYNCHRONISED = 4
"""One trial without a fault in so many has a fleet whose clocks are not synchronised yet."""
_FOLLOWED_NS = 3 * SECOND
"""The time after which a silence counts as missed."""
_HOLE_FOLLOWED_NS = 20 * SECOND
"""The same time for a hole. While queues are full, lost probes of full size prove nothing, and a load lasts for 12
s."""
_HOLE_STEP_NS = 20 * MS
_REST_NS = 300 * MS
"""The time for the events that follow once traffic has left a silence or hole."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial without a path fault."""

    what: str
    detail: str
    seed: int
    events_false: int
    commands_false: int
    moves_false: int
    told: tuple[str, ...] = ()
    """The first few of the false events."""


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with a path that drops everything, or everything of full size."""

    what: str
    detail: str
    seed: int
    fault: str
    detect_ms: float | None
    """From the fault to the first event about one of its paths; None: missed."""
    moved_ms: float | None
    """From the fault until no traffic that has another way takes any of them; None: missed."""
    events_false: int
    commands_false: int
    moves_false: int
    told: tuple[str, ...] = ()


class Lives:
    """Fleets that have settled, made on first use.

    Parameters:
        make: makes a fleet of a seed, synchronised or not.
    """

    def __init__(
        self, make: Callable[[int, bool], Fleet] = lambda seed, synchronised: Fleet(seed, synchronised=synchronised)
    ) -> None:
        self._make = make
        self._frozen: dict[tuple[int, bool], bytes] = {}

    def take(self, seed: int, *, synchronised: bool) -> Fleet:
        """One of them, whose further chances follow from the seed."""
        key = seed % _LIVES, synchronised
        if key not in self._frozen:
            self._frozen[key] = self._make(*key).frozen()
        return Fleet.thawed(self._frozen[key], seed)


def quiet(lives: Lives, seed: int, what: str) -> Trial:
    """A trial without a path fault."""
    chance = random.Random(f"{seed}/{what}")
    fleet = lives.take(seed, synchronised=chance.randrange(_UNSYNCHRONISED) > 0)
    detail = disturb(what, fleet, chance)
    fleet.run(lasting_ns(what) + _AFTERMATH_NS)
    found = _Findings(fleet, set())
    return Trial(what=what, detail=detail, seed=seed, **found.counts())


def retold(lives: Lives, seed: int, what: str) -> Iterator[str]:
    """The false events of the same trial. After each event of a path follows the detector's input about it."""
    chance = random.Random(f"{seed}/{what}")
    fleet = lives.take(seed, synchronised=chance.randrange(_UNSYNCHRONISED) > 0)
    fleet.detector.taken = []
    disturb(what, fleet, chance)
    start_ns = fleet.loop.now_ns
    fleet.run(lasting_ns(what) + _AFTERMATH_NS)
    for heard in _Findings(fleet, set()).false:
        event = heard.message
        yield f"{(heard.at_ns - start_ns) / MS:.1f} ms: {event.kind} {event.who} {event.state} {event.evidence}"
        if event.kind == "path":
            yield from transcript(event.who, heard.at_ns, fleet.detector.taken)


def silence(lives: Lives, seed: int, what: str) -> Silence:
    """A trial with a true silence, which begins during the disturbance and lasts."""
    course = _Course(lives, seed, what)
    return _follow(course, "silent", MS, _FOLLOWED_NS)


def hole(lives: Lives, seed: int, what: str) -> Silence:
    """A trial with paths that pass small packets, and none of full size from a moment on."""
    course = _Course(lives, seed, what, "hole")
    return _follow(course, "lossy", _HOLE_STEP_NS, _HOLE_FOLLOWED_NS)


def _follow(course: _Course, state: str, step_ns: int, for_ns: int) -> Silence:
    """Runs until no traffic that has another way takes a broken path. An event of this state finds it."""
    fleet, at_ns = course.fleet, course.at_ns
    moved_ns = None
    while fleet.loop.now_ns < at_ns + for_ns:
        fleet.run(step_ns)
        if not any(_has_way(fleet, path, course.broken) for path in fleet.carried() & course.broken):
            moved_ns = fleet.loop.now_ns
            fleet.run(_REST_NS)
            break
    found = _Findings(fleet, course.explained)
    return Silence(
        what=course.what, detail=course.detail, seed=course.seed, fault=course.fault,
        detect_ms=_since(found.first_ns(course.broken, state), at_ns), moved_ms=_since(moved_ns, at_ns),
        **found.counts(),
    )  # fmt: skip


def retold_silence(lives: Lives, seed: int, what: str) -> Iterator[str]:
    """The same silence retold. Times count from the fault.

    It has the detector's input about each path with traffic, and the events and commands.
    """
    course = _Course(lives, seed, what)
    fleet, at_ns = course.fleet, course.at_ns
    fleet.detector.taken = []
    concerned = sorted(fleet.carried() & course.broken)
    fleet.run(_FOLLOWED_NS)
    yield f"{course.fault} ({course.detail}), {(at_ns - course.began_ns) / MS:.1f} ms after the disturbance began"
    for path in concerned:
        yield path
        yield from transcript(path, at_ns, fleet.detector.taken, _FOLLOWED_NS)
    for heard in fleet.detector.events:
        yield f"{(heard.at_ns - at_ns) / MS:9.1f}  {heard.message.who} {heard.message.state}"
    for heard in fleet.remediator.decisions:
        nodes = ", ".join(command.node for command in heard.message.commands)
        refused = ", ".join(refusal.policy for refusal in heard.message.refusals)
        yield (
            f"{(heard.at_ns - at_ns) / MS:9.1f}  {heard.message.verb} {heard.message.who}: {nodes or 'nobody'}"
            f"{' refused: ' if refused else ''}{refused}"
        )
    for agent in fleet.agents:
        for moved_ns, _, count in agent.moves:
            yield f"{(moved_ns - at_ns) / MS:9.1f}  {agent.name} moved {count}"


class _Course:
    """A fleet that is disturbed, at the moment at which paths break."""

    def __init__(self, lives: Lives, seed: int, what: str, fault: str = "silence") -> None:
        chance = random.Random(f"{seed}/{what}/{fault}")
        self.what, self.seed = what, seed
        self.fleet = fleet = lives.take(seed, synchronised=True)
        self.began_ns = fleet.loop.now_ns
        kind, where, self.broken = _draw_paths(fleet, chance)
        self.explained = self.broken | {where}
        """The broken paths and their NIC, about which the same events are true."""
        self.fault = f"{kind} {where}"
        self.detail = disturb(what, fleet, chance, spare=_other_ways(fleet, where))
        self.at_ns = self.began_ns + round(chance.uniform(0.1, 0.5) * lasting_ns(what))
        # Known before: a step that takes long sends its packets only when it is over.
        links = fleet.fabric.dead if fault == "silence" else fleet.fabric.holes
        links |= dict.fromkeys(self.broken, self.at_ns)
        fleet.run(self.at_ns - self.began_ns)


def _other_ways(fleet: Fleet, where: str) -> frozenset[str]:
    """The NICs of a path's or NIC's rail, and of its hosts.

    If one of those is lost too, traffic may have nowhere to go.
    """
    nics = parse_path(where)[:2] if ">" in where else (where,)
    rail, nodes = rail_of(nics[0]), {node_of(nic) for nic in nics}
    return frozenset(nic for nic in fleet.inventory.nics if rail_of(nic) == rail or node_of(nic) in nodes)


def _has_way(fleet: Fleet, name: str, broken: set[str]) -> bool:
    """Whether any path between the two nodes that a path joins is whole."""
    nodes, fabric = [node_of(nic) for nic in parse_path(name)[:2]], fleet.fabric
    return any(
        str(path) not in broken and not fabric.dark.keys() & set(path[:2])
        for path in fleet.inventory.paths()
        if [node_of(nic) for nic in path[:2]] == nodes
    )


def _since(moment_ns: int | None, at_ns: int) -> float | None:
    return None if moment_ns is None else round((moment_ns - at_ns) / MS, 1)


def _draw_paths(fleet: Fleet, chance: random.Random) -> tuple[str, str, set[str]]:
    """The paths to break, with their names: a path with traffic, or all that leave its NIC, or all of its NIC."""
    kind = chance.choice(("path", "nic-out", "nic"))
    name = chance.choice(sorted(fleet.carried()))
    if kind == "path":
        return kind, name, {name}
    nic = parse_path(name).source
    dead = {
        str(path)
        for path in fleet.inventory.paths()
        if path.source == nic or (kind == "nic" and path.destination == nic)
    }
    return kind, nic, dead


class _Findings:
    """The events and commands of a trial, and those that nothing explains."""

    def __init__(self, fleet: Fleet, broken: set[str]) -> None:
        self._broken = broken
        self._dark = set(fleet.fabric.dark)
        self._troubles = [heard for heard in fleet.detector.events if is_trouble(heard.message)]
        self.false = [heard for heard in self._troubles if not self._explains(heard.message.who)]
        commands = [
            command.id
            for heard in fleet.remediator.decisions
            for command in heard.message.commands
            if not self._explains(heard.message.who) and not command.advice
        ]
        self._commands = set(commands)
        self._moves = sum(
            count for agent in fleet.agents for _, command, count in agent.moves if command in self._commands
        )

    def first_ns(self, paths: set[str], state: str) -> int | None:
        """The time at which one of these paths was first reported in a state."""
        return min(
            (heard.at_ns for heard in self._troubles if heard.message.who in paths and heard.message.state == state),
            default=None,
        )

    def counts(self) -> dict[str, Any]:
        """The counts, for a row."""
        told = tuple(f"{event.kind} {event.who} {event.state}" for _, event in self.false[:4])
        return {
            "events_false": len(self.false), "commands_false": len(self._commands), "moves_false": self._moves,
            "told": told,
        }  # fmt: skip

    def _explains(self, who: str) -> bool:
        if who in self._broken or who in self._dark:
            return True
        return ">" in who and bool(self._dark & set(parse_path(who)[:2]))


def is_trouble(event: Event) -> bool:
    """Whether the event reports a trouble of traffic.

    A clock's events are not about traffic, and are true if the clock was stepped. A refusal does no harm.
    """
    kind = event_kinds.find(event.kind)
    return event_kinds.detects(event) and (kind is None or kind.concerns != "clock")
