"""What befalls a host from outside: its cables are pulled, its GPU fails, a person drains it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from foliot_lab.fabric.rtnetlink import link_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot_lab.fabric.fabric import Fabric
    from foliot_lab.faults.drains import Drains
    from foliot_lab.faults.kernel_logs import KernelLogs


class HostFaults:
    """See `foliot_lab.faults.world.Hosts`. `close` it whatever happens.

    Parameters:
        pull: pulls the cable of a host's frontend (True), or plugs it in again.
    """

    def __init__(
        self, fabric: Fabric, pull: Callable[[str, bool], None], kernel_logs: KernelLogs, drains: Drains
    ) -> None:
        self._fabric = fabric
        self._pull = pull
        self._kernel_logs = kernel_logs
        self._drains = drains

    def drain(self, node: str, *, over: bool) -> None:
        """Asks for a node to be left by ranks that can be replaced, or to be used again."""
        self._drains.set(node, over=over)

    def xid(self, node: str, number: int) -> None:
        """Writes a GPU's error into a node's kernel log.

        Raises:
            OSError: its agent has not read the log for long.
        """
        self._kernel_logs.xid(node, number)

    def cut_off(self, node: str, *, away: bool) -> None:
        """Pulls all cables of a node, frontend and rails, or plugs them in again."""
        with contextlib.ExitStack() as stack:  # one that fails keeps none of the others
            stack.callback(self._pull, node, away)
            for nic in self._fabric.plan.nics:
                if nic.near.owner == node:
                    stack.callback(self._set, nic.name, away)

    def _set(self, name: str, away: bool) -> None:
        """Sets the far end of a NIC's cable down, so that the near one loses its carrier, or up again."""
        port = self._fabric.plan.links[name].far
        self._fabric.netlink(port).request(link_state(self._fabric.index(port), up=not away))

    async def close(self) -> None:
        """Closes the kernel logs, and waits a moment for what is being written. May be called twice."""
        await self._drains.close()
        self._kernel_logs.close()
