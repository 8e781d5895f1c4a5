"""The whole estimator: batches of stamps in, the state of every clock out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from foliot_schemas.bounds import MOST_PPB
from foliot_schemas.clock import same_boot
from foliot_schemas.names import is_nic_clock
from foliot_sync.core import arrays
from foliot_sync.core.arrays import changed, put, take
from foliot_sync.core.clock_numbers import ClockNumbers
from foliot_sync.core.clock_states import clock_states
from foliot_sync.core.fit.shard_fit import ShardFit, merged_pairs
from foliot_sync.core.lasting_misfit import LastingMisfits
from foliot_sync.core.limits import GATE_SIGMAS, SETTLE_WINDOWS, SIGMAS, TAKEOVER_WINDOWS, WORST_PPB
from foliot_sync.core.solve.window_solution import disbelieved, hard_room, outliers, torn_clocks, weigh
from foliot_sync.core.timescale.steering import Timescale
from foliot_sync.core.timescale.time_map import Seen, measured_ns
from foliot_sync.core.track import kalman
from foliot_sync.core.track.clock_records import ClockRecords
from foliot_sync.core.track.reference_clock import crown, elect, first_by_name, hand_over
from foliot_sync.core.track.resume import former_run
from foliot_sync.core.track.statistical_bound import grown_hard, promise
from foliot_sync.core.track.status_machine import DISRUPTED, UNSYNCHRONISED
from foliot_sync.settings import NANOSECONDS, SyncSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot_schemas import HeardNode
    from foliot_schemas.clock import ClockState
    from foliot_schemas.observation import StampBatch
    from foliot_sync.core.arrays import Mask
    from foliot_sync.core.fit.pair_estimate import PairEstimates
    from foliot_sync.core.fit.shard_fit import Fits
    from foliot_sync.core.solve.window_solution import WindowSolution

_TAME_SIGMAS = 3.0
"""An innovation that is further off gets a larger variance, until it is not.

By chance, three in a thousand windows are.
"""

_FADES = 0.5
"""The share of a clock's distance from its prediction that its bound still has a window later."""
_ALIKE = 0.5
"""A window that bears out the one before is at least so many times as far from the prediction."""
_SET_NS = 10 * NANOSECONDS
"""A clock whose time has gone back so far, or so much further than it took, was set, or its host has booted (as
`reassembly` has it)."""


class Contradiction(NamedTuple):
    """Why a window contradicts a clock's history."""

    why: Literal["torn", "certain", "twice", "set", "rate"]
    """`torn`: its stamps fit no straight line; `certain`: no congestion and no asymmetry explains it; `twice`: the
    window before was as far away, to the same side; `set`: its host's time went back, or on too far; `rate`: no clock
    runs so fast or slowly."""
    away_ns: float = 0.0
    """Measured minus predicted."""
    gate_ns: float = 0.0
    """The distance from which it is likely."""
    hard_ns: float = 0.0
    """The distance from which it is certain."""


