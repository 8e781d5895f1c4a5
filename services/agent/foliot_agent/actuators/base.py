"""The interface by which traffic is moved that is of any other class than service addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Confirmation, Node, Placement


class ActuatorError(Exception):
    """The kernel refused a change; the message says which. What was changed before it stays, and `routing` has it."""


class Actuator(Protocol):
    """Moves one class of traffic that is none of service addresses: queue pairs, sockets, marks.

    A placement's `key` names what is moved, in the actuator's own words; peer, rail, via and entropy are the way, as everywhere.
    """

    traffic: str
    """The class, as orders name it."""

    async def __aenter__(self) -> Self:
        """Takes what it needs of the host, and finds what an earlier run left in force."""

    async def __aexit__(self, *_: object) -> None:
        """Leaves everything in force."""

    async def join(self, peer: Node) -> None:
        """There may be traffic to this peer."""

    async def leave(self, peer: Node) -> None:
        """There is none any more."""

    def check(self, placement: Placement) -> str:
        """What speaks against a placement, in words; empty: nothing."""

    def present(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """What is in force for the keys of these; those that have nothing in force are left out."""

    async def set_placements(self, placements: Iterable[Placement]) -> None:
        """Puts these in force.

        Raises:
            ActuatorError: the host refuses one; what was put before it stays.
        """

    async def confirm(self, placements: Iterable[Placement]) -> list[Confirmation]:
        """Those whose traffic was seen to go the way that they say."""

    async def rehearse(self) -> tuple[Change, ...]:
        """What entering it would change on this host, which stays as it is."""
