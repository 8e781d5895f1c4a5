"""Logs changes of the common time, and of what was left out: once per change, not per window."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_sync.core.timescale.steering import Timescale
    from foliot_sync.settings import SyncSettings

log = structlog.get_logger()

_FAR_NS = 1_000_000.0
"""Distance from UTC that is logged: people expect less of hosts that have it. At half of it, the log takes that back."""


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

    def window(self, timescale: Timescale) -> None:
        """Logs what has changed."""
        patience, kind = self._settings.takeover_windows, self._settings.timescale
        if timescale.followed:
            if self._alone > patience and kind != "free":
                log.info("timescale_followed", timescale=kind)
            self._alone = 0
        else:
            self._alone += 1
            if self._alone == patience + 1 and kind != "free":
                log.warning("timescale_goes_on_alone", timescale=kind, references=self._settings.references)
        off_ns = timescale.off_ns
        if kind == "utc" and off_ns is not None and abs(off_ns) > (_FAR_NS / 2 if self._far else _FAR_NS):
            if not self._far:
                log.warning("far_from_utc", off_ns=round(off_ns), slew_ppb=self._settings.slew_ppb)
            self._far = True
        elif off_ns is not None and self._far:
            log.info("near_utc", off_ns=round(off_ns))
            self._far = False
