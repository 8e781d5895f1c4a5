"""Judges what hosts read of their clocks against the truth, window by window, and says what each lapse comes of."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.clock_days.causes import Causes
from bench.clock_days.recoveries import MOMENTS, Recoveries
from bench.clock_days.upsets import WINDOW_S
from bench.clock_days.world import WINDOW_NS
from foliot_lab.simulate.clocks.error_stats import errors
from foliot_lab.simulate.clocks.oscillators import SECOND_NS
from foliot_lab.simulate.clocks.streams import name
from foliot_sync.core.clock_states import UNKNOWN_NS
from foliot_sync.core.track.status_machine import BELIEVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.clock_days.world import World
    from foliot_schemas import ClockState
    from foliot_sync.settings import SyncSettings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.intp]
    Mask = NDArray[np.bool_]

_MOST_TOLD = 2_000


class Lapse(msgspec.Struct, kw_only=True):
    """A clock outside of a bound in a window, at the worst of its moments."""

    window: int
    at_s: float
    clock: str
    against: str
    """The clock that it is held against: the reference, unless something has befallen that."""
    bound: str
    """`statistical` or `hard`."""
    error_ns: float
    bound_ns: float
    status: str
    cause: str
    """The upset that it comes of, or the load where there was none."""
    permitted: bool
    """Whether docs/clock.md tells of it."""


class Judged(NamedTuple):
    """The judgement of a window."""

    errors_ns: Floats
    """One row a moment, one column a host; nan where no host reads a value that it believes."""
    regimes: list[str]
    """Of each host."""
    off_ns: float
    """The common time minus the one that it follows; nan: no clock tells."""
    utc_ns: float
    """UTC made of it minus UTC; nan: no clock tells."""
    jump_ns: float


class _View(NamedTuple):
    """A window's values; `said` has one row a moment, one column a state."""

    moments_s: Floats
    states: Sequence[ClockState]
    hosts: Numbers
    against: int
    said: Floats
    """Distances from what the clock says that the others are held against."""


