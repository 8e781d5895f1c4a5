"""NICs that lose a little of all that they send, or of all that is sent to them.

It is too little for a path alone to show it soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from foliot.columns import grown
from foliot_detector.core.detectors.ending import ended
from foliot_schemas import Event
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.inventory import Inventory

Key: TypeAlias = tuple[int, int]
"""A NIC's place, and a direction."""

_DIRECTIONS, _BOTH = ("out", "in"), "both"
_S = 1_000_000_000
LEAST_LOST = 10
"""Lost probes that it takes at least."""
_LOSSY_SHARE = 0.005
"""Share of all probes to a NIC, or from it, that are lost while no queue is full. TCP over a path of some
milliseconds suffers from that already."""
_ENOUGH = round(2 * LEAST_LOST / _LOSSY_SHARE)
"""Probes that a window has."""
_SPREAD = 5
"""Seconds that must have lost something: one burst on a whole rail, as when a route changes, is no NIC's trouble."""
_SHORTEST_NS, _LONGEST_NS = 10 * _S, 60 * _S
"""A window ends when it has `_ENOUGH` probes and is no shorter than the first time. One that is older than the
second begins anew with the next loss."""
_SEVERAL = 2
"""Probes of a row. With fewer, their delays say little of the queue when another was lost."""
_REST_SHARE, _REST_LOST = 0.5, 3
"""Loss that must be left without the peer that lost most: a share of the threshold, and a number of probes.
Otherwise the trouble is that peer's."""
_HEALED_SHARE, _HEALED_SENT = 0.5, 0.25
"""A NIC is sound again when it loses less than the first share of what makes it seep. The second is the part of a
window's probes that this takes."""

_Path = np.dtype([("sent", "<u4"), ("lost", "<u4"), ("begun", "<u4", (2, 2))])
"""Probes sent and lost until now, and the same when the windows of its source and its destination began."""
_Window = np.dtype([("since_ns", "<i8"), ("losing_s", "<i4"), ("last_s", "<i8")])
"""`losing_s`: in how many seconds something was lost, the last of them in `last_s`."""


class _Verdict(NamedTuple):
    event: Event
    open: set[int]
    """Directions that are not sound again yet."""


class _Sum(NamedTuple):
    """Probes that the paths of a NIC, in one direction, sent and lost in its window."""

    paths: NDArray[np.intp]
    sent: NDArray[np.uint32]
    lost: NDArray[np.uint32]

    @property
    def share(self) -> float:
        return float(self.lost.sum() / max(self.sent.sum(), 1))


