"""When each node last gave a sign of life, in columns, so that a few numpy calls show who is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import blank, widen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_ROOM = 256
_REMEMBERED_NS = 10_000_000_000
"""How long a node's longest gap is remembered at least. One that stood still does so again while its host is busy."""


class Liveness:
    """Times are on the detector's timeline; 0: never."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._free: list[int] = []
        """Places of those that have left."""
        self._places: dict[str, int] = {}
        self._bus_ns = np.zeros(_ROOM, np.int64)
        self._fabric_ns = np.zeros(_ROOM, np.int64)
        self._gap_ns = np.zeros(_ROOM, np.int64)
        """The longest time between two messages of a node lately, and when it ended."""
        self._gap_end_ns = np.zeros(_ROOM, np.int64)
        self._silence_ns = np.zeros(_ROOM, np.int64)
        """How long a node may be silent at least."""
        self._listed = np.zeros(_ROOM, np.bool_)

    def enlist(self, node: str, *, listed: bool) -> None:
        """Notes a node of the inventory, or forgets all about one that has left it."""
        if listed:
            place = self._place(node)  # first: the columns may grow
            self._listed[place] = True
            return
        left = self._places.pop(node, None)
        if left is not None:
            blank(self, left)
            self._free.append(left)

    def allow(self, node: str, silence_ns: int) -> None:
        """Notes that a node may be silent for so long before it is missed."""
        place = self._place(node)
        self._silence_ns[place] = silence_ns

    def speak(self, node: str, here_ns: int) -> None:
        """Notes that a node sent a message then, whenever it arrived."""
        place = self._place(node)
        before_ns = int(self._bus_ns[place])
        if here_ns <= before_ns:
            return
        self._bus_ns[place] = here_ns
        gap_ns = here_ns - before_ns if before_ns else 0
        if gap_ns >= self._gap_ns[place] or here_ns - self._gap_end_ns[place] > _REMEMBERED_NS:
            self._gap_ns[place], self._gap_end_ns[place] = gap_ns, here_ns

    def show(self, node: str, here_ns: int) -> None:
        """Notes that a node was seen to send a probe then."""
        place = self._place(node)
        self._fabric_ns[place] = here_ns

    def on_bus_ns(self, node: str) -> int:
        """When it sent its last message that has arrived."""
        place = self._places.get(node)
        return 0 if place is None else int(self._bus_ns[place])

    def last_ns(self, node: str) -> int:
        """When anything of it was last heard, by the bus or on the fabric."""
        place = self._places.get(node)
        return 0 if place is None else int(max(self._bus_ns[place], self._fabric_ns[place]))

    def present(self, but: Iterable[str]) -> NDArray[np.intp]:
        """Places of the nodes of the inventory that ever spoke on the bus, but for these."""
        there = self._listed & (self._bus_ns > 0)
        there[[self._places[node] for node in but if node in self._places]] = False
        return np.flatnonzero(there)

    def heard_to_ns(self, places: NDArray[np.intp]) -> int:
        """The time by which at least half of these have sent a later message that has arrived; of none: 0.

        Messages are read as they arrive. So a node that sent none later is not merely waiting to be read.
        """
        return _half(self._bus_ns[places])

    def count_speaking(self, places: NDArray[np.intp], since_ns: int) -> int:
        """How many of these spoke on the bus after a time."""
        return int((self._bus_ns[places] > since_ns).sum())

    def silence_ns(self, places: NDArray[np.intp], least_ns: int) -> int:
        """How long at least half of these may be silent."""
        return max(_half(self._silence_ns[places]), least_ns)

    def quiet(self, places: NDArray[np.intp], now_ns: int, silence_ns: int, most: int) -> list[str]:
        """Nodes of which nothing at all has come for as long as they may be silent.

        That is twice the longest gap in their words lately. It is at least a silence time (`silence_ns`, if a node is
        not allowed more), and at `most` so many of them.
        """
        last_ns = np.maximum(self._bus_ns[places], self._fabric_ns[places])
        least_ns = np.maximum(self._silence_ns[places], silence_ns)
        allowed_ns = np.clip(2 * self._gap_ns[places], least_ns, most * least_ns)
        return [self._names[place] for place in places[now_ns - last_ns >= allowed_ns]]

    def _place(self, node: str) -> int:
        place = self._places.get(node)
        if place is None:
            place = self._free.pop() if self._free else len(self._names)
            if place == len(self._names):
                self._names.append(node)
                if place == len(self._bus_ns):
                    widen(self, 2 * place)
            self._places[node], self._names[place] = place, node
        return place


def _half(values_ns: NDArray[np.int64]) -> int:
    """The value that at least half of them reach; of none: 0."""
    half = len(values_ns) // 2
    return int(np.partition(values_ns, half)[half]) if len(values_ns) else 0
