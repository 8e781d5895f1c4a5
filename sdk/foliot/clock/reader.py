"""Reads the time from the page of a node's probe: no bus, no system call, no waiting."""

from __future__ import annotations

import os
import time
from math import ceil, floor, hypot, inf, sqrt
from pathlib import Path
from time import CLOCK_MONOTONIC_RAW, clock_gettime_ns
from typing import TYPE_CHECKING, NamedTuple

from foliot.clock.page import COUNT, SLEPT_NS, STATUSES, ClockUnknown, Page, as_state, slept_ns, text
from foliot.places import CLOCK_PAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot.clock.clocks import HostClock
    from foliot.clock.page import Header, Told
    from foliot_schemas import ClockState

_AGAIN_NS = 100_000_000
"""How long a reader goes on without asking whether the page was replaced or the host has slept. Asking takes some
microseconds."""
_POLL_S = 0.05
_FAR_NS = 1 << 62
"""As a bound, it promises nothing (`foliot_schemas.bounds`)."""


class Interval(NamedTuple):
    """The reference time was between these two at some moment of the call, as far as the bound holds.

    Compare with `before` and `after`. A comparison of the tuples says nothing about times.
    """

    earliest_ns: int
    latest_ns: int

    @property
    def middle_ns(self) -> int:
        """The likeliest time."""
        return (self.earliest_ns + self.latest_ns) // 2

    @property
    def bound_ns(self) -> int:
        """The largest distance of the true time from the middle, in ns."""
        return (self.latest_ns - self.earliest_ns) // 2

    def before(self, other: Interval) -> bool:
        """Whether this moment came before the other one for certain, here or on any node.

        If neither did, their order is unknown.
        """
        return self.latest_ns < other.earliest_ns

    def after(self, other: Interval) -> bool:
        """Whether this moment came after the other one for certain.

        To wait until ``now().after(stamp)`` is to wait out the stamp's doubt.
        """
        return self.earliest_ns > other.latest_ns


class Reading(NamedTuple):
    """The content of the page, and whether to believe it."""

    local_ns: int
    """Local time of the node's clock at the reading."""
    clock: str
    """Its name; empty: there is no page."""
    state: ClockState | None
    """Sync's last state; None: it has not spoken, or there is no page."""
    why: str
    """The reason not to believe it, as in `ClockUnknown`; empty: it is to be believed."""
    sentence: str
    """The same in words."""
    told_ns: int = 0
    """Local time when the probe wrote it."""

    @property
    def trusted(self) -> bool:
        """Whether the time may be believed."""
        return not self.why


class _Known(NamedTuple):
    """The numbers of one version of the page that a reading needs."""

    words: Sequence[int]
    number: int
    """The number of the version."""
    until_ns: int
    """Local time until which this may be used without looking again."""
    as_of_ns: int
    offset_ns: int
    drift: float
    """In ns per ns; all others as in `ClockState`."""
    bound_ns: float
    growth_ppb: float
    wander_ppb: float
    hard_bound_ns: float
    """Infinite: there is none."""
    hard_growth_ppb: float


