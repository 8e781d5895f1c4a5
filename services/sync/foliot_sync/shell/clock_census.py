"""The clocks and NICs of the inventory. It forgets those that left, and reports an asymmetry of an unknown NIC."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

from foliot_sync.asymmetry import Asymmetries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas import Node

log = structlog.get_logger()


class ClockCensus:
    """The inventory, as the leader needs it.

    Parameters:
        asymmetry_ns: as in the settings.
    """

    def __init__(self, asymmetry_ns: Mapping[str, float]) -> None:
        self._asymmetries = Asymmetries(asymmetry_ns)
        self._names: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
        """The clocks that a record names, and its NICs, by node."""
        self._clocks: Counter[str] = Counter()
        """How many records name a clock."""
        self._not_there: list[str] = []

    def learn(self, name: str, node: Node | None) -> set[str]:
        """Takes a node's record; None: it has left. Returns the clocks that no record names any more."""
        before, _ = self._names.pop(name, (frozenset(), ()))
        if node is not None:
            clocks = node.clocks
            self._names[name] = clocks, tuple(nic.name for nic in node.nics)
            self._clocks.update(clocks)
        self._clocks.subtract(before)
        gone = {clock for clock in before if not self._clocks[clock]}
        for clock in gone:
            del self._clocks[clock]
        return gone

    def has_clock(self, clock: str) -> bool:
        """Whether a record names the clock."""
        return clock in self._clocks

    def tell_of_nobody(self) -> None:
        """Logs, once there are nodes, which configured asymmetries are of unknown NICs: they correct nothing."""
        if not self._asymmetries or not self._names:
            return
        not_there = self._asymmetries.unknown(nic for _, nics in self._names.values() for nic in nics)
        if self._not_there != not_there:
            self._not_there = not_there
            if not_there:
                log.warning("asymmetry_of_nobody", names=not_there)