class NicLoss:
    """Events of kind ``nic``, states `lossy` and `sound`.

    It adds up what all paths from a NIC lost, and what all paths to it lost. The share that makes a NIC seep
    (`_LOSSY_SHARE`) is a tenth of what makes a path lossy. If one peer or a few lost it all, the trouble is theirs.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._table = inventory.paths
        self._paths = np.zeros(0, _Path)
        self._windows = np.zeros((0, 2), _Window)
        """Per NIC and direction."""
        self._losing: set[Key] = set()
        """NICs and directions that lost something in a further second, and in enough of them."""
        self._look_ns = 0
        self._verdicts: dict[int, _Verdict] = {}

    def resume(self, event: Event) -> None:
        """Watches whether a NIC that an earlier run said to be lossy is sound again."""
        if event.kind == "nic" and event.state == "lossy" and event.who in self._inventory.nics:
            said = str(event.evidence.get("direction"))
            directions = {place for place, name in enumerate(_DIRECTIONS) if said in {name, _BOTH}}
            self._verdicts[self._table.nic_id(event.who)] = _Verdict(event, directions or {*range(len(_DIRECTIONS))})

    def begin(self, nic: str, now_ns: int) -> None:
        """Begins a NIC's windows anew as its port went down or came back: what that lost has its cause."""
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
                if window["last_s"] == second:
                    continue
                if now_ns - window["since_ns"] >= _LONGEST_NS:
                    self._begin((nic, direction), now_ns)
                window["losing_s"] += 1
                window["last_s"] = second
                if window["losing_s"] >= _SPREAD:
                    self._losing.add((nic, direction))

    def judge(self, now_ns: int) -> list[Event]:
        """Looks once a second at NICs that lost something or may be sound again.

        So a large fleet without loss costs nothing.
        """
        keys, self._losing = self._losing, set()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _S
            self._make_room(now_ns)
            keys |= {(nic, direction) for nic, verdict in self._verdicts.items() for direction in verdict.open}
        return [event for key in sorted(keys) for event in self._judge(key, now_ns)]

    def _judge(self, key: Key, now_ns: int) -> list[Event]:
        nic, direction = key
        total, verdict = self._sum(key), self._verdicts.get(nic)
        age_ns = now_ns - int(self._windows[key]["since_ns"])
        event = None
        if verdict is None:
            if self._is_seeping(key, total):
                event = self._lossy(key, total, age_ns, now_ns)
        elif direction in verdict.open and self._is_sound(total, age_ns):
            self._begin(key, now_ns)
            verdict.open.discard(direction)
            if not verdict.open:
                del self._verdicts[nic]
                at_ns = self._inventory.at_ns(node_of(verdict.event.who), now_ns)
                event = ended(verdict.event, "sound", at_ns, {"direction": _DIRECTIONS[direction]} | _evidence(total))
        if age_ns >= _LONGEST_NS or (age_ns >= _SHORTEST_NS and total.sent.sum() >= _ENOUGH):
            self._begin(key, now_ns)
        return [event] if event else []

    def _is_sound(self, total: _Sum, age_ns: int) -> bool:
        enough = age_ns >= _SHORTEST_NS and total.sent.sum() >= _HEALED_SENT * _ENOUGH
        return bool(enough and total.share < _HEALED_SHARE * _LOSSY_SHARE)

    def _is_seeping(self, key: Key, total: _Sum) -> bool:
        """Whether a NIC lost enough, at different times and with most peers.

        Its loss also shows at each peer, but thinner.
        """
        lost = int(total.lost.sum())
        if lost < LEAST_LOST or total.share < _LOSSY_SHARE or self._windows[key]["losing_s"] < _SPREAD:
            return False
        _, peers = np.unique(self._table.ends[total.paths, 1 - key[1]], return_inverse=True)
        sent_each, lost_each = np.bincount(peers, total.sent), np.bincount(peers, total.lost)
        if 2 * int((lost_each > 0).sum()) < min(len(lost_each), lost):
            return False
        most = lost_each.argmax()
        rest_sent, rest_lost = total.sent.sum() - sent_each[most], lost - lost_each[most]
        return bool(rest_lost >= max(_REST_LOST, _REST_SHARE * _LOSSY_SHARE * rest_sent))

    def _lossy(self, key: Key, total: _Sum, age_ns: int, now_ns: int) -> Event:
        nic, direction = key
        other = self._sum((nic, 1 - direction))
        both = other.share >= _LOSSY_SHARE and other.lost.sum() >= _REST_LOST
        name = self._table.nics[nic]
        at_ns = self._inventory.at_ns(node_of(name), now_ns)
        fault = f"{name}/lossy-{at_ns - age_ns}"
        event = Event(
            id=f"{fault}/lossy", kind="nic", who=name, state="lossy", at_ns=at_ns, since_ns=at_ns - age_ns,
            evidence={"direction": _BOTH if both else _DIRECTIONS[direction]} | _evidence(total), fault=fault,
        )  # fmt: skip
        self._verdicts[nic] = _Verdict(event, {0, 1} if both else {direction})
        for each in self._verdicts[nic].open:
            self._begin((nic, each), now_ns)
        return event

    def _sum(self, key: Key) -> _Sum:
        paths = self._paths_of(key)
        rows, begun = self._paths.take(paths), self._paths["begun"][paths, key[1]]
        return _Sum(paths, rows["sent"] - begun[:, 0], rows["lost"] - begun[:, 1])

    def _begin(self, key: Key, now_ns: int) -> None:
        paths = self._paths_of(key)
        rows = self._paths.take(paths)
        self._paths["begun"][paths, key[1]] = np.stack([rows["sent"], rows["lost"]], axis=1)
        self._windows[key] = (now_ns, 0, 0)

    def _paths_of(self, key: Key) -> NDArray[np.intp]:
        nic = self._table.nics[key[0]]
        return self._table.entering(nic) if key[1] else self._table.leaving(nic)

    def _seeps(self, ids: NDArray[np.intp]) -> NDArray[np.bool_] | bool:
        """Whether an end of a path seeps.

        Its traffic may be elsewhere since, so the slow sweep has to show that it is sound again.
        """
        if not self._verdicts:
            return False
        return np.asarray(np.isin(self._table.ends[ids], [*self._verdicts]).any(axis=1))

    def _make_room(self, now_ns: int) -> None:
        self._paths = grown(self._paths, self._table.room)
        known, self._windows = len(self._windows), grown(self._windows, len(self._table.nics))
        self._windows["since_ns"][known:] = now_ns


def _evidence(total: _Sum) -> dict[str, Any]:
    return {
        "sent": int(total.sent.sum()),
        "lost": int(total.lost.sum()),
        "loss_share": round(total.share, 6),
        "paths": len(total.paths),
        "paths_losing": int((total.lost > 0).sum()),
    }