_NOTHING = _Known((0, 0, 0), 1, -1, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Reader:
    """Reads one page; `foliot.clock.now` and its like are one reader's. Any number of threads may use it.

    Parameters:
        path: the page's; empty: ``[clock] page`` of the settings. The first call looks it up, and raises
            `SettingsError` if they cannot be read.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._page: Page | None = None
        self._lab_clock: HostClock | None = None
        """In a lab that skews the node's clock, this clock."""
        self._known = _NOTHING

    def now(self, *, hard: bool = False) -> Interval:
        """The reference time, now.

        Parameters:
            hard: whether to use the hard bound, which no asymmetry of paths can break; else the statistical one is
                used.

        Raises:
            ClockUnknown: there is none to be trusted.
        """
        words, number, until_ns, as_of_ns, offset_ns, drift, bound, growth, wander, hard_bound, hard_growth = (
            self._known
        )
        local_ns = clock_gettime_ns(CLOCK_MONOTONIC_RAW)
        if words[COUNT] != number or local_ns > until_ns:
            known, local_ns = self._look()
            _, _, _, as_of_ns, offset_ns, drift, bound, growth, wander, hard_bound, hard_growth = known
        age_ns = local_ns - as_of_ns
        age_s = abs(age_ns) * 1e-9
        # As `ClockState.reference_ns`, `bound_at_ns` and `hard_bound_at_ns` have it; a test holds them together.
        bound = hypot(bound + growth * age_s, wander * age_s * sqrt(age_s))
        if hard:
            bound = max(hard_bound + hard_growth * age_s, bound)
            if bound >= _FAR_NS:
                raise ClockUnknown("unsynchronised", "the clock has no hard bound yet")
        base_ns = local_ns + offset_ns
        moved = drift * age_ns
        return _interval(Interval, (base_ns + floor(moved - bound), base_ns + ceil(moved + bound)))

    def wait(self, timeout_s: float = 60.0, *, within_ns: int | None = None, hard: bool = False) -> Interval:
        """Waits until there is a time to be trusted, and returns it as `now` does.

        At a start, services come up in any order.

        Parameters:
            within_ns: the widest bound to wait for. Just after a start the bound is wide, and it narrows with every
                window.

        Raises:
            ClockUnknown: no such time came in time; the message has the last reason.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                interval = self.now(hard=hard)
            except ClockUnknown as unknown:
                missing = unknown
            else:
                if within_ns is None or interval.bound_ns <= within_ns:
                    return interval
                missing = ClockUnknown("wide", f"the bound is {interval.bound_ns} ns, and not within {within_ns} ns")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise missing
            time.sleep(min(_POLL_S, left_s))

    def read(self) -> Reading:
        """The content of the page, also of a time that is not to be trusted."""
        try:
            self._attach()
        except ClockUnknown as unknown:
            return Reading(clock_gettime_ns(CLOCK_MONOTONIC_RAW), "", None, unknown.why, str(unknown))
        page = self._page
        assert page is not None
        name = text(page.header.clock)
        local_ns = self._local_ns()
        try:
            told = page.latest()
        except ClockUnknown as unknown:
            return Reading(local_ns, name, None, unknown.why, str(unknown))
        state = as_state(told, name) if told.told_ns else None
        try:
            _believe(told, local_ns)
        except ClockUnknown as unknown:
            return Reading(local_ns, name, state, unknown.why, str(unknown), told.told_ns)
        return Reading(local_ns, name, state, "", "", told.told_ns)

    def _local_ns(self) -> int:
        return clock_gettime_ns(CLOCK_MONOTONIC_RAW) if self._lab_clock is None else self._lab_clock.local_ns()

    def _look(self) -> tuple[_Known, int]:
        """The page as it is, and local time."""
        self._attach()
        page = self._page
        assert page is not None
        told = page.latest()
        local_ns = self._local_ns()
        _believe(told, local_ns)
        # A lab's skew is computed anew each time.
        until_ns = min(told.void_after_ns, local_ns + _AGAIN_NS) if self._lab_clock is None else -1
        known = _Known(
            page.words, told.number, until_ns, told.as_of_ns, told.offset_ns, told.drift_ppb * 1e-9, told.bound_ns,
            told.growth_ppb, told.wander_ppb, told.hard_bound_ns if 0 <= told.hard_bound_ns < _FAR_NS else inf,
            max(told.growth_ppb, told.hard_growth_ppb),
        )  # fmt: skip
        self._known = known
        return known, local_ns

    def _attach(self) -> None:
        """Maps the page, and anew when another lies in its place; one that has gone holds until it is void."""
        if not self._path:
            self._path = _configured()
        try:
            found = Path(self._path).stat()
        except OSError:
            if self._page is not None:
                return
        else:
            if self._page is not None and self._page.identity == (found.st_dev, found.st_ino):
                return
        page = Page(self._path)
        self._lab_clock = _lab_clock(page.header)
        self._page = page


_interval = tuple.__new__
"""Makes an `Interval` in half the time that its own constructor takes."""


def _believe(told: Told, local_ns: int) -> None:
    """Raises `ClockUnknown` for a state that is not to be trusted at this local time."""
    status = STATUSES[told.status]
    if status == "disrupted":
        raise ClockUnknown(
            "disrupted", "the clock was measured away from what was said before: what was read lately may be wrong"
        )
    if status == "unsynchronised":
        raise ClockUnknown("unsynchronised", "sync has not yet said anything of this clock that could be relied on")
    if local_ns > told.void_after_ns:
        age_s = (local_ns - told.as_of_ns) * 1e-9
        raise ClockUnknown(
            "void", f"nothing was heard of sync for {age_s:.0f} s: is it running, and the bus, and this node's probe?"
        )
    if abs(slept_ns() - told.slept_ns) > SLEPT_NS:
        raise ClockUnknown(
            "slept", "the host was suspended, which its clock has not counted; sync must measure it anew"
        )
    if told.bound_ns < 0 or max(_bound_at(told, local_ns), _bound_at(told, told.void_after_ns)) >= _FAR_NS:
        raise ClockUnknown("unsynchronised", "the clock has no bound yet")


def _bound_at(told: Told, local_ns: int) -> float:
    age_s = abs(local_ns - told.as_of_ns) * 1e-9
    return hypot(told.bound_ns + told.growth_ppb * age_s, told.wander_ppb * age_s * sqrt(age_s))


def _configured() -> str:
    if not os.environ.get("FOLIOT_CONFIG") and "FOLIOT_CLOCK__PAGE" not in os.environ:
        return CLOCK_PAGE
    from foliot.settings import ClockSettings, load  # noqa: PLC0415 - most processes have no settings, and need not load their reader

    path = load(ClockSettings, "clock").page
    if not path:
        raise ClockUnknown("no-page", "[clock] page is empty: this node's probe writes no page")
    return path


def _lab_clock(header: Header) -> HostClock | None:
    if not (path := text(header.skew)):
        return None
    from foliot.clock.lab_clock import lab_clock  # noqa: PLC0415 - in a lab only, and it needs numpy

    return lab_clock(text(header.clock), path)


_reader = Reader()
now = _reader.now
wait = _reader.wait
read = _reader.read
