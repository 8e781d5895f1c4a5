"""What ports carry by their own counters, whoever sends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas import PortState

_S = 1_000_000_000


class PortRates:
    """By NIC, what its port counted between its last two words, in bits a second."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._latest: dict[str, PortState] = {}
        self.sent_bps: dict[str, float] = {}
        self.received_bps: dict[str, float] = {}

    def take(self, seen: PortState) -> None:
        """Takes a port's counters; those of a NIC that the inventory does not know tell nothing."""
        if seen.nic not in self._inventory.nics or not seen.counters:
            return
        before = self._latest.get(seen.nic)
        self._latest[seen.nic] = seen
        if before is None or seen.at_ns <= before.at_ns:
            return
        for name, rates in (("tx_bytes", self.sent_bps), ("rx_bytes", self.received_bps)):
            counted = seen.counters.get(name, 0) - before.counters.get(name, 0)
            rates[seen.nic] = max(counted, 0) * 8.0 * _S / (seen.at_ns - before.at_ns)

    def forget(self, node: str) -> list[str]:
        """Forgets the ports of a node that has left. Returns its NICs."""
        nics = [nic for nic in self._latest if node_of(nic) == node]
        for nic in nics:
            del self._latest[nic]
            self.sent_bps.pop(nic, None)
            self.received_bps.pop(nic, None)
        return nics
