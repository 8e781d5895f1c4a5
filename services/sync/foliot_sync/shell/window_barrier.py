"""Closes a window when all nodes that spoke in the last one have spoken, or after a short wait."""

from __future__ import annotations

import asyncio

PATIENCE = 0.5
"""Of a window. What comes later counts in the next one: two seconds old instead of one, and no worse."""
_AFTER = 0.01
"""Of a window, when all have spoken: a node with many paths says them in several messages."""


class WindowBarrier:
    """Nodes end their windows at about the same reference time, and speak within a tenth of one.

    Parameters:
        window_s: length of a window.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._awaited: set[str] = set()
        self._heard: set[str] = set()
        self._complete = asyncio.Event()
        self._until_s = 0.0

    def heard(self, node: str) -> None:
        """A node has spoken."""
        # Who speaks late every time is not given up: all are waited for who spoke as long as anybody would have been waited for.
        if asyncio.get_running_loop().time() <= self._until_s:
            self._heard.add(node)
            self._awaited.discard(node)
            if not self._awaited:
                self._complete.set()

    async def gather(self) -> None:
        """Waits from the end of a window until all expected nodes have spoken, or patience is at an end."""
        self._awaited, self._heard = self._heard, set()
        self._complete.clear()
        patience_s = PATIENCE * self.window_s
        self._until_s = asyncio.get_running_loop().time() + patience_s
        try:
            async with asyncio.timeout(patience_s):
                await self._complete.wait()
                await asyncio.sleep(_AFTER * self.window_s)
        except TimeoutError:
            return