class Judge:
    """Judges a run.

    Parameters:
        world: the truth.
        settings: of sync.
    """

    def __init__(self, world: World, settings: SyncSettings) -> None:
        self._world, self._hosts, self._settings = world, world.hosts, settings
        self._causes, self.recoveries = Causes(world.plan, world.hosts), Recoveries(world.plan, world.hosts)
        self._states: dict[str, ClockState] = {}
        self._void_ns: dict[int, int] = {}
        """Of hosts that slept or were started, when the state that they had then becomes void. Until another
        measurement it does not change, and no page tells of that state."""
        self._halted = np.zeros(self._hosts, np.bool_)
        self.values = 0
        self.outside: Counter[str] = Counter()
        """Values outside of a bound."""
        self.windows_outside: Counter[tuple[str, str]] = Counter()
        """Windows of a clock outside of a bound, by bound and cause."""
        self.not_permitted: Counter[str] = Counter()
        """Values outside of a bound where docs/clock.md promises that they are within."""
        self.lapses: list[Lapse] = []
        self.utc_windows, self.utc_unknown, self.utc_outside = 0, 0, 0

    def window(self, number: int, said_ns: int, states: Sequence[ClockState]) -> Judged:
        """Judges the time from the publication of a window's states until that of the next.

        Without new states the last ones are in use.
        """
        now_s = said_ns / SECOND_NS
        moments_s = now_s + np.arange(MOMENTS) * WINDOW_S / MOMENTS
        upset, halted = self._causes.upset(moments_s) | self._causes.lies(moments_s), self._causes.halted(moments_s)
        before, self._states = self._states, {state.clock: state for state in states} or self._states
        regimes = [self._causes.regime(host, now_s) for host in range(self._hosts)]
        every = np.full((MOMENTS, self._hosts), np.nan)
        valid, wrong = np.zeros(every.shape, np.bool_), np.zeros(every.shape, np.bool_)
        if not self._states:
            self.recoveries.window(now_s, valid, halted, wrong, 0.0)
            return Judged(every, regimes, math.nan, math.nan, 0.0)
        ordered = [self._states[each] for each in map(name, range(self._hosts)) if each in self._states]
        hosts = np.array([int(state.clock.removeprefix("node")) for state in ordered])
        found = errors(ordered, self._world.clocks, said_ns, WINDOW_NS)
        said, bound, hard = (each[:MOMENTS] for each in found)
        believed = self._believed(ordered, hosts, moments_s, halted) & (bound < UNKNOWN_NS)
        against = self._against(ordered, believed, upset[:, hosts])
        said = np.abs(said - said[:, [against]])
        if ordered[against].clock != ordered[against].reference:
            bound, hard = bound + bound[:, [against]], hard + hard[:, [against]]
        own = np.arange(len(ordered)) == against
        read = believed & ~halted[:, hosts]
        judged = read & ~own
        view = _View(moments_s, ordered, hosts, against, said)
        self._count(number, view, judged, {"statistical": bound, "hard": hard})
        every[:, hosts] = np.where(judged, said, np.nan)
        valid[:, hosts], wrong[:, hosts] = believed & (own | (said <= hard)), judged & (said > hard)
        jump_ns = self._jump_ns(before, ordered, hosts, said_ns, upset[0, hosts] | ~believed[0])
        self.recoveries.window(now_s, valid, halted, wrong, jump_ns)
        off_ns, utc_ns = self._utc(ordered[against], int(hosts[against]), said_ns)
        return Judged(every, regimes, off_ns, utc_ns, jump_ns)

    def _against(self, states: Sequence[ClockState], believed: Mask, upset: Mask) -> int:
        """The clock to hold others against: the reference or, where something has befallen it, the first believed."""
        reference = [state.clock for state in states].index(states[0].reference)
        sound: Mask = np.all(believed, axis=0) & ~np.any(upset, axis=0)
        return reference if sound[reference] or not sound.any() else int(sound.argmax())

    def _believed(self, states: Sequence[ClockState], hosts: Numbers, moments_s: Floats, halted: Mask) -> Mask:
        """The values that a reader of the host's page believes, as in `foliot.clock`."""
        found = np.zeros((MOMENTS, len(states)), np.bool_)
        for row, at_s in enumerate(moments_s.tolist()):
            local = self._world.clocks.local_ns(hosts, np.full(len(states), round(at_s * SECOND_NS))).tolist()
            for column, (state, local_ns, host) in enumerate(zip(states, local, hosts.tolist(), strict=True)):
                if self._halted[host] and not halted[row, host]:
                    self._void_ns[host] = state.void_after_ns
                self._halted[host] = halted[row, host]
                measured = state.void_after_ns != self._void_ns.get(host)
                found[row, column] = state.status in BELIEVED and local_ns <= state.void_after_ns and measured
        return found

    def _count(self, number: int, view: _View, judged: Mask, bounds: dict[str, Floats]) -> None:
        """Counts values, and those outside of a bound."""
        self.values += int(judged.sum())
        for kind, bound in bounds.items():
            out = judged & (view.said > bound)
            self.outside[kind] += int(out.sum())
            for column in np.flatnonzero(out.any(axis=0)).tolist():
                beyond = np.where(out[:, column], view.said[:, column] - bound[:, column], -np.inf)
                lapse = self._lapse(number, view, (kind, bound), (int(beyond.argmax()), column))
                self.windows_outside[kind, lapse.cause] += 1
                self.not_permitted[kind] += 0 if lapse.permitted else int(out[:, column].sum())
                if len(self.lapses) < _MOST_TOLD:
                    self.lapses.append(lapse)

    def _lapse(self, number: int, view: _View, bounds: tuple[str, Floats], worst: tuple[int, int]) -> Lapse:
        (kind, bound), (moment, column) = bounds, worst
        ends, at_s = (int(view.hosts[column]), int(view.hosts[view.against])), float(view.moments_s[moment])
        return Lapse(
            window=number,
            at_s=at_s,
            clock=view.states[column].clock,
            against=view.states[view.against].clock,
            bound=kind,
            error_ns=float(view.said[moment, column]),
            bound_ns=float(bound[moment, column]),
            status=view.states[column].status,
            cause=self._causes.cause(*ends, at_s),
            permitted=self._causes.permits(kind, *ends, at_s),
        )

    def _jump_ns(
        self, before: dict[str, ClockState], states: Sequence[ClockState], hosts: Numbers, said_ns: int, left_out: Mask
    ) -> float:
        """By how much the common time changes with new states, by the median of the sound clocks."""
        local = self._world.clocks.local_ns(hosts, np.full(len(hosts), said_ns)).tolist()
        changes = [
            abs(state.reference_ns(local_ns) - before[state.clock].reference_ns(local_ns))
            for state, local_ns, out in zip(states, local, left_out.tolist(), strict=True)
            if not out and state.clock in before and before[state.clock].status in BELIEVED
        ]
        return float(np.median(changes)) if changes else 0.0

    def _utc(self, state: ClockState, host: int, said_ns: int) -> tuple[float, float]:
        """How far the common time is from what it follows, and UTC made of it from UTC."""
        local_ns = int(self._world.clocks.local_ns(np.array([host]), np.array([said_ns]))[0])
        common_ns = state.reference_ns(local_ns)
        system = self._world.system
        followed_ns = system.tai_ns(said_ns) if self._settings.timescale == "tai" else system.plain_ns(said_ns)
        utc_ns = float(state.utc_ns(common_ns) - system.utc_ns(said_ns))
        self.utc_windows += 1
        if state.utc_offset_error_ns < 0:
            self.utc_unknown += 1
        elif abs(utc_ns) > state.utc_offset_error_ns + state.bound_at_ns(local_ns):
            self.utc_outside += 1
        return float(common_ns - followed_ns), utc_ns
