"""The times at which traffic fell silent and flowed again, seen by its receivers: for pulses and byte streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.studies.failover_peers.rows import last, ms
from foliot_lab.measure.outages import End, Pair, look
from foliot_lab.report.blast_radius import scope
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.studies.failover_peers.rows import Row
    from bench.studies.failover_peers.stage import Cut
    from foliot_lab.measure.outages import Pulses
    from foliot_lab.scenario.topology import FabricPlan

SILENT_NS = 100_000_000
"""The shortest silence of a stream. Its reader may wait tens of milliseconds for a processor, and TCP repeats
nothing within 200 ms."""


class Silence(NamedTuple):
    """A silence of one direction."""

    pair: Pair
    ended_ns: int | None
    """The time from which it flowed again for good; None: not while it was observed."""
    longest_ns: int | None
    """The longest gap; None: it did not end; 0: no pulse was lost."""


def pairs(cut: Cut, plan: FabricPlan) -> tuple[Pair, ...]:
    """Both directions between the hosts on either side of a fault, once for every rail.

    If traffic is shared among rails, all of it may be concerned.
    """
    near, far = sides(cut, plan)
    joined = [
        (End(one, rail), End(other, rail)) for rail in plan.rails for one in sorted(near) for other in sorted(far)
    ]
    return tuple(Pair(*ends) for one, other in joined for ends in ((one, other), (other, one)))


def sides(cut: Cut, plan: FabricPlan) -> tuple[set[str], set[str]]:
    """The hosts on either side of a fault."""
    touched = scope(cut.kind, cut.where, plan)
    near = {node_of(nic) for nic in touched.near}
    return near, {node_of(nic) for nic in touched.far} - near


def of_pulses(seen: Mapping[Pair, Pulses], injected_ns: int) -> list[Silence]:
    """The directions that a fault silenced, or that took another way so quickly that no pulse was lost."""
    found = []
    for pair, pulses in seen.items():
        sight = look(pulses, injected_ns)
        if sight.began_ns is None and not sight.changes:
            continue
        ended_ns = sight.flowed_ns
        longest_ns = None if ended_ns is None else ended_ns - sight.began_ns if sight.began_ns is not None else 0
        found.append(Silence(pair, ended_ns, longest_ns))
    return found


def of_arrivals(arrived_ns: Mapping[Pair, Sequence[int]], injected_ns: int, until_ns: int) -> list[Silence]:
    """The streams that fell silent after a fault, until a moment up to which all had been read.

    A stream may fall silent well after the fault, when the bytes on their way by another path have arrived. It may do
    so more than once.
    """
    found = []
    for pair, arrivals in arrived_ns.items():
        moments = np.array([*arrivals, until_ns], dtype=np.int64)
        first = max(int(np.searchsorted(moments, injected_ns)) - 1, 0)
        gaps = np.diff(moments[first:])
        silent = np.flatnonzero(gaps >= SILENT_NS)
        if not len(silent):
            continue
        if silent[-1] == len(gaps) - 1:
            found.append(Silence(pair, None, None))
        else:
            found.append(Silence(pair, int(moments[first + silent[-1] + 1]), int(gaps.max())))
    return found


def concerned(silences: Iterable[Silence], cut: Cut, plan: FabricPlan) -> list[Silence]:
    """The silences between hosts on either side of a fault, whatever the rail."""
    near, far = sides(cut, plan)
    return [
        silence
        for silence in silences
        if (silence.pair.source.node in near and silence.pair.destination.node in far)
        or (silence.pair.source.node in far and silence.pair.destination.node in near)
    ]


def over(silences: Iterable[Silence]) -> bool:
    """Whether all silent streams flow again."""
    return all(silence.ended_ns is not None for silence in silences)


def row(bare: Row, silences: Sequence[Silence], injected_ns: int, cut: Cut, plan: FabricPlan) -> Row:
    """A row with the effects on the traffic."""
    near, _ = sides(cut, plan)
    out = [silence.ended_ns for silence in silences if silence.pair.source.node in near]
    into = [silence.ended_ns for silence in silences if silence.pair.source.node not in near]
    gaps = [silence.longest_ns for silence in silences if silence.longest_ns is not None]
    return msgspec.structs.replace(
        bare, ought=len(silences), did=len(gaps), move_ms=ms(injected_ns, last(out + into)),
        move_out_ms=ms(injected_ns, last(out)), move_in_ms=ms(injected_ns, last(into)),
        gap_ms=ms(0, max(gaps)) if gaps and over(silences) else None,
    )  # fmt: skip
