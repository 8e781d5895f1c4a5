"""Work in steps, between which the loop turns. So it hears the bus and serves others, however large an answer is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP_S = 0.002
"""Length of a step: an eighth of a frame of a live page, a fifth of a step that the log tells of."""

Entry = TypeVar("Entry")


class Pace:
    """Lets the loop turn after each `_STEP_S` of work."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    async def keep(self, entries: Iterable[Entry | None]) -> tuple[Entry, ...]:
        """Takes all entries, and looks at the time after each and at the end. None is work without an entry."""
        taken = []
        for entry in entries:
            if entry is not None:
                taken.append(entry)
            await self.turn()
        await self.turn()
        return tuple(taken)

    async def turn(self) -> None:
        """Lets the loop turn, if it is time."""
        if time.perf_counter() - self._began_s > _STEP_S:
            await asyncio.sleep(0)
            self._began_s = time.perf_counter()