class Synchroniser:
    """Keeps the state of every clock from the stamps of one window after another.

    Pure: time enters by `add` and `solve` alone, as ns of any clock that runs on; only differences count.
    """

    def __init__(self, settings: SyncSettings | None = None) -> None:
        self.settings = settings or SyncSettings()
        self.window = 0
        self.reference = ""
        """Name of the clock that others are measured against; empty before one is found."""
        self.timescale = Timescale(self.settings)
        self._numbers = ClockNumbers()
        self._names: list[str] = []
        self._is_host = np.zeros(0, dtype=bool)
        """The clocks that are hosts' and not in NICs: the reference is one of them, and they make the common time."""
        self._former_run: dict[str, ClockState] = {}
        self._unheard: dict[str, int] = {}
        """Clocks taken up of an earlier run whose hosts have not spoken yet: see `resume.FormerRun`."""
        self._spoken: dict[str, tuple[int, int]] = {}
        """Of each node, the local time of its last word and when that came."""
        self.contradictions: dict[str, Contradiction] = {}
        """By clock, why the last window is not where it was expected."""
        self._fitter = ShardFit(self.settings)
        self._misfits = LastingMisfits()
        self._tracks = kalman.ClockTracks.unknown(0, 0.0)
        self._records = ClockRecords.unknown(0, self.settings)
        self._now_ns = 0
        self._reference_ns = 0
        """Measured time at `_now_ns`, as well as it is known: hand-overs happen then."""

    def resume(self, states: Iterable[ClockState]) -> None:
        """Takes up the clocks and the time scale of an earlier run, from its last published states."""
        self._former_run = {state.clock: state for state in states}
        self.timescale.resume(self._former_run.values())

    def add(self, batch: StampBatch, arrived_ns: int) -> bool:
        """Takes in a batch for the next `solve`: see `Reassembly.add`."""
        return self._fitter.add(batch, arrived_ns)

    def solve(self, now_ns: int) -> list[ClockState]:
        """Closes a window: the state of every clock heard of so far."""
        return self.weigh([self._fitter.close(now_ns)], now_ns)

    def weigh(self, parts: Sequence[Fits], now_ns: int) -> list[ClockState]:
        """Closes a window with the fits of all parts of the fleet; returns the state of every clock heard of so far.

        There is none before there is a clock to measure against.
        """
        self.window += 1
        self.contradictions = {}
        heard = [node for part in parts for node in part.heard]
        self._meet([clock for part in parts for clock in part.clocks], heard)
        pairs = merged_pairs(parts, self._numbers)
        self._notice_boots(heard, now_ns)
        self._begin(heard)
        span_s = min((now_ns - self._now_ns) / NANOSECONDS, 2 * self.settings.window_s)
        self._move_on(heard, now_ns)
        nothing = np.zeros(len(self._names), dtype=bool)
        measured, contradicted = self._judge(pairs) if pairs is not None and self.reference else (nothing, nothing)
        there = np.isin(np.arange(len(self._names)), [self._numbers[node.node] for node in heard])
        self._stand(measured, contradicted, there)
        if not self.reference:
            return []
        promised = promise(self._tracks, self.settings)
        seen = Seen(
            self._names,
            self._tracks,
            promised.bound_ns,
            (self._records.missed == 0) & self._tracks.known & self._is_host,
            self._records.synchronised & self._is_host,
            self._numbers[self.reference],
        )
        self.timescale.follow(seen, self._reference_ns, span_s)
        return clock_states(seen, self._records, promised, self.timescale, self.window)

    def _meet(self, clocks: Iterable[str], heard: Iterable[HeardNode]) -> None:
        """Takes note of clocks that are new, and of what nodes say of themselves."""
        for name in clocks:
            _ = self._numbers[name]
        for node in heard:
            self.timescale.realtime.hear(node)
            _ = self._numbers[node.node]
        self._make_room()
        # Until a clock is measured, its host's own idea of the time is better than none.
        new = np.flatnonzero(self._tracks.as_of_ns == 0)
        epochs_ns = [self.timescale.realtime.epoch_ns(self._names[number]) for number in new]
        self._tracks = changed(self._tracks, new, offset_ns=epochs_ns)

    def _make_room(self) -> None:
        """Makes a place for each clock that has a number."""
        new = len(self._numbers) - len(self._names)
        if new:
            self._names = list(self._numbers)
            self._is_host = np.array([not is_nic_clock(name) for name in self._names])
            self._tracks = arrays.joined((self._tracks, kalman.ClockTracks.unknown(new, self.settings.wander_ppb)))
            self._records = arrays.joined((self._records, ClockRecords.unknown(new, self.settings)))

    def _take_up(self, heard: Sequence[HeardNode]) -> bool:
        """Goes on with the clocks of an earlier run, if its states still hold; says whether they do."""
        found = former_run(self._former_run, heard, self.settings)
        if found is None:
            return False
        places = np.array([self._numbers[name] for name in found.names])
        self._make_room()
        self._unheard = found.unheard
        self._tracks = put(self._tracks, places, found.tracks)
        self._records = put(self._records, places, found.records)
        self._reference_ns = found.now_ns
        return self._hand_over(int(places[found.heir]))

    def _notice_boots(self, heard: Sequence[HeardNode], now_ns: int) -> None:
        """Forgets clocks whose hosts have booted, and clocks that were set so far that their histories cannot be extrapolated."""
        for node in heard:
            epoch_ns, before = self._unheard.pop(node.node, None), self._spoken.get(node.node)
            self._spoken[node.node] = node.until_ns, now_ns - node.since_ns
            if epoch_ns is not None and not same_boot(node.epoch_ns, epoch_ns):
                self._begin_anew(node, UNSYNCHRONISED)
            elif before is not None and node.node != self.reference:
                passed_ns = node.until_ns - before[0]
                if not -_SET_NS < passed_ns < now_ns - node.since_ns - before[1] + _SET_NS:
                    status = self._records.status[self._numbers[node.node]]
                    self.contradictions[node.node] = Contradiction("set")
                    self._begin_anew(node, UNSYNCHRONISED if status == UNSYNCHRONISED else DISRUPTED)

    def _begin_anew(self, node: HeardNode, status: int) -> None:
        """Takes a clock for a new one, of this status until it has settled."""
        number, unknown = [self._numbers[node.node]], kalman.ClockTracks.unknown(1, self.settings.wander_ppb)
        record = ClockRecords.unknown(1, self.settings)._replace(status=np.array([status], np.int8))
        self._tracks = put(self._tracks, number, unknown._replace(offset_ns=np.array([node.epoch_ns])))
        self._records = put(self._records, number, record)

    def _begin(self, heard: Sequence[HeardNode]) -> None:
        """Chooses the first reference and anchors its time."""
        if self.reference or not heard:
            return
        wanted, patient = self.settings.reference, self.window <= TAKEOVER_WINDOWS
        if self._take_up(heard):
            self._former_run = {}
            return
        # The former run may have known nothing of a shard's nodes. Those that it knew speak in the next window.
        if patient and self._former_run and not any(node.node in self._former_run for node in heard):
            return
        formerly = {name: state.epoch_ns for name, state in self._former_run.items() if name == state.reference}
        epochs = {name: self.timescale.realtime.epoch_ns(name) for name in self._spoken}
        chosen = elect(epochs, wanted, formerly, patient=patient)
        if chosen is None:
            return
        self._former_run, (self.reference, offset_ns) = {}, chosen
        number = self._numbers[self.reference]
        self._tracks = crown(changed(self._tracks, number, offset_ns=offset_ns), number)

    def _move_on(self, heard: Sequence[HeardNode], now_ns: int) -> None:
        """Advances the reference time to now, by what the nodes' batches say of it, or else by what has passed."""
        ends = []
        for node in heard:
            number, until_ns = self._numbers[node.node], node.until_ns
            if node.node == self.reference:
                # Its offset is a constant, so it may be said as of any time; the latest is good for longest.
                self._tracks = changed(self._tracks, number, as_of_ns=until_ns, measured_ns=until_ns)
            if self._tracks.windows[number] > 0:
                ends.append(measured_ns(self._tracks, number, until_ns) + node.since_ns)
        # The median, because one of the clocks may just have been stepped.
        self._reference_ns = sorted(ends)[len(ends) // 2] if ends else self._reference_ns + now_ns - self._now_ns
        self._now_ns = now_ns

    def _judge(self, pairs: PairEstimates) -> tuple[Mask, Mask]:
        """The clocks that the window's pairs measured, and those that they contradict.

        The clocks' histories learn from the pairs.
        """
        torn = torn_clocks(pairs, len(self._names), self._numbers[self.reference])
        self._contradict(torn, "torn")
        if torn[self._numbers[self.reference]]:
            self._hand_over(self._heir(pairs, torn))
        sound = take(pairs, ~pairs.torn)
        for _ in range(2):
            reference = self._numbers[self.reference]
            weighing = weigh(sound, self._tracks, reference, self._misfits)
            if weighing is None:
                break
            found = outliers(weighing, reference, GATE_SIGMAS, SIGMAS)
            # One window may be congested. A step shows in the next one too, as far and to the same side, and who runs
            # away is further by then; two congested windows are seldom alike.
            away_ns, before_ns = weighing.measured.offset, self._records.suspected_ns
            is_alike = (away_ns * before_ns > 0) & (np.abs(away_ns) >= _ALIKE * np.abs(before_ns))
            against, suspected = found.certain | (found.likely & is_alike), found.likely & ~is_alike
            judged = int((weighing.reached & weighing.tracks.known).sum()) - 1
            # Most clocks cannot have been stepped at once; the one that they are measured against was.
            accused = weighing.ground == reference and against.sum() >= 2 and against.sum() * 2 > judged
            if accused and self._hand_over(self._heir(sound, torn)):
                continue
            for clock in np.flatnonzero(against):
                self.contradictions[self._names[clock]] = Contradiction(
                    "certain" if found.certain[clock] else "twice",
                    *(float(of_clocks[clock]) for of_clocks in (away_ns, found.gate_ns, found.hard_ns)),
                )
            self._learn(weighing, against, suspected)
            weighing.teach(self._misfits, weighing.tracks.known & ~against & ~suspected)
            self._forget(torn)
            return weighing.reached, against | torn
        self._forget(torn)
        return np.zeros_like(torn), torn

    def _contradict(self, which: Mask, why: Literal["torn", "rate"]) -> None:
        self.contradictions |= dict.fromkeys(
            (self._names[clock] for clock in np.flatnonzero(which)), Contradiction(why)
        )

    def _learn(self, weighing: WindowSolution, against: Mask, suspected: Mask) -> None:
        """Takes the window's measurement into the tracks of the clocks reached, and their bounds."""
        tracks, reached, ground = weighing.tracks, weighing.reached, weighing.ground
        reference = self._numbers[self.reference]
        goes_on = reached & tracks.known & ~against
        begins = reached & ~tracks.known
        # In the reference's absence, the hard bound of the clock measured against counts for all.
        grown = 0.0 if ground == reference else self._grown_ns(weighing)
        going, measured = take(tracks, goes_on), take(weighing.measured, goes_on)
        weighed = kalman.weighed(going, measured)
        tame, astray = kalman.tamed(going, weighed, _TAME_SIGMAS), np.zeros(len(reached))
        # A rate that turns goes on to turn for some windows.
        before = self._records.astray_ns[goes_on]
        astray[goes_on] = np.maximum(kalman.astray(going, weighed, _TAME_SIGMAS), _FADES * before)
        going = kalman.learnt(going, tame._replace(offset_variance=tame.offset_variance / going.factor))
        tracks = put(tracks, goes_on, kalman.update(going, tame))
        tracks = put(tracks, begins, kalman.restart(take(tracks, begins), take(weighing.measured, begins)))
        anew = disbelieved(take(weighing.measured, against), self.settings.window_s)
        tracks = put(tracks, against, kalman.restart(take(tracks, against), anew))
        tracks = kalman.unsettled(tracks, against, self.settings.wander_ppb)
        tracks = crown(tracks, reference)
        room = hard_room(weighing, tracks, SIGMAS, WORST_PPB) + grown
        room[reference] = 0.0
        self._tracks = tracks._replace(hard_ns=np.where(reached, room, tracks.hard_ns))
        away, noise = np.where(suspected, weighing.measured.offset, 0.0), weighing.noise_ns
        self._records = changed(
            self._records,
            reached,
            neighbours=weighing.offsets.neighbours[reached],
            surplus_ns=weighing.offsets.surplus,
            suspected_ns=away[reached],
            astray_ns=astray[reached],
            noise_ns=np.where(np.isfinite(noise), noise, self._records.noise_ns)[reached],
        )

    def _grown_ns(self, weighing: WindowSolution) -> float:
        chosen = [weighing.ground]
        grown = grown_hard(take(self._tracks, chosen), take(weighing.tracks, chosen), self.settings)
        return float(grown[0] + abs(weighing.measured.offset[weighing.ground]))

    def _heir(self, pairs: PairEstimates, barred: Mask) -> int | None:
        """The clock that would take over: by name the first of the hosts' settled clocks that these pairs have."""
        settled = (self._tracks.windows >= SETTLE_WINDOWS) & ~barred & self._is_host
        settled[self._numbers[self.reference]] = False
        present = np.zeros(len(self._names), dtype=bool)
        present[pairs.initiator] = present[pairs.responder] = True
        return first_by_name(settled & present, self._names)

    def _hand_over(self, heir: int | None) -> bool:
        """Makes another clock the reference, without a jump; if there is none, the old one stays."""
        if heir is None:
            return False
        self.timescale.hand_over(float(self._tracks.drift_ppb[heir]), self._reference_ns)
        self._tracks = hand_over(self._tracks, heir, self._reference_ns, WORST_PPB)
        self.reference = self._names[heir]
        return True

    def _forget(self, which: Mask) -> None:
        """Drops the histories of these clocks, but never that of the reference, which is true by definition."""
        which = which & (np.arange(len(which)) != self._numbers[self.reference])
        tracks = kalman.unsettled(self._tracks, which, self.settings.wander_ppb)
        self._tracks = changed(tracks, which, windows=0, hard_ns=np.inf)

    def _stand(self, measured: Mask, contradicted: Mask, heard: Mask) -> None:
        """Gives the clocks their new statuses, and takes a new reference if the old one has been away for long."""
        settings = self.settings
        reference = self._numbers.get(self.reference, -1)
        is_reference = np.arange(len(self._names)) == reference
        # A state is some two windows old by the time that the next one takes its place.
        promised_ns = promise(self._tracks, settings).at(2 * settings.window_s)
        alone = not measured.any()
        impossible = np.abs(self.timescale.time_map.drift_ppb(self._tracks.drift_ppb)) > MOST_PPB
        self._contradict(impossible, "rate")
        self._records = self._records.after(
            measured | (is_reference & heard & alone),
            (contradicted | impossible) & ~is_reference,
            np.where(is_reference, SETTLE_WINDOWS, self._tracks.windows),
            np.where(is_reference, 0.0, promised_ns),
            settings,
        )
        if reference < 0:
            return
        self._forget(impossible | (self._records.missed >= settings.void_after_windows))
        if self._records.missed[reference] >= TAKEOVER_WINDOWS:
            able = (self._records.missed == 0) & self._records.synchronised & self._tracks.known & self._is_host
            self._hand_over(first_by_name(able, self._names))
