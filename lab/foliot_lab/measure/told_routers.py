"""What probes tell of the routers of their paths, from their start on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.link_map import LinkMap
from foliot_schemas.subjects import HOPS

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot_lab.measure.clock_truth import LabTime
    from foliot_schemas import HopBatch


class ToldRouters:
    """The links of each path as Foliot has them, and when they were first and last told anew, in lab time."""

    def __init__(self, lab: LabTime) -> None:
        self.links = LinkMap()
        self.began_ns: int | None = None
        """None: nothing was told."""
        self.changed_ns: dict[str, int] = {}
        """By path."""
        self._lab = lab

    async def follow(self, bus: Bus) -> None:
        """Begins to listen."""
        await bus.subscribe(HOPS, self.hops)

    async def hops(self, batch: HopBatch, _subject: str = "") -> None:
        """Takes what a node tells of some of its paths."""
        now_ns = self._lab.now_ns()
        self.began_ns = now_ns if self.began_ns is None else self.began_ns
        changed = self.links.take(batch)
        self.changed_ns.update(dict.fromkeys((*changed.told, *changed.back), now_ns))
