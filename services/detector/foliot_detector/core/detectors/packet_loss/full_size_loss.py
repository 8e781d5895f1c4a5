"""Paths that pass only small packets: of their probes of full size none arrives, while others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from foliot.columns import grown, put

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import PathTable
    from foliot_schemas.event import Evidence


_LEAST = 8
"""Probes of full size lost in a row that show a link which passes only smaller packets. Meanwhile others must
arrive, and no queue at either NIC may have been full lately. It takes 1.3 s on a path in use. Where a tenth of all
is lost here and there, so many in a row are lost once in 100 million by chance. As many that arrive in a row show
that the link passes them again."""
_SMALL_LOST = 0.1
"""Where more of the small probes are lost as well, the trouble is not one of size."""
_SHARED_LOST = 2
"""Full-size probes that must be lost on a path if another path of one of its NICs is known to pass none. A NIC has
many paths, and traffic should not be moved to each of them in turn."""

_Window = np.dtype(
    [
        ("lost", "<i8"),
        ("in_row", "<i8"),
        ("since_ns", "<i8"),
        ("bytes", "<i8"),
        ("small_sent", "<i8"),
        ("small_lost", "<i8"),
        ("blocked", "?"),
    ]
)
"""Per path, counts since a full-size probe last arrived.

- `lost`: full-size probes that were lost, from `since_ns` on.
- `bytes`: their size.
- `small_sent`, `small_lost`: other probes sent and lost meanwhile.
- `blocked`: the path is said to pass none.
- `in_row`: full-size probes that arrived since any probe was lost.
"""


class FullSizeLoss:
    """Counts of full-size probes that were lost or arrived, by path."""

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._windows = np.zeros(0, _Window)
        self._blocked_at = np.zeros(0, np.int64)
        """Per NIC, how many paths from or to it are said to pass none."""

    def make_room(self) -> None:
        """Makes room for the paths and NICs that the table has gained."""
        if len(self._windows) < self._table.room:
            self._windows = grown(self._windows, self._table.room)
        if len(self._blocked_at) < len(self._table.nics):
            self._blocked_at = grown(self._blocked_at, 2 * len(self._table.nics))

    def forget(self, ids: NDArray[np.intp]) -> None:
        """Forgets these paths, each named once: they are silent, and nothing passes them."""
        for path_id in ids[self._windows["blocked"][ids]].tolist():
            self.unblock(path_id)
        self._windows[ids] = np.zeros((), _Window)

    def block(self, path_id: int) -> None:
        """Notes that a path is said to pass none."""
        self.make_room()
        window = self._windows[path_id]
        if not window["blocked"]:
            self._blocked_at[self._table.ends[path_id]] += 1
        window["blocked"], window["in_row"] = True, 0

    def unblock(self, path_id: int) -> None:
        """Notes that a path is not said to pass none any more, if it was."""
        if self._windows["blocked"][path_id]:
            self._blocked_at[self._table.ends[path_id]] -= 1
            self._windows["blocked"][path_id] = False

    def count(self, ids: NDArray[np.intp], rows: NDArray[Any], since_ns: int, queued: NDArray[np.bool_]) -> bool:
        """Takes receivers' rows of paths, each once; returns whether any of them may be `due`.

        Where packets `queued` up, loss shows nothing: a full queue drops large ones first.
        """
        # Nearly always all arrive, and there is nothing to count.
        windows = self._windows.take(ids)
        if not ((rows["full_sent"] > rows["full_received"]) | (windows["lost"] > 0) | windows["blocked"]).any():
            return False
        sent, received = rows["full_sent"].astype(np.int64), rows["full_received"].astype(np.int64)
        lost = np.maximum(sent - received, 0)
        small_sent, small_lost = rows["sent"] - sent, rows["sent"].astype(np.int64) - rows["received"] - lost
        arrived = received > 0
        telling = (lost > 0) & ~arrived & ~queued
        windows["since_ns"] = np.where(telling & (windows["lost"] == 0), since_ns, windows["since_ns"])
        # A sender that pads none any more, as its settings are others now, lets nobody know.
        windows["lost"] = np.where(arrived | (rows["full_bytes"] == 0), 0, windows["lost"] + telling * lost)
        windows["bytes"] = np.where(sent > 0, rows["full_bytes"], windows["bytes"])
        going = windows["lost"] > 0
        windows["small_sent"] = np.where(going, windows["small_sent"] + np.maximum(small_sent, 0), 0)
        windows["small_lost"] = np.where(going, windows["small_lost"] + np.maximum(small_lost, 0), 0)
        windows["in_row"] = np.where(rows["sent"] > rows["received"], 0, windows["in_row"] + received)
        put(self._windows, ids, windows)
        return True

    def due(self, ids: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Marks the paths of which `judge` may have something new to say."""
        windows = self._windows.take(ids)
        least = np.where(self._share_nic(ids), _SHARED_LOST, _LEAST)
        due: NDArray[np.bool_] = np.where(windows["blocked"], windows["in_row"] >= _LEAST, windows["lost"] >= least)
        return due

    def judge(self, path_id: int) -> Literal["lossy", "speaking", ""]:
        """Says `lossy` where enough full-size probes and few others were lost, and `speaking` where they pass again.

        Empty: neither.
        """
        window = self._windows[path_id]
        if window["blocked"]:
            return "speaking" if window["in_row"] >= _LEAST else ""
        if window["small_lost"] > _SMALL_LOST * window["small_sent"]:
            return ""
        return "lossy" if window["lost"] >= _LEAST or self._share_nic(np.array([path_id]))[0] else ""

    def is_losing(self, path_id: int) -> bool:
        """Whether a path that is said to pass none lost a full-size probe lately."""
        return bool(self._windows["blocked"][path_id] and self._windows["lost"][path_id] > 0)

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

    def _share_nic(self, ids: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Marks the paths of which a NIC at either end has a path that passes none."""
        return np.asarray((self._blocked_at[self._table.ends[ids]] > 0).any(axis=1))
