"""The overlay without a kernel, for services on loopback addresses: an extension, which agents load.

It keeps the ways of service addresses as the overlay does, and changes nothing on the host. Settings name it:
``extensions.modules`` this module, and ``agent.actuator`` its `NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from foliot_agent.kernel.devices import Devices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_agent.control.action_handlers import NodeView
    from foliot_agent.core.route_requests import Request
    from foliot_schemas import Node

NAME = "emulated"


def extend(service: str) -> None:
    """Registers it in the agent. Other services need not load what the agent is made of."""
    if service == "agent":
        from foliot_agent.control import actuator_kinds  # noqa: PLC0415 - as above

        actuator_kinds.register(actuator_kinds.ActuatorKind(NAME, EmulatedBackend))


class NoKernel(Devices):
    """Stands for a `RouteSocket` and the devices where nothing may be touched: takes all, and needs no NIC."""

    def index(self, name: str) -> int:  # noqa: ARG002 - as of `Devices`
        """See `Devices`; every device is there."""
        return 0

    async def change(self, requests: Sequence[Request]) -> list[int]:
        """As `RouteSocket.change`."""
        return [0] * len(requests)


class EmulatedBackend:
    """See `KernelBackend`, whose methods these are. The host loses nothing that it would have to keep."""

    def __init__(self, view: NodeView) -> None:
        from foliot_agent.actuators.overlay import OverlayActuator  # noqa: PLC0415 - as above

        kernel = NoKernel()
        self.actuator = OverlayActuator(kernel, kernel, view.layout, kernel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def join(self, peer: Node) -> None:
        """Routes to a peer."""
        await self.actuator.welcome(peer)

    async def leave(self, peer: Node) -> None:
        """Forgets a peer."""
        await self.actuator.dismiss(peer)

    def take_link(self, change: object) -> None:
        """Takes what the kernel tells of a device."""

    def take_address(self, address: str) -> None:
        """Takes an address that a device was given."""

    async def restored(self, rail: str) -> None:
        """Returns at once."""

    async def keep(self, *_: object) -> None:
        """Returns at once."""

    async def remember(self, losses: object) -> None:
        """Remembers nothing."""

    async def keep_routes(self, losses: object) -> None:
        """Returns at once."""

    async def rehearse(self, *_: object, act: bool) -> tuple[()]:  # noqa: ARG002 - as of `KernelBackend`
        """A start changes nothing."""
        return ()
