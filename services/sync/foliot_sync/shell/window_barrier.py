"""Closes a window when all nodes that spoke in the last one have spoken, or after a short wait."""

from __future__ import annotations

import asyncio

PATIENCE = 0.5
"""How long to wait, as a share of a window.

Later stamps count in the next one: two seconds old instead of one, and no worse.
"""
_AFTER = 0.01
"""How long to wait on when all have spoken, as a share of a window.

A node with many paths speaks in several messages.
"""


class WindowBarrier:
    """Waits for nodes. They end their windows at about the same reference time, and speak within a tenth of one.

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
        """Notes that a node has spoken."""
        # A node that is late every time is not given up: every node that spoke before the longest wait was over is
        # awaited again.
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
