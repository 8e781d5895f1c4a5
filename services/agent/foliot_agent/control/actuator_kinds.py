"""The door for an actuator: those that there are, by name, and which of them an agent has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from foliot.settings import SettingsError
from foliot_agent.control.contained_actuator import ContainedActuator
from foliot_agent.control.kernel_backend import KernelBackend, uninstall
from foliot_schemas import SERVICE_ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from foliot.clock import Clock
    from foliot.node.link_monitor import LinkChange
    from foliot_agent.actuators.base import Actuator, ServiceAddressActuator
    from foliot_agent.control.action_handlers import NodeView
    from foliot_agent.control.move_queue import MoveQueue
    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Node, NodePaths


class ServiceAddressBackend(Protocol):
    """What carries service addresses on a host, and what keeps it there. `KernelBackend` says what each method does."""

    is_real: bool
    """Whether moves can be confirmed on a wire."""
    actuator: ServiceAddressActuator

    async def __aenter__(self) -> Self:
        """Builds, or adopts what an earlier run left."""

    async def __aexit__(self, *_: object) -> None:
        """Leaves everything in place."""

    async def join(self, peer: Node) -> None:
        """Makes a peer reachable."""

    async def leave(self, peer: Node) -> None:
        """Forgets a peer."""

    def take_link(self, change: LinkChange) -> None:
        """The kernel tells of a device."""

    def take_address(self, address: str) -> None:
        """A device was given an address."""

    async def restored(self, rail: str) -> None:
        """Waits until what the kernel dropped with a NIC is there again."""

    async def keep(
        self, peers: Mapping[str, Node], move_queue: MoveQueue, on_restored: Callable[[], Awaitable[None]]
    ) -> None:
        """Makes again what the kernel drops, until cancelled."""

    async def remember(self, losses: FailedLinks) -> None:
        """Copies the routes over the NICs that are up."""

    async def keep_routes(self, losses: FailedLinks) -> None:
        """Goes on remembering, until cancelled."""

    async def rehearse(
        self, peers: Iterable[Node], paths: NodePaths | None, clock: Clock, *, act: bool
    ) -> tuple[Change, ...]:
        """What entering it, meeting these peers and following this would change."""


async def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """A maker of actuators."""

    name: str
    """As `agent.actuator` names it."""
    make: Callable[[NodeView], Any]
    """Makes a `ServiceAddressBackend`, or for another class of traffic an `Actuator`."""
    traffic: str = SERVICE_ADDRESSES
    remove: Callable[[], Awaitable[None]] = _nothing
    """Takes away all that any run of it left on this host."""


_kinds: dict[str, ActuatorKind] = {}


def register(kind: ActuatorKind) -> None:
    """Makes an actuator known. Of service addresses, the settings choose one; of every other class there is one, which is used.

    Raises:
        ValueError: there is another of this name, or of this class.
    """
    rivals = [each for each in _kinds.values() if each.traffic == kind.traffic != SERVICE_ADDRESSES]
    if _kinds.get(kind.name, kind) is not kind or any(each is not kind for each in rivals):
        raise ValueError(f"there is an actuator named {kind.name}, or one of {kind.traffic}, already")
    _kinds[kind.name] = kind


def unregister(name: str) -> None:
    """Takes back `register`."""
    _kinds.pop(name, None)


def backend(name: str, view: NodeView) -> ServiceAddressBackend:
    """What `agent.actuator` names.

    Raises:
        SettingsError: there is none of this name that moves service addresses.
    """
    known = {each.name: each for each in _kinds.values() if each.traffic == SERVICE_ADDRESSES}
    if name not in known:
        raise SettingsError(f"agent.actuator: {name!r} is none of {', '.join(sorted(known))}")
    made: ServiceAddressBackend = known[name].make(view)
    return made


def others(view: NodeView) -> list[Actuator]:
    """The actuators of all other classes of traffic; none of them can end the agent."""
    return [
        ContainedActuator(each.traffic, functools.partial(each.make, view))
        for each in _kinds.values()
        if each.traffic != SERVICE_ADDRESSES
    ]


async def remove_all() -> None:
    """Takes away what any run of any actuator left on this host."""
    for kind in _kinds.values():
        await kind.remove()


def _kernel(view: NodeView, *, is_real: bool) -> KernelBackend:
    return KernelBackend(view.layout, view.restart_cache, is_real=is_real)


register(ActuatorKind("overlay", functools.partial(_kernel, is_real=True), remove=uninstall))
register(ActuatorKind("emulated", functools.partial(_kernel, is_real=False)))
