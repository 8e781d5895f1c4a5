"""Times at which two hosts had no route to each other, computed from the effects of faults on the links. Pure.

A route lives for two hosts as long as both have a NIC on some rail that passes everything, both ways. If they are on
different leaves, a spine between them has to do so too, and one of the pair's paths has to take that spine: switches
choose it by a hash, and a few paths may all have the same. Each direction may have a rail of its own, as Foliot sends each
its own way. A link with a lower rate still counts. A link that passes only a part (loss, large packets lost) does not:
nobody is promised such a way.
"""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from foliot_lab.measure.intervals import Intervals
from foliot_schemas.names import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from foliot_lab.faults.injection import Injection
    from foliot_lab.measure.intervals import Interval
    from foliot_lab.scenario.topology import FabricPlan

TRUSTED_NS = 5_000_000_000
"""The time after which a returned link counts as a way: the default probation (`remediator.probation_s`)."""

_BOTH_WAYS = frozenset({"link-down", "admin-down", "flap", "drop", "loss", "mtu", "reload"})
_UPWARDS = frozenset({"drop-one-way", "loss-one-way"})
"""Faults of the direction from the near end of a link to the far one: from a NIC, or from a leaf to a spine."""

Lane = tuple[str, Literal["up", "down"]]
"""One direction of a link, by its name; up is from its near end to its far one."""


class _Spell(NamedTuple):
    since_ns: int
    until_ns: int
    blocked: frozenset[Lane]


class Ways:
    """The routes that were left of a fabric while these faults were on.

    Parameters:
        end_ns: of the run; what has not healed lasts until then.
        paths: the links of each path by its name. Of a pair that has none here, every spine is a way.
    """

    def __init__(
        self,
        fabric: FabricPlan,
        injections: Sequence[Injection],
        end_ns: int,
        paths: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._fabric = fabric
        self._spells = list(_spells(injections, fabric, end_ns))
        self._trunks: dict[str, dict[str, str]] = {}
        for trunk in fabric.trunks:
            self._trunks.setdefault(trunk.near.owner, {})[trunk.far.owner] = trunk.name
        self._known: dict[tuple[str, str], Intervals] = {}
        self._trails: dict[tuple[str, str], list[tuple[Lane, ...]]] = {}
        """By a pair of NICs, of each path the lanes between their leaves."""
        for name, links in paths.items():
            path = parse_path(name)
            self._trails.setdefault((path.source, path.destination), []).append(_trail(links))

    def without(self, one: str, other: str) -> Intervals:
        """The times in which traffic between two hosts could not pass, one way or the other, by any rail.

        They include the time until a returned link is trusted.
        """
        key = (min(one, other), max(one, other))
        if key not in self._known:
            dead = (
                (spell.since_ns, spell.until_ns)
                for spell in self._spells
                if not (self._reaches(spell.blocked, *key) and self._reaches(spell.blocked, *key[::-1]))
            )
            self._known[key] = Intervals(dead).longer(TRUSTED_NS)
        return self._known[key]

    def _reaches(self, blocked: frozenset[Lane], source: str, destination: str) -> bool:
        return any(self._passes(blocked, source, destination, rail) for rail in self._fabric.rails)

    def _passes(self, blocked: frozenset[Lane], source: str, destination: str, rail: str) -> bool:
        if (f"{source}.{rail}", "up") in blocked or (f"{destination}.{rail}", "down") in blocked:
            return False
        here, there = self._fabric.leaf(source, rail), self._fabric.leaf(destination, rail)
        if here == there:
            return True
        if trails := self._trails.get((f"{source}.{rail}", f"{destination}.{rail}")):
            return any(blocked.isdisjoint(trail) for trail in trails)
        up, down = self._trunks[here], self._trunks[there]
        return any((up[spine], "up") not in blocked and (down[spine], "down") not in blocked for spine in up)


def _trail(links: Sequence[str]) -> tuple[Lane, ...]:
    """Of a path's links, the lanes between two leaves: up to a spine, and down. A path within a leaf has none."""
    between = links[1:-1]
    return ((between[0], "up"), (between[1], "down")) if between else ()


def _spells(injections: Sequence[Injection], fabric: FabricPlan, end_ns: int) -> Iterator[_Spell]:
    """The time from the first fault to the last healing, cut wherever a link began or stopped to pass."""
    lanes = [(lane, part) for injection in injections for lane, part in _of(injection, fabric, end_ns)]
    moments = sorted({moment for _, part in lanes for moment in part})
    for since_ns, until_ns in itertools.pairwise(moments):
        blocked = frozenset(lane for lane, (began, ended) in lanes if began <= since_ns and until_ns <= ended)
        if blocked:
            yield _Spell(since_ns, until_ns, blocked)


def _of(injection: Injection, fabric: FabricPlan, end_ns: int) -> Iterator[tuple[Lane, Interval]]:
    if injection.where not in fabric.links or injection.kind not in _BOTH_WAYS | _UPWARDS:
        return
    for part in _downs(injection, end_ns):
        yield (injection.where, "up"), part
        if injection.kind in _BOTH_WAYS:
            yield (injection.where, "down"), part


def _downs(injection: Injection, end_ns: int) -> Iterable[Interval]:
    """The times in which a fault was on.

    A fault that flaps has many; else from the injection to the healing or the run's end.
    """
    if len(injection.edges) <= 2:
        return [(injection.injected_ns, end_ns if injection.healed_ns is None else injection.healed_ns)]
    moments = [edge.at_ns for edge in injection.edges]
    return zip(moments[::2], [*moments[1::2], end_ns], strict=False)
