"""Gives the time to the node's other processes: the page that `foliot.clock.now` reads, and samples for chrony."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import structlog

from foliot.clock.lab_clock import VARIABLE
from foliot.clock.writer import PageWriter
from foliot.settings import ClockSettings, load
from foliot_probe.io.chrony_refclock import Refclock

if TYPE_CHECKING:
    from foliot.clock import HostClock
    from foliot_probe.settings import ProbeSettings
    from foliot_schemas import ClockState

log = structlog.get_logger()

_SAMPLE_S = 1.0
"""chrony looks once a second, unless its settings say otherwise (dpoll)."""


class ClockOutputs:
    """The outputs of one node's clock. An output that cannot be written is logged, and disturbs nothing else.

    Raises:
        SettingsError: ``[clock]`` is wrong.
    """

    def __init__(self, clock: HostClock, settings: ProbeSettings) -> None:
        self._clock = clock
        self._page: PageWriter | None = None
        self._refclock = Refclock(settings.chrony_shm) if settings.chrony_shm is not None else None
        path = load(ClockSettings, "clock").page
        if path:
            try:
                self._page = PageWriter(path, clock.name, os.environ.get(VARIABLE, ""))
            except OSError as error:
                log.warning("clock_page_not_written", path=path, reason=error.strerror)

    def take(self, state: ClockState) -> None:
        """Takes sync's state of a clock; states of other clocks than the node's are not passed on."""
        if self._page is not None and state.clock == self._clock.name:
            self._page.write(state, self._clock.local_ns())

    async def sample(self) -> None:
        """Gives chrony a sample a second, forever, while the time can be trusted; without a unit, returns at once."""
        said = ""
        while self._refclock is not None:
            moment = self._clock.moment()
            if moment is not None:
                try:
                    self._refclock.tell(*moment)
                    reason = ""
                except OSError as error:
                    reason = str(error.strerror)
                if reason != said:
                    said = reason
                    log.warning("chrony_not_told", reason=reason) if reason else log.info("chrony_told")
            await asyncio.sleep(_SAMPLE_S)

    def close(self) -> None:
        """Closes both outputs. The page's file stays, and its last state holds until it is void."""
        if self._page is not None:
            self._page.close()
        if self._refclock is not None:
            self._refclock.close()
