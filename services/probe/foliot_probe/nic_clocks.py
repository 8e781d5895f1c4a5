"""The clocks in a node's NICs: reads them, holds their stamps against the kernel's, and says whose are used."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from foliot_probe.core.measure.nic_readings import NicReadings
from foliot_probe.core.measure.nic_stamps import NicTrust
from foliot_probe.io.ptp_clock import open_clock
from foliot_schemas.names import nic_clock_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from foliot.clock import HostClock
    from foliot_probe.core.measure.nic_readings import Reading
    from foliot_probe.core.measure.nic_stamps import Reason
    from foliot_probe.engine import Engine
    from foliot_probe.io.ptp_clock import NicClock
    from foliot_schemas import ClockState, Nic

log = structlog.get_logger()

READ_S = 0.1
"""The pause between two readings of a clock: twenty in a window of the clocks."""
_LONGEST_READ_S = 2.0
"""If reading takes longer, no NIC is used: nothing would bound its clock to the host's."""
_READINGS_A_CHECK = 10
_READINGS_A_TRY = 100
"""Readings after which a clock that could not be read is looked for anew: a driver that is loaded again has another."""
_LONGEST_NAME = 255
"""Of a clock, see `foliot_schemas.bounds.Name`: nobody could tell of one with a longer name."""


class NicWindow(NamedTuple):
    """Readings of the clock in a NIC that the clocks are to be told of."""

    nic: Nic
    readings: list[Reading]


class _Watched:
    """A NIC that has a clock."""

    def __init__(self, nic: Nic, opened: NicClock) -> None:
        self.nic = nic
        self.name = nic_clock_name(nic.name)
        self.opened: NicClock | None = opened
        self.readings = NicReadings()
        self.trust = NicTrust()
        self.state: ClockState | None = None
        self.counts = np.zeros((2, 3), np.int64)


class NicClocks:
    """The clocks in a node's NICs, as far as there are any that can be read.

    Parameters:
        nics: those to be asked.
        clock: their host's clock.
    """

    def __init__(self, nics: Iterable[Nic], clock: HostClock) -> None:
        self._clock = clock
        self._watched: list[_Watched] = []
        self._turn = 0
        self._lock = threading.Lock()
        self._is_reading = self._is_closed = False
        for nic in nics:
            try:
                opened = open_clock(nic.device, clock.injected_nics.get(nic.rail), clock)
            except OSError as error:
                log.info("nic_stamps_away", nic=nic.name, device=nic.device, reason=error.strerror)
            else:
                if len(nic_clock_name(nic.name)) <= _LONGEST_NAME:
                    self._watched.append(_Watched(nic, opened))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._watched)

    @property
    def rails(self) -> frozenset[str]:
        """The rails whose NICs have clocks."""
        return frozenset(each.nic.rail for each in self._watched)

    @property
    def names(self) -> list[str]:
        """The clocks' names."""
        return [each.name for each in self._watched]

    def close(self) -> None:
        """Reads them no more; a thread that is at it closes them when it is done."""
        with self._lock:
            self._is_closed = True
            if self._is_reading:
                return
        self._shut()

    def _shut(self) -> None:
        for each in self._watched:
            if each.opened is not None:
                each.opened.close()
                each.opened = None

    def set_clock(self, state: ClockState) -> None:
        """Takes what sync says of a clock."""
        for each in self._watched:
            if each.name == state.clock:
                each.state = state

    async def follow(self, engine: Engine) -> None:
        """Reads them in a thread, as a driver may keep its caller waiting, and takes what was found, forever."""
        while self:
            reading = asyncio.ensure_future(asyncio.to_thread(self.read))
            done, _ = await asyncio.wait((reading,), timeout=_LONGEST_READ_S)
            if not done:
                self._stall(engine)
            self.take(await reading, engine)
            await asyncio.sleep(READ_S)

    def _stall(self, engine: Engine) -> None:
        """Uses no NIC, as a driver does not come back."""
        for each in self._watched:
            each.readings.forget()
            self._give_up(each, "unread", engine)
        engine.set_nic_shifts({})

    def read(self) -> Mapping[str, list[Reading] | None]:
        """Reads all of them, by the names of their NICs; None: one cannot be read. It may take the kernel a while."""
        with self._lock:
            if self._is_closed:
                return {each.nic.name: None for each in self._watched}
            self._is_reading = True
        try:
            self._turn += 1
            return {each.nic.name: self._read(each) for each in self._watched}
        finally:
            self._end_reading()

    def _end_reading(self) -> None:
        with self._lock:
            self._is_reading = False
            if self._is_closed:
                self._shut()

    def _read(self, each: _Watched) -> list[Reading] | None:
        try:
            if each.opened is None:
                if self._turn % _READINGS_A_TRY:
                    return None
                each.opened = open_clock(each.nic.device, self._clock.injected_nics.get(each.nic.rail), self._clock)
            return each.opened.read()
        except OSError:
            if each.opened is not None:
                each.opened.close()
                each.opened = None
            return None

    def take(self, found: Mapping[str, list[Reading] | None], engine: Engine) -> None:
        """Takes what `read` has found, and lets the engine use the NICs that stamp well."""
        counts = engine.take_stamp_counts()
        for each in self._watched:
            each.counts += counts.get(each.nic.rail, 0)
            readings = found[each.nic.name]
            if readings is None:
                each.readings.forget()
                self._give_up(each, "unread", engine)
            elif each.readings.add(readings):
                self._give_up(each, "set", engine)
            elif each.readings.is_old(self._clock.local_ns()):
                each.readings.forget()
                self._give_up(each, "unread", engine)
        engine.set_nic_shifts({each.nic.rail: self._shift_ns(each) for each in self._watched})
        if self._turn % _READINGS_A_CHECK == 0:
            for each in self._watched:
                self._check(each, engine)

    def windows(self) -> Iterator[NicWindow]:
        """The readings since the last call of those clocks that are to be measured."""
        for each in self._watched:
            readings = each.readings.take()
            if readings and each.trust.offered:
                yield NicWindow(each.nic, readings)

    def _shift_ns(self, each: _Watched) -> int:
        return each.readings.shift_ns(self._clock.local_ns()) or 0

    def _check(self, each: _Watched, engine: Engine) -> None:
        was_trusted = each.trust.trusted
        if was_trusted and each.state is not None and each.state.status == "disrupted":
            self._give_up(each, "disrupted", engine)
            return
        reason = each.trust.check(each.counts, known=self._is_known(each))
        each.counts[:] = 0
        if reason is not None:
            self._use(each, engine, reason)
        elif each.trust.trusted and not was_trusted:
            self._use(each, engine)

    def _is_known(self, each: _Watched) -> bool:
        """Whether sync has the clock in step, so that peers can read its stamps at once."""
        shift_ns = each.readings.shift_ns(self._clock.local_ns())
        if each.state is None or shift_ns is None:
            return False
        return each.state.status == "synchronised" and self._clock.local_ns() + shift_ns <= each.state.void_after_ns

    def _give_up(self, each: _Watched, reason: Reason, engine: Engine) -> None:
        if each.trust.give_up(reason) is not None:
            self._use(each, engine, reason)

    def _use(self, each: _Watched, engine: Engine, reason: Reason | None = None) -> None:
        engine.set_by_nic(each.nic.rail, by_nic=each.trust.trusted)
        if reason is None:
            log.info("nic_stamps_used", nic=each.nic.name, device=each.nic.device)
        else:
            log.warning("nic_stamps_given_up", nic=each.nic.name, device=each.nic.device, reason=reason)
