"""Lets observations wait for others, so that a service takes them one right after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Gathering:
    """The waits of one subscription. Subscriptions that gather for equally long end their waits together.

    Where other processes work between two messages, each message finds the processor's caches empty. It then costs
    three to five times what the next one costs, if that follows at once.

    Parameters:
        every_s: the longest wait; 0: no message waits.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._left = 0
        """Messages that waited together and are still to be taken."""

    async def wait(self, waiting: Callable[[], int]) -> None:
        """To be awaited before each message: the first of each burst waits here, and the others behind it.

        Parameters:
            waiting: the number of messages that stand behind the one at hand.
        """
        if not self._every_s:
            return
        if not self._left:
            await asyncio.sleep(self._every_s - asyncio.get_running_loop().time() % self._every_s)
            self._left = 1 + waiting()
        self._left -= 1
