"""An event loop in virtual time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that waits for no timer: where nothing is ready, its time jumps to the next one.

    Work takes none of its time.

    Parameters:
        late_s: by how much later than its timer each such turn comes, as on a busy machine.
    """

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._late_s = late_s
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Virtual time, in seconds since the loop was made."""
        return self.now_s

    def jump(self, by_s: float) -> None:
        """Lets time pass until the next timer, and as much more as the loop is late."""
        self.now_s += by_s + self._late_s


class _Jumping(selectors.DefaultSelector):
    """Waits for files only where no timer is set."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """See `selectors.BaseSelector`."""
        if timeout is None:
            return super().select()
        found = super().select(0)
        if not found and timeout > 0:
            self._loop.jump(timeout)
        return found
