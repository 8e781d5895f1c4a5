"""Stands in for the kernel where nothing may be touched: simulations, and machines that permit nothing.

To see what the agent would tell a host's kernel, use `foliot_agent.kernel.dry_run`.
"""

from __future__ import annotations

from typing import Any

from foliot_agent.kernel.devices import Devices


class NoKernel(Devices):
    """Stands for both an `AsyncIPRoute` and the devices: takes every route and rule, and needs no NIC."""

    def index(self, name: str) -> int:  # noqa: ARG002 - as of `Devices`
        """See `Devices`; every device is there."""
        return 0

    async def route(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.route`."""

    async def rule(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.rule`."""
