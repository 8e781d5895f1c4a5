"""Every path that was ever spoken of, in columns, so that a batch of rows costs a few numpy calls."""

from __future__ import annotations

import functools
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foliot.columns import widen
from foliot.report_rows import ReportRows
from foliot_schemas import Witness
from foliot_schemas.names import Path, node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from foliot.node.shard import Shard

_UNKNOWN = -1
ELSEWHERE = -2
"""A path between nodes of other shards."""
_ROOM = 256
_WORDS = 3
"""Words of a sender that are remembered: two regular ones, and one that it gave between them, as it found another
path silent."""
_Word = np.dtype([("here_ns", "<i8"), ("at_ns", "<i8"), ("sequence", "<i8")])
"""When a sender sent on a path, on the timeline (0: never) and by its reference time. The number of that probe (0: not
said)."""
_WHOLE_WORD = np.dtype((np.void, _Word.itemsize))
"""The same, to be copied at once instead of field by field."""


@dataclass(eq=False)
class Delays:
    """The rows of a batch that name known paths and come from the right end of them. Nobody changes its arrays."""

    node: str
    at_ns: int
    at_here_ns: int
    """The same on the detector's timeline, however late it came."""
    bound_ns: int
    interval_ns: int
    rows: NDArray[Any]
    """Of dtype `DelayRow`."""
    ids: NDArray[np.intp]
    """Per row, the path's place in the table."""
    here_ns: NDArray[np.int64]
    """Per row, its `last_ns` on the detector's timeline; 0: never."""
    histogram: NDArray[Any] | None
    """All delays of the batch, of dtype `DelayCount`; None: the node does not count them."""

    @functools.cached_property
    def regular(self) -> NDArray[np.bool_]:
        """Per row, whether it is a regular one of the receiving end."""
        found: NDArray[np.bool_] = self.rows["witness"] == Witness.DESTINATION
        return found

    @functools.cached_property
    def timed(self) -> NDArray[np.bool_]:
        """Per row, whether it is a regular one of the receiving end and has delays.

        Of a probe that was just heard, the delay may not be known yet.
        """
        found: NDArray[np.bool_] = self.regular & ((self.rows["least_ns"] != 0) | (self.rows["p99_ns"] != 0))
        return found

    @functools.cached_property
    def tells_at_once(self) -> bool:
        """Whether a row tells of a path that just fell silent or speaks again."""
        return len(self.rows) > 0 and bool(self.rows["witness"].max() > Witness.DESTINATION)


