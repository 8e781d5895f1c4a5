"""The actuators that there are, by name, and which of them an agent has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foliot.settings import SettingsError
from foliot_agent.control.contained_actuator import ContainedActuator
from foliot_agent.control.kernel_backend import KernelBackend, rehearse_uninstall, uninstall
from foliot_schemas import SERVICE_ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from foliot_agent.actuators.base import Actuator
    from foliot_agent.control.action_handlers import NodeView
    from foliot_agent.kernel.dry_run import Change


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """A maker of actuators."""

    name: str
    """As `agent.actuator` names it."""
    make: Callable[[NodeView], Any]
    """Makes a `KernelBackend`, or an object with its methods; for another class of traffic an `Actuator`."""
    traffic: str = SERVICE_ADDRESSES
    remove: Callable[[], Awaitable[None]] | None = None
    """Takes away all that any run of it left on this host. It raises `ActuatorError`, or the `NetlinkError` of
    pyroute2, if the host refuses."""
    rehearse_removal: Callable[[], Awaitable[tuple[Change, ...]]] | None = None
    """The changes that `remove` would make on this host, which stays as it is."""


_kinds: dict[str, ActuatorKind] = {}


def register(kind: ActuatorKind) -> None:
    """Makes an actuator known.

    Of service addresses, the settings choose one actuator. Every other class has one, which is used.

    Raises:
        ValueError: there is another of this name, or of this class.
    """
    rivals = [each for each in _kinds.values() if each.traffic == kind.traffic != SERVICE_ADDRESSES]
    if _kinds.get(kind.name, kind) is not kind or any(each is not kind for each in rivals):
        raise ValueError(f"there is an actuator named {kind.name}, or one of {kind.traffic}, already")
    _kinds[kind.name] = kind


def backend(name: str, view: NodeView) -> KernelBackend:
    """The actuator that `agent.actuator` names.

    Raises:
        SettingsError: there is none of this name that moves service addresses.
    """
    known = {each.name: each for each in _kinds.values() if each.traffic == SERVICE_ADDRESSES}
    if name not in known:
        raise SettingsError(f"agent.actuator: {name!r} is none of {', '.join(sorted(known))}")
    made: KernelBackend = known[name].make(view)
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
        if kind.remove is not None:
            await kind.remove()


async def rehearse_removal() -> tuple[Change, ...]:
    """The changes that `remove_all` would make on this host, as it is now."""
    removals = [kind.rehearse_removal for kind in _kinds.values() if kind.rehearse_removal is not None]
    return tuple([change for rehearse in removals for change in await rehearse()])


def _overlay(view: NodeView) -> KernelBackend:
    return KernelBackend(view.layout, view.restart_cache)


register(ActuatorKind("overlay", _overlay, remove=uninstall, rehearse_removal=rehearse_uninstall))
