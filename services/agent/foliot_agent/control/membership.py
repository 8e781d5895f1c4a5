"""The node's place in the fleet: its claims, and its record in the inventory, also after the bus has lost its store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from foliot.bus.retry import until_done
from foliot.node import identity_claims
from foliot.runtime import systemd
from foliot.runtime.service import opened
from foliot_schemas.subjects import CLAIMS, INVENTORY

if TYPE_CHECKING:
    from foliot.bus.client import Bus
    from foliot.settings import NodeSettings
    from foliot_schemas import Node

log = structlog.get_logger()

_AGAIN_S = 5.0
"""Wait between two looks whether the node that took our place has given it up: a person has to see to that."""


class Membership:
    """The membership of one node.

    Parameters:
        record: the node's record in the inventory, as it is to be.
    """

    def __init__(self, bus: Bus, node: NodeSettings, record: Node) -> None:
        self._bus = bus
        self._node = node
        self._record = record
        self._host = identity_claims.host_id()

    async def claim(self) -> None:
        """Takes the place; waits for the bus.

        A place that the node's last run has touched is its own; any other is not touched before.

        Raises:
            ClaimError: another node has it.
        """
        await opened(self._bus)
        await identity_claims.claim(self._bus, self._node, self._host)

    async def announce(self) -> None:
        """Says that the node is there, unless that is known."""
        if await self._bus.get(INVENTORY, self._node.name) != self._record:
            await self._bus.put(INVENTORY, self._node.name, self._record)

    async def renew(self) -> None:
        """Claims the place again after a cut, and says that the node is there if it has the place.

        The bus may have lost its store. If another node has the place meanwhile, the agent says so aloud and writes no
        record. A record would turn traffic to us that is the other's by now. Running traffic goes on as it is. If the
        other gives the place up, the agent takes it again.
        """
        said: dict[str, str] = {}
        while reasons := await identity_claims.renew(self._bus, self._node, self._host):
            for key, reason in reasons.items():
                if said.get(key) != reason:
                    log.error("place_taken", reason=reason)
                    await self._bus.reject(CLAIMS.subject(key), b"", reason)
            said = reasons
            systemd.tell(f"STATUS=has lost its place: {next(iter(reasons.values()))}")
            await asyncio.sleep(_AGAIN_S)
        await until_done(self.announce, "inventory_awaited")
        if said:
            log.info("place_regained", node=self._node.name)
            systemd.tell(f"STATUS=keeps the ways of {self._node.name}")
