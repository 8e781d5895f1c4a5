"""The stamps of a window, filtered and pruned to what can decide a fit, in batches of whole streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot_probe.coded import pure
from foliot_probe.packet import KINDS
from foliot_probe.prune import lower_layers, upper_layers
from foliot_probe.session import Completed
from foliot_schemas import StampRow
from foliot_schemas.observation import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from foliot_probe.streams import StreamEnds

MOST_ROWS = 1_024
"""Of a batch, by the rules of the wire."""

_FORTH, _BACK = 0, 1


class WindowPart(NamedTuple):
    """What one batch holds."""

    streams: tuple[Stream, ...]
    rows: NDArray[Any]
    """Of dtype `StampRow`."""


class Window:
    """Collects the completed probes of streams that the node initiates, until it is closed.

    Parameters:
        tolerated: layers of points to keep.
    """

    def __init__(self, tolerated: int) -> None:
        self._tolerated = tolerated
        self._parts: tuple[list[Completed], list[Completed]] = ([], [])

    def add(self, forth: Completed, back: Completed) -> None:
        """Take in probes completed on the outgoing and on the incoming paths."""
        self._parts[_FORTH].append(forth)
        self._parts[_BACK].append(back)

    def forget(self, row: int) -> None:
        """A stream ended; its row may become another's within the window."""
        for parts in self._parts:
            parts[:] = [Completed(*(column[part.row != row] for column in part)) for part in parts]

    def close(self, ends: Sequence[StreamEnds | None], kinds: NDArray[np.integer[Any]]) -> Iterator[WindowPart]:
        """What the window came to, and an empty window again.

        Parameters:
            ends: of the streams, by row.
            kinds: the worse kind of stamp of each row's two ends (index of `KINDS`).
        """
        directions = [self._sift(direction, ends) for direction in (_FORTH, _BACK)]
        self._parts = ([], [])
        streams: list[Stream] = []
        pieces: list[NDArray[Any]] = []
        held = 0
        for row in sorted(directions[_FORTH].keys() | directions[_BACK].keys()):
            mine = [direction[row] for direction in directions if row in direction]
            size = sum(map(len, mine))
            if held and held + size > MOST_ROWS:
                yield WindowPart(tuple(streams), np.concatenate(pieces))
                streams, pieces, held = [], [], 0
            for piece in mine:
                piece["stream"] = len(streams)
            streams.append(_stream(ends[row], int(kinds[row])))
            pieces += mine
            held += size
        if pieces:
            yield WindowPart(tuple(streams), np.concatenate(pieces))

    def _sift(self, direction: int, ends: Sequence[StreamEnds | None]) -> dict[int, NDArray[Any]]:
        """Per row, what is left of a direction."""
        parts = self._parts[direction]
        if not parts:
            return {}
        columns = [np.concatenate([part[index] for part in parts]) for index in range(len(Completed._fields))]
        initiated = np.array([each is not None and each.initiator for each in ends])
        mine = initiated[columns[0]]
        done = Completed(*(column[mine] for column in columns))
        clean = pure(*done)
        order = np.flatnonzero(clean)[np.argsort(done.row[clean], kind="stable")]
        if not len(order):
            return {}
        row = done.row[order]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        return {
            int(row[start]): self._prune(direction, done.transmit_ns[piece], done.receive_ns[piece])
            for start, piece in zip(starts, np.split(order, starts[1:]), strict=True)
        }

    def _prune(self, direction: int, transmit_ns: NDArray[np.int64], receive_ns: NDArray[np.int64]) -> NDArray[Any]:
        """The points of one cloud that can decide; their x is the initiator's clock in either direction."""
        difference_ns = receive_ns - transmit_ns
        if direction == _FORTH:
            keep = lower_layers(transmit_ns, difference_ns, self._tolerated)
        else:
            keep = upper_layers(receive_ns, -difference_ns, self._tolerated)
        rows = np.zeros(int(np.count_nonzero(keep)), StampRow)
        rows["direction"] = direction
        rows["transmit_ns"] = transmit_ns[keep]
        rows["receive_ns"] = receive_ns[keep]
        return rows


def _stream(ends: StreamEnds | None, kind: int) -> Stream:
    assert ends is not None
    return Stream(path=ends.outgoing, initiator=ends.own_clock, responder=ends.peer_clock, kind=KINDS[kind])
