"""The fence: a former holder of the remediator's lease is not obeyed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from foliot.bus.lease import Count

log = structlog.get_logger()


class LeaseFence:
    """The highest revision of the lease that was heard; a lower one is refused. Void when the bus counts anew.

    Parameters:
        count: asks the bus; None if it does not answer.
        spawn: starts work that outlives the call.
    """

    def __init__(
        self, count: Callable[[], Awaitable[Count | None]], spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self.highest = 0
        self._count = count
        self._since_ns = 0
        """Since when the bus that gave `highest` has counted; 0: unknown."""
        self._spawn = spawn

    async def passes(self, revision: int) -> bool:
        """Whether a revision is not past. Before one that looks so is refused, the bus is asked."""
        highest = self.highest  # a later one may be given and heard while the bus answers
        if 0 < revision < highest and (count := await self._count()) is not None:
            # No count gives more than its last: so it is told even if the bus that gave the highest was never asked.
            counts_anew = count.last < highest or self._since_ns not in {0, count.since_ns}
            if counts_anew and revision <= count.last:
                self._begin_anew(revision)
        return revision >= self.highest

    def raise_to(self, revision: int) -> None:
        """Takes a revision that was heard, and passed."""
        if revision > self.highest or not self._since_ns:
            self._spawn(self._look_up())
        self.highest = max(revision, self.highest)

    async def _look_up(self) -> None:
        highest, count = self.highest, await self._count()
        if count is None:
            return
        self._since_ns = count.since_ns
        if highest > count.last:  # given by the bus of before, to a holder that has not noticed yet
            self._begin_anew(count.last)

    def _begin_anew(self, revision: int) -> None:
        log.warning("lease_counted_anew", seen=self.highest, revision=revision)
        self.highest = self._since_ns = 0
