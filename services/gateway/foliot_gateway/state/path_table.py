"""The last that was heard of every path, in columns.

Some thousand rows arrive per second, and few are ever asked for.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from foliot.columns import grown
from foliot.link_map import UNNAMED, as_told
from foliot.report_rows import ReportRows
from foliot_gateway.state.nic_condition import NicPaths
from foliot_gateway.state.path_links import NO_ROW, PathLinks
from foliot_gateway.state.verdicts import Verdicts
from foliot_schemas import DelayBatch, Witness
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from foliot_gateway.state.cardinality_limit import CardinalityLimit
    from foliot_gateway.state.date import Date
    from foliot_gateway.state.path_links import Told
    from foliot_schemas import Event, HopBatch
    from foliot_schemas.names import Path

PathState = Literal["unknown", "speaking", "lossy", "silent"]

_STATES: tuple[PathState, ...] = ("unknown", "speaking", "lossy", "silent")
_SPEAKING, _LOSSY, _SILENT = 1, 2, 3

_Last = np.dtype(
    [
        ("state", "u1"),
        # When, by the clock of the path's receiver, the detector said that it is bad; 0: it does not say so.
        ("bad_ns", "<i8"),
        ("sent", "<i8"),
        ("sent_at_ns", "<i8"),
        ("received", "<i8"),
        ("received_at_ns", "<i8"),
        ("least_ns", "<i8"),
        ("median_ns", "<i8"),
        ("p99_ns", "<i8"),
        ("heard_ns", "<i8"),
    ]
)
_SHOWN = (_Last.names or ())[2:]
_FIRST_ROOM = 1_024


class PathView(msgspec.Struct, frozen=True, kw_only=True):
    """One path, as it was last heard of."""

    path: str
    source: str
    destination: str
    entropy: int
    state: PathState
    in_force: bool
    """Traffic of jobs takes it."""
    sent: int
    """Probes, by the source's count, in the interval that ended at `sent_at_ns`."""
    sent_at_ns: int
    received: int
    """Probes, by the destination's count, in the interval that ended at `received_at_ns`."""
    received_at_ns: int
    least_ns: int
    """One-way delay of the last interval in which a probe arrived, as are the next two; 0: none ever did."""
    median_ns: int
    p99_ns: int
    heard_ns: int
    """When the destination last heard anything on it; 0: never."""
    hops: tuple[str, ...]
    """Addresses of the routers that it crosses, from the source on; empty: of one that does not answer. Without
    any, they are not known."""


