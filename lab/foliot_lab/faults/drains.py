"""Asks on the lab's bus that nodes be left by ranks that can be replaced, as `foliot drain` does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot_schemas import Drain
from foliot_schemas.subjects import DRAINS

if TYPE_CHECKING:
    from foliot.settings import BusSettings

log = structlog.get_logger()

_BY = "lab"
_REASON = "the scenario drains it"
_LEAVING_S = 2.0


class Drains:
    """The drained nodes of a run.

    Parameters:
        settings: of who may write them.
    """

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._writing: set[asyncio.Task[None]] = set()

    def set(self, node: str, *, over: bool) -> None:
        """Begins to write that a node is to be left, or is to be used again; does not wait for the bus."""
        task = asyncio.get_running_loop().create_task(self._write(node, over=over))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """Waits a moment for what is being written."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=_LEAVING_S)
        for task in self._writing:
            task.cancel()

    async def _write(self, node: str, *, over: bool) -> None:
        drain = Drain(node=node, at_ns=time.time_ns(), by=_BY, reason=_REASON, over=over)
        try:
            async with OneShot(self._settings, role="scheduler") as bus:
                await bus.put(DRAINS, node, drain)
        except BUS_ERRORS as error:
            log.warning("drain_not_written", node=node, error=in_words(error))
