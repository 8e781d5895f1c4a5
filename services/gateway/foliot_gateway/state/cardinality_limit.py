"""Limits what the gateway remembers of things that the inventory does not name.

It always remembers what the inventory names: that is as large as the fleet. It also shows others, such as a probe
without an agent. But it takes only so many of them, so that a flood of names takes no more memory than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foliot_schemas.names import nic_clock_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas import Nic, Node
    from foliot_schemas.names import Path

MOST_STRANGERS = 4_096
"""Entries of a table beyond which only what the inventory names is added."""


class CardinalityLimit:
    """The names in the inventory, and whether there is room for others."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.nics: dict[str, Nic] = {}
        """Those of all nodes."""

    def knows_clock(self, clock: str) -> bool:
        """Whether a clock is a node's own, or one of a NIC, which is named after its node with something behind it."""
        return clock in self.nodes or any(clock in {nic.clock, nic_clock_name(nic.name)} for nic in self.nics.values())

    def knows_path(self, path: Path) -> bool:
        """Whether both ends have a NIC with this entropy."""
        ends = (self.nics.get(path.source), self.nics.get(path.destination))
        return all(nic is not None and path.entropy < len(nic.entropies) for nic in ends)

    def has_for(self, key: object, table: Mapping[Any, Any]) -> bool:
        """Whether a table has an entry or can take one that the inventory does not name."""
        return key in table or len(table) < MOST_STRANGERS
