"""Every path that was ever spoken of, in columns, so that a batch of rows costs a few numpy calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_schemas.names import Path, node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

_UNKNOWN = -1
_ROOM = 256


class Delays(NamedTuple):
    """The rows of a batch that name known paths and come from the right end of them."""

    node: str
    at_ns: int
    bound_ns: int
    interval_ns: int
    rows: NDArray[Any]
    """Of dtype `DelayRow`."""
    ids: NDArray[np.intp]
    """Per row, the path's place in the table."""
    here_ns: NDArray[np.int64]
    """Per row, its `last_ns` on the detector's timeline; 0: never."""


class PathTable:
    """Columns by path. Times are on the detector's timeline unless they say otherwise; 0: never."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.paths: list[Path] = []
        self.nodes: list[str] = []
        self.source_node = np.zeros(_ROOM, np.intp)
        """Index into `nodes`."""
        self.destination_node = np.zeros(_ROOM, np.intp)
        self.heard_ns = np.zeros(_ROOM, np.int64)
        self.sent_ns = np.zeros((_ROOM, 2), np.int64)
        """In the sender's latest two batches, the earlier first: there is one of them from the right moment of a silence."""
        self.sent_at_ns = np.zeros((_ROOM, 2), np.int64)
        """As `sent_ns`, by the sender's reference time."""
        self.silent = np.zeros(_ROOM, np.bool_)
        """Claimed or known to be silent."""
        self.leaving: dict[str, list[int]] = {}
        """Per NIC, the paths from it that were heard at least once."""
        self.entering: dict[str, list[int]] = {}
        """Per NIC, those to it."""
        self._ids: dict[str, int] = {}
        self._node_ids: dict[str, int] = {}
        self._batches: dict[tuple[str, ...], NDArray[np.intp]] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def room(self) -> int:
        """Length of the columns."""
        return len(self.heard_ns)

    def forget_batches(self) -> None:
        """To be called when NICs have become known or unknown."""
        self._batches.clear()

    def ids(self, names: tuple[str, ...], nics: Container[str]) -> NDArray[np.intp]:
        """Places of paths between these NICs, made where new; -1 for any other."""
        if names not in self._batches:
            if len(self._batches) > _ROOM:
                self._batches.clear()
            self._batches[names] = np.array([self._id(name, nics) for name in names], np.intp)
        return self._batches[names]

    def id_of(self, path: Path) -> int:
        """A path's place, or -1."""
        return self._ids.get(str(path), _UNKNOWN)

    def node_id(self, node: str) -> int:
        """A node's index in `nodes`, or -1."""
        return self._node_ids.get(node, _UNKNOWN)

    def hear(self, ids: NDArray[np.intp], here_ns: NDArray[np.int64]) -> None:
        """Notes when paths were last heard."""
        new = ids[self.heard_ns[ids] == 0]
        np.maximum.at(self.heard_ns, ids, here_ns)
        for place in np.unique(new):
            path = self.paths[place]
            self.leaving.setdefault(path.source, []).append(int(place))
            self.entering.setdefault(path.destination, []).append(int(place))

    def send(self, ids: NDArray[np.intp], here_ns: NDArray[np.int64], at_ns: NDArray[np.int64]) -> None:
        """Notes when paths were last sent on, by their senders."""
        newer = here_ns > self.sent_ns[ids, 1]
        ids = ids[newer]
        for column, values in ((self.sent_ns, here_ns[newer]), (self.sent_at_ns, at_ns[newer])):
            column[ids, 0] = column[ids, 1]
            column[ids, 1] = values

    def spoke_since(self, places: list[int], here_ns: int) -> int:
        """How many of these paths were heard after a time."""
        return int((self.heard_ns[places] > here_ns).sum())

    def _id(self, name: str, nics: Container[str]) -> int:
        try:
            path = parse_path(name)
        except ValueError:
            return _UNKNOWN
        if path.source not in nics or path.destination not in nics:
            return _UNKNOWN
        if name not in self._ids:
            self._add(name, path)
        return self._ids[name]

    def _add(self, name: str, path: Path) -> None:
        place = len(self.names)
        if place == self.room:
            for column, values in vars(self).items():
                if isinstance(values, np.ndarray):
                    setattr(self, column, np.concatenate([values, np.zeros_like(values)]))
        self._ids[name] = place
        self.names.append(name)
        self.paths.append(path)
        self.source_node[place] = self._node(node_of(path.source))
        self.destination_node[place] = self._node(node_of(path.destination))

    def _node(self, node: str) -> int:
        if node not in self._node_ids:
            self._node_ids[node] = len(self.nodes)
            self.nodes.append(node)
        return self._node_ids[node]
