"""Paths that lose probes without falling silent, told from queues that overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot.columns import grown, put
from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.packet_loss.full_size_loss import FullSizeLoss
from foliot_detector.core.detectors.packet_loss.held_counts import Counts, HeldCounts
from foliot_detector.core.detectors.packet_loss.nic_loss import LEAST_LOST, NicLoss
from foliot_detector.core.state.full_queues import CONGESTION_NS, FullQueues
from foliot_detector.core.state.path_table import Delays
from foliot_schemas import ClockState, Event, PortState, Witness
from foliot_schemas.names import is_nic_clock, nic_clock_name, node_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas import Nic
    from foliot_schemas.event import Evidence

_NEVER = np.iinfo(np.int64).max
_LOSSY_SHARE = 0.05
_ENOUGH = 200
"""Probes that a judgement of loss rests on: eight seconds of a path in use. It waits for no more where `LEAST_LOST`
were lost here and there."""
_LOSSLESS = 75
"""A lossy path speaks again after so many without a loss: 15 s of the slow sweep. At 5 % loss that is once in 47 by
chance."""
_HEALED = 0.5
"""A lossy path speaks again when it loses less than this share of what made it lossy. So none chatters at the edge."""
_SPREAD = 5
"""Rows that must have lost something. A node that was away for a short time loses many probes, but in one row or
two."""

_LONGEST_GAP_NS = 1_000_000_000
"""How long before a report a probe may have been lost that it misses: five intervals of the slow sweep."""

_Window = np.dtype(
    [
        ("since_ns", "<i8"),
        ("sent", "<i8"),
        ("received", "<i8"),
        ("rows", "<i8"),
        ("losing", "<i8"),
        ("timed", "<i8"),
        ("high", "<i8"),
        ("excess_ns", "<i8"),
        ("least_ns", "<i8"),
        ("heard_ns", "<i8"),
        ("arrived", "<i8"),
        ("spoilt", "<i8"),
        ("silences", "<i4"),
        ("tainted", "?"),
        ("full", "?"),
        ("lossy", "?"),
    ]
)
"""Per path, what a window adds up, and what is kept over windows.

- `losing`, `timed`: rows with a loss, and rows with delays.
- `high`: rows whose delays stand high.
- `excess_ns`: the most by which delays stood above the least.

Kept over windows:

