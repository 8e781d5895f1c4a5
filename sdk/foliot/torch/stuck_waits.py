"""Ends waits that the end of a group's connections has not ended.

Gloo (torch 2.13) forgets a transfer that it was about to begin as a connection ended. Who waits for it waits until the
group's time limit, which is half an hour by default. `GroupSockets` makes that seldom; a process that was killed in the
middle of a step does not.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.torch.collective_log import CollectiveLog

_LOOK_S = 1.0
"""How long a wait is left alone. Others end within milliseconds, or when Gloo's threads get a processor: one that ends
after it was ended from here would end the process."""
_GIVE_UP_S = 3.0
"""After so long, no way is left but to end the process."""


class StuckWaits:
    """Looks after the program's thread once the connections of its group have ended.

    Parameters:
        log: of what has begun and not ended.
        give_up: called where the thread goes on waiting. It is to end the process.
    """

    def __init__(self, log: CollectiveLog, give_up: Callable[[], None]) -> None:
        self.ended_one = False
        """Whether a collective was said to be done that is not: nothing is to be made of what it gave."""
        self._log = log
        self._give_up = give_up
        self._has_left = threading.Event()
        self._has_left.set()
        self._thread: threading.Thread | None = None

    def entered(self) -> None:
        """Takes that the program's thread may begin collectives of a new group."""
        self.ended_one = False
        self._has_left.clear()

    def left(self) -> None:
        """Takes that it waits in none."""
        self._has_left.set()

    def check(self) -> None:
        """Checks that no collective was ended from here.

        Raises:
            RuntimeError: one was.
        """
        if self.ended_one:
            raise RuntimeError("the group has ended, and with it a collective that was waited for")

    def look(self) -> None:
        """Looks, in a thread of its own, until the program's thread has left. The connections have ended just now."""
        if not self._has_left.is_set() and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look, name="foliot-waits", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        began_s = time.monotonic()
        while not self._has_left.wait(_LOOK_S):
            stuck = self._log.unfinished()
            if stuck and time.monotonic() - began_s > _GIVE_UP_S:
                self._give_up()
                return
            for work in stuck:
                self._end(work)

    def _end(self, work: Any) -> None:
        """Says that a collective is done. DDP waits for that, and finds that it got nothing, which is an error."""
        try:
            self.ended_one = True
            work.get_future().set_result(torch.zeros(0))
        except Exception:  # noqa: BLE001 - it has none, or is done by now
            return