class PathTable:
    """Columns by path. Times are on the detector's timeline unless they say otherwise; 0: never.

    Parameters:
        shard: a path has a place if it begins or ends at a node of it.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.names: list[str] = []
        self.nodes: list[str] = []
        self.source_node = np.zeros(_ROOM, np.intp)
        """Index into `nodes`."""
        self.destination_node = np.zeros(_ROOM, np.intp)
        self.nics: list[str] = []
        self.ends = np.zeros((_ROOM, 2), np.int32)
        """The NICs of source and destination, as indices into `nics`."""
        self.entropy = np.zeros(_ROOM, np.int16)
        self.heard_ns = np.zeros(_ROOM, np.int64)
        self.sent = np.zeros((_ROOM, _WORDS), _Word)
        """The sender's words in its latest batches, the earliest first: one is from the right moment of a silence."""
        self.silent = np.zeros(_ROOM, np.bool_)
        """Claimed or known to be silent."""
        self.silences = np.zeros(_ROOM, np.int32)
        """How often it was said to be silent, which ends all else that was said of it."""
        self._sound = np.zeros(_ROOM, np.bool_)
        """Known to be between NICs of the inventory as it is."""
        self._leaving: dict[str, array[int]] = {}
        self._entering: dict[str, array[int]] = {}
        """Per NIC, the paths from it and to it: 4 bytes each, of which a large fleet has some million."""
        self._ids: dict[str, int] = {}
        self._node_ids: dict[str, int] = {}
        self._nic_ids: dict[str, int] = {}
        self._reported = ReportRows()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def room(self) -> int:
        """Length of the columns."""
        return len(self.heard_ns)

    def forget_batches(self) -> None:
        """Forgets what rests on the NICs; to be called when NICs have become known or unknown."""
        self._reported.forget()
        self._sound[:] = False

    def ids(self, names: tuple[str, ...], nics: Mapping[str, int]) -> NDArray[np.intp]:
        """Places of paths between these NICs (with how many entropies each has), made where new; below 0: none."""
        return np.array([self._id(name, nics) for name in names], np.intp)

    def ids_said_by(self, node: str, names: tuple[str, ...], nics: Mapping[str, int]) -> NDArray[np.int32]:
        """As `ids`, for the paths that a node of the inventory speaks of.

        It is the same array as the last time if the node names the same paths, and no NIC has come or gone.
        """
        return self._reported.of(node, names, lambda name: self._id(name, nics))

    def are_present(self, ids: NDArray[np.intp], nics: Mapping[str, int]) -> NDArray[np.bool_]:
        """Marks those of these paths that are between these NICs, with how many entropies each has."""
        ends, places = np.unique(self.ends[ids], return_inverse=True)
        entropies = np.array([nics.get(self.nics[end], 0) for end in ends.tolist()], np.intp)
        found: NDArray[np.bool_] = self.entropy[ids] < entropies[places.reshape(-1, 2)].min(axis=1)
        return found

    def path(self, place: int) -> Path:
        """The path at a place. Made anew: there may be millions, of which few are ever asked for."""
        return parse_path(self.names[place])

    def id_of(self, path: Path) -> int:
        """A path's place, or -1."""
        return self._ids.get(str(path), _UNKNOWN)

    def node_id(self, node: str) -> int:
        """A node's index in `nodes`, or -1."""
        return self._node_ids.get(node, _UNKNOWN)

    def nic_id(self, nic: str) -> int:
        """A NIC's index in `nics`, made where it is new."""
        return _interned(nic, self._nic_ids, self.nics)

    def hear(self, ids: NDArray[np.intp], here_ns: NDArray[np.int64]) -> None:
        """Notes when paths were last heard."""
        np.maximum.at(self.heard_ns, ids, here_ns)

    def leaving(self, nic: str) -> NDArray[np.intp]:
        """The paths from a NIC that were heard at least once."""
        return self._heard(self._leaving.get(nic))

    def entering(self, nic: str) -> NDArray[np.intp]:
        """The paths to a NIC that were heard at least once."""
        return self._heard(self._entering.get(nic))

    def beginning_at(self, nic: str) -> NDArray[np.intp]:
        """All paths from a NIC."""
        return np.array(self._leaving.get(nic, ()), np.intp)

    def ending_at(self, nic: str) -> NDArray[np.intp]:
        """All paths to a NIC."""
        return np.array(self._entering.get(nic, ()), np.intp)

    def hearing(self, nics: Iterable[str]) -> NDArray[np.intp]:
        """The nodes that heard any of these NICs at least once, as indices, not each once."""
        known = np.frombuffer(b"".join([self._leaving[nic] for nic in nics if nic in self._leaving]), np.int32)
        heard: NDArray[np.intp] = self.destination_node[known[self.heard_ns[known] > 0]]
        return heard

    def at_nic(self, nic: str) -> list[int]:
        """All paths that begin or end at a NIC."""
        return [*self._leaving.get(nic, ()), *self._entering.get(nic, ())]

    def send(
        self,
        ids: NDArray[np.intp],
        here_ns: NDArray[np.int64],
        at_ns: NDArray[np.int64],
        sequence: NDArray[np.int64],
    ) -> None:
        """Notes when paths were last sent on, by their senders, and with which probe."""
        newer = here_ns > self.sent["here_ns"][ids, -1]
        if not newer.all():
            ids, here_ns, at_ns, sequence = ids[newer], here_ns[newer], at_ns[newer], sequence[newer]
        whole = self.sent.view(_WHOLE_WORD)
        whole[ids, :-1] = whole[ids, 1:]
        for name, values in (("here_ns", here_ns), ("at_ns", at_ns), ("sequence", sequence)):
            self.sent[name][ids, -1] = values

    def _heard(self, places: array[int] | None) -> NDArray[np.intp]:
        known = np.array(places or (), np.intp)
        heard: NDArray[np.intp] = known[self.heard_ns[known] > 0]
        return heard

    def _id(self, name: str, nics: Mapping[str, int]) -> int:
        place = self._ids.get(name, _UNKNOWN)
        if place != _UNKNOWN and self._sound[place]:
            return place
        try:
            path = parse_path(name)
        except ValueError:
            return _UNKNOWN
        if not self._shard.is_whole and not any(map(self._shard.owns, map(node_of, path[:2]))):
            return ELSEWHERE
        if path.entropy >= min(nics.get(path.source, 0), nics.get(path.destination, 0)):
            return _UNKNOWN
        if place == _UNKNOWN:
            place = self._add(name, path)
        self._sound[place] = True
        return place

    def _add(self, name: str, path: Path) -> int:
        place = len(self.names)
        if place == self.room:
            widen(self, 2 * place)
        self._ids[name] = place
        self.names.append(name)
        self.source_node[place] = _interned(node_of(path.source), self._node_ids, self.nodes)
        self.destination_node[place] = _interned(node_of(path.destination), self._node_ids, self.nodes)
        self.ends[place] = self.nic_id(path.source), self.nic_id(path.destination)
        self.entropy[place] = path.entropy
        for index, nic in ((self._leaving, path.source), (self._entering, path.destination)):
            index.setdefault(nic, array("i")).append(place)
        return place


def _interned(name: str, ids: dict[str, int], names: list[str]) -> int:
    """A name's index, made where it is new."""
    index = ids.setdefault(name, len(names))
    if index == len(names):
        names.append(name)
    return index
