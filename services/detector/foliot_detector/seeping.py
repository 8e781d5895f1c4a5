"""NICs that lose a little of all that they send, or of all that is sent to them: too little for a path alone to show it soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from foliot_schemas import Event
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.fleet import Fleet
    from foliot_detector.settings import DetectorSettings

Key: TypeAlias = tuple[int, int]
"""A NIC's place, and a direction."""

_DIRECTIONS = ("out", "in")
_S = 1_000_000_000
_SPREAD = 5
"""Seconds that must have lost something: one burst on a whole rail, as when a route changes, is no NIC's trouble."""
_SHORTEST_NS, _LONGEST_NS = 10 * _S, 60 * _S
"""Of a window. The remediator remembers no longer what a path lost."""
_SEVERAL = 2
"""Probes of a row: with fewer, their delays say little of the queue when another was lost."""
_REST_SHARE, _REST_LOST = 0.5, 3
"""What must be left without the peer that lost most: of the threshold, and in probes. Otherwise the trouble is that peer's."""
_HEALED_SHARE, _HEALED_SENT = 0.5, 0.25
"""Sound again: less than this share of what makes a NIC seep, of this part of a window's probes."""

_Path = np.dtype([("sent", "<u4"), ("lost", "<u4"), ("begun", "<u4", (2, 2))])
"""Probes sent and lost until now, and the same when the windows of its source and its destination began."""
_Window = np.dtype([("since_ns", "<i8"), ("look_ns", "<i8"), ("losing_s", "<i4"), ("last_s", "<i8")])
"""`losing_s`: in how many seconds something was lost, the last of them in `last_s`."""


class _Verdict(NamedTuple):
    fault: str
    since_ns: int
    paths: dict[int, Event]
    """Those that were said to be lossy for it."""


class _Sum(NamedTuple):
    """What the paths of a NIC, in one direction, sent and lost in its window."""

    paths: NDArray[np.intp]
    sent: NDArray[np.uint32]
    lost: NDArray[np.uint32]

    @property
    def share(self) -> float:
        return float(self.lost.sum() / max(self.sent.sum(), 1))