- `least_ns`: the least delay, while synchronised.
- `heard_ns`: when the last probe of a row was heard.
- `arrived`: probes of all rows without a loss.
- `spoilt`: what `arrived` was when one was last lost.
- `silences`: how often it had been said to be silent by its last row.
- `tainted`: the next row with a probe counts what a silence lost.
- `full`: the delays of the last row that had any stood high.
- `lossy`: the path is said to be.
"""


class PathLossDetector:
    """Events of kind ``path``, states `lossy` and `speaking`, and those of `NicLoss`.

    A path's window has `_ENOUGH` probes, or as many as it takes to lose `LEAST_LOST` here and there. Only the
    receiver's rows count, as their sequence numbers prove what was sent. So a batch lost on the bus is not taken for
    lost probes. A silence's losses are left to the silence, and probes that a full queue lost count as never sent
    (`HeldCounts`). Smaller losses are judged by NIC (`NicLoss`).

    If a path loses some probes of full size in a row and passes others, it is lossy at once (`FullSizeLoss`).
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._gap_ns = round(inventory.settings.late_silence_s * 1e9)
        self._windows = np.zeros(0, _Window)
        self._lossy: dict[int, Event] = {}
        self._sizes = FullSizeLoss(inventory.paths)
        self._queues = FullQueues(inventory.paths)
        self._held = HeldCounts(inventory, self._queues)
        self._nic_loss = NicLoss(inventory)
        self._clocks: dict[str, str] = {}
        self._down: dict[str, bool] = {}

    def resume(self, event: Event) -> None:
        """Watches whether a path that an earlier run said to be lossy is sound again."""
        path_id = self._inventory.place_of(event)
        if path_id >= 0 and event.state == "lossy":
            self._make_room()
            self._note_lossy(path_id, event)
            if event.evidence.get("full_size_lost"):
                self._sizes.block(path_id)
        self._nic_loss.resume(event)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the delays that a node reports, and news of clocks."""
        if isinstance(seen, ClockState):
            self._learn_clock(seen)
        if isinstance(seen, PortState):
            self._learn_port(seen, now_ns)
        if not isinstance(seen, Delays) or not len(seen.rows):
            return []
        self._make_room()
        witness = seen.rows["witness"]
        if seen.rows["unsent"].any():
            unsent = (witness == Witness.SOURCE) & (seen.rows["unsent"] > 0)
            self._queues.note_unsent(seen.ids[unsent], seen.at_here_ns - seen.interval_ns, seen.at_here_ns)
        if seen.tells_at_once:
            fell = seen.ids[witness >= Witness.FELL_SILENT]
            self._windows["tainted"][fell], self._windows["spoilt"][fell] = True, self._windows["arrived"][fell]
        regular = np.flatnonzero(seen.regular)
        ids = seen.ids[regular]
        if len(set(ids.tolist())) < len(ids):  # no probe names a path twice; np.unique takes as long as all the adding
            ids, first = np.unique(ids, return_index=True)
            regular = regular[first]
        return self._take(seen, ids, regular, now_ns) if len(ids) else []

    def _take(self, seen: Delays, ids: NDArray[np.intp], regular: NDArray[np.intp], now_ns: int) -> list[Event]:
        """Takes the rows of the receiver about its paths, which `regular` has by their numbers, each path once."""
        rows, windows = seen.rows.take(regular), self._windows.take(ids)
        # A lost probe is missed when the next one comes, so it may have been lost before the report's interval.
        since_ns = np.maximum(windows["heard_ns"], seen.at_here_ns - _LONGEST_GAP_NS)
        counts = self._count(ids, rows, seen.here_ns[regular], windows)
        if not counts.all():
            put(self._windows, ids, windows)
            ids, rows, windows = ids[counts], rows.compress(counts), windows.compress(counts)
            since_ns = since_ns[counts]
            if not len(ids):
                return []
        may_be_due = self._add(seen, ids, rows, windows, since_ns=since_ns, now_ns=now_ns)
        events: list[Event] = []
        if may_be_due and (sizes := ids[self._sizes.due(ids)].tolist()):
            events = [event for path_id in sizes for event in self._judge_size(path_id, seen)]
            windows = self._windows.take(ids)
        due = ids[self._is_due(windows)].tolist()
        return events + [event for path_id in due for event in self._judge(path_id, seen.at_ns, seen.bound_ns)]

    def _judge_size(self, path_id: int, seen: Delays) -> list[Event]:
        """Whether full-size probes pass."""
        sizes = self._sizes
        if self._inventory.has_down_end(self._inventory.paths.path(path_id)):
            return []
        said = sizes.judge(path_id)
        if said == "speaking":
            return [self._speaks(path_id, seen.at_ns, sizes.evidence(path_id))]
        if said != "lossy" or path_id in self._lossy:
            return []
        sizes.block(path_id)
        return [self._says_lossy(path_id, seen.at_ns, sizes.since_ns(path_id), sizes.evidence(path_id))]

    def _is_due(self, windows: NDArray[Any]) -> NDArray[np.bool_]:
        lost = windows["sent"] - windows["received"]
        due: NDArray[np.bool_] = windows["sent"] >= _ENOUGH
        due |= (lost >= LEAST_LOST) & (windows["losing"] >= _SPREAD)
        due |= windows["lossy"] & (windows["arrived"] - windows["spoilt"] >= _LOSSLESS)
        return due

    def tick(self, now_ns: int) -> list[Event]:
        """Events for losses that no full queue explains, and for what NICs lost by all their paths."""
        events = [event for counts in self._held.due(now_ns) for event in self._add_held(counts, now_ns)]
        return events + self._nic_loss.judge(now_ns)

    def _make_room(self) -> None:
        self._sizes.make_room()
        known, room = len(self._windows), self._inventory.paths.room
        if known < room:
            self._windows = grown(self._windows, room)
            self._windows["least_ns"][known:] = _NEVER

    def _count(
        self, ids: NDArray[np.intp], rows: NDArray[Any], here_ns: NDArray[np.int64], windows: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Whether the receiver's rows count: the paths are not silent and were not just before.

        Parameters:
            windows: of these paths, where it notes when they were heard.
        """
        silent, silences = self._inventory.paths.silent[ids], self._inventory.paths.silences[ids]
        windows["spoilt"][silent] = windows["arrived"][silent]
        # A mere claim may be withdrawn without a word: what is said of the path stands, and is to be ended.
        anew = silences != windows["silences"]
        if anew.any():
            windows["silences"] = silences
            for path_id in ids[anew & windows["lossy"]].tolist():
                self._lossy.pop(path_id, None)
            windows["lossy"][anew] = False
            self._sizes.forget(ids[anew])
        before_ns = windows["heard_ns"].copy()
        left_out = silent | windows["tainted"] | ((before_ns > 0) & (here_ns - before_ns > self._gap_ns))
        heard = rows["received"] > 0
        windows["tainted"] &= ~heard
        windows["heard_ns"] = np.where(heard, here_ns, before_ns)
        counts: NDArray[np.bool_] = ~left_out
        return counts

    def _add(
        self, seen: Delays, ids: NDArray[np.intp], rows: NDArray[Any], windows: NDArray[Any], *,
        since_ns: NDArray[np.int64], now_ns: int,
    ) -> bool:  # fmt: skip
        """Adds rows of paths, each once, to their windows; returns whether `FullSizeLoss.due` may have something.

        Parameters:
            since_ns: when the last probe before was heard.
        """
        p99_ns = rows["p99_ns"]
        # A probe's delay is known only when its successor has brought its stamp: a row may have probes and no delay
        # yet.
        timed = (rows["received"] > 0) & ((rows["least_ns"] != 0) | (p99_ns != 0))
        least_ns = np.where(timed, np.minimum(windows["least_ns"], rows["least_ns"]), windows["least_ns"])
        excess_ns = np.where(timed, p99_ns - least_ns, 0)
        high = excess_ns >= CONGESTION_NS
        if high.any():
            self._queues.note(ids[high], seen.at_here_ns - seen.interval_ns, seen.at_here_ns)
        # Between two rows of short delays the queue was not full, and what is lost was lost elsewhere.
        queued = windows["full"] | high
        # Of clocks that are not synchronised nobody knows.
        known = (least_ns < _NEVER) & (seen.bound_ns >= 0)
        crowded = queued | ~known | self._queues.are_full(ids, now_ns)
        losing = rows["sent"] > rows["received"]
        # Where a queue is full now and then, what comes through must wait too: else the lost would weigh too little.
        held = losing | crowded
        windows["since_ns"][windows["rows"] == 0] = seen.at_ns - seen.interval_ns
        windows["rows"] += 1
        calm = ~held
        windows["sent"] += calm * rows["sent"]
        windows["received"] += calm * rows["received"]
        windows["arrived"] += ~losing * rows["received"]
        windows["timed"] += timed
        windows["least_ns"] = least_ns
        windows["excess_ns"] = np.maximum(windows["excess_ns"], excess_ns)
        windows["high"] += high
        self._nic_loss.count(ids, rows["sent"], rows["received"], calm, now_ns)
        if (waiting := held & ~queued).any():
            counts = Counts(
                ids, rows, known, self._inventory.paths.silences[ids], windows["arrived"], since_ns, seen.at_ns,
                seen.bound_ns, seen.at_here_ns,
            )  # fmt: skip
            self._held.hold(counts.where(waiting))
        windows["full"] = high | (windows["full"] & ~timed)
        put(self._windows, ids, windows)
        return self._sizes.count(ids, rows, seen.at_ns - seen.interval_ns, crowded)

    def _add_held(self, counts: Counts, now_ns: int) -> list[Event]:
        """Adds counts that waited. No queue was full at the time, but one may have been a moment before."""
        ids, windows = counts.ids, self._windows.take(counts.ids)
        crowded = ~counts.known | self._queues.are_full(ids, counts.until_here_ns)
        sent, received = _counted(counts.rows, crowded)
        losing = sent > received
        windows["sent"] += sent
        windows["received"] += received
        windows["losing"] += losing
        windows["spoilt"] = np.where(losing, np.maximum(windows["spoilt"], counts.arrived), windows["spoilt"])
        put(self._windows, ids, windows)
        self._nic_loss.count(ids, sent, received, counts.known, now_ns)
        due = ids[self._is_due(windows)].tolist()
        return [event for path_id in due for event in self._judge(path_id, counts.at_ns, counts.bound_ns)]

    def _judge(self, path_id: int, at_ns: int, bound_ns: int) -> list[Event]:
        window = self._windows[path_id].copy()
        path = self._inventory.paths.path(path_id)
        sender_bound_ns = self._inventory.bound_ns.get(node_of(path.source), -1)
        self._begin(path_id, synchronised=min(bound_ns, sender_bound_ns) >= 0)
        if self._inventory.has_down_end(path):
            return []
        lost = max(int(window["sent"] - window["received"]), 0)
        share = lost / max(int(window["sent"]), 1)
        # Where a queue overflows, what gets through has waited in it: most of the window's delays stand high.
        congested = 2 * int(window["high"]) > int(window["timed"])
        before = self._lossy.get(path_id)
        evidence = _evidence(window, lost, share, congested=congested)
        if before is None:
            few = lost < LEAST_LOST or window["losing"] < _SPREAD
            if share < _LOSSY_SHARE or few or congested:
                return []
            return [self._says_lossy(path_id, at_ns, int(window["since_ns"]), evidence)]
        if self._sizes.is_losing(path_id):
            return []
        lossless = int(window["arrived"] - window["spoilt"]) >= _LOSSLESS
        if not lossless and (share >= _LOSSY_SHARE * _HEALED or window["sent"] < _ENOUGH):
            return []
        return [self._speaks(path_id, at_ns, evidence)]

    def _says_lossy(self, path_id: int, at_ns: int, since_ns: int, evidence: Evidence) -> Event:
        path = self._inventory.paths.path(path_id)
        fault = f"{path}/lossy-{since_ns}"
        event = Event(
            id=f"{fault}/lossy", kind="path", who=str(path), state="lossy", at_ns=at_ns, since_ns=since_ns,
            evidence=evidence, fault=fault,
        )  # fmt: skip
        self._note_lossy(path_id, event)
        return event

    def _note_lossy(self, path_id: int, event: Event) -> None:
        self._lossy[path_id], self._windows["lossy"][path_id] = event, True

    def _speaks(self, path_id: int, at_ns: int, evidence: Evidence) -> Event:
        self._sizes.unblock(path_id)
        lossy, self._windows["lossy"][path_id] = self._lossy.pop(path_id), False
        return ended(lossy, "speaking", at_ns, evidence)

    def _learn_clock(self, state: ClockState) -> None:
        """Delays measured before a clock lost or found its step say nothing of those after."""
        if self._clocks.get(state.clock) == state.status:
            return
        self._clocks[state.clock] = state.status
        self._make_room()
        for node in self._inventory.clocks.get(state.clock, ()):
            nics = self._inventory.nodes[node].nics
            if any(nic.clock == state.clock for nic in nics):
                self._begin_at(nics)
            elif is_nic_clock(state.clock):
                self._begin_at([nic for nic in nics if nic_clock_name(nic.name) == state.clock])

    def _begin_at(self, nics: Iterable[Nic]) -> None:
        for path_id in [place for nic in nics for place in self._inventory.paths.at_nic(nic.name)]:
            self._begin(path_id, synchronised=False)

    def _learn_port(self, port: PortState, now_ns: int) -> None:
        """Begins windows anew when a port goes down and when it is back: its losses between have a cause already."""
        down = self._inventory.is_down(port.nic)
        if port.nic not in self._inventory.nics or self._down.get(port.nic, False) == down:
            return
        self._down[port.nic] = down
        self._make_room()
        path_ids = self._inventory.paths.at_nic(port.nic)
        self._held.drop(path_ids)
        for path_id in path_ids:
            self._begin(path_id, synchronised=True)
            self._windows["tainted"][path_id] = True
        self._nic_loss.begin(port.nic, now_ns)

    def _begin(self, path_id: int, *, synchronised: bool) -> None:
        window = self._windows[path_id]
        for name in ("since_ns", "sent", "received", "rows", "losing", "timed", "high", "excess_ns"):
            window[name] = 0
        if not synchronised:
            # Delays drift with the clocks, or jump when these are set: the least of one window says nothing of the
            # next.
            window["least_ns"] = _NEVER


def _counted(rows: NDArray[Any], crowded: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Probes sent and received.

    Where a queue was full lately, those of full size are left out: it has room for small ones alone.
    """
    full_received = np.where(crowded, np.minimum(rows["full_received"], rows["received"]), 0)
    received = (rows["received"] - full_received).astype(rows["received"].dtype)
    full_sent = np.where(crowded, np.minimum(rows["full_sent"], rows["sent"]), 0)
    return np.maximum(rows["sent"] - full_sent, received).astype(rows["sent"].dtype), received


def _evidence(window: Any, lost: int, share: float, *, congested: bool) -> Evidence:
    return {
        "sent": int(window["sent"]),
        "lost": lost,
        "loss_share": round(share, 6),
        "congestion": congested,
        "least_ns": int(window["least_ns"]),
        "p99_above_least_ns": int(window["excess_ns"]),
        "high_share": round(int(window["high"]) / max(int(window["timed"]), 1), 6),
    }
