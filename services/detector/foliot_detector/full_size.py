"""Paths that pass only small packets: of their probes of full size none arrives, while others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.paths import PathTable

Evidence: TypeAlias = dict[str, float | int | str | bool]

_SMALL_LOST = 0.1
"""Where more of the small probes are lost as well, the trouble is not one of size."""
_SHARED_LOST = 2
"""Full-size probes that must be lost of a path which shares a NIC with one of which it is known that none pass: the NIC has many
paths, and traffic should not be moved to each of them in turn."""

_Window = np.dtype(
    [
        ("lost", "<i8"),
        ("in_row", "<i8"),
        ("since_ns", "<i8"),
        ("bytes", "<i8"),
        ("small_sent", "<i8"),
        ("small_lost", "<i8"),
    ]
)
"""Per path. `lost`: full-size probes that were lost since one arrived, from `since_ns` on, with `small_sent` others of which `small_lost` were lost. `in_row`, of a path
that passed none: how many arrived since any probe was lost."""


class FullSize:
    """What became of full-size probes, by path.

    Parameters:
        least: how many, lost in a row or arrived in a row, decide.
    """

    def __init__(self, table: PathTable, least: int) -> None:
        self._table = table
        self._least = least
        self._windows = np.zeros(0, _Window)
        self.blocked: set[int] = set()
        """Paths that are said to pass none."""

    def make_room(self) -> None:
        """As the table of paths has grown."""
        missing = self._table.room - len(self._windows)
        if missing:
            self._windows = np.concatenate([self._windows, np.zeros(missing, _Window)])

    def forget(self, path_id: int) -> None:
        """A path fell silent: nothing passes it."""
        self.blocked.discard(path_id)
        self._windows[path_id] = np.zeros((), _Window)

    def block(self, path_id: int) -> None:
        """It is said of a path that it passes none."""
        self.blocked.add(path_id)
        self.make_room()
        self._windows["in_row"][path_id] = 0

    def count(self, ids: NDArray[np.intp], rows: NDArray[Any], since_ns: int, queued: NDArray[np.bool_]) -> None:
        """Takes receivers' rows of paths, each once. Where packets `queued` up, loss shows nothing: a full queue drops large packets first."""
        # Nearly always all arrive, and there is nothing to count.
        if (
            not self.blocked
            and not (rows["full_sent"] > rows["full_received"]).any()
            and not self._windows["lost"][ids].any()
        ):
            return
        windows = self._windows[ids]
        sent, received = rows["full_sent"].astype(np.int64), rows["full_received"].astype(np.int64)
        lost = np.maximum(sent - received, 0)
        small_sent, small_lost = rows["sent"] - sent, rows["sent"].astype(np.int64) - rows["received"] - lost
        arrived = received > 0
        telling = (lost > 0) & ~arrived & ~queued
        windows["since_ns"] = np.where(telling & (windows["lost"] == 0), since_ns, windows["since_ns"])
        windows["lost"] = np.where(arrived, 0, windows["lost"] + telling * lost)
        windows["bytes"] = np.where(sent > 0, rows["full_bytes"], windows["bytes"])
        going = windows["lost"] > 0
        windows["small_sent"] = np.where(going, windows["small_sent"] + np.maximum(small_sent, 0), 0)
        windows["small_lost"] = np.where(going, windows["small_lost"] + np.maximum(small_lost, 0), 0)
        windows["in_row"] = np.where(rows["sent"] > rows["received"], 0, windows["in_row"] + received)
        self._windows[ids] = windows

    def due(self, ids: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Of which paths `is_blocked` or `passes` may have changed."""
        lost = self._windows["lost"][ids]
        if not self.blocked:
            return np.asarray(lost >= self._least)
        due: NDArray[np.bool_] = lost >= min(self._least, _SHARED_LOST)
        return due | ((self._windows["in_row"][ids] >= self._least) & np.isin(ids, list(self.blocked)))

    def is_blocked(self, path_id: int) -> bool:
        """Whether full-size probes alone are lost on a path, and enough of them."""
        window = self._windows[path_id]
        if window["small_lost"] > _SMALL_LOST * window["small_sent"]:
            return False
        return bool(window["lost"] >= self._least or self._shares_nic(path_id))

    def passes(self, path_id: int) -> bool:
        """Whether full-size probes pass a path again."""
        return bool(self._windows[path_id]["in_row"] >= self._least)

    def is_losing(self, path_id: int) -> bool:
        """Whether those of a path were lost lately."""
        return bool(self._windows[path_id]["lost"] > 0)

    def since_ns(self, path_id: int) -> int:
        """When the first of those that were lost was sent, at the earliest."""
        return int(self._windows[path_id]["since_ns"])

    def evidence(self, path_id: int) -> Evidence:
        """For an event about a path."""
        window = self._windows[path_id]
        return {
            "full_size_lost": bool(window["lost"] > 0),
            "bytes": int(window["bytes"]),
            "sent": int(window["small_sent"] + window["lost"]),
            "lost": int(window["small_lost"] + window["lost"]),
            "full_size_arrived": int(window["in_row"]),
        }

    def _shares_nic(self, path_id: int) -> bool:
        """Whether another path that passes none begins at the same NIC, or ends at the same."""
        ends = self._table.ends
        return bool((ends[list(self.blocked)] == ends[path_id]).any())