class Seeping:
    """Events of kind ``path``, states `lossy` and `speaking`, whose evidence names a NIC and a direction.

    What all paths from a NIC lost is added up, and what all paths to it did. The share that makes it seep (`lossy_nic_share`) is a tenth of what makes a path lossy, and must not be of one peer
    alone, whose own trouble it is then. Only paths that lost something themselves are said to be lossy: those of the window at once, others when they do. They are sound again together.
    """

    def __init__(self, settings: DetectorSettings, fleet: Fleet) -> None:
        self._settings = settings
        self._fleet = fleet
        self._table = fleet.paths
        self._enough = round(2 * settings.lossy_lost / settings.lossy_nic_share)
        self._paths = np.zeros(0, _Path)
        self._windows = np.zeros((0, 2), _Window)
        """Per NIC and direction."""
        self._losing: set[Key] = set()
        """Where something was lost since the last look."""
        self._look_ns = 0
        self._verdicts: dict[Key, _Verdict] = {}

    def has(self, path_id: int) -> bool:
        """Whether a path is said to be lossy for a NIC's sake."""
        return any(path_id in verdict.paths for verdict in self._verdicts.values())

    def resume(self, event: Event, path_id: int) -> bool:
        """Takes a path that an earlier run said to be lossy; False: it was so by itself."""
        nic, direction = event.evidence.get("nic"), event.evidence.get("direction")
        if not isinstance(nic, str) or direction not in _DIRECTIONS:
            return False
        key = self._table.nic_id(nic), _DIRECTIONS.index(str(direction))
        self._verdicts.setdefault(key, _Verdict(event.fault, event.since_ns, {})).paths[path_id] = event
        return True

    def leave(self, path_id: int) -> None:
        """The path is silent: others say what there is to be said of it, and what it lost before is said."""
        for verdict in self._verdicts.values():
            verdict.paths.pop(path_id, None)
        if path_id < len(self._paths):
            path = self._paths[path_id]
            path["begun"] = path["sent"], path["lost"]

    def begin(self, nic: str, now_ns: int) -> None:
        """The NIC's port went down or came back: what that lost has its cause."""
        place = self._table.nic_id(nic)
        self._make_room(now_ns)
        for direction in range(len(_DIRECTIONS)):
            self._begin((place, direction), now_ns)

    def count(
        self, ids: NDArray[np.intp], sent: NDArray[Any], received: NDArray[Any], calm: NDArray[np.bool_], now_ns: int
    ) -> None:
        """Takes what receivers counted on paths, each once; `calm` where queues were not full."""
        self._make_room(now_ns)
        counted = calm & ((sent >= _SEVERAL) | self._seeps(ids))
        self._paths["sent"][ids] += counted * sent
        losing = np.flatnonzero(counted & (sent > received))
        if not len(losing):
            return
        self._paths["lost"][ids[losing]] += sent[losing] - received[losing]
        second = now_ns // _S
        for ends in self._table.ends[ids[losing]].tolist():
            for direction, nic in enumerate(ends):
                window = self._windows[nic, direction]
                window["losing_s"] += window["last_s"] != second
                window["last_s"] = second
                self._losing.add((nic, direction))

    def judge(self, now_ns: int, lossy: dict[int, Event]) -> list[Event]:
        """Looks at NICs that lost something since the last call, and once a second at those whose time has come; `lossy` are the paths that are so by themselves."""
        keys, self._losing = self._losing, set()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _S
            keys |= {(nic, direction) for nic, direction in np.argwhere(self._windows["look_ns"] <= now_ns).tolist()}
        return [event for key in sorted(keys) for event in self._judge(key, now_ns, lossy)]

    def _judge(self, key: Key, now_ns: int, lossy: dict[int, Event]) -> list[Event]:
        if key[0] >= len(self._table.nics):
            return []
        least, total = self._settings.lossy_nic_share, self._sum(key)
        age_ns = now_ns - int(self._windows[key]["since_ns"])
        at_ns = self._fleet.at_ns(node_of(self._table.nics[key[0]]), now_ns)
        if key in self._verdicts:
            sound = total.share < _HEALED_SHARE * least and age_ns >= _SHORTEST_NS
            if sound and total.sent.sum() >= _HEALED_SENT * self._enough:
                self._begin(key, now_ns)
                return self._heal(key, total, at_ns)
        elif self._is_seeping(key, total):
            since_ns = at_ns - age_ns
            fault = f"{self._table.nics[key[0]]}/lossy-{_DIRECTIONS[key[1]]}-{since_ns}"
            self._verdicts[key] = _Verdict(fault, since_ns, {})
        events = self._mark(key, total, at_ns, lossy) if key in self._verdicts else []
        if age_ns >= _LONGEST_NS or (age_ns >= _SHORTEST_NS and total.sent.sum() >= self._enough):
            self._begin(key, now_ns)
        return events

    def _is_seeping(self, key: Key, total: _Sum) -> bool:
        """Whether it is enough, here and there, and enough without the peer that lost most: what one NIC loses shows, thinner, at all that it speaks with."""
        least = self._settings.lossy_nic_share
        lost = int(total.lost.sum())
        if lost < self._settings.lossy_lost or total.share < least or self._windows[key]["losing_s"] < _SPREAD:
            return False
        _, peers = np.unique(self._table.ends[total.paths, 1 - key[1]], return_inverse=True)
        sent_each, lost_each = np.bincount(peers, total.sent), np.bincount(peers, total.lost)
        most = lost_each.argmax()
        rest_sent, rest_lost = total.sent.sum() - sent_each[most], lost - lost_each[most]
        return bool(rest_lost >= max(_REST_LOST, _REST_SHARE * least * rest_sent))

    def _mark(self, key: Key, total: _Sum, at_ns: int, lossy: dict[int, Event]) -> list[Event]:
        """Says of each path that lost something that it is lossy, if nobody has yet."""
        verdict, numbers = self._verdicts[key], self._evidence(key, total)
        events = []
        for row in np.flatnonzero((total.lost > 0) & ~self._table.silent[total.paths]):
            path_id = int(total.paths[row])
            if path_id in lossy or self.has(path_id):
                continue
            name = self._table.names[path_id]
            own = {"sent": int(total.sent[row]), "lost": int(total.lost[row])}
            verdict.paths[path_id] = event = Event(
                id=f"{verdict.fault}/{name}/lossy-{at_ns}", kind="path", who=name, state="lossy", at_ns=at_ns,
                since_ns=verdict.since_ns, evidence=own | numbers, fault=verdict.fault,
            )  # fmt: skip
            events.append(event)
        return events

    def _heal(self, key: Key, total: _Sum, at_ns: int) -> list[Event]:
        verdict = self._verdicts.pop(key)
        return [
            Event(
                id=f"{before.id}/speaking", kind="path", who=before.who, state="speaking", at_ns=at_ns,
                since_ns=verdict.since_ns, evidence=self._evidence(key, total), fault=verdict.fault, cause=before.id,
            )
            for before in verdict.paths.values()
        ]  # fmt: skip

    def _evidence(self, key: Key, total: _Sum) -> dict[str, Any]:
        return {
            "nic": self._table.nics[key[0]],
            "direction": _DIRECTIONS[key[1]],
            "nic_sent": int(total.sent.sum()),
            "nic_lost": int(total.lost.sum()),
            "nic_loss_share": round(total.share, 6),
        }

    def _sum(self, key: Key) -> _Sum:
        paths = self._paths_of(key)
        rows, begun = self._paths[paths], self._paths["begun"][paths, key[1]]
        return _Sum(paths, rows["sent"] - begun[:, 0], rows["lost"] - begun[:, 1])

    def _begin(self, key: Key, now_ns: int) -> None:
        paths = self._paths_of(key)
        rows = self._paths[paths]
        self._paths["begun"][paths, key[1]] = np.stack([rows["sent"], rows["lost"]], axis=1)
        self._windows[key] = (now_ns, now_ns + _SHORTEST_NS, 0, 0)

    def _paths_of(self, key: Key) -> NDArray[np.intp]:
        nic = self._table.nics[key[0]]
        return self._table.entering(nic) if key[1] else self._table.leaving(nic)

    def _seeps(self, ids: NDArray[np.intp]) -> NDArray[np.bool_] | bool:
        """Whether an end of a path seeps: then its traffic is elsewhere, and the slow sweep has to show that it is sound again."""
        if not self._verdicts:
            return False
        return np.asarray(np.isin(self._table.ends[ids], [nic for nic, _ in self._verdicts]).any(axis=1))

    def _make_room(self, now_ns: int) -> None:
        missing = self._table.room - len(self._paths)
        if missing:
            self._paths = np.concatenate([self._paths, np.zeros(missing, _Path)])
        if len(self._windows) < len(self._table.nics):
            more = np.zeros((len(self._table.nics), 2), _Window)
            more["since_ns"], more["look_ns"] = now_ns, now_ns + _SHORTEST_NS
            self._windows = np.concatenate([self._windows, more])