class PathTable:
    """All `DelayBatch` messages, folded."""

    def __init__(self, limit: CardinalityLimit) -> None:
        self._limit = limit
        self._numbers: dict[str, int] = {}
        self._from: dict[str, list[str]] = {}
        self._into: dict[str, list[str]] = {}
        """Per node, the paths that begin and end there."""
        self._last = np.zeros(_FIRST_ROOM, _Last)
        self.links = PathLinks()
        self._reports = ReportRows()
        self._nics: dict[str, NicPaths] = {}
        self._verdicts = Verdicts()
        self._bad: set[str] = set()
        """Paths that the detector says are silent or lossy. A receiver's word alone is a claim: it may be its own
        trouble."""

    def fold(self, batch: DelayBatch) -> None:
        """Takes the delays that one node saw.

        Raises:
            ValueError: the batch's columns do not fit together, or it names something that is no path.
        """
        rows = batch.rows()
        table = self._rows(batch)[rows["path"]]
        if not (kept := table != NO_ROW).all():
            rows, table = rows.compress(kept), table[kept]
        last, source = self._last, rows["witness"] == Witness.SOURCE
        last["sent"][table[source]] = rows["sent"][source]
        last["sent_at_ns"][table[source]] = batch.at_ns
        # The rest is what the destination heard.
        rows, table = rows.compress(~source), table[~source]
        witness = rows["witness"]
        counted = (witness == Witness.DESTINATION) | (witness == Witness.FELL_SILENT)
        last["received"][table[counted]] = rows["received"][counted]
        last["received_at_ns"][table[counted]] = batch.at_ns
        last["heard_ns"][table] = np.maximum(last["heard_ns"][table], rows["last_ns"])
        measured = rows["received"] > 0
        for column in ("least_ns", "median_ns", "p99_ns"):
            last[column][table[measured]] = rows[column][measured]
        heard = (witness == Witness.SPEAKS_AGAIN) | ((witness == Witness.DESTINATION) & measured)
        # A probe heard before the detector said that it is silent does not end the silence.
        heard &= rows["last_ns"] > last["bad_ns"][table]
        # A lossy path speaks and falls silent too: that it is no longer lossy, only the detector says.
        lossy = last["state"][table] == _LOSSY
        last["state"][table[heard & ~lossy]] = _SPEAKING
        last["state"][table[(witness == Witness.FELL_SILENT) & ~lossy]] = _SILENT

    def fold_hops(self, batch: HopBatch) -> None:
        """Takes the routers of some of a node's paths.

        Raises:
            ValueError: the batch's columns do not fit together.
        """
        batch.check()
        self.links.fold(batch, np.array([self._number(path) for path in batch.paths], np.int32))

    def forget(self, node: str) -> None:
        """Forgets the links of the paths of a node that has left."""
        paths = (*self._from.get(node, ()), *self._into.get(node, ()))
        self.links.forget(node, {path: self._numbers[path] for path in paths})

    def look_up_anew(self) -> None:
        """Looks up batches' paths anew, as the inventory has changed: there may be room for some that had none."""
        self._reports.forget()

    def judge(self, event: Event, date: Date) -> bool:
        """Takes the detector's verdict on a path, unless a later one is known.

        States that are not of paths are ignored. Returns whether the path is bad now and was not, or the other way
        round.

        Raises:
            ValueError: it is no path.
        """
        number = self._number(event.who)
        if number == NO_ROW or event.state not in _STATES or not self._verdicts.take(event, date):
            return False
        is_bad = event.state in {"silent", "lossy"}
        self._last["state"][number] = _STATES.index(event.state)
        self._last["bad_ns"][number] = event.at_ns if is_bad else 0
        return self._count(event.who, bad=is_bad)

    def __contains__(self, path: str) -> bool:
        """Whether anything was ever said of a path."""
        return path in self._numbers

    def is_expected(self, path: Path) -> bool:
        """Whether the inventory has both ends of a path."""
        return self._limit.knows_path(path)

    def of(self, nic: str) -> NicPaths:
        """The counts of a NIC's paths."""
        return self._nics.get(nic) or NicPaths()

    def view(self, path: str) -> PathView | None:
        """A path that traffic takes; None: nothing was ever said of it."""
        return self._view(path, parse_path(path), in_force=True) if path in self._numbers else None

    def views(
        self, in_force_of: Callable[[str], AbstractSet[str]], *, node: str = "", nic: str = ""
    ) -> Iterator[PathView]:
        """Every path by name, or those that begin or end at a node or NIC; each as it is when it is taken.

        Parameters:
            in_force_of: the paths that the traffic of a node takes.
        """
        if node or nic:
            end = node or node_of(nic)
            names = iter(sorted({*self._from.get(end, ()), *self._into.get(end, ())}))
        else:
            names = self.names()
        for path in names:
            parsed = parse_path(path)
            if not nic or nic in parsed[:2]:
                yield self._view(path, parsed, in_force=path in in_force_of(node_of(parsed.source)))

    def names(self, *, source: str = "", after: str = "") -> Iterator[str]:
        """The paths, by their nodes and then by their names.

        Parameters:
            source: only those that begin at this node or NIC; empty: any.
            after: only those that come after this one, which need not be known; empty: all.
        """
        passed = _place(node_of(after.partition(">")[0])) if after else ""
        begin = self._from.keys() & {source, node_of(source)} if source else self._from.keys()
        # A node at a time: a step of the loop that sorts all paths is as long as the fleet is large.
        for node in sorted((each for each in begin if _place(each) >= passed), key=_place):
            is_passed = _place(node) == passed
            for path in sorted(self._from[node]):
                if is_passed and path <= after:
                    continue
                if not source or source in {node, path.partition(">")[0]}:
                    yield path

    def told(self, path: str) -> Told:
        """What was last told of the links of a path."""
        return self.links.of(path, self._numbers.get(path, NO_ROW))

    def _view(self, path: str, parsed: Path, *, in_force: bool) -> PathView:
        number, told = self._numbers[path], self.told(path)
        state, _, *numbers = self._last[number].item()
        return PathView(
            path=path,
            **parsed._asdict(),
            state=_STATES[state],
            in_force=in_force,
            **dict(zip(_SHOWN, numbers, strict=True)),
            hops=_routers(told),
        )

    def _rows(self, batch: DelayBatch) -> NDArray[np.int32]:
        """The table's row of each of the batch's paths."""
        is_kept = batch.node in self._limit.nodes or self._limit.has_for(batch.node, self._reports.known)
        reports = self._reports if is_kept else ReportRows()
        return reports.of(batch.node, batch.paths, self._number)

    def _number(self, path: str) -> int:
        number = self._numbers.get(path)
        if number is None:
            parsed = parse_path(path)
            if not self._limit.has_for(path, self._numbers) and not self._limit.knows_path(parsed):
                return NO_ROW
            self._nics.setdefault(parsed.source, NicPaths()).out += 1
            self._nics.setdefault(parsed.destination, NicPaths()).into += 1
            self._from.setdefault(node_of(parsed.source), []).append(path)
            self._into.setdefault(node_of(parsed.destination), []).append(path)
            number = self._numbers[path] = len(self._numbers)
            if number >= len(self._last):
                self._last = grown(self._last, 2 * number)
        return number

    def _count(self, path: str, *, bad: bool) -> bool:
        if bad == (path in self._bad):
            return False
        source, destination, _ = parse_path(path)
        change = 1 if bad else -1
        self._nics[source].bad_out += change
        self._nics[destination].bad_into += change
        self._bad.symmetric_difference_update({path})
        return True


def _routers(told: Told) -> tuple[str, ...]:
    """The routers of a path: that which its first link enters, and those that have the addresses of the others."""
    if not told.links:
        return ()
    return (str(IPv4Address(told.first)) if told.first else UNNAMED, *as_told(told.links)[1:-1])


def _place(node: str) -> str:
    """Where a node stands among others, so that their paths stand as their names do."""
    return f"{node}."
