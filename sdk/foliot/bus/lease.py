"""A lease: one holder of a role at a time, and a number that rises with every change of hands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from foliot.bus.retry import BUS_ERRORS, heed_cancellation
from foliot_schemas import Lease as LeaseRecord
from foliot_schemas import encode
from foliot_schemas.names import escape
from foliot_schemas.subjects import LEASES

if TYPE_CHECKING:
    from foliot.bus.client import Bus

log = structlog.get_logger()

_RENEW_S = 0.4
"""Renewals per lifetime of the bucket's entries (1.5 s): two may fail before the lease is lost."""
_SAFETY_S = 0.2
"""The holder lets go this much before the bucket does, so that two never hold at once."""


class Count(NamedTuple):
    """The bus's count of leases."""

    since_ns: int
    """When it began. A bus that lost its memory begins anew."""
    last: int
    """The last revision that it gave."""


async def counted(bus: Bus) -> Count | None:
    """Asks the bus for its count; None if it does not answer."""
    try:
        stream = (await (await bus.store(LEASES)).status()).stream_info
    except BUS_ERRORS:
        return None
    return Count(since_ns=round(stream.created.timestamp() * 1e9), last=int(stream.state.last_seq))


class Lease:
    """Holds a role as long as the bus says so; not a moment longer.

    Parameters:
        lasting: whether it is held until the bus says that it is not. While the bus is silent, two may hold it: for
            work better done twice than never.
    """

    def __init__(
        self,
        bus: Bus,
        role: str,
        holder: str,
        *,
        lasting: bool = False,
    ) -> None:
        self._bus = bus
        self._key = escape(role)
        self._record = encode(LeaseRecord(holder=holder))
        self._lasting = lasting
        self._taken = asyncio.Event()
        self._fence = 0
        self._last = 0
        self._until_s = 0.0
        self.held_by_another = False
        """Whether another holds it, by what the bus said last."""

    @property
    def revision(self) -> int:
        """The number that fences this holder's commands, constant while it holds; 0 while it does not."""
        return self._fence if self._lasting or time.monotonic() < self._until_s else 0

    async def taken(self) -> int:
        """Waits until it is held; returns its revision."""
        while not self.revision:
            self._taken.clear()
            await self._taken.wait()
        return self.revision

    async def run(self) -> None:
        """Takes the lease when it is free, and renews it, until cancelled."""
        try:
            while True:
                await self._step()
                heed_cancellation()
                await asyncio.sleep(_RENEW_S)
        finally:
            await self._give_back()

    async def _step(self) -> None:
        asked_s = time.monotonic()
        try:
            store = await self._bus.store(LEASES)
            if self.revision:
                self._last = await store.update(self._key, self._record, last=self._last)
            else:
                self._change(0)
                self._last = await self._take(store)
                self._change(self._last)
            self._until_s = asked_s + LEASES.keep_s - _SAFETY_S
        except KeyWrongLastSequenceError:
            if not await self._adopt(store):
                self._change(0)  # another holds it
        except BUS_ERRORS as error:
            log.warning("lease_not_renewed", reason=type(error).__name__)
            if not self.revision:
                self._change(0)

    async def _adopt(self, store: Any) -> bool:
        """Goes on if the key is this holder's after all: a renewal was stored, and its answer was lost."""
        if not self.revision:
            return False
        try:
            held = await store.get(self._key)
            self.held_by_another = held.value != self._record
            if self.held_by_another:
                return False
            # The time of that renewal is not known, so the lease counts from now on.
            asked_s = time.monotonic()
            self._last = await store.update(self._key, self._record, last=held.revision)
        except BUS_ERRORS:
            return False
        self._until_s = asked_s + LEASES.keep_s - _SAFETY_S
        return True

    async def _take(self, store: Any) -> int:
        try:
            held = await store.get(self._key)
        except KeyNotFoundError:
            self.held_by_another = False
            return int(await store.create(self._key, self._record))
        self.held_by_another = held.value != self._record
        if (
            not self.held_by_another and held.revision == self._last
        ):  # by this holder's own hand, though it lapsed here: the bus's answer came late
            return int(await store.update(self._key, self._record, last=self._last))
        raise KeyWrongLastSequenceError(description=f"held since revision {held.revision}")

    def _change(self, fence: int) -> None:
        if fence == self._fence:
            return
        self._fence = fence
        if fence:
            self._taken.set()
        else:
            self._until_s = 0.0
        log.info("lease_taken" if fence else "lease_lost", revision=fence)

    async def _give_back(self) -> None:
        held = self.revision
        # Another may take it before the bus has answered.
        self._change(0)
        if held:
            with contextlib.suppress(*BUS_ERRORS):
                await (await self._bus.store(LEASES)).delete(self._key, last=self._last)
