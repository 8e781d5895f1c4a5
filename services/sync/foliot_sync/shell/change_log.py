"""Logs changes of the common time, and of what was left out: once per change, not per window."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from foliot_sync.core.limits import TAKEOVER_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_schemas.clock import ClockState
    from foliot_sync.core.timescale.steering import Timescale
    from foliot_sync.settings import SyncSettings

log = structlog.get_logger()

_FAR_NS = 1_000_000.0
"""From UTC: what people expect of hosts that have it. Worth a word, and taken back at half."""
_NAMED = 16
"""Of hosts that contradict the published UTC, so many are named."""

_EVERY_S = 60.0


class Tally:
    """Counts that are logged when they have changed, once a minute at most."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._told: dict[str, int] = {}
        self._from_s = 0.0

    def tell(self, counts: Mapping[str, int]) -> None:
        """Logs the present counts, if they have changed."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._from_s and self._told != counts:
            self._told, self._from_s = dict(counts), now_s + _EVERY_S
            log.warning(self._event, counts=self._told)


class ChangeLog:
    """Watches a time scale from window to window."""

    def __init__(self, settings: SyncSettings) -> None:
        self._settings = settings
        self._alone = 0
        """Windows in a row with no clock to follow."""
        self._far = False
        self._smeared = False
        self._leap = (0, 0)
        self._not_tai: tuple[int, int] | None = None
        self._contradict: dict[str, str] = {}

    def window(self, timescale: Timescale, states: Iterable[ClockState] = ()) -> None:
        """Says what has changed."""
        patience, kind = TAKEOVER_WINDOWS, self._settings.timescale
        if timescale.followed:
            if self._alone > patience and kind != "free":
                log.info("timescale_followed", timescale=kind)
            self._alone = 0
        else:
            self._alone += 1
            if self._alone == patience + 1 and kind != "free":
                log.warning("timescale_goes_on_alone", timescale=kind, references=self._settings.references)
        off_ns = timescale.off_ns
        if kind in {"utc", "tai"} and off_ns is not None:
            was_far, self._far = self._far, abs(off_ns) > (_FAR_NS / 2 if self._far else _FAR_NS)
            if self._far and not was_far:
                log.warning("far_from_utc", off_ns=round(off_ns), slew_ppb=self._settings.slew_ppb)
            elif was_far and not self._far:
                log.info("near_utc", off_ns=round(off_ns))
        self._tell_of_seconds(timescale)
        self._tell_of_kernels(timescale, states)

    def _tell_of_seconds(self, timescale: Timescale) -> None:
        """A smear, a leap second, and an offset that is not TAI's although TAI is to be followed."""
        seconds = timescale.seconds
        if timescale.smear.smeared != self._smeared:
            self._smeared = timescale.smear.smeared
            log.warning("utc_is_smeared") if self._smeared else log.info("utc_is_steady")
        leap = seconds.leap_s, seconds.leap_at_ns
        if leap != self._leap:
            self._leap = leap
            log.info("leap_second", leap_s=leap[0], leap_at_ns=leap[1])
        offsets = seconds.utc_offset_s, seconds.tai_offset_s
        not_tai = offsets if self._settings.timescale == "tai" and offsets[0] != offsets[1] else None
        if not_tai != self._not_tai:
            self._not_tai = not_tai
            if not_tai is not None:
                log.warning("time_is_not_tai", utc_offset_s=not_tai[0], tai_offset_s=not_tai[1])

    def _tell_of_kernels(self, timescale: Timescale, states: Iterable[ClockState]) -> None:
        contradict = {state.clock: state.utc_disagreement for state in states if state.utc_disagreement != "none"}
        if contradict != self._contradict:
            self._contradict = dict(contradict)
            some = dict(sorted(contradict.items())[:_NAMED])
            log.warning("kernels_contradict_utc", count=len(contradict), hosts=some, believed=timescale.word._asdict())
