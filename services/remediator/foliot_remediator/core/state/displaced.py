"""The nodes with traffic away from home. Only these are checked for traffic to bring back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.scheduling import Round

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.state.routing_table import RoutingTable

_AT_ONCE = 16
"""In a tick of 10 ms: some 20 us each."""


class Displaced:
    """Nodes that have their turn once per interval, or later where there are very many.

    None has its turn before it has been astray for an interval. An agent that moves by itself may be heard of before
    the event that says why. Until then its NIC seems up, and is dead.
    """

    def __init__(self, routing: RoutingTable, interval_ns: int) -> None:
        self._routing = routing
        self._round = Round(interval_ns)

    def moved_itself(self, node: str, now_ns: int) -> None:
        """Puts off a node that says it moved what nobody told it to. The event that calls for that has an interval to be heard of."""
        self._round.wait(node, now_ns)

    def due(self, now_ns: int) -> Iterator[str]:
        """The nodes whose turn it is. A node that is all home has none until something moves again."""
        for node in self._routing.strayed:
            if node not in self._round:
                self._round.wait(node, now_ns)
        self._routing.strayed.clear()
        for _ in range(_AT_ONCE):
            stray = self._round.take(now_ns)
            if stray is None:
                return
            if self._routing.is_astray(stray):
                yield stray
            else:
                self._round.leave(stray)
