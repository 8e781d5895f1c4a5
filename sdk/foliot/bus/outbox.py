"""Offers each message that may not be lost to its stream, under the same id, until it is stored.

Messages keep their order. A message that is published while the bus is away waits in a line, and later ones stand
behind it until the line is through. Where the bus answers and the stream does not, readers hear each message at once,
and each is offered again by itself.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import itertools
from typing import TYPE_CHECKING, Any

import structlog

from foliot.bus.retry import BUS_ERRORS, FIRST_S, LONGEST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.bus.rejected import Rejecting

log = structlog.get_logger()

_LOOK_S = 0.02
"""How often the first of a line looks whether the bus is back. A client tries to connect four times a second."""


class _Line:
    """Messages of one family of subjects that wait for the bus, or behind one that does. The oldest stands first."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._is_first: dict[int, asyncio.Event] = {}

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def join(self, number: int) -> None:
        """Puts a message in its place, in front of those that joined earlier but were published later."""
        if number not in self._is_first:
            bisect.insort(self._numbers, number)
            self._is_first[number] = asyncio.Event()
            self._call()

    async def first(self, number: int) -> None:
        """Waits until no message stands in front of it."""
        await self._is_first[number].wait()

    def leave(self, number: int) -> None:
        """Takes a message out of the line, if it stands there."""
        if self._is_first.pop(number, None) is not None:
            self._numbers.remove(number)
            self._call()

    def _call(self) -> None:
        for number in self._numbers[1:2]:
            self._is_first[number].clear()
        for number in self._numbers[:1]:
            self._is_first[number].set()


class Outbox:
    """Offers the messages of one connection to their streams.

    It counts them as `kept`, or as `unstored`, and then shows them on `rejected`.
    """

    def __init__(
        self, stream: Any, counts: collections.Counter[str], rejecting: Rejecting, connected: Callable[[], bool]
    ) -> None:
        self._stream = stream
        self._counts = counts
        self._rejecting = rejecting
        self._connected = connected
        self._numbers = itertools.count()
        self._lines: dict[str, _Line] = collections.defaultdict(_Line)
        self._cut: asyncio.Future[None] | None = None

    def away(self) -> None:
        """Note that the connection has died: unanswered offers over it are not waited for."""
        if self._cut is not None:
            self._cut.set_result(None)
            self._cut = None

    async def keep(self, family: str, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """Offers a message until it is stored. Messages of one family are kept in order."""
        number, line, delay_s = next(self._numbers), self._lines[family], FIRST_S
        try:
            while True:
                if line or not self._connected():
                    await self._turn(line, number)
                cut = self._generation()
                if await self._is_stored(subject, data, headers, cut):
                    break
                line.leave(number)
                if not cut.done():
                    await asyncio.wait({cut}, timeout=delay_s)
                    delay_s = min(delay_s * 2, LONGEST_S)
        finally:
            line.leave(number)
        self._counts["kept"] += 1

    async def _turn(self, line: _Line, number: int) -> None:
        line.join(number)
        while True:
            await line.first(number)
            if self._connected():
                return
            await asyncio.sleep(_LOOK_S)

    def _generation(self) -> asyncio.Future[None]:
        """A future that is done when the present connection has died."""
        if self._cut is None:
            self._cut = asyncio.get_running_loop().create_future()
        return self._cut

    async def _is_stored(self, subject: str, data: bytes, headers: dict[str, str], cut: asyncio.Future[None]) -> bool:
        storing = asyncio.ensure_future(self._stream.publish(subject, data, headers=headers))
        try:
            await asyncio.wait({storing, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not storing.done():
                raise ConnectionResetError("the bus went away")
            await storing
        except BUS_ERRORS as error:
            reason = str(error) or type(error).__name__
            self._counts["unstored"] += 1
            log.warning("keep_retried", subject=subject, id=headers["Nats-Msg-Id"], reason=reason)
            if self._connected():
                await self._rejecting.show(subject, data, reason, unstored=True)
            return False
        finally:
            storing.cancel()
        return True
