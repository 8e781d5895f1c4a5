"""Follows the latest states of a few clocks, from which sync resumes the common time if leader and bucket are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas.subjects import CLOCK

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot_schemas.clock import ClockState

MOST = 64
"""Clocks to follow.

Their median is the common time to nanoseconds, and listening to so few costs next to nothing, however large the fleet.
"""


class ClockListener:
    """Listens to the first clocks that it is told of."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._there: set[str] = set()
        self._subscribed: set[str] = set()
        self.states: dict[str, ClockState] = {}

    async def meet(self, clock: str) -> None:
        """Follows a clock of the inventory, while there are fewer than `MOST`."""
        if len(self._there) < MOST:
            self._there.add(clock)
            if clock not in self._subscribed:
                self._subscribed.add(clock)
                await self._bus.subscribe(CLOCK, self._on_clock, clock)

    def leave(self, clock: str) -> None:
        """Stops following a clock that left. The next one that is met takes its place."""
        self.states.pop(clock, None)
        self._there.discard(clock)

    def common_ns(self, clock: str, local_ns: int) -> int | None:
        """The common time at a local time of a clock; None if it is not followed, or not in step."""
        state = self.states.get(clock)
        known = state is not None and state.status == "synchronised"
        return state.reference_ns(local_ns) if state is not None and known else None

    async def _on_clock(self, state: ClockState, subject: str) -> None:  # noqa: ARG002 - the bus hands handlers both
        if state.clock in self._there:
            self.states[state.clock] = state
