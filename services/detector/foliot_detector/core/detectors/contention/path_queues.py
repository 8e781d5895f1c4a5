"""How far the delay of each path stands above its usual, in columns by the path's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot.columns import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.path_table import Delays, PathTable

_S = 1_000_000_000
SLOT_NS = _S // 4
_EAGER, _REST = 240, 8
"""While nobody watches, bases are learnt in all slots of the first minute, and then in one of so many: at an eighth of
the cost."""
_SLOTS = 4
"""A window of one second, in which a path of the slow sweep has a probe, moves by a quarter of its length."""
_SELDOM_NS = 2 * SLOT_NS
"""A report that holds for longer is one of few: a window, or a slot in which bases are learnt, may have none."""
_MEMORY_NS = 600 * _S
"""A path's base is the least delay of the last ten to twenty minutes. A queue that TCP fills is empty at times."""
_MOST_BOUND_NS = 60 * _S
"""A clock that promises less promises nothing; two of these fit into a sum."""
_NEVER = np.int64(1 << 62)
_CALM_SHARE = 20
"""The percentile of all paths that shows how much delays vary where there is no queue. Fewer than four in five paths
have one at once."""


class PathQueues:
    """Bases of all paths; and while somebody watches, what their delays exceed it by in the last second.

    Where a receiver reports so seldom that the second has no report, its latest one counts while it holds. A row counts
    if the clocks of both ends are synchronised.
    """

    def __init__(self, table: PathTable) -> None:
        self._table = table
        self._least = np.full((0, 2), _NEVER)
        """The least delay since the memory was last turned, and that of the memory before."""
        self._sum = np.zeros((0, _SLOTS), np.float64)
        """Per slot, the sum of the reports' least delays, in ns."""
        self._count = np.zeros((0, _SLOTS), np.int32)
        self._latest_ns = np.zeros(0)
        """The delay by the latest report of receivers that report seldom. It has no rows where there are none."""
        self._holds_until_ns = np.zeros(0, np.int64)
        """Until when that counts."""
        self._bounds = np.full(0, -1, np.int64)
        """Per node of the table, the bound of its clock; -1: it is not synchronised."""
        self._excess_ns: NDArray[np.float64] | None = None
        """`excess_ns` of all paths, as they were asked for at least once since anything changed."""
        self._slot = self._turns = 0
        self._turn_ns = self._now_ns = 0
        self._is_watched = False

    def bound(self, node: int, bound_ns: int) -> None:
        """Takes the bound of a node's clock; `node` is its place in the table, below 0: it has none."""
        if node >= 0:
            if node >= len(self._bounds):
                self._bounds = grown(self._bounds, 2 * len(self._table.nodes), -1)
            self._bounds[node] = bound_ns

    def add(self, seen: Delays, holds_ns: int) -> None:
        """Takes the receiving end's rows of a batch, which holds for so long."""
        self.bound(self._table.node_id(seen.node), seen.bound_ns)
        is_seldom = holds_ns > _SELDOM_NS
        is_learning = self._is_watched or is_seldom or self._turns < _EAGER or self._turns % _REST == 0
        if seen.bound_ns < 0:
            self._let_go(seen.ids)
        if seen.bound_ns < 0 or not is_learning:
            return
        self._excess_ns = None
        rows, timed = seen.rows, seen.timed
        ids, least = seen.ids[timed], rows["least_ns"][timed]
        # A long report's least is of a moment in which the queue was empty: TCP leaves it so at times.
        delay = rows["median_ns"][timed] if is_seldom else least
        self._make_room()
        known = self._bounds[self._table.source_node[ids]] >= 0
        if not known.all():
            self._let_go(ids[~known])
            ids, least, delay = ids[known], least[known], delay[known]
        self._least[ids, 0] = np.minimum(self._least[ids, 0], least)
        if self._is_watched:
            self._make_room_for_windows()
            self._sum[ids, self._slot] += delay
            self._count[ids, self._slot] += 1
            if is_seldom:
                self._hold(ids, delay, seen.at_here_ns + holds_ns)

    def turn(self, now_ns: int, *, is_watched: bool) -> None:
        """Begins the next slot; to be called every `SLOT_NS`. While nobody watches, only bases are kept."""
        self._turns += 1
        self._now_ns, self._excess_ns = now_ns, None
        if is_watched or self._is_watched:
            self._slot = (self._slot + 1) % _SLOTS
            self._sum[:, self._slot] = 0.0
            self._count[:, self._slot] = 0
        if not is_watched and self._is_watched:
            self._sum[:], self._count[:], self._holds_until_ns[:] = 0.0, 0, 0
        self._is_watched = is_watched
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + _MEMORY_NS
            self._least[:, 1] = self._least[:, 0]
            self._least[:, 0] = _NEVER

    def forget(self, ids: NDArray[np.intp] | list[int]) -> None:
        """Forgets paths, as they lead elsewhere or a clock was set."""
        self._make_room()
        self._excess_ns = None
        self._least[ids] = _NEVER
        self._let_go(ids)
        if len(self._sum):
            self._make_room_for_windows()
            self._sum[ids], self._count[ids] = 0.0, 0

    def excess_ns(self, ids: NDArray[np.intp]) -> NDArray[np.float64]:
        """What delays of the last second exceed the base by, mean of the reports' least; NaN: none was heard."""
        return self._all_excess_ns()[ids]

    def bases_ns(self, ids: NDArray[np.intp]) -> NDArray[np.int64]:
        """The usual delays; beyond all times: none was heard."""
        self._make_room()
        found: NDArray[np.int64] = self._least[ids].min(axis=1)
        return found

    def longest_ns(self, ids: NDArray[np.intp]) -> NDArray[np.float64]:
        """The delay itself, mean of the reports' least in that quarter of the last second in which it was longest.

        NaN: none was heard, or there is no such path (an id below 0). It is off by the clocks.
        """
        self._make_room()
        self._make_room_for_windows()
        count = np.where((ids >= 0)[:, None], self._count[ids], 0)
        means = np.where(count > 0, self._sum[ids] / np.maximum(count, 1), -np.inf)
        return self._or_held(np.where(count.any(axis=1), means.max(axis=1), np.nan), ids)

    def calm_ns(self) -> float:
        """What most paths without a queue show now; 0: nothing was heard."""
        excess_ns = self._all_excess_ns()
        heard_ns = excess_ns[~np.isnan(excess_ns)]
        return float(np.percentile(heard_ns, _CALM_SHARE)) if len(heard_ns) else 0.0

    def bound_ns(self, ids: NDArray[np.intp]) -> int:
        """The greatest error of a delay by the clocks of these paths' ends."""
        self._make_room()
        bounds_ns = np.minimum(np.maximum(self._bounds, 0), _MOST_BOUND_NS)
        both_ns = bounds_ns[self._table.source_node[ids]] + bounds_ns[self._table.destination_node[ids]]
        return int(both_ns.max(initial=0))

    def _all_excess_ns(self) -> NDArray[np.float64]:
        """As `excess_ns`, of all paths: a look asks for them link by link, and nothing changes meanwhile."""
        if self._excess_ns is None or len(self._excess_ns) < self._table.room:
            self._make_room()
            self._make_room_for_windows()
            count = self._count.sum(axis=1)
            means_ns = np.full(len(count), np.nan)
            np.divide(self._sum.sum(axis=1), count, out=means_ns, where=count > 0)
            self._excess_ns = self._or_held(means_ns, np.arange(len(count))) - self._least.min(axis=1)
        return self._excess_ns

    def _hold(self, ids: NDArray[np.intp], delay_ns: NDArray[np.int64], until_ns: int) -> None:
        """Lets a report count until the next one should have come."""
        room = self._table.room
        self._latest_ns, self._holds_until_ns = grown(self._latest_ns, room), grown(self._holds_until_ns, room)
        self._latest_ns[ids], self._holds_until_ns[ids] = delay_ns, until_ns

    def _let_go(self, ids: NDArray[np.intp] | list[int]) -> None:
        """Lets the latest reports of paths count no longer."""
        if len(self._holds_until_ns):
            self._excess_ns = None
            self._holds_until_ns = grown(self._holds_until_ns, self._table.room)
            self._holds_until_ns[ids] = 0

    def _or_held(self, means_ns: NDArray[np.float64], ids: NDArray[np.intp]) -> NDArray[np.float64]:
        """The means of a window; where it has no report, the latest one while it holds."""
        if not len(self._holds_until_ns):
            return means_ns
        holds = (ids >= 0) & np.isnan(means_ns) & (self._holds_until_ns[ids] >= self._now_ns)
        return np.where(holds, self._latest_ns[ids], means_ns)

    def _make_room(self) -> None:
        room = self._table.room
        if len(self._least) < room:
            self._least = grown(self._least, room, int(_NEVER))
        if len(self._bounds) < len(self._table.nodes):
            self._bounds = grown(self._bounds, 2 * len(self._table.nodes), -1)

    def _make_room_for_windows(self) -> None:
        """These take three times as much as the bases, so a fleet whose flows nobody tells of has none."""
        room = self._table.room
        self._sum, self._count = grown(self._sum, room), grown(self._count, room)
        if len(self._holds_until_ns):
            self._latest_ns, self._holds_until_ns = grown(self._latest_ns, room), grown(self._holds_until_ns, room)
