"""How long the program's thread may wait for other ranks: what takes longer is ended by another thread."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

from foliot.torch.meeting import MeetingError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator


def _never() -> bool:
    return False


class Limit:
    """Of one wait after the other, each in a block of its own.

    Parameters:
        lock: held while a wait is ended, by whoever looks.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._allowed_s = self._until_s = math.inf
        self._end: Callable[[], None] | None = None
        self._is_outdated: Callable[[], bool] = _never
        self._said = self._why = ""
        """What is said if the block takes too long, and why it was ended; empty: it was not."""

    @contextlib.contextmanager
    def within(
        self, allowed_s: float, end: Callable[[], None], what: str, is_outdated: Callable[[], bool] = _never
    ) -> Iterator[None]:
        """Lets a block take so long. If it takes longer, `end` is called at each look until the block has ended.

        PyTorch connects to a store once more where the connection ends, so that to end it once may not do.

        Parameters:
            what: what did not come, for the error.
            is_outdated: whether what the block waits for is wanted no more. It is ended then as well.

        Raises:
            MeetingError: it took longer, or was outdated.
        """
        with self._lock:
            self._allowed_s, self._end, self._why = allowed_s, end, ""
            self._said = f"{what} in {allowed_s:g} s"
            self._is_outdated = is_outdated
            self.renew()
        try:
            yield
        except Exception as error:
            if self._why:
                raise MeetingError(self._why) from error
            raise
        finally:
            with self._lock:
                self._until_s, self._end = math.inf, None
        if self._why:
            raise MeetingError(self._why)

    def renew(self) -> None:
        """Lets the block take as long again, from now on. The thread calls it that is in the block."""
        self._until_s = time.monotonic() + self._allowed_s

    def look(self) -> None:
        """Ends what has taken too long, or is outdated. Hold the lock."""
        if self._end is None:
            return
        if self._is_outdated():
            self._why = "there is another order"
        elif time.monotonic() > self._until_s:
            self._why = self._said
        else:
            return
        self._end()
