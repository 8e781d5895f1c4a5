"""The interface by which traffic of any other class than service addresses is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Confirmation, Node, Placement


class ActuatorError(Exception):
    """The kernel refused a change; the message says which. Changes before it stay, and `routing` has them."""


class Actuator(Protocol):
    """Moves one class of traffic that is none of service addresses: queue pairs, sockets, marks.

    A placement's `key` names what is moved, in the actuator's own words. Peer, rail, via and entropy are the way, as
    everywhere.
    """

    traffic: str
    """The class, as orders name it."""

    async def __aenter__(self) -> Self:
        """Takes what it needs of the host, and finds what an earlier run left in force."""

    async def __aexit__(self, *_: object) -> None:
        """Leaves everything in force."""

    async def join(self, peer: Node) -> None:
        """Prepares for traffic to this peer."""

    async def leave(self, peer: Node) -> None:
        """Forgets a peer: there is no traffic to it any more."""

    def check(self, placement: Placement) -> str:
        """The objection to a placement, in words; empty: none."""

    def present(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """The placements in force for the keys of these; those that have nothing in force are left out."""

    async def set_placements(self, placements: Iterable[Placement]) -> None:
        """Puts these in force.

        Raises:
            ActuatorError: the host refuses one; what was put before it stays.
        """

    async def confirm(self, placements: Iterable[Placement]) -> list[Confirmation]:
        """Confirmations of those whose traffic was seen to go the way that they say."""

    async def rehearse(self) -> tuple[Change, ...]:
        """The changes that entering it would make on this host, which stays as it is."""
